package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/rueidis"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/memory"
	loccomongo "github.com/locco-go/locco/mongo"
	"github.com/locco-go/locco/postgres"
	"github.com/locco-go/locco/redis"
)

// opener makes a backend for a store at url, and what closes its client.
type opener func(ctx context.Context, url string) (backend locco.Backend, closeClient func(), err error)

// backends has a line for each store.
var backends = map[string]opener{
	"memory":   openMemory,
	"mongo":    openMongo,
	"postgres": openPostgres,
	"redis":    openRedis,
}

func backendNames() []string {
	names := make([]string, 0, len(backends))
	for name := range backends {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func openBackend(ctx context.Context, name, url string) (locco.Backend, func(), error) {
	open, known := backends[name]
	if !known {
		return nil, nil, fmt.Errorf("unknown backend %q; there are %s", name, strings.Join(backendNames(), ", "))
	}
	return open(ctx, url)
}

func openMemory(_ context.Context, url string) (locco.Backend, func(), error) {
	if url != "" {
		return nil, nil, fmt.Errorf("the backend memory has no -url, got %q", url)
	}
	return memory.New(), func() {}, nil
}

func openRedis(_ context.Context, url string) (locco.Backend, func(), error) {
	if url == "" {
		return nil, nil, errors.New("the backend redis needs -url, such as redis://127.0.0.1:6379")
	}
	option, err := rueidis.ParseURL(url)
	if err != nil {
		return nil, nil, fmt.Errorf("the -url: %w", err)
	}
	option.DisableCache = true
	client, err := rueidis.NewClient(option)
	if err != nil {
		return nil, nil, fmt.Errorf("connect to Redis: %w", err)
	}
	return redis.New(client), client.Close, nil
}

func openPostgres(ctx context.Context, url string) (locco.Backend, func(), error) {
	if url == "" {
		return nil, nil, errors.New("the backend postgres needs -url, such as postgres://user@127.0.0.1:5432/database")
	}
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, nil, fmt.Errorf("the -url: %w", err)
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, nil, err
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, nil, fmt.Errorf("connect to Postgres: %w", err)
	}
	return postgres.New(pool), pool.Close, nil
}

func openMongo(ctx context.Context, url string) (locco.Backend, func(), error) {
	if url == "" {
		return nil, nil, errors.New("the backend mongo needs -url, such as mongodb://127.0.0.1:27017")
	}
	client, err := mongo.Connect(options.Client().SetServerSelectionTimeout(5 * time.Second).ApplyURI(url))
	if err != nil {
		return nil, nil, fmt.Errorf("the -url: %w", err)
	}
	disconnect := func() { _ = client.Disconnect(context.WithoutCancel(ctx)) }
	if err := client.Ping(ctx, nil); err != nil {
		disconnect()
		return nil, nil, fmt.Errorf("connect to MongoDB: %w", err)
	}
	return loccomongo.New(client.Database("locco_demo").Collection(loccomongo.DefaultCollection)), disconnect, nil
}
