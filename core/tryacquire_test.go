package locco_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/core/loccotest"
)

// spec 2.2, 7.1
func TestTryAcquire(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		lr := w.dial(nil, locco.WithFencing())
		l, err := lr.TryAcquire(t.Context(), "k", time.Minute)
		if err != nil {
			t.Fatalf("TryAcquire = %v; want a lock", err)
		}
		if l.Waited() != 0 || l.Attempts() != 1 || l.Fence() != 1 {
			t.Errorf("Waited, Attempts, Fence = %v, %d, %d; want 0, 1, 1", l.Waited(), l.Attempts(), l.Fence())
		}
		w.wantHolder("k", l)
		w.wantKinds(locco.EventAcquired)
		_, err = lr.TryAcquire(t.Context(), "k", time.Second) // always asks the backend
		held, ok := errors.AsType[*locco.HeldError](err)
		if want := (locco.HeldError{Key: "k", Attempts: 1}); !ok || *held != want || !errors.Is(err, locco.ErrHeld) {
			t.Errorf("TryAcquire = %#v; want %#v", err, want)
		}
		w.wantSent(loccotest.Acquire, 0, 0)
		w.wantKinds(locco.EventAcquired, locco.EventContended, locco.EventAcquireFailed)
		if got, want := w.seen(locco.EventContended)[0], (locco.Event{
			Kind: locco.EventContended, Key: "k", TTL: time.Second, Attempts: 1, Reason: locco.ReasonHeld,
		}); got != want {
			t.Errorf("event = %+v; want %+v", got, want)
		}
		if got, want := w.seen(locco.EventAcquireFailed)[0], (locco.Event{
			Kind: locco.EventAcquireFailed, Key: "k", TTL: time.Second, Attempts: 1, Err: err,
		}); got != want {
			t.Errorf("event = %+v; want %+v", got, want)
		}
	})
}

// spec 2.2, 3.1: it looks once, whatever the locker's defaults say.
func TestTryAcquireLooksOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		w.dial(nil, locco.WithDefaults(locco.RetryForever(), locco.RetryDelay(ms)))
		w.store.take("k", time.Hour)
		w.goTry(t.Context(), "k", time.Minute).fails(0, locco.ErrHeld)
		w.wantSent(loccotest.Acquire, 0)
		w.wantSent(loccotest.Watch)
	})
}

// spec 2.2: a local waiter is not overtaken, and nothing is sent to find out.
func TestTryAcquireBehindAWaiter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		w.store.noLeft = true
		lr := w.dial(w.plain())
		w.store.take("k", time.Hour)
		p := w.goAcquire(t.Context(), "k", time.Minute)
		w.sleepTo(50 * ms)
		w.store.free("k") // nobody has it, but the waiter comes first
		for range 3 {
			if _, err := lr.TryAcquire(t.Context(), "k", time.Minute); !errors.Is(err, locco.ErrHeld) {
				t.Errorf("TryAcquire = %v; want ErrHeld", err)
			}
		}
		w.wantSent(loccotest.Acquire, 0)
		l := p.lock(200 * ms)
		l.Release(t.Context())
		w.goTry(t.Context(), "k", time.Minute).lock(200 * ms) // no waiter any more
	})
}

// spec 2.2: "or what the last look of those who wait came to when that was no
// answer": nobody is known to have the key, so it is not held.
func TestTryAcquireBehindAWaiterWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		effect loccotest.Effect // of the waiter's looks
		want   error
	}{
		{"Late", loccotest.DropRequest(), locco.ErrLate},
		{"Passing", loccotest.FailRequest(errPassing), errPassing},
	} {
		eachNow(t, tc.name, func(t *testing.T, w *wire) {
			w.dial(w.plain(), locco.WithCallTimeout(100*ms))
			w.inject(loccotest.Acquire, 1, tc.effect)
			p := w.goAcquire(t.Context(), "k", time.Minute, locco.RetryDelay(time.Second))
			w.sleepTo(500 * ms)
			err := w.goTry(t.Context(), "k", time.Minute).fails(500*ms, tc.want)
			matchesNone(t, err, locco.ErrHeld, context.DeadlineExceeded)
			w.wantSent(loccotest.Acquire, 0) // it is not overtaken
			p.wait()
			w.goTry(t.Context(), "k", time.Minute).fails(w.now(), locco.ErrHeld)
		})
	}
}

// spec 2.2, 2.6: also a waiter whose first look has no answer yet.
func TestTryAcquireBehindADetachedLook(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		w.dial(nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		w.inject(loccotest.Acquire, 1, loccotest.DelayRequest(100*ms))
		p := w.goAcquire(ctx, "k", time.Minute)
		w.goTry(t.Context(), "k", time.Minute).fails(0, locco.ErrHeld)
		p.lock(100 * ms)
	})
}

// spec 2.2: TryAcquire never queues, so it does not change when waiters look.
func TestTryAcquireNeverQueues(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		lr := w.dial(w.handing())
		l := w.goAcquire(t.Context(), "k", time.Minute).lock(0)
		w.inject(loccotest.Acquire, 1, loccotest.DelayAnswer(100*ms))
		try := w.goTry(t.Context(), "k", time.Minute)
		l.Release(t.Context()) // nobody to hand it over to
		w.wantSent(loccotest.Transfer)
		w.wantHolder("k", nil)
		try.fails(100*ms, locco.ErrHeld)
		if n := locco.Rooms(lr); n != 0 {
			t.Errorf("the locker has state for %d keys; want none", n)
		}
	})
}

// A lock taken by TryAcquire is one like any other: waiters queue behind it
// without a command, and get it handed over.
//
// spec 3.5, 3.6
func TestTryAcquireThenWaiters(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		w.dial(w.handing())
		l := w.goTry(t.Context(), "k", time.Minute).lock(0)
		p := w.goAcquire(t.Context(), "k", time.Minute)
		w.sleepTo(50 * ms)
		l.Release(t.Context())
		p.lock(50 * ms)
		w.wantSent(loccotest.Acquire, 0)
		w.wantSent(loccotest.Transfer, 50*ms)
	})
}

// spec 2.2, 2.6, 1.6: what a context that ends does to a TryAcquire.
func TestTryAcquireCanceled(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name     string
		effect   loccotest.Effect
		held     bool // by somebody else
		detached bool
		released bool // the token
		at       time.Duration
	}{
		{"InlineGranted", loccotest.DelayAnswer(100 * ms), false, false, true, 100 * ms},
		{"InlineHeld", loccotest.DelayAnswer(100 * ms), true, false, false, 100 * ms},
		{"InlineLost", loccotest.DropAnswer(), false, false, true, time.Second},
		{"DetachedGranted", loccotest.DelayAnswer(100 * ms), false, true, true, 50 * ms},
		{"DetachedHeld", loccotest.DelayAnswer(100 * ms), true, true, false, 50 * ms},
		{"DetachedLost", loccotest.DropAnswer(), false, true, true, 50 * ms},
		{"DetachedLate", loccotest.LateAnswer(time.Minute), false, true, true, 50 * ms},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWire(t)
				w.dial(nil, locco.WithCallTimeout(time.Second))
				if tc.held {
					w.store.take("k", time.Hour)
				}
				errCause := errors.New("the caller's cause")
				ctx, cancel := context.WithCancelCause(t.Context())
				if tc.detached {
					var stop context.CancelFunc
					ctx, stop = context.WithTimeout(ctx, 500*ms)
					defer stop()
				}
				time.AfterFunc(50*ms, func() { cancel(errCause) })
				w.inject(loccotest.Acquire, 1, tc.effect)
				err := w.goTry(ctx, "k", time.Minute).fails(tc.at, context.Canceled, errCause)
				// Its one look did not wait for anybody.
				matchesNone(t, err, locco.ErrHeld, locco.ErrLate, context.DeadlineExceeded)
				w.sleepTo(2 * time.Minute)
				if tc.released {
					w.wantReleased(w.sent(loccotest.Acquire)[0].token)
					w.wantHolder("k", nil)
					if n := len(w.seen(locco.EventGivenBack)); n != 1 {
						t.Errorf("%d events of giving back; want 1", n)
					}
				} else {
					w.wantSent(loccotest.Release)
				}
				if n := len(w.seen(locco.EventAcquireFailed)); n != 1 {
					t.Errorf("%d events of a failed acquire; want 1", n)
				}
				if n := len(w.seen(locco.EventAcquired)); n != 0 {
					t.Errorf("%d acquired events; want 0", n)
				}
			})
		})
	}
}

// spec 2.6: the context wins, also when it ends exactly when the key is granted.
func TestTryAcquireCanceledWhenGranted(t *testing.T) {
	t.Parallel()
	for _, timeout := range []time.Duration{time.Hour, time.Second} { // inline, detached
		synctest.Test(t, func(t *testing.T) {
			w := newWire(t)
			w.dial(nil)
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			w.store.onGrant = func(string, string) { cancel() }
			w.goTry(ctx, "k", time.Minute).fails(0, context.Canceled)
			synctest.Wait()
			w.wantHolder("k", nil)
			w.wantReleased(w.sent(loccotest.Acquire)[0].token)
			failed, back := len(w.seen(locco.EventAcquireFailed)), len(w.seen(locco.EventGivenBack))
			if acquired := len(w.seen(locco.EventAcquired)); failed != 1 || back != 1 || acquired != 0 {
				t.Errorf("%d failed, %d given back, %d acquired events; want 1, 1, 0", failed, back, acquired)
			}
		})
	}
}

// A waiter that came while a given up TryAcquire had the key gets it when it is
// given back.
//
// spec 2.6, 3.5
func TestTryAcquireGivenBackWakesWaiters(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		w.store.noLeft = true
		w.dial(w.plain())
		ctx, cancel := context.WithTimeout(t.Context(), 50*ms)
		defer cancel()
		w.inject(loccotest.Acquire, 1, loccotest.DelayAnswer(60*ms))
		try := w.goTry(ctx, "k", time.Minute)
		p := w.goAcquire(t.Context(), "k", time.Minute)
		try.fails(50*ms, context.DeadlineExceeded)
		p.lock(60 * ms) // not its own delay later
	})
}

// spec 2.2: TryWithLock tells "did not run" apart from the callback's own errors.
func TestTryWithLock(t *testing.T) {
	t.Parallel()
	errOwn := errors.New("the callback's own")
	for _, tc := range []struct {
		name   string
		before func(w *wire)
		result func(lr *locco.Locker) error // of the callback
		ran    bool
		want   error // nil: none
	}{
		{"Runs", func(*wire) {}, func(*locco.Locker) error { return nil }, true, nil},
		{"Held", func(w *wire) { w.store.take("k", time.Hour) }, nil, false, locco.ErrHeld},
		{"Late", func(w *wire) { w.inject(loccotest.Acquire, 1, loccotest.DropRequest()) }, nil, false, locco.ErrLate},
		{"Broken", func(w *wire) {
			w.inject(loccotest.Acquire, 1, loccotest.FailRequest(errBroken))
		}, nil, false, errBroken},
		{"OwnError", func(*wire) {}, func(*locco.Locker) error { return errOwn }, true, errOwn},
		{"MeetsErrHeldItself", func(w *wire) { w.store.take("other", time.Hour) }, func(lr *locco.Locker) error {
			_, err := lr.TryAcquire(context.Background(), "other", time.Minute)
			return err
		}, true, locco.ErrHeld},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWire(t)
				lr := w.dial(nil)
				tc.before(w)
				called := false
				ran, err := lr.TryWithLock(t.Context(), "k", time.Minute, func(_ context.Context, l *locco.Lock) error {
					called = true
					w.wantHolder("k", l)
					return tc.result(lr)
				})
				if ran != tc.ran || called != tc.ran || !errors.Is(err, tc.want) {
					t.Errorf("TryWithLock = %v, %v with the callback called: %v; want %v, %v", ran, err, called, tc.ran, tc.want)
				}
				synctest.Wait()
				if tc.name != "Held" {
					w.wantHolder("k", nil)
				}
			})
		})
	}
}

// spec 2.2
func TestTryAcquireTakesNoRetryOptions(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]locco.CallOption{
		"Retries":      locco.Retries(1),
		"RetryForever": locco.RetryForever(),
		"RetryDelay":   locco.RetryDelay(0),
		"RetryBackoff": locco.RetryBackoff(locco.ConstantBackoff(0)),
		"RetryTimeout": locco.RetryTimeout(time.Second),
	} {
		if _, ok := o.(locco.HoldOption); ok {
			t.Errorf("%s is a HoldOption; want it to be refused by the compiler", name)
		}
	}
}
