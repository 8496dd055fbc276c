package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/rueidis"

	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/memory"
	"github.com/locco-go/locco/postgres"
	"github.com/locco-go/locco/redis"
)

// opener makes a backend for a store at url, and what closes its client.
type opener func(ctx context.Context, url string) (backend locco.Backend, closeClient func(), err error)

// backends has a line for each store. Nil: not part of this version yet.
var backends = map[string]opener{
	"memory":   openMemory,
	"mongo":    nil,
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
	switch {
	case !known:
		return nil, nil, fmt.Errorf("unknown backend %q; there are %s", name, strings.Join(backendNames(), ", "))
	case open == nil:
		return nil, nil, fmt.Errorf("the backend %q is not part of this version yet; try -backend=memory", name)
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
