// Package losttest_test shows how a program tests what it does when its lock is lost.
// The README quotes it.
package losttest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/core/loccotest"
	"github.com/locco-go/locco/memory"
)

// job stands for the program's work: it looks at its context between steps.
func job(ctx context.Context) error {
	for ctx.Err() == nil {
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
	return context.Cause(ctx)
}

func TestStopsWhenTheLockIsLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		backend := loccotest.Wrap(memory.New())
		locker, err := locco.New(backend)
		if err != nil {
			t.Fatal(err)
		}
		defer locker.Close(context.Background()) // in the bubble

		// From the second extension on, the store does not answer any more.
		backend.Inject(loccotest.Fault{Op: loccotest.AnyExtend, Skip: 1, Effect: loccotest.DropRequest()})
		err = locker.WithLock(t.Context(), "job", 30*time.Second,
			func(ctx context.Context, _ *locco.Lock) error { return job(ctx) },
			locco.AutoExtend(time.Hour))
		if !errors.Is(err, locco.ErrLost) {
			t.Errorf("WithLock = %v; want %v", err, locco.ErrLost)
		}
	})
}
