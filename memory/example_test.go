package memory_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/memory"
)

func Example() {
	ctx := context.Background()
	locker, err := locco.New(memory.New())
	if err != nil {
		log.Fatal(err)
	}

	err = locker.WithLock(ctx, "report:2026", 30*time.Second,
		func(ctx context.Context, lock *locco.Lock) error {
			fmt.Println("building the report") // nobody else does; ctx ends if the lock is lost
			return nil
		})
	if errors.Is(err, locco.ErrHeld) {
		fmt.Println("somebody else is building the report")
	} else if err != nil {
		log.Fatal(err)
	}
	// Output: building the report
}

// A test can play another holder by asking the backend directly.
func ExampleBackend_Acquire() {
	ctx := context.Background()
	backend := memory.New()
	locker, err := locco.New(backend)
	if err != nil {
		log.Fatal(err)
	}

	other := locco.Lease{Key: "nightly-report", Token: "other", TTL: time.Minute}
	if _, err := backend.Acquire(ctx, other); err != nil {
		log.Fatal(err)
	}
	_, err = locker.TryAcquire(ctx, "nightly-report", time.Minute)
	fmt.Println("held by another:", errors.Is(err, locco.ErrHeld))

	if _, err := backend.Release(ctx, other.Key, other.Token); err != nil {
		log.Fatal(err)
	}
	lock, err := locker.TryAcquire(ctx, "nightly-report", time.Minute)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("now ours:", lock.Key())
	if err := lock.Release(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// held by another: true
	// now ours: nightly-report
}

// Clear takes every lock away, as the restart of a server that stores nothing
// would. A fencing token that is drawn later is larger all the same.
func ExampleBackend_Clear() {
	ctx := context.Background()
	backend := memory.New()
	locker, err := locco.New(backend, locco.WithFencing())
	if err != nil {
		log.Fatal(err)
	}
	first, err := locker.Acquire(ctx, "account:1", time.Minute)
	if err != nil {
		log.Fatal(err)
	}
	backend.Clear()
	fmt.Println("lost:", errors.Is(first.Release(ctx), locco.ErrLost))

	second, err := locker.Acquire(ctx, "account:1", time.Minute)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("larger fence:", second.Fence() > first.Fence())
	if err := second.Release(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// lost: true
	// larger fence: true
}
