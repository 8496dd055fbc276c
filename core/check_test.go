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

// spec 5.8: a check marks a held lock lost when the answer is no.
func TestCheck(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, tc := range []struct {
		name   string
		before func(t *testing.T, b *loccotest.Backend, lock *locco.Lock)
		want   error
		state  locco.State
		events string
	}{
		{
			"Ours",
			func(*testing.T, *loccotest.Backend, *locco.Lock) {},
			nil, locco.StateHeld, "acquired",
		},
		{
			"Stolen",
			func(_ *testing.T, b *loccotest.Backend, _ *locco.Lock) { b.Steal(ctx, "k", time.Minute) },
			locco.ErrLost, locco.StateLost, "acquired, lost observed",
		},
		{
			"Gone",
			func(_ *testing.T, b *loccotest.Backend, _ *locco.Lock) { b.Free(ctx, "k") },
			locco.ErrLost, locco.StateLost, "acquired, lost observed",
		},
		{
			"DriverError",
			func(_ *testing.T, b *loccotest.Backend, _ *locco.Lock) {
				b.Inject(loccotest.Fault{Op: loccotest.Holds, Effect: loccotest.FailRequest(errBroken)})
			},
			errBroken, locco.StateHeld, "acquired",
		},
		{
			"NoAnswer",
			func(_ *testing.T, b *loccotest.Backend, _ *locco.Lock) {
				b.Inject(loccotest.Fault{Op: loccotest.Holds, Effect: loccotest.DropAnswer()})
			},
			locco.ErrLate, locco.StateHeld, "acquired",
		},
		{
			"Released",
			func(_ *testing.T, _ *loccotest.Backend, lock *locco.Lock) { lock.Release(ctx) },
			locco.ErrReleased, locco.StateReleased, "acquired, released freed",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := loccotest.Wrap(newStore())
				h := &hookLog{}
				locker := holdingLocker(t, b, locco.WithEvents(h.hook))
				lock := hold(t, locker, "k", time.Minute)
				bound := lock.Bind(ctx)
				tc.before(t, b, lock)
				if err := lock.Check(ctx); !errors.Is(err, tc.want) {
					t.Errorf("Check = %v; want %v", err, tc.want)
				}
				wantState(t, lock, tc.state)
				wantEvents(t, h, "k", tc.events)
				if ended := bound.Err() != nil; ended != (tc.state != locco.StateHeld) {
					t.Errorf("bound context ended = %v; want %v", ended, !ended)
				}
				if tc.state == locco.StateLost {
					wantLost(t, lock, locco.ReasonObserved, nil)
					wantLostError(t, context.Cause(bound), "k", locco.ReasonObserved, nil)
				}
			})
		})
	}
}

// spec 7.2: a timeout of ours never looks like the caller's.
func TestCheckTimeoutIsOurs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := loccotest.Wrap(newStore())
		locker := holdingLocker(t, b)
		lock := hold(t, locker, "k", time.Minute)
		b.Inject(loccotest.Fault{Op: loccotest.Holds, Effect: loccotest.DropRequest()})
		begin := time.Now()
		err := lock.Check(context.Background())
		if took := time.Since(begin); took != 3*time.Second {
			t.Errorf("Check took %v; want the call timeout, 3s", took)
		}
		if !errors.Is(err, locco.ErrLate) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
			t.Errorf("Check = %v; want ErrLate that matches no context error", err)
		}
	})
}

// spec 5.8, 2.6: the caller's context ends the call; the answer is still taken
// in.
func TestCheckWhenItsContextEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := loccotest.Wrap(newStore())
		locker := holdingLocker(t, b)
		lock := hold(t, locker, "k", time.Minute)
		ended, cancel := context.WithCancelCause(context.Background())
		cancel(errBroken)
		if err := lock.Check(ended); !errors.Is(err, context.Canceled) || !errors.Is(err, errBroken) {
			t.Errorf("Check with an ended context = %v; want its error and cause", err)
		}
		if n := b.Calls(loccotest.Holds); n != 0 {
			t.Errorf("checks sent = %d; want 0", n)
		}
		b.Steal(context.Background(), "k", time.Minute)
		b.Inject(loccotest.Fault{Op: loccotest.Holds, Effect: loccotest.DelayAnswer(2 * time.Second)})
		ctx, cancel2 := context.WithTimeout(context.Background(), time.Second)
		defer cancel2()
		begin := time.Now()
		if err := lock.Check(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Check = %v; want DeadlineExceeded", err)
		}
		if took := time.Since(begin); took != time.Second {
			t.Errorf("Check took %v; want 1s, the caller's", took)
		}
		wantState(t, lock, locco.StateHeld)
		elapse(time.Second)
		wantLost(t, lock, locco.ReasonObserved, nil)
	})
}

// spec 5.8, 5.4: a check whose answer comes after Release was called changes
// nothing.
func TestCheckOvertakenByRelease(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		effect loccotest.Effect
	}{
		{"NotOurs", loccotest.DelayRequest(time.Second)},
		{"Ours", loccotest.DelayAnswer(time.Second)},
		{"NoAnswer", loccotest.DropRequest()},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := loccotest.Wrap(newStore())
				h := &hookLog{}
				locker := holdingLocker(t, b, locco.WithEvents(h.hook))
				lock := hold(t, locker, "k", time.Minute)
				b.Inject(loccotest.Fault{Op: loccotest.Holds, Effect: tc.effect})
				check := later(func() error { return lock.Check(context.Background()) })
				synctest.Wait()
				if err := lock.Release(context.Background()); err != nil {
					t.Errorf("Release = %v; want nil", err)
				}
				elapse(3 * time.Second)
				if err, _, done := check(); !done || !errors.Is(err, locco.ErrReleased) {
					t.Errorf("Check = %v, done %v; want ErrReleased", err, done)
				}
				wantState(t, lock, locco.StateReleased)
				if got := lock.Reason(); got != "" {
					t.Errorf("Reason = %q; want none", got)
				}
				wantEvents(t, h, "k", "acquired, released freed")
			})
		})
	}
}

// spec 5.3: from the local deadline on the lock is lost, whatever the driver
// does: a check that failed meanwhile says so too.
func TestCheckOvertakenByTheLeaseEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := loccotest.Wrap(newStore())
		h := &hookLog{}
		locker := holdingLocker(t, b, locco.WithEvents(h.hook))
		lock := hold(t, locker, "k", 2*time.Second)
		b.Inject(loccotest.Fault{Op: loccotest.Holds, Effect: loccotest.DropRequest()})
		if err := lock.Check(context.Background()); !errors.Is(err, locco.ErrLost) {
			t.Errorf("Check = %v; want ErrLost: the lease ended before its answer", err)
		}
		wantLost(t, lock, locco.ReasonExpired, nil)
		wantEvents(t, h, "k", "acquired, lost expired")
	})
}
