package locco_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/core/loccotest"
)

// What TestSimulation found, each reduced to its interleaving.

// A waiter that has left wins the key after all, between the moment at which the
// store freed it for the present holder of the same locker and the moment at
// which that holder hears of it. Who comes next must not wait for a look that is
// long over.
//
// spec 2.6, 3.5
func TestLateGrantBesideAHolder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		backend := loccotest.Wrap(store)
		backend.Inject(loccotest.Fault{Op: loccotest.Acquire, Times: 1, Effect: loccotest.DelayRequest(500 * time.Millisecond)})
		backend.Inject(loccotest.Fault{Op: loccotest.Release, Times: 1, Effect: loccotest.DelayAnswer(300 * time.Millisecond)})
		locker := newLocker(t, backend)

		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if _, err := locker.Acquire(ctx, "k", time.Minute); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("Acquire = %v; want its context's error", err)
		}
		time.Sleep(100 * time.Millisecond) // 200 ms
		holder, err := locker.TryAcquire(t.Context(), "k", time.Minute)
		if err != nil {
			t.Fatalf("TryAcquire = %v; want nil", err)
		}
		time.Sleep(200 * time.Millisecond) // 400 ms: freed now, the answer comes at 700 ms
		if err := holder.Release(t.Context()); err != nil {
			t.Fatalf("Release = %v; want nil", err)
		}
		synctest.Wait()
		if token := store.holder("k"); token != "" {
			t.Errorf("%q has the key; want nobody", token)
		}

		ctx, cancel = context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		began := time.Now()
		if _, err = locker.Acquire(ctx, "k", time.Minute, locco.RetryForever()); err != nil {
			t.Fatalf("Acquire of a free key = %v after %v; want nil", err, time.Since(began))
		}
	})
}

// The wait for the rest of a set ends when a lock of it ends. That is not the
// end of the caller's context.
//
// spec 2.5, 7.2
func TestAcquireManyWhenOneIsReleased(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		store.take("b", time.Minute)
		locker := newLocker(t, store)
		time.AfterFunc(time.Second, func() {
			for _, lock := range locker.Held() {
				_ = lock.Release(context.Background())
			}
		})
		_, err := locker.AcquireMany(t.Context(), []string{"a", "b"}, time.Second, locco.RetryForever())
		if !errors.Is(err, locco.ErrReleased) || errors.Is(err, context.Canceled) {
			t.Errorf("AcquireMany = %v; want ErrReleased and no context's error", err)
		}
	})
}

// Close does not wait for a call that runs on its caller's goroutine. What that
// call may have stored is given back before it returns: afterwards nobody waits
// for it.
//
// spec 5.6
func TestAcquireThatOutlivesClose(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		call func(*locco.Locker) error
	}{
		{"Acquire", func(locker *locco.Locker) error {
			_, err := locker.Acquire(context.Background(), "k", time.Minute)
			return err
		}},
		{"TryAcquire", func(locker *locco.Locker) error {
			_, err := locker.TryAcquire(context.Background(), "k", time.Minute)
			return err
		}},
		{"AcquireMany", func(locker *locco.Locker) error {
			_, err := locker.AcquireMany(context.Background(), []string{"j", "k"}, time.Minute)
			return err
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := newStore()
				backend := loccotest.Wrap(store)
				backend.Inject(loccotest.Fault{Op: loccotest.AnyAcquire, Times: 1, Effect: loccotest.DropAnswer()})
				backend.Inject(loccotest.Fault{Op: loccotest.Release, Effect: loccotest.DelayRequest(time.Second)})
				locker := newLocker(t, backend)
				time.AfterFunc(time.Second, func() { _ = locker.Close(context.Background()) })
				if err := tc.call(locker); err == nil {
					t.Error("the call = nil; want an error")
				}
				for _, key := range []string{"j", "k"} {
					if token := store.holder(key); token != "" {
						t.Errorf("%q has %q when the call has returned; want nobody", token, key)
					}
				}
			})
		})
	}
}

// Giving back what waiters may have stored does not hold up a Close whose
// context has ended.
//
// spec 5.6
func TestCloseDoesNotWaitForGiveBacksPastItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		store.take("k", time.Hour)
		backend := loccotest.Wrap(store)
		backend.Inject(loccotest.Fault{Op: loccotest.Acquire, Times: 1, Effect: loccotest.DropRequest()})
		backend.Inject(loccotest.Fault{Op: loccotest.Release, Effect: loccotest.DropRequest()})
		locker := newLocker(t, backend, locco.WithCallTimeout(time.Second))
		go func() { _, _ = locker.Acquire(t.Context(), "k", time.Minute, locco.RetryForever()) }()
		time.Sleep(5 * time.Second)

		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		began := time.Now()
		err := locker.Close(ctx)
		if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took != 100*time.Millisecond {
			t.Errorf("Close = %v after %v; want its context's error after 100ms", err, took)
		}
	})
}

// The clock is the user's function: no mutex of a lock is held while it runs.
//
// spec 1.5
func TestClockMayLookAtTheLock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var held atomic.Pointer[locco.Lock]
		began := time.Now()
		locker := newLocker(t, newStore(), locco.WithClock(func() time.Duration {
			held.Load().TTL()
			return time.Since(began)
		}))
		lock, err := locker.Acquire(t.Context(), "k", time.Minute, locco.AutoExtend(time.Hour))
		if err != nil {
			t.Fatalf("Acquire = %v; want nil", err)
		}
		held.Store(lock)
		time.Sleep(2 * time.Minute) // heartbeats
		for _, step := range []struct {
			name string
			call func() error
		}{
			{"Extend", func() error { return lock.Extend(t.Context(), time.Minute) }},
			{"Check", func() error { return lock.Check(t.Context()) }},
			{"Err", lock.Err},
			{"Release", func() error { return lock.Release(t.Context()) }},
		} {
			if err := step.call(); err != nil {
				t.Errorf("%s = %v; want nil", step.name, err)
			}
		}
	})
}
