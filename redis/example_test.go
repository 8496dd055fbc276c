package redis_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/redis/rueidis"

	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/redis"
)

func buildReport(context.Context, int64) error { return nil }

func Example() {
	ctx := context.Background()
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{"127.0.0.1:6379"}})
	if err != nil {
		log.Fatal(err)
	}

	locker, err := locco.New(redis.New(client), locco.WithFencing())
	if err != nil {
		log.Fatal(err)
	}

	err = locker.WithLock(ctx, "report:2026", 30*time.Second,
		func(ctx context.Context, lock *locco.Lock) error {
			return buildReport(ctx, lock.Fence()) // ctx ends if the lock is lost
		})
	if errors.Is(err, locco.ErrHeld) {
		fmt.Println("somebody else is building the report")
	} else if err != nil {
		log.Fatal(err)
	}
}
