package locco_test

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/core/loccotest"
)

var tokenPattern = regexp.MustCompile(`^[0-9a-f]{32}$`)

// spec 5.1, 2.8, 6.1
func TestLockReadsWhatWasGranted(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		opts  []locco.Option
		fence int64
	}{
		{"Plain", nil, 0},
		{"Fenced", []locco.Option{locco.WithFencing()}, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newStore()
				tc.opts = append(tc.opts, locco.WithPrefix("p:"), locco.WithDefaults(locco.Retries(3)))
				locker := holdingLocker(t, b, tc.opts...)
				lock := hold(t, locker, "k", 10*time.Second, locco.RetryDelay(time.Second))
				if got := lock.Key(); got != "p:k" {
					t.Errorf("Key = %q; want %q", got, "p:k")
				}
				if got := lock.Token(); !tokenPattern.MatchString(got) || got != b.holder("p:k") {
					t.Errorf("Token = %q; want the 32 hex digits that are stored, %q", got, b.holder("p:k"))
				}
				if got := lock.TTL(); got != 10*time.Second {
					t.Errorf("TTL = %v; want 10s", got)
				}
				if got := lock.Retry(); got.Retries != 3 || got.Delay != time.Second || got.Timeout != 0 {
					t.Errorf("Retry = %+v; want 3 retries, 1s apart, no timeout", got)
				}
				if got := lock.Fence(); got != tc.fence {
					t.Errorf("Fence = %d; want %d", got, tc.fence)
				}
				if w, n := lock.Waited(), lock.Attempts(); w != 0 || n != 1 {
					t.Errorf("Waited, Attempts = %v, %d; want 0 and 1 for a first look", w, n)
				}
				if got := lock.HoldDeadline(); !got.IsZero() {
					t.Errorf("HoldDeadline = %v; want none without AutoExtend", got)
				}
				if err := lock.Extend(context.Background(), 20*time.Second); err != nil {
					t.Errorf("Extend = %v; want nil", err)
				}
				if got := lock.TTL(); got != 20*time.Second {
					t.Errorf("TTL after Extend = %v; want the latest, 20s", got)
				}
			})
		})
	}
}

// spec 2.8
func TestLockTellsItsWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newStore()
		locker := holdingLocker(t, b)
		b.take("k", 300*time.Millisecond)
		lock := hold(t, locker, "k", 10*time.Second)
		if w := lock.Waited(); w != 300*time.Millisecond {
			t.Errorf("Waited = %v; want 300ms, the end of the other's lease", w)
		}
		if n := lock.Attempts(); n < 2 {
			t.Errorf("Attempts = %d; want at least 2", n)
		}
	})
}

// spec 5.1: the time held stops when the lock is lost or released.
func TestHeldForStops(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		locker := holdingLocker(t, newStore())
		released := hold(t, locker, "released", 10*time.Second)
		lost := hold(t, locker, "lost", 10*time.Second)
		elapse(3 * time.Second)
		if got := released.HeldFor(); got != 3*time.Second {
			t.Errorf("HeldFor while held = %v; want 3s", got)
		}
		released.Release(context.Background())
		elapse(20 * time.Second)
		if got := released.HeldFor(); got != 3*time.Second {
			t.Errorf("HeldFor after Release = %v; want 3s", got)
		}
		if got := lost.HeldFor(); got != 9900*time.Millisecond {
			t.Errorf("HeldFor after the loss = %v; want 9.9s", got)
		}
		lost.Release(context.Background())
		elapse(time.Second)
		if got := lost.HeldFor(); got != 9900*time.Millisecond {
			t.Errorf("HeldFor after the release of a lost lock = %v; want 9.9s", got)
		}
	})
}

// spec 1.4, 5.2, 5.3: the lease ends 1 % early, and counts from the request.
func TestLockIsLostAtTheLocalDeadline(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		answer time.Duration // how long the answer to the acquisition takes
	}{
		{"AtOnce", 0},
		{"SlowAnswer", 2 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				inner := newStore()
				b := loccotest.Wrap(inner)
				b.Inject(loccotest.Fault{Op: loccotest.Acquire, Times: 1, Effect: loccotest.DelayAnswer(tc.answer)})
				h := &hookLog{}
				locker := holdingLocker(t, b, locco.WithEvents(h.hook))
				lock := hold(t, locker, "k", 10*time.Second)
				left := 9900*time.Millisecond - tc.answer
				if got := lock.Remaining(); got != left {
					t.Errorf("Remaining = %v; want %v", got, left)
				}
				time.Sleep(left - 1)
				wantState(t, lock, locco.StateHeld)
				lost := lock.Lost()
				elapse(1)
				wantLost(t, lock, locco.ReasonExpired, nil)
				if !isClosed(lost) {
					t.Error("Lost from before is open; want it closed")
				}
				if inner.holder("k") != lock.Token() {
					t.Error("the backend forgot the key; want the holder to know first")
				}
				wantEvents(t, h, "k", "acquired, lost expired")
				if ev := h.last(locco.EventLost); ev.Held != 9900*time.Millisecond || ev.TTL != 10*time.Second {
					t.Errorf("lost event Held, TTL = %v, %v; want 9.9s, 10s", ev.Held, ev.TTL)
				}
				elapse(time.Hour)
				wantLost(t, lock, locco.ReasonExpired, nil) // sticky
				wantEvents(t, h, "k", "acquired, lost expired")
			})
		})
	}
}

// spec 5.2: loss is sticky until release.
func TestLossIsStickyUntilRelease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		locker := holdingLocker(t, newStore())
		lock := hold(t, locker, "k", time.Second)
		elapse(time.Minute)
		wantLost(t, lock, locco.ReasonExpired, nil)
		if err := lock.Release(context.Background()); !errors.Is(err, locco.ErrLost) {
			t.Errorf("Release of a lost lock = %v; want ErrLost", err)
		}
		if got := lock.State(); got != locco.StateReleased {
			t.Errorf("State after Release of a lost lock = %v; want released", got)
		}
		wantLostError(t, lock.Err(), "k", locco.ReasonExpired, nil)
		if got := lock.Reason(); got != locco.ReasonExpired {
			t.Errorf("Reason after Release of a lost lock = %q; want expired", got)
		}
	})
}

// spec 5.3: the channel closes on loss only.
func TestLostClosesOnLossOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := loccotest.Wrap(newStore())
		locker := holdingLocker(t, b)
		released := hold(t, locker, "released", time.Second)
		early := released.Lost()
		released.Release(context.Background())
		detached := hold(t, locker, "detached", time.Second)
		detachedLost := detached.Lost()
		if _, err := detached.Detach(); err != nil {
			t.Errorf("Detach = %v; want nil", err)
		}
		lost := hold(t, locker, "lost", time.Second)
		lostEarly := lost.Lost()
		if lostEarly != lost.Lost() {
			t.Error("Lost returned two channels; want the same")
		}
		elapse(time.Minute)
		if isClosed(early) || isClosed(released.Lost()) {
			t.Error("Lost of a released lock is closed; want it open")
		}
		if isClosed(detachedLost) || isClosed(detached.Lost()) {
			t.Error("Lost of a detached lock is closed; want it open")
		}
		if !isClosed(lostEarly) || !isClosed(lost.Lost()) {
			t.Error("Lost of a lost lock is open; want it closed")
		}
		lost.Release(context.Background())
		if !isClosed(lost.Lost()) {
			t.Error("Lost after the release of a lost lock is open; want it closed")
		}
	})
}

// spec 5.4: a nil Lock is "not held".
func TestNilLock(t *testing.T) {
	t.Parallel()
	var lock *locco.Lock
	ctx := context.Background()
	if got := lock.State(); got != locco.StateReleased {
		t.Errorf("State = %v; want released", got)
	}
	if err := lock.Err(); !errors.Is(err, locco.ErrReleased) {
		t.Errorf("Err = %v; want ErrReleased", err)
	}
	if err := lock.Extend(ctx, time.Second); !errors.Is(err, locco.ErrReleased) {
		t.Errorf("Extend = %v; want ErrReleased", err)
	}
	if err := lock.Check(ctx); !errors.Is(err, locco.ErrReleased) {
		t.Errorf("Check = %v; want ErrReleased", err)
	}
	if h, err := lock.Detach(); h != (locco.Handle{}) || !errors.Is(err, locco.ErrReleased) {
		t.Errorf("Detach = %+v, %v; want nothing and ErrReleased", h, err)
	}
	if err := lock.Release(ctx); err != nil {
		t.Errorf("Release = %v; want nil", err)
	}
	if !isClosed(lock.Lost()) {
		t.Error("Lost is open; want it closed")
	}
	bound := lock.Bind(context.WithValue(ctx, ctxKey{}, "v"))
	if bound.Err() == nil || !errors.Is(context.Cause(bound), locco.ErrReleased) {
		t.Errorf("Bind ended with %v, cause %v; want ErrReleased", bound.Err(), context.Cause(bound))
	}
	if bound.Value(ctxKey{}) != "v" {
		t.Error("Bind lost the values of its context")
	}
	if lock.Key() != "" || lock.Token() != "" || lock.TTL() != 0 || lock.Fence() != 0 || lock.Waited() != 0 ||
		lock.Attempts() != 0 || lock.Reason() != "" || lock.HeldFor() != 0 || lock.Remaining() != 0 ||
		!lock.HoldDeadline().IsZero() || lock.Retry().Retries != 0 || lock.Retry().Delay != 0 {
		t.Error("a read of a nil Lock is not zero")
	}
}

type ctxKey struct{}

// spec 2.7: the context of an acquire bounds the wait, not the hold.
func TestEndOfTheAcquireContextChangesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := loccotest.Wrap(newStore())
		calls := logCalls(b)
		locker := holdingLocker(t, b)
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		lock, err := locker.Acquire(ctx, "k", 3*time.Second, locco.AutoExtend(time.Minute))
		if err != nil {
			t.Fatalf("Acquire = %v; want a lock", err)
		}
		elapse(5500 * time.Millisecond)
		cancel()
		elapse(5 * time.Second)
		wantState(t, lock, locco.StateHeld)
		if got := calls.times(loccotest.AnyExtend, "k"); len(got) != 10 {
			t.Errorf("extensions sent at %v; want one each second", got)
		}
		if err := lock.Release(ctx); err != nil {
			t.Errorf("Release with the ended context = %v; want nil", err)
		}
	})
}

// spec 1.10: the backend keeps the key longer than the holder believes in it.
func TestLockDelay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inner := newStore()
		b := loccotest.Wrap(inner)
		calls := logCalls(b)
		locker := holdingLocker(t, b, locco.WithDefaults(locco.LockDelay(5*time.Second)))
		lock := hold(t, locker, "k", 10*time.Second)
		if got := lock.Remaining(); got != 9900*time.Millisecond {
			t.Errorf("Remaining = %v; want 9.9s, whatever the delay", got)
		}
		if err := lock.Extend(context.Background(), 20*time.Second); err != nil {
			t.Errorf("Extend = %v; want nil", err)
		}
		if got := lock.Remaining(); got != 19800*time.Millisecond {
			t.Errorf("Remaining after Extend = %v; want 19.8s", got)
		}
		wantTimes(t, "leases acquired", calls.ttls(loccotest.Acquire, "k"), 15*time.Second)
		wantTimes(t, "leases extended", calls.ttls(loccotest.Extend, "k"), 25*time.Second)

		elapse(20 * time.Second)
		wantLost(t, lock, locco.ReasonExpired, nil)
		if inner.holder("k") != lock.Token() {
			t.Error("the key is free; want it kept for the lock delay")
		}
		if err := lock.Extend(context.Background(), 20*time.Second); !errors.Is(err, locco.ErrLost) {
			t.Errorf("Extend of a lost lock = %v; want ErrLost", err)
		}
		if n := b.Calls(loccotest.AnyExtend); n != 1 {
			t.Errorf("extensions sent = %d; want 1: a lost lock is never revived", n)
		}
		if _, err := locker.TryAcquire(context.Background(), "k", time.Second); !errors.Is(err, locco.ErrHeld) {
			t.Errorf("TryAcquire during the delay = %v; want ErrHeld", err)
		}
		elapse(5 * time.Second)
		next := hold(t, locker, "k", time.Second, locco.Retries(0))
		if err := next.Release(context.Background()); err != nil {
			t.Errorf("Release = %v; want nil", err)
		}
		if got := inner.holder("k"); got != "" {
			t.Errorf("holder after a clean release = %q; want none at once", got)
		}
	})
}

// spec 1.10, 4.2: the heartbeat asks for the delay too, and its interval does not
// count it.
func TestLockDelayOfHeartbeats(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := loccotest.Wrap(newStore())
		calls := logCalls(b)
		locker := holdingLocker(t, b)
		lock := hold(t, locker, "k", 3*time.Second, locco.AutoExtend(5*time.Second), locco.LockDelay(30*time.Second))
		elapse(4999 * time.Millisecond)
		wantState(t, lock, locco.StateHeld)
		wantTimes(t, "extensions", calls.times(loccotest.AnyExtend, "k"), time.Second, 2*time.Second, 3*time.Second)
		ttls := calls.ttls(loccotest.AnyExtend, "k")
		if len(ttls) != 3 || ttls[0] != 33*time.Second || ttls[1] != 33*time.Second {
			t.Errorf("leases extended = %v; want 33s each until the hold deadline clamps", ttls)
		}
		elapse(time.Millisecond)
		wantLost(t, lock, locco.ReasonMaxHold, nil)
	})
}

// spec 5.6: the locker lists the locks it holds.
func TestHeld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := loccotest.Wrap(newStore())
		locker := holdingLocker(t, b)
		view, err := locker.With(locco.Retries(0))
		if err != nil {
			t.Fatalf("With: %v", err)
		}
		keys := func() string {
			var keys []string
			for _, l := range locker.Held() {
				keys = append(keys, l.Key())
			}
			return strings.Join(keys, " ")
		}
		ctx := context.Background()
		if got := keys(); got != "" {
			t.Errorf("Held = %s; want none", got)
		}
		c := hold(t, view, "c", time.Minute)
		a := hold(t, locker, "a", time.Minute)
		short := hold(t, locker, "short", time.Second)
		failing := hold(t, locker, "failing", time.Minute)
		handle, _ := hold(t, locker, "d", time.Minute).Detach()
		if got, want := keys(), "a c failing short"; got != want {
			t.Errorf("Held = %s; want %s", got, want)
		}
		b.Inject(loccotest.Fault{Op: loccotest.Release, Key: "failing", Times: 1, Effect: loccotest.FailRequest(errBroken)})
		failing.Release(ctx)
		if _, err := locker.Attach(ctx, handle, time.Minute); err != nil {
			t.Errorf("Attach = %v; want nil", err)
		}
		err = locker.WithLock(ctx, "b", time.Minute, func(context.Context, *locco.Lock) error {
			if got, want := keys(), "a b c d short"; got != want {
				t.Errorf("Held = %s; want %s", got, want)
			}
			return nil
		})
		if err != nil {
			t.Errorf("WithLock = %v; want nil", err)
		}
		elapse(time.Second)
		wantState(t, short, locco.StateLost)
		c.Release(ctx)
		if got, want := keys(), "a d"; got != want {
			t.Errorf("Held = %s; want %s", got, want)
		}
		a.Release(ctx)
	})
}

// spec 5.7: Remaining tells how long the lease surely runs, HoldDeadline when
// maxHold ends the lock.
func TestHoldDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		locker := holdingLocker(t, newStore())
		begin := time.Now()
		lock := hold(t, locker, "k", 10*time.Second, locco.AutoExtend(time.Minute))
		want := begin.Add(time.Minute)
		for range 3 {
			if got := lock.HoldDeadline(); !got.Equal(want) {
				t.Errorf("HoldDeadline = %v; want %v", got, want)
			}
			elapse(19 * time.Second)
		}
		if got := lock.Remaining(); got > 3*time.Second {
			t.Errorf("Remaining = %v; want it to end at the hold deadline", got)
		}
		elapse(3 * time.Second)
		wantLost(t, lock, locco.ReasonMaxHold, nil)
		if got := lock.HoldDeadline(); !got.Equal(want) {
			t.Errorf("HoldDeadline when lost = %v; want %v", got, want)
		}
	})
}
