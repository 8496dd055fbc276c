package loccotest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/core/loccotest"
)

// engine runs fn in a bubble with a locker on a wrapped backend.
func engine(t *testing.T, fn func(t *testing.T, b *loccotest.Backend, locker *locco.Locker)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		t.Helper()
		b := loccotest.Wrap(memory.New())
		locker, err := locco.New(b)
		if err != nil {
			t.Fatalf("New = %v; want no error", err)
		}
		fn(t, b, locker)
		b.Clear()
		if err := locker.Close(t.Context()); err != nil {
			t.Errorf("Close = %v; want no error", err)
		}
	})
}

// keep takes "k" for ttl with a heartbeat.
func keep(t *testing.T, locker *locco.Locker) *locco.Lock {
	t.Helper()
	lock, err := locker.Acquire(t.Context(), "k", ttl, locco.AutoExtend(time.Hour))
	if err != nil {
		t.Fatalf("Acquire = %v; want a lock", err)
	}
	return lock
}

// lost waits for the loss of a lock.
func lost(t *testing.T, lock *locco.Lock, want locco.Reason) {
	t.Helper()
	<-lock.Lost()
	if got := lock.Reason(); got != want {
		t.Errorf("Reason() = %q; want %q", got, want)
	}
	lock.Release(t.Context())
}

// spec 4.5: the heartbeat finds the key not ours.
func TestLockerIsRobbed(t *testing.T) {
	t.Parallel()
	engine(t, func(t *testing.T, b *loccotest.Backend, locker *locco.Locker) {
		lock := keep(t, locker)
		steal(t, t.Context(), b, "k")
		start := time.Now()
		lost(t, lock, locco.ReasonExtend)
		wantTook(t, start, ttl/3)
	})
}

// spec 5.3: behind a server that went silent, the holder knows before the key
// can be granted to anyone else.
func TestLockerBehindASilentServer(t *testing.T) {
	t.Parallel()
	for name, effect := range map[string]loccotest.Effect{
		"DropRequest": loccotest.DropRequest(),
		"LateAnswer":  loccotest.LateAnswer(2 * ttl),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			engine(t, func(t *testing.T, b *loccotest.Backend, locker *locco.Locker) {
				lock := keep(t, locker)
				inject(b, loccotest.AnyExtend, effect)
				start := time.Now()
				<-lock.Lost()
				if took := time.Since(start); took >= ttl || took < ttl-ttl/50 {
					t.Errorf("the loss was known after %v; want it shortly before %v", took, ttl)
				}
				lock.Release(t.Context())
			})
		})
	}
}

// spec 3.7: an error that passes by itself is tried again, any other is returned
// as it is.
func TestLockerMeetsAnError(t *testing.T) {
	t.Parallel()
	engine(t, func(t *testing.T, b *loccotest.Backend, locker *locco.Locker) {
		b.Inject(loccotest.Fault{Op: loccotest.Acquire, Times: 1, Effect: loccotest.FailRequest(loccotest.Transient(errDriver))})
		lock, err := locker.Acquire(t.Context(), "k", ttl)
		if err != nil {
			t.Errorf("Acquire = %v; want a lock", err)
		}
		lock.Release(t.Context())
		inject(b, loccotest.Acquire, loccotest.FailRequest(errDriver))
		if _, err := locker.Acquire(t.Context(), "k", ttl); !errors.Is(err, errDriver) {
			t.Errorf("Acquire = %v; want %v", err, errDriver)
		}
	})
}

// spec 2.2: one look whose answer comes too late is not reported as held, and
// what it stored is given back.
func TestLockerHasALateAnswer(t *testing.T) {
	t.Parallel()
	engine(t, func(t *testing.T, b *loccotest.Backend, locker *locco.Locker) {
		b.Inject(loccotest.Fault{Op: loccotest.Acquire, Times: 1, Effect: loccotest.LateAnswer(2 * time.Second)})
		_, err := locker.TryAcquire(t.Context(), "k", time.Second)
		if !errors.Is(err, locco.ErrLate) || errors.Is(err, locco.ErrHeld) {
			t.Errorf("TryAcquire = %v; want %v", err, locco.ErrLate)
		}
		synctest.Wait()
		if got := b.Calls(loccotest.Release); got != 1 {
			t.Errorf("Calls(Release) = %d; want 1, which gives the key back", got)
		}
	})
}

// spec 3.4: a wake-up cuts the wait short, and a lost one costs the delay.
func TestLockerWaits(t *testing.T) {
	t.Parallel()
	const delay = 10 * time.Second
	for _, tc := range []struct {
		name string
		lose bool
		took time.Duration
	}{
		{"Woken", false, time.Second},
		{"NotWoken", true, delay},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			engine(t, func(t *testing.T, b *loccotest.Backend, locker *locco.Locker) {
				grant(t, b, lease("k", "another process"))
				if tc.lose {
					b.LoseWakeups("k", 0)
				}
				time.AfterFunc(time.Second, func() { b.Release(context.Background(), "k", "another process") })
				start := time.Now()
				lock, err := locker.Acquire(t.Context(), "k", ttl, locco.RetryDelay(delay))
				if err != nil {
					t.Fatalf("Acquire = %v; want a lock", err)
				}
				wantTook(t, start, tc.took)
				lock.Release(t.Context())
			})
		})
	}
}
