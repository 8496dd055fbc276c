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

// spec 1.5, 5.3: every read checks the clock, so a lock whose timer has not fired
// yet reads lost.
func TestEveryReadChecksTheClock(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	lostErr := func(t *testing.T, what string, err error) {
		t.Helper()
		if !errors.Is(err, locco.ErrLost) {
			t.Errorf("%s = %v; want ErrLost", what, err)
		}
	}
	for _, tc := range []struct {
		name string
		read func(t *testing.T, locker *locco.Locker, lock *locco.Lock)
	}{
		{"State", func(t *testing.T, _ *locco.Locker, lock *locco.Lock) {
			if got := lock.State(); got != locco.StateLost {
				t.Errorf("State = %v; want lost", got)
			}
		}},
		{"Err", func(t *testing.T, _ *locco.Locker, lock *locco.Lock) { lostErr(t, "Err", lock.Err()) }},
		{"Reason", func(t *testing.T, _ *locco.Locker, lock *locco.Lock) {
			if got := lock.Reason(); got != locco.ReasonExpired {
				t.Errorf("Reason = %q; want expired", got)
			}
		}},
		{"Remaining", func(t *testing.T, _ *locco.Locker, lock *locco.Lock) {
			if got := lock.Remaining(); got != 0 {
				t.Errorf("Remaining = %v; want 0", got)
			}
		}},
		{"HeldFor", func(t *testing.T, _ *locco.Locker, lock *locco.Lock) {
			if got := lock.HeldFor(); got != 9900*time.Millisecond {
				t.Errorf("HeldFor = %v; want 9.9s", got)
			}
		}},
		{"Lost", func(t *testing.T, _ *locco.Locker, lock *locco.Lock) {
			if !isClosed(lock.Lost()) {
				t.Error("Lost is open; want it closed")
			}
		}},
		{"Bind", func(t *testing.T, _ *locco.Locker, lock *locco.Lock) {
			bound := lock.Bind(ctx)
			if bound.Err() == nil {
				t.Error("Err of a bound context = nil; want it ended")
			}
			lostErr(t, "Cause of a bound context", context.Cause(bound))
		}},
		{"Extend", func(t *testing.T, _ *locco.Locker, lock *locco.Lock) {
			lostErr(t, "Extend", lock.Extend(ctx, 10*time.Second))
		}},
		{"Check", func(t *testing.T, _ *locco.Locker, lock *locco.Lock) { lostErr(t, "Check", lock.Check(ctx)) }},
		{"Detach", func(t *testing.T, _ *locco.Locker, lock *locco.Lock) {
			_, err := lock.Detach()
			lostErr(t, "Detach", err)
		}},
		{"Held", func(t *testing.T, locker *locco.Locker, _ *locco.Lock) {
			if got := locker.Held(); len(got) != 0 {
				t.Errorf("Held = %d locks; want none", len(got))
			}
		}},
		{"Release", func(t *testing.T, _ *locco.Locker, lock *locco.Lock) { lostErr(t, "Release", lock.Release(ctx)) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := loccotest.Wrap(newStore())
				clock := newJumpClock()
				h := &hookLog{}
				locker := holdingLocker(t, b, locco.WithClock(clock.now), locco.WithEvents(h.hook))
				lock := hold(t, locker, "k", 10*time.Second)
				clock.jump(3 * time.Hour) // and no time for any timer
				tc.read(t, locker, lock)
				if n := b.Calls(loccotest.AnyExtend | loccotest.Holds); n != 0 {
					t.Errorf("extensions and checks sent = %d; want none for a lease that is over", n)
				}
				if lock.State() == locco.StateHeld {
					t.Error("State = held; want the loss to stay")
				}
				wantEvents(t, h, "k", "acquired, lost expired")
			})
		})
	}
}

// spec 1.5, 5.3: timers stand still during a pause, so the clock is looked at
// every second while locks are held.
func TestPauseIsNoticedWithinASecond(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		opts []locco.CallOption
		want locco.Reason
	}{
		{"NotExtended", nil, locco.ReasonExpired},
		{"Extended", []locco.CallOption{locco.AutoExtend(24 * time.Hour)}, locco.ReasonExpired},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := loccotest.Wrap(newStore())
				clock := newJumpClock()
				h := &hookLog{}
				locker := holdingLocker(t, b, locco.WithClock(clock.now), locco.WithEvents(h.hook))
				lock := hold(t, locker, "k", time.Hour, tc.opts...)
				lost, bound := lock.Lost(), lock.Bind(context.Background())
				elapse(10*time.Minute + 300*time.Millisecond)
				sent := b.Calls(loccotest.AnyExtend)
				clock.jump(3 * time.Hour)
				elapse(time.Second) // nobody reads the state: only the keeper can see it
				if !isClosed(lost) {
					t.Error("Lost is open a second after the pause; want it closed")
				}
				if bound.Err() == nil {
					t.Error("the bound context goes on a second after the pause; want it ended")
				}
				wantLostError(t, context.Cause(bound), "k", tc.want, nil)
				if n := b.Calls(loccotest.AnyExtend); n != sent {
					t.Errorf("extensions sent after the pause = %d; want none for a lost lock", n-sent)
				}
				if ev := h.last(locco.EventLost); ev.Reason != tc.want {
					t.Errorf("lost event reason = %q; want %q", ev.Reason, tc.want)
				}
				if n := locco.KeptLocks(locker); n != 0 {
					t.Errorf("locks kept after the loss = %d; want 0", n)
				}
			})
		})
	}
}

// spec 1.5, 4.2: a pause shorter than the lease makes the heartbeat overdue, not
// the lock lost.
func TestShortPauseExtendsWithinASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := loccotest.Wrap(newStore())
		calls := logCalls(b)
		clock := newJumpClock()
		locker := holdingLocker(t, b, locco.WithClock(clock.now))
		lock := hold(t, locker, "k", 30*time.Minute, locco.AutoExtend(24*time.Hour))
		elapse(time.Minute + 500*time.Millisecond)
		clock.jump(12 * time.Minute)
		elapse(time.Second)
		wantState(t, lock, locco.StateHeld)
		times := calls.times(loccotest.AnyExtend, "k")
		if len(times) != 1 || times[0] > time.Minute+1500*time.Millisecond {
			t.Errorf("extensions sent at %v; want one within a second of 1m0.5s", times)
		}
		if got := lock.Remaining(); got < 29*time.Minute {
			t.Errorf("Remaining = %v; want a new lease", got)
		}
	})
}

// spec 1.5: what counts is the clock, not the timer that fires.
func TestSlowClockDoesNotLoseTheLock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		half := func() time.Duration { return time.Since(begin) / 2 }
		b := loccotest.Wrap(newStore())
		calls := logCalls(b)
		locker := holdingLocker(t, b, locco.WithClock(half))
		slow := hold(t, locker, "slow", 10*time.Second)
		kept := hold(t, locker, "kept", 12*time.Second, locco.AutoExtend(time.Hour))
		elapse(8 * time.Second)
		wantState(t, kept, locco.StateHeld)
		wantTimes(t, "extensions sent", calls.times(loccotest.AnyExtend, "kept"), 8*time.Second)
		elapse(11*time.Second + 700*time.Millisecond)
		wantState(t, slow, locco.StateHeld)
		elapse(100 * time.Millisecond)
		wantLost(t, slow, locco.ReasonExpired, nil)
	})
}
