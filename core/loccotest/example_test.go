package loccotest_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/core/loccotest"
)

// memory stands for the package of that name, which core does not import.
var memory = struct{ New func() locco.Backend }{func() locco.Backend { return &inMemory{} }}

// inMemory is full, but well.
type inMemory struct{ full }

func (*inMemory) Validate() error { return nil }

// What does a job do when its lock is lost?
func Example() {
	ctx := context.Background()
	backend := loccotest.Wrap(memory.New())
	locker, err := locco.New(backend)
	if err != nil {
		log.Fatal(err)
	}

	err = locker.WithLock(ctx, "nightly-report", time.Minute, func(ctx context.Context, lock *locco.Lock) error {
		if err := backend.Steal(ctx, lock.Key(), time.Minute); err != nil {
			log.Fatal(err)
		}
		return lock.Extend(ctx, time.Minute) // the job to be tested would be here
	})
	fmt.Println("the lock was lost:", errors.Is(err, locco.ErrLost))
	// Output: the lock was lost: true
}

// The server frees the key, but its answer is lost on the way.
func ExampleBackend_Inject() {
	ctx := context.Background()
	backend := loccotest.Wrap(memory.New())
	locker, err := locco.New(backend)
	if err != nil {
		log.Fatal(err)
	}
	lock, err := locker.Acquire(ctx, "order:42", time.Minute)
	if err != nil {
		log.Fatal(err)
	}

	backend.Inject(loccotest.Fault{
		Op:     loccotest.Release,
		Times:  1,
		Effect: loccotest.FailAnswer(errors.New("connection reset")),
	})
	fmt.Println(lock.Release(ctx))
	fmt.Println(lock.Release(ctx))
	fmt.Println(backend.Calls(loccotest.Release), "calls")
	// Output:
	// connection reset
	// <nil>
	// 2 calls
}
