package locco_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/core/loccotest"
)

// spec 5.4
func TestRelease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inner := newStore()
		b := loccotest.Wrap(inner)
		h := &hookLog{}
		locker := holdingLocker(t, b, locco.WithEvents(h.hook))
		lock := hold(t, locker, "k", 10*time.Second, locco.AutoExtend(day))
		elapse(time.Second)
		for range 3 { // after a success nothing is sent and nothing fails
			if err := lock.Release(context.Background()); err != nil {
				t.Errorf("Release = %v; want nil", err)
			}
			wantState(t, lock, locco.StateReleased)
			if err := lock.Err(); !errors.Is(err, locco.ErrReleased) || errors.Is(err, locco.ErrLost) {
				t.Errorf("Err = %v; want ErrReleased", err)
			}
			if got := inner.holder("k"); got != "" {
				t.Errorf("holder = %q; want none", got)
			}
			elapse(20 * time.Second)
		}
		if n := b.Calls(loccotest.Release); n != 1 {
			t.Errorf("releases sent = %d; want 1", n)
		}
		if n := b.Calls(loccotest.AnyExtend); n != 0 {
			t.Errorf("extensions sent = %d; want 0", n)
		}
		wantEvents(t, h, "k", "acquired, released freed")
		if ev := h.last(locco.EventReleased); ev.Held != time.Second || ev.TTL != 10*time.Second || ev.Err != nil {
			t.Errorf("released event: Held, TTL, Err = %v, %v, %v; want 1s, 10s, nil", ev.Held, ev.TTL, ev.Err)
		}
	})
}

// spec 5.4, 4.5: the key was gone or another's.
func TestReleaseFindsTheKeyNotOurs(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, tc := range []struct {
		name string
		rob  func(b *loccotest.Backend)
	}{
		{"Stolen", func(b *loccotest.Backend) { b.Steal(ctx, "k", time.Minute) }},
		{"Gone", func(b *loccotest.Backend) { b.Free(ctx, "k") }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				inner := newStore()
				b := loccotest.Wrap(inner)
				h := &hookLog{}
				locker := holdingLocker(t, b, locco.WithEvents(h.hook))
				lock := hold(t, locker, "k", 10*time.Second)
				lost := lock.Lost()
				tc.rob(b)
				thief := inner.holder("k")
				for range 2 {
					wantLostError(t, lock.Release(ctx), "k", locco.ReasonRelease, nil)
					wantLost(t, lock, locco.ReasonRelease, nil)
				}
				if !isClosed(lost) {
					t.Error("Lost is open; want it closed")
				}
				if n := b.Calls(loccotest.Release); n != 1 {
					t.Errorf("releases sent = %d; want 1: the backend has answered", n)
				}
				if got := inner.holder("k"); got != thief {
					t.Errorf("holder = %q; want the thief's %q untouched", got, thief)
				}
				elapse(time.Minute)
				wantEvents(t, h, "k", "acquired, lost release")
			})
		})
	}
}

// spec 5.4, 5.2: after a driver's error a later call tries again, and "not ours"
// then counts as released.
func TestReleaseAgain(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, tc := range []struct {
		name   string
		effect loccotest.Effect
		want   error
	}{
		{"DidNotWork", loccotest.FailRequest(errBroken), errBroken},
		{"Worked", loccotest.FailAnswer(errBroken), errBroken},
		{"RequestLost", loccotest.DropRequest(), locco.ErrLate},
		{"AnswerLost", loccotest.DropAnswer(), locco.ErrLate},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				inner := newStore()
				b := loccotest.Wrap(inner)
				h := &hookLog{}
				locker := holdingLocker(t, b, locco.WithEvents(h.hook))
				lock := hold(t, locker, "k", 10*time.Second, locco.AutoExtend(day))
				bound := lock.Bind(ctx)
				b.Inject(loccotest.Fault{Op: loccotest.Release, Times: 1, Effect: tc.effect})
				err := lock.Release(ctx)
				if !errors.Is(err, tc.want) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, locco.ErrLost) {
					t.Errorf("Release = %v; want the driver's %v", err, tc.want)
				}
				wantState(t, lock, locco.StateReleased)
				if err := lock.Err(); !errors.Is(err, locco.ErrReleased) {
					t.Errorf("Err = %v; want ErrReleased", err)
				}
				if !errors.Is(context.Cause(bound), locco.ErrReleased) {
					t.Errorf("Cause of the bound context = %v; want ErrReleased", context.Cause(bound))
				}
				if ev := h.last(locco.EventReleaseFailed); ev.Err != err {
					t.Errorf("error of the event = %v; want %v", ev.Err, err)
				}
				elapse(time.Second)
				for range 2 {
					if err := lock.Release(ctx); err != nil {
						t.Errorf("Release again = %v; want nil", err)
					}
				}
				if n := b.Calls(loccotest.Release); n != 2 {
					t.Errorf("releases sent = %d; want 2", n)
				}
				if got := inner.holder("k"); got != "" {
					t.Errorf("holder = %q; want none", got)
				}
				elapse(time.Minute)
				wantState(t, lock, locco.StateReleased)
				if isClosed(lock.Lost()) {
					t.Error("Lost is closed; want it open")
				}
				wantEvents(t, h, "k", "acquired, release failed, released freed")
			})
		})
	}
}

// spec 5.4, 4.5: if the lease ends first, the lock is lost.
func TestLeaseEndsAfterAFailedRelease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := loccotest.Wrap(newStore())
		h := &hookLog{}
		locker := holdingLocker(t, b, locco.WithEvents(h.hook))
		lock := hold(t, locker, "k", 10*time.Second)
		lost := lock.Lost()
		b.Inject(loccotest.Fault{Op: loccotest.Release, Times: 3, Effect: loccotest.FailRequest(errBroken)})
		for range 2 {
			if err := lock.Release(context.Background()); err != errBroken {
				t.Errorf("Release = %v; want %v", err, errBroken)
			}
		}
		elapse(9900*time.Millisecond - 1)
		wantState(t, lock, locco.StateReleased)
		elapse(1) // nobody calls anything
		if !isClosed(lost) {
			t.Error("Lost is open at the end of the lease; want it closed")
		}
		wantLost(t, lock, locco.ReasonRelease, errBroken)
		wantEvents(t, h, "k", "acquired, release failed, release failed, lost release")
		for range 3 { // the first of them fails, the second gets an answer
			wantLostError(t, lock.Release(context.Background()), "k", locco.ReasonRelease, errBroken)
		}
		if n := b.Calls(loccotest.Release); n != 4 {
			t.Errorf("releases sent = %d; want 4", n)
		}
		wantEvents(t, h, "k", "acquired, release failed, release failed, lost release, release failed")
	})
}

// spec 5.4: while a request is on its way its answer decides, not the end of the
// lease.
func TestLeaseEndsDuringRelease(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, tc := range []struct {
		name    string
		effects []loccotest.Effect // of the requests; the last one passes the end
		lost    bool
		events  string
	}{
		{"Freed", []loccotest.Effect{loccotest.DelayAnswer(2 * time.Second)}, false, "acquired, released freed"},
		{"NotOurs", []loccotest.Effect{loccotest.DelayRequest(2 * time.Second)}, true, "acquired, lost release"},
		{"Failed", []loccotest.Effect{loccotest.DropRequest()}, true, "acquired, release failed, lost release"},
		{
			"FreedTheSecondTime",
			[]loccotest.Effect{loccotest.FailRequest(errBroken), loccotest.DelayAnswer(2 * time.Second)},
			false, "acquired, release failed, released freed",
		},
		{
			"GoneTheSecondTime",
			[]loccotest.Effect{loccotest.FailAnswer(errBroken), loccotest.DelayRequest(2 * time.Second)},
			false, "acquired, release failed, released freed",
		},
		{
			"FailedTwice",
			[]loccotest.Effect{loccotest.FailRequest(errBroken), loccotest.DropRequest()},
			true, "acquired, release failed, release failed, lost release",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := loccotest.Wrap(newStore())
				h := &hookLog{}
				locker := holdingLocker(t, b, locco.WithEvents(h.hook))
				lock := hold(t, locker, "k", 4*time.Second)
				elapse(3 * time.Second)
				for _, effect := range tc.effects {
					b.Inject(loccotest.Fault{Op: loccotest.Release, Times: 1, Effect: effect})
				}
				for range len(tc.effects) - 1 {
					lock.Release(ctx)
				}
				release := later(func() error { return lock.Release(ctx) })
				elapse(time.Second) // past the end of the lease
				wantState(t, lock, locco.StateReleased)
				if got := h.of("k"); got == tc.events {
					t.Errorf("events before the answer = %s; want no ending yet", got)
				}
				elapse(10 * time.Second)
				err, _, _ := release()
				if tc.lost {
					var lost *locco.LostError
					if !errors.As(err, &lost) {
						t.Fatalf("Release = %v; want a LostError", err)
					}
					wantLost(t, lock, locco.ReasonRelease, lost.Err)
				} else {
					if err != nil {
						t.Errorf("Release = %v; want nil", err)
					}
					wantState(t, lock, locco.StateReleased)
				}
				wantEvents(t, h, "k", tc.events)
			})
		})
	}
}

// spec 5.4: a lost lock's token is still tried; error and reason stay, and there
// is no second ending.
func TestReleaseOfALostLock(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, tc := range []struct {
		name   string
		fault  loccotest.Effect
		events string
		sent   int // by three calls
		freed  bool
	}{
		{"Freed", loccotest.Effect{}, "acquired, lost expired", 1, true},
		{"Failed", loccotest.FailRequest(errBroken), "acquired, lost expired, release failed", 2, true},
		{"NoAnswer", loccotest.DropAnswer(), "acquired, lost expired, release failed", 2, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				inner := newStore()
				b := loccotest.Wrap(inner)
				h := &hookLog{}
				locker := holdingLocker(t, b, locco.WithEvents(h.hook))
				lock := hold(t, locker, "k", 10*time.Second, locco.LockDelay(time.Minute))
				elapse(10 * time.Second)
				wantLost(t, lock, locco.ReasonExpired, nil)
				before := lock.Err()
				b.Inject(loccotest.Fault{Op: loccotest.Release, Times: 1, Effect: tc.fault})
				for range 3 {
					if err := lock.Release(ctx); err != before {
						t.Errorf("Release = %v; want the lost error, %v", err, before)
					}
				}
				if n := b.Calls(loccotest.Release); n != tc.sent {
					t.Errorf("releases sent = %d; want %d", n, tc.sent)
				}
				if freed := inner.holder("k") == ""; freed != tc.freed {
					t.Errorf("freed = %v; want %v", freed, tc.freed)
				}
				if err := lock.Err(); err != before || lock.Reason() != locco.ReasonExpired {
					t.Errorf("Err, Reason = %v, %q; want %v, expired", err, lock.Reason(), before)
				}
				elapse(time.Minute)
				wantEvents(t, h, "k", tc.events)
			})
		})
	}
}

// spec 5.4, 4.5: a loss that nobody has seen before Release is not its doing.
func TestReleaseAfterThePauseThatLostTheLock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := loccotest.Wrap(newStore())
		clock := newJumpClock()
		h := &hookLog{}
		locker := holdingLocker(t, b, locco.WithClock(clock.now), locco.WithEvents(h.hook))
		lock := hold(t, locker, "k", 10*time.Second)
		bound := lock.Bind(context.Background())
		clock.jump(time.Minute)
		wantLostError(t, lock.Release(context.Background()), "k", locco.ReasonExpired, nil)
		wantLostError(t, context.Cause(bound), "k", locco.ReasonExpired, nil)
		if n := b.Calls(loccotest.Release); n != 1 {
			t.Errorf("releases sent = %d; want 1: the token is tried", n)
		}
		elapse(time.Minute)
		wantEvents(t, h, "k", "acquired, lost expired")
	})
}

// panicsOnce is a store whose Release panics once, after a second.
type panicsOnce struct {
	*store
	over atomic.Bool
}

func (p *panicsOnce) Release(ctx context.Context, key, token string) (bool, error) {
	if p.over.CompareAndSwap(false, true) {
		time.Sleep(time.Second)
		panic("the backend")
	}
	return p.store.Release(ctx, key, token)
}

// spec 5.4: a backend that panics leaves the lock as one whose release failed,
// and nobody waiting.
func TestReleaseThatPanics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &panicsOnce{store: newStore()}
		h := &hookLog{}
		locker := holdingLocker(t, b, locco.WithEvents(h.hook))
		lock := hold(t, locker, "k", time.Minute)
		panicked := later(func() (value any) {
			defer func() { value = recover() }()
			lock.Release(context.Background())
			return nil
		})
		elapse(time.Millisecond)
		shared := later(func() error { return lock.Release(context.Background()) })
		elapse(time.Second)
		if value, _, done := panicked(); !done || value != "the backend" {
			t.Errorf("recover() = %v, done %v; want the backend's panic", value, done)
		}
		if err, _, done := shared(); !done || err == nil {
			t.Errorf("Release at the same time = %v, done %v; want an error", err, done)
		}
		if err := lock.Release(context.Background()); err != nil {
			t.Errorf("Release again = %v; want nil", err)
		}
		wantEvents(t, h, "k", "acquired, release failed, released freed")
	})
}

// spec 5.4: concurrent calls share one request and its result.
func TestReleaseConcurrentSafe(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, tc := range []struct {
		name   string
		before func(b *loccotest.Backend)
		effect loccotest.Effect
		want   error
		events string
	}{
		{"Freed", nil, loccotest.DelayAnswer(time.Second), nil, "acquired, released freed"},
		{
			"NotOurs", func(b *loccotest.Backend) { b.Free(ctx, "k") },
			loccotest.DelayAnswer(time.Second), locco.ErrLost, "acquired, lost release",
		},
		{"Failed", nil, loccotest.DropRequest(), locco.ErrLate, "acquired, release failed"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := loccotest.Wrap(newStore())
				h := &hookLog{}
				locker := holdingLocker(t, b, locco.WithEvents(h.hook))
				lock := hold(t, locker, "k", time.Minute)
				if tc.before != nil {
					tc.before(b)
				}
				b.Inject(loccotest.Fault{Op: loccotest.Release, Times: 1, Effect: tc.effect})
				errs := make([]error, 20)
				var group sync.WaitGroup
				for i := range errs {
					group.Go(func() {
						time.Sleep(time.Duration(i) * 10 * time.Millisecond) // all before the answer
						errs[i] = lock.Release(ctx)
					})
				}
				group.Wait()
				for i, err := range errs {
					if err != errs[0] || !errors.Is(err, tc.want) {
						t.Errorf("Release %d = %v; want %v for all", i, err, tc.want)
					}
				}
				if n := b.Calls(loccotest.Release); n != 1 {
					t.Errorf("releases sent = %d; want 1", n)
				}
				wantEvents(t, h, "k", tc.events)
			})
		})
	}
}

// ctxSpy is a store that remembers the context of its last Release.
type ctxSpy struct {
	*store
	ctx context.Context
}

func (s *ctxSpy) Release(ctx context.Context, key, token string) (bool, error) {
	s.ctx = ctx
	return s.store.Release(ctx, key, token)
}

// spec 5.4, 2.6, 8: Release keeps the values of its context, not its
// cancellation, and is bounded by the call timeout.
func TestReleaseContext(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		ended bool
		limit time.Duration
	}{
		{"Live", false, time.Hour},
		{"Canceled", true, time.Hour},
		{"ShortDeadline", false, time.Millisecond},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := &ctxSpy{store: newStore()}
				locker := holdingLocker(t, b, locco.WithCallTimeout(7*time.Second))
				lock := hold(t, locker, "k", time.Minute)
				ctx, cancel := context.WithTimeout(context.WithValue(context.Background(), ctxKey{}, "v"), tc.limit)
				defer cancel()
				if tc.ended {
					cancel()
				}
				if err := lock.Release(ctx); err != nil {
					t.Errorf("Release = %v; want nil", err)
				}
				if got := b.ctx.Value(ctxKey{}); got != "v" {
					t.Errorf("value in the call's context = %v; want the caller's", got)
				}
				if deadline, ok := b.ctx.Deadline(); !ok || time.Until(deadline) != 7*time.Second {
					t.Errorf("deadline of the call = %v, %v; want the call timeout, in 7s", time.Until(deadline), ok)
				}
				if err := context.Cause(b.ctx); err != nil {
					t.Errorf("Cause of the call's context = %v; want none", err)
				}
			})
		})
	}
}

// spec 5.4, 2.6
func TestReleaseIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := loccotest.Wrap(newStore())
		locker := holdingLocker(t, b)
		lock := hold(t, locker, "k", time.Minute)
		b.Inject(loccotest.Fault{Op: loccotest.Release, Times: 1, Effect: loccotest.DropRequest()})
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		begin := time.Now()
		err := lock.Release(ctx)
		if took := time.Since(begin); took != 3*time.Second {
			t.Errorf("Release took %v; want the call timeout, 3s", took)
		}
		if !errors.Is(err, locco.ErrLate) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Release = %v; want ErrLate that matches no context error", err)
		}
	})
}

// spec 1.9
func TestReleaseWithoutAContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := loccotest.Wrap(newStore())
		locker := holdingLocker(t, b)
		lock := hold(t, locker, "k", time.Minute)
		if err := lock.Release(nil); !errors.Is(err, locco.ErrInvalid) { //nolint:staticcheck // on purpose
			t.Errorf("Release(nil) = %v; want ErrInvalid", err)
		}
		wantState(t, lock, locco.StateHeld)
		if n := b.Calls(loccotest.Release); n != 0 {
			t.Errorf("releases sent = %d; want 0", n)
		}
	})
}

// spec 1.7: a late Release of an earlier hold cannot free a later one.
func TestLateReleaseFreesNoLaterHold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newStore()
		locker := holdingLocker(t, b)
		early := hold(t, locker, "k", time.Second)
		elapse(time.Second)
		next := hold(t, locker, "k", time.Minute)
		if early.Token() == next.Token() {
			t.Error("two grants have the same token")
		}
		if err := early.Release(context.Background()); !errors.Is(err, locco.ErrLost) {
			t.Errorf("Release of the earlier hold = %v; want ErrLost", err)
		}
		if got := b.holder("k"); got != next.Token() {
			t.Errorf("holder = %q; want the later hold's %q", got, next.Token())
		}
		wantState(t, next, locco.StateHeld)
	})
}

// spec 5.5: a release before d has passed leaves the key to expire at d after
// its grant; one after that frees it.
func TestHoldAtLeast(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, tc := range []struct {
		name    string
		ttl     time.Duration
		opts    []locco.HoldOption
		release time.Duration // when
		outcome locco.Outcome
		free    time.Duration // when
	}{
		{"Early", 10 * time.Second, nil, time.Second, locco.OutcomeKept, 8 * time.Second},
		{"AtOnce", 10 * time.Second, nil, 0, locco.OutcomeKept, 8 * time.Second},
		{"JustBefore", 10 * time.Second, nil, 8*time.Second - 1, locco.OutcomeKept, 8*time.Second + time.Millisecond - 1},
		{"After", 10 * time.Second, nil, 8 * time.Second, locco.OutcomeFreed, 8 * time.Second},
		{
			"LongerThanTheTTL", 3 * time.Second,
			[]locco.HoldOption{locco.AutoExtend(time.Minute)},
			4 * time.Second, locco.OutcomeKept, 8 * time.Second,
		},
		{
			"LockDelayDoesNotCount", 10 * time.Second,
			[]locco.HoldOption{locco.LockDelay(time.Hour)},
			time.Second, locco.OutcomeKept, 8 * time.Second,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				inner := newStore()
				b := loccotest.Wrap(inner)
				h := &hookLog{}
				locker := holdingLocker(t, b, locco.WithEvents(h.hook))
				begin := time.Now()
				lock, err := locker.TryAcquire(ctx, "k", tc.ttl, append(tc.opts, locco.HoldAtLeast(8*time.Second))...)
				if err != nil {
					t.Fatalf("TryAcquire = %v; want a lock", err)
				}
				time.Sleep(tc.release)
				for range 2 {
					if err := lock.Release(ctx); err != nil {
						t.Errorf("Release = %v; want nil", err)
					}
				}
				wantState(t, lock, locco.StateReleased)
				if ev := h.last(locco.EventReleased); ev.Outcome != tc.outcome || ev.Held != tc.release {
					t.Errorf("released event: Outcome, Held = %v, %v; want %v, %v", ev.Outcome, ev.Held, tc.outcome, tc.release)
				}
				if left := tc.free - 1 - time.Since(begin); left > 0 {
					time.Sleep(left)
					if inner.holder("k") == "" {
						t.Errorf("the key is free after %v; want it kept until %v", time.Since(begin), tc.free)
					}
					elapse(1)
				}
				if inner.holder("k") != "" {
					t.Errorf("the key is taken after %v; want it free", time.Since(begin))
				}
				elapse(time.Minute)
				if isClosed(lock.Lost()) {
					t.Error("Lost is closed; want it open")
				}
			})
		})
	}
}

// spec 5.5, 2.7: counted so that the backend keeps it no shorter: from the answer.
func TestHoldAtLeastCountsFromTheGrant(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inner := newStore()
		b := loccotest.Wrap(inner)
		b.Inject(loccotest.Fault{Op: loccotest.Acquire, Times: 1, Effect: loccotest.DelayRequest(time.Second)})
		locker := holdingLocker(t, b)
		lock := hold(t, locker, "k", 10*time.Second, locco.HoldAtLeast(8*time.Second))
		lock.Release(context.Background())
		time.Sleep(8*time.Second - 1)
		if inner.holder("k") == "" {
			t.Error("the key is free less than 8s after its grant")
		}
		elapse(1)
		if inner.holder("k") != "" {
			t.Error("the key is taken 8s after its grant")
		}
	})
}

// spec 5.5, 5.4: a release that leaves the key goes wrong like any other.
func TestHoldAtLeastThatFails(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, tc := range []struct {
		name   string
		before func(b *loccotest.Backend)
		first  error
		second error
		events string
	}{
		{
			"NotOurs", func(b *loccotest.Backend) { b.Free(ctx, "k") },
			locco.ErrLost, locco.ErrLost, "acquired, lost release",
		},
		{
			"Failed", func(b *loccotest.Backend) {
				b.Inject(loccotest.Fault{Op: loccotest.Extend, Times: 1, Effect: loccotest.FailRequest(errBroken)})
			},
			errBroken, nil, "acquired, release failed, released kept",
		},
		{
			"NoAnswer", func(b *loccotest.Backend) {
				b.Inject(loccotest.Fault{Op: loccotest.Extend, Times: 1, Effect: loccotest.DropAnswer()})
			},
			locco.ErrLate, nil, "acquired, release failed, released kept",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := loccotest.Wrap(newStore())
				h := &hookLog{}
				locker := holdingLocker(t, b, locco.WithEvents(h.hook))
				lock := hold(t, locker, "k", 10*time.Second, locco.HoldAtLeast(8*time.Second))
				tc.before(b)
				if err := lock.Release(ctx); !errors.Is(err, tc.first) {
					t.Errorf("Release = %v; want %v", err, tc.first)
				}
				if err := lock.Release(ctx); !errors.Is(err, tc.second) {
					t.Errorf("Release again = %v; want %v", err, tc.second)
				}
				wantEvents(t, h, "k", tc.events)
			})
		})
	}
}

// spec 5.5, 3.6: nobody of this locker gets the key before, and a waiter gets it
// then.
func TestHoldAtLeastKeepsLocalWaitersOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := loccotest.Wrap(newStore())
		h := &hookLog{}
		locker := holdingLocker(t, b, locco.WithEvents(h.hook))
		lock := hold(t, locker, "k", 10*time.Second, locco.HoldAtLeast(8*time.Second))
		next := later(func() *locco.Lock {
			next, _ := locker.Acquire(context.Background(), "k", time.Minute, locco.RetryTimeout(time.Minute),
				locco.RetryDelay(30*time.Second))
			return next
		})
		elapse(time.Second)
		if err := lock.Release(context.Background()); err != nil {
			t.Errorf("Release = %v; want nil", err)
		}
		if n := b.Calls(loccotest.Transfer); n != 0 {
			t.Errorf("hand-overs = %d; want 0", n)
		}
		elapse(time.Minute)
		if lock, took, _ := next(); lock == nil || took != 8*time.Second {
			t.Errorf("the waiter got %v after %v; want the key after 8s", lock, took)
		}
	})
}
