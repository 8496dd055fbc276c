package locco_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	locco "github.com/locco-go/locco/core"
)

// A lock in a log line tells its key and state, never its token: that is the
// right to the key.
//
// spec 1.1, 5.2
func TestTextHidesTheToken(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	locker := newLocker(t, immediateStore(), locco.WithFencing(), locco.WithTokenFunc(func() string { return "secret" }))
	lock, err := locker.Acquire(ctx, "a\nkey", time.Minute)
	if err != nil {
		t.Fatalf("Acquire: %v", err)
	}
	set, err := locker.AcquireMany(ctx, []string{"b", "c"}, time.Minute)
	if err != nil {
		t.Fatalf("AcquireMany: %v", err)
	}
	check := func(what string, v any, want string) {
		t.Helper()
		for _, format := range []string{"%v", "%s", "%+v"} {
			if got := fmt.Sprintf(format, v); got != want || strings.Contains(got, "secret") {
				t.Errorf("%s by %s = %s; want %s", what, format, got, want)
			}
		}
	}
	check("a held lock", lock, `locco.Lock("a\nkey", held)`)
	check("a set", set, `locco.LockSet[locco.Lock("b", held) locco.Lock("c", held)]`)
	handle, err := lock.Detach()
	if err != nil {
		t.Fatalf("Detach: %v", err)
	}
	check("a detached lock", lock, `locco.Lock("a\nkey", released)`)
	check("a handle", handle, fmt.Sprintf(`locco.Handle("a\nkey", fence %d)`, handle.Fence))
	set.Release(ctx)
	check("a released set", set, `locco.LockSet[locco.Lock("b", released) locco.Lock("c", released)]`)
	check("a nil Lock", (*locco.Lock)(nil), "locco.Lock(nil)")
	check("a nil LockSet", (*locco.LockSet)(nil), "locco.LockSet(nil)")
}

// The driver's error behind a timeout of ours keeps its words.
//
// spec 7.2
func TestTextOfACause(t *testing.T) {
	t.Parallel()
	late := &locco.LateError{Key: "k", Err: fmt.Errorf("driver: %w", context.DeadlineExceeded)}
	if got, want := fmt.Sprint(errors.Unwrap(late)), "driver: context deadline exceeded"; got != want {
		t.Errorf("Unwrap = %s; want %s", got, want)
	}
}

// The error of a callback comes first, then what became of its lock.
//
// spec 2.3, 7.2
func TestTextOfACallback(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		err := newLocker(t, newStore()).WithLock(context.Background(), "k", time.Second, func(context.Context, *locco.Lock) error {
			time.Sleep(2 * time.Second)
			return errBroken
		})
		if got, want := fmt.Sprint(err), `driver: broken (locco: lock "k" lost (expired))`; got != want {
			t.Errorf("WithLock = %s; want %s", got, want)
		}
	})
}
