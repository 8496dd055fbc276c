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

// spec 4.1, 1.4: a new lease from now, counted from the request; it may be
// shorter than the present one.
func TestExtend(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		ttl    time.Duration
		answer time.Duration // how long it takes
		left   time.Duration
	}{
		{"Same", 10 * time.Second, 0, 9900 * time.Millisecond},
		{"Longer", time.Minute, 0, 59400 * time.Millisecond},
		{"Shorter", 2 * time.Second, 0, 1980 * time.Millisecond},
		{"SlowAnswer", 10 * time.Second, 2 * time.Second, 7900 * time.Millisecond},
		{"Odd", 1500*time.Microsecond + 1, 0, 1485001 * time.Nanosecond},
		{"Shortest", time.Millisecond, 0, 990 * time.Microsecond},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := loccotest.Wrap(newStore())
				calls := logCalls(b)
				h := &hookLog{}
				locker := holdingLocker(t, b, locco.WithEvents(h.hook))
				lock := hold(t, locker, "k", 10*time.Second)
				elapse(4 * time.Second)
				if tc.answer > 0 {
					b.Inject(loccotest.Fault{Op: loccotest.Extend, Effect: loccotest.DelayAnswer(tc.answer)})
				}
				if err := lock.Extend(context.Background(), tc.ttl); err != nil {
					t.Errorf("Extend = %v; want nil", err)
				}
				if got := lock.Remaining(); got != tc.left {
					t.Errorf("Remaining = %v; want %v", got, tc.left)
				}
				ttls := calls.ttls(loccotest.Extend, "k")
				if len(ttls) != 1 || ttls[0]%time.Millisecond != 0 || ttls[0] < tc.ttl || ttls[0] >= tc.ttl+time.Millisecond {
					t.Errorf("leases asked for = %v; want %v in whole milliseconds, not fewer", ttls, tc.ttl)
				}
				wantEvents(t, h, "k", "acquired, extended")
				ev := h.last(locco.EventExtended)
				if ev.Held != 4*time.Second+tc.answer || ev.Left != tc.left || ev.TTL != tc.ttl {
					t.Errorf("extended event: Held, Left, TTL = %v, %v, %v; want %v, %v, %v",
						ev.Held, ev.Left, ev.TTL, 4*time.Second+tc.answer, tc.left, tc.ttl)
				}
				elapse(tc.left)
				wantLost(t, lock, locco.ReasonExpired, nil)
			})
		})
	}
}

// spec 1.3, 1.9: a bad argument is found before any I/O, and changes nothing.
func TestExtendValidates(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		ctx  context.Context
		ttl  time.Duration
	}{
		{"TTLTooShort", context.Background(), time.Millisecond - 1},
		{"TTLZero", context.Background(), 0},
		{"TTLNegative", context.Background(), -time.Second},
		{"TTLTooLong", context.Background(), locco.MaxDuration + 1},
		{"NilContext", nil, time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := loccotest.Wrap(newStore())
				locker := holdingLocker(t, b)
				lock := hold(t, locker, "k", 10*time.Second)
				var invalid *locco.ValidationError
				if err := lock.Extend(tc.ctx, tc.ttl); !errors.As(err, &invalid) || !errors.Is(err, locco.ErrInvalid) {
					t.Errorf("Extend = %v; want a ValidationError", err)
				}
				if n := b.Calls(loccotest.AnyExtend); n != 0 {
					t.Errorf("extensions sent = %d; want 0", n)
				}
				if got := lock.TTL(); got != 10*time.Second {
					t.Errorf("TTL = %v; want the old one, 10s", got)
				}
				wantState(t, lock, locco.StateHeld)
			})
		})
	}
}

// spec 4.1, 4.5, 1.7: what Extend finds at the backend.
func TestExtendAnswers(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, tc := range []struct {
		name   string
		before func(b *loccotest.Backend)
		want   error
		state  locco.State
		events string
	}{
		{
			"Stolen", func(b *loccotest.Backend) { b.Steal(ctx, "k", time.Minute) },
			locco.ErrLost, locco.StateLost, "acquired, lost extend",
		},
		{
			"Gone", func(b *loccotest.Backend) { b.Free(ctx, "k") },
			locco.ErrLost, locco.StateLost, "acquired, lost extend",
		},
		{
			"DriverError", func(b *loccotest.Backend) {
				b.Inject(loccotest.Fault{Op: loccotest.Extend, Effect: loccotest.FailRequest(errBroken)})
			},
			errBroken, locco.StateHeld, "acquired, extend failed",
		},
		{
			"PassingError", func(b *loccotest.Backend) {
				b.Inject(loccotest.Fault{Op: loccotest.Extend, Effect: loccotest.FailAnswer(errPassing)})
			},
			errPassing, locco.StateHeld, "acquired, extend failed",
		},
		{
			"NoAnswer", func(b *loccotest.Backend) {
				b.Inject(loccotest.Fault{Op: loccotest.Extend, Effect: loccotest.DropAnswer()})
			},
			locco.ErrLate, locco.StateHeld, "acquired, extend failed",
		},
		{
			"AnswerAfterTheLease", func(b *loccotest.Backend) {
				b.Inject(loccotest.Fault{Op: loccotest.Extend, Effect: loccotest.LateAnswer(10 * time.Second)})
			},
			locco.ErrLost, locco.StateLost, "acquired, lost late-extend",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				inner := newStore()
				b := loccotest.Wrap(inner)
				h := &hookLog{}
				locker := holdingLocker(t, b, locco.WithEvents(h.hook))
				lock := hold(t, locker, "k", 10*time.Second)
				elapse(time.Second)
				tc.before(b)
				err := lock.Extend(ctx, 10*time.Second)
				if !errors.Is(err, tc.want) {
					t.Errorf("Extend = %v; want %v", err, tc.want)
				}
				if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
					t.Errorf("Extend = %v; want no error that looks like the caller's context", err)
				}
				wantState(t, lock, tc.state)
				wantEvents(t, h, "k", tc.events)
				if n := b.Calls(loccotest.Extend); n != 1 {
					t.Errorf("extensions sent = %d; want 1: nothing repeats it", n)
				}
				if tc.state == locco.StateHeld { // until the old lease runs out
					if got := h.last(locco.EventExtendFailed); got.Err != err {
						t.Errorf("error of the event = %v; want %v", got.Err, err)
					}
					elapse(9900*time.Millisecond - lock.HeldFor())
					wantLost(t, lock, locco.ReasonExtendFailed, tc.want)
				}
			})
		})
	}
}

// spec 1.6: an extension whose answer comes after its lease could have ended is
// not one.
func TestExtendAnswerAfterItsOwnLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := loccotest.Wrap(newStore())
		locker := holdingLocker(t, b)
		lock := hold(t, locker, "k", time.Minute)
		b.Inject(loccotest.Fault{Op: loccotest.Extend, Effect: loccotest.LateAnswer(time.Second)})
		if err := lock.Extend(context.Background(), time.Second); !errors.Is(err, locco.ErrLost) {
			t.Errorf("Extend = %v; want ErrLost", err)
		}
		wantLost(t, lock, locco.ReasonLateExtend, nil)
	})
}

// spec 4.4: a shorter extension may be applied at any time once it was sent: the
// holder does not believe in more, whatever comes after.
func TestUnansweredShorterExtend(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		effect loccotest.Effect
	}{
		{"RequestLost", loccotest.DropRequest()},
		{"AnswerLost", loccotest.DropAnswer()},
		{"Refused", loccotest.FailRequest(errBroken)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := loccotest.Wrap(newStore())
				locker := holdingLocker(t, b)
				lock := hold(t, locker, "k", time.Minute)
				b.Inject(loccotest.Fault{Op: loccotest.Extend, Times: 1, Effect: tc.effect})
				begin := time.Now()
				if err := lock.Extend(context.Background(), 5*time.Second); err == nil {
					t.Error("Extend = nil; want the driver's error")
				}
				if got, want := lock.Remaining(), 4950*time.Millisecond-time.Since(begin); got != want {
					t.Errorf("Remaining after a shorter Extend without an answer = %v; want %v", got, want)
				}
				wantState(t, lock, locco.StateHeld)
				if err := lock.Extend(context.Background(), time.Minute); err != nil {
					t.Errorf("Extend = %v; want nil", err)
				}
				if got := lock.Remaining(); got != 4950*time.Millisecond {
					t.Errorf("Remaining after a longer Extend = %v; want 4.95s: the shorter one may still arrive", got)
				}
				elapse(4950 * time.Millisecond)
				wantState(t, lock, locco.StateLost)
			})
		})
	}
}

// spec 4.4, 5.3: also while it hangs.
func TestHangingShorterExtend(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inner := newStore()
		b := loccotest.Wrap(inner)
		locker := holdingLocker(t, b)
		lock := hold(t, locker, "k", time.Minute)
		b.Inject(loccotest.Fault{Op: loccotest.Extend, Effect: loccotest.LateAnswer(time.Minute)})
		extend := later(func() error { return lock.Extend(context.Background(), time.Second) })
		elapse(990*time.Millisecond - 1)
		wantState(t, lock, locco.StateHeld)
		elapse(1)
		wantState(t, lock, locco.StateLost)
		if inner.holder("k") != lock.Token() {
			t.Error("the backend forgot the key first; want the holder to know first")
		}
		elapse(time.Minute)
		if err, _, done := extend(); !done || !errors.Is(err, locco.ErrLost) {
			t.Errorf("Extend = %v, done %v; want ErrLost", err, done)
		}
	})
}

// spec 4.1: a state error on a released lock, while a release is in flight, and
// after one that failed; nothing is sent.
func TestExtendAfterRelease(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, tc := range []struct {
		name string
		end  func(t *testing.T, b *loccotest.Backend, lock *locco.Lock)
		want error
	}{
		{"Released", func(_ *testing.T, _ *loccotest.Backend, lock *locco.Lock) { lock.Release(ctx) }, locco.ErrReleased},
		{"Releasing", func(_ *testing.T, b *loccotest.Backend, lock *locco.Lock) {
			b.Inject(loccotest.Fault{Op: loccotest.Release, Effect: loccotest.DelayAnswer(time.Second)})
			go lock.Release(ctx)
			synctest.Wait()
		}, locco.ErrReleased},
		{"ReleaseFailed", func(_ *testing.T, b *loccotest.Backend, lock *locco.Lock) {
			b.Inject(loccotest.Fault{Op: loccotest.Release, Times: 1, Effect: loccotest.FailRequest(errBroken)})
			lock.Release(ctx)
		}, locco.ErrReleased},
		{"Detached", func(t *testing.T, _ *loccotest.Backend, lock *locco.Lock) {
			if _, err := lock.Detach(); err != nil {
				t.Errorf("Detach = %v; want nil", err)
			}
		}, locco.ErrReleased},
		{"Lost", func(_ *testing.T, _ *loccotest.Backend, _ *locco.Lock) { elapse(time.Minute) }, locco.ErrLost},
		{"ReleasedWhenLost", func(_ *testing.T, _ *loccotest.Backend, lock *locco.Lock) {
			elapse(time.Minute)
			lock.Release(ctx)
		}, locco.ErrLost},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := loccotest.Wrap(newStore())
				locker := holdingLocker(t, b)
				lock := hold(t, locker, "k", 10*time.Second)
				tc.end(t, b, lock)
				begin := time.Now()
				if err := lock.Extend(ctx, time.Second); !errors.Is(err, tc.want) {
					t.Errorf("Extend = %v; want %v", err, tc.want)
				}
				if took := time.Since(begin); took != 0 {
					t.Errorf("Extend took %v; want no time", took)
				}
				if n := b.Calls(loccotest.AnyExtend); n != 0 {
					t.Errorf("extensions sent = %d; want 0", n)
				}
				elapse(time.Second) // the release that is under way
			})
		})
	}
}

// spec 4.1, 2.6, 7.2: the caller's context ends the call, not the request.
func TestExtendWhenItsContextEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := loccotest.Wrap(newStore())
		h := &hookLog{}
		locker := holdingLocker(t, b, locco.WithEvents(h.hook))
		lock := hold(t, locker, "k", 10*time.Second)
		b.Inject(loccotest.Fault{Op: loccotest.Extend, Effect: loccotest.DelayAnswer(2 * time.Second)})
		ctx, cancel := context.WithCancelCause(context.Background())
		time.AfterFunc(time.Second, func() { cancel(errPassing) })
		begin := time.Now()
		err := lock.Extend(ctx, 20*time.Second)
		if !errors.Is(err, context.Canceled) || !errors.Is(err, errPassing) {
			t.Errorf("Extend = %v; want the context's error and cause", err)
		}
		if took := time.Since(begin); took != time.Second {
			t.Errorf("Extend took %v; want 1s", took)
		}
		wantEvents(t, h, "k", "acquired")
		elapse(time.Second)
		wantEvents(t, h, "k", "acquired, extended")
		if got := lock.Remaining(); got != 17800*time.Millisecond {
			t.Errorf("Remaining = %v; want 17.8s: the answer is taken in", got)
		}
	})
}

// spec 2.6: a context that is over already starts nothing.
func TestExtendWithAnEndedContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := loccotest.Wrap(newStore())
		locker := holdingLocker(t, b)
		lock := hold(t, locker, "k", 10*time.Second)
		ctx, cancel := context.WithCancelCause(context.Background())
		cancel(errPassing)
		if err := lock.Extend(ctx, time.Minute); !errors.Is(err, context.Canceled) || !errors.Is(err, errPassing) {
			t.Errorf("Extend = %v; want the context's error and cause", err)
		}
		if n := b.Calls(loccotest.Extend); n != 0 {
			t.Errorf("extensions sent = %d; want 0", n)
		}
		if got := lock.TTL(); got != 10*time.Second {
			t.Errorf("TTL = %v; want 10s", got)
		}
	})
}

// spec 4.1, 4.4, 5.3: an Extend that waits for the heartbeat in flight ends when
// its context, the lease or the hold ends.
func TestExtendBehindAHangingHeartbeat(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		limit time.Duration // of the caller's context; 0: none
		end   func(lock *locco.Lock)
		want  error
		took  time.Duration
	}{
		{"ContextEnds", 500 * time.Millisecond, func(*locco.Lock) {}, context.DeadlineExceeded, 500 * time.Millisecond},
		{"LeaseEnds", 0, func(*locco.Lock) {}, locco.ErrLost, 970 * time.Millisecond},
		{"Released", 0, func(lock *locco.Lock) { lock.Release(context.Background()) }, locco.ErrReleased, 100 * time.Millisecond},
		{"Detached", 0, func(lock *locco.Lock) { lock.Detach() }, locco.ErrReleased, 100 * time.Millisecond},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := loccotest.Wrap(newStore())
				locker := holdingLocker(t, b)
				lock := hold(t, locker, "k", 3*time.Second, locco.AutoExtend(day))
				b.Inject(loccotest.Fault{Op: loccotest.Extend, Effect: loccotest.DropRequest()})
				elapse(2 * time.Second)
				ctx := context.Background()
				if tc.limit > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tc.limit)
					defer cancel()
				}
				extend := later(func() error { return lock.Extend(ctx, 3*time.Second) })
				elapse(100 * time.Millisecond)
				tc.end(lock)
				elapse(5 * time.Second)
				err, took, done := extend()
				if !done || !errors.Is(err, tc.want) {
					t.Errorf("Extend = %v, done %v; want %v", err, done, tc.want)
				}
				if took != tc.took {
					t.Errorf("Extend took %v; want %v", took, tc.took)
				}
				if n := b.Calls(loccotest.Extend); n != 1 {
					t.Errorf("extensions sent = %d; want the heartbeat's only", n)
				}
			})
		})
	}
}

// spec 4.4: one extension of a lock is under way at a time.
func TestExtendConcurrentSafe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := loccotest.Wrap(newStore())
		locker := holdingLocker(t, b)
		lock := hold(t, locker, "k", 10*time.Second, locco.AutoExtend(day))
		b.Inject(loccotest.Fault{Op: loccotest.Extend, Effect: loccotest.DelayAnswer(10 * time.Millisecond)})
		calls := logCalls(b)
		var group sync.WaitGroup
		var failed atomic.Int32
		for range 20 {
			group.Go(func() {
				if err := lock.Extend(context.Background(), 10*time.Second); err != nil {
					failed.Add(1)
				}
			})
		}
		group.Wait()
		if n := failed.Load(); n != 0 {
			t.Errorf("extensions that failed = %d; want 0", n)
		}
		times := calls.times(loccotest.Extend, "k")
		if len(times) != 20 {
			t.Errorf("extensions sent = %d; want 20", len(times))
		}
		for i := 1; i < len(times); i++ {
			if times[i]-times[i-1] < 10*time.Millisecond {
				t.Errorf("extensions sent at %v and %v; want one at a time", times[i-1], times[i])
			}
		}
		if got := lock.Remaining(); got != 9890*time.Millisecond {
			t.Errorf("Remaining = %v; want that of the last request, 9.89s", got)
		}
	})
}
