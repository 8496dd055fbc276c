package locco_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/core/loccotest"
)

// eachBackend runs f in a bubble for each way in which a grant comes to waiters.
func eachBackend(t *testing.T, f func(t *testing.T, w *wire, backend locco.Backend)) {
	t.Helper()
	for _, tc := range []struct {
		name    string
		backend func(w *wire) locco.Backend
	}{
		{"Plain", (*wire).plain},
		{"Handing", (*wire).handing},
		{"Waking", (*wire).waking},
		{"Reliable", (*wire).reliable},
		{"All", func(w *wire) locco.Backend { return w }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWire(t)
				f(t, w, tc.backend(w))
			})
		})
	}
}

// spec 3.5: waiters queue in arrival order, and a grant costs a constant number
// of commands.
func TestWaitersInOrder(t *testing.T) {
	t.Parallel()
	const n = 50
	eachBackend(t, func(t *testing.T, w *wire, backend locco.Backend) {
		lr := w.dial(backend)
		l := w.goAcquire(t.Context(), "k", time.Minute).lock(0)
		var mu sync.Mutex
		var order []int
		for i := range n {
			// Different timetables, and different places to run at.
			ctx, opts := t.Context(), []locco.CallOption{locco.RetryForever(), locco.RetryDelay(time.Duration(1+i%7) * 30 * ms)}
			if i%3 == 0 {
				ctx = context.Background()
			}
			w.start(func() (*locco.Lock, error) {
				l, err := lr.Acquire(ctx, "k", time.Minute, opts...)
				if err != nil {
					return nil, err
				}
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				time.Sleep(10 * ms)
				err = l.Release(context.Background())
				return l, err
			})
		}
		w.sleepTo(time.Second)
		if got := len(w.sent(^loccotest.Op(0))); got != 1 {
			t.Errorf("%d commands with %d waiters while the key is held here; want 1", got, n)
		}
		l.Release(t.Context())
		w.sleepTo(5 * time.Second)
		if !slices.IsSorted(order) || len(order) != n {
			t.Errorf("the waiters got the key in the order %v; want that of their arrival", order)
		}
		if got := len(w.sent(^loccotest.Op(0))); got > 3*n {
			t.Errorf("%d commands for %d grants; want at most three for each", got, n)
		}
	})
}

// spec 3.5: behind a holder elsewhere, too.
func TestWaitersInOrderBehindAForeignHolder(t *testing.T) {
	t.Parallel()
	eachBackend(t, func(t *testing.T, w *wire, backend locco.Backend) {
		w.dial(backend)
		w.store.take("k", 205*ms)
		var ps []*pending
		for i := range 6 {
			ps = append(ps, w.goAcquire(t.Context(), "k", time.Minute, locco.RetryForever(), locco.RetryDelay(time.Duration(60-10*i)*ms)))
			w.sleepTo(time.Duration(i+1) * ms)
		}
		for i, p := range ps {
			w.sleepTo(205*ms + time.Duration(i)*time.Second)
			p.lock(205*ms + time.Duration(i)*time.Second)
			for _, later := range ps[i+1:] {
				later.waits()
			}
			w.sleepTo(205*ms + time.Duration(i+1)*time.Second)
			p.got.lock.Release(t.Context())
		}
	})
}

// spec 3.5, 3.4: one of them looks on behalf of all, and as often as if it were
// alone, whether they came together or one after the other.
func TestOneLooksForAll(t *testing.T) {
	t.Parallel()
	const delay, looks = 100 * ms, 8
	for _, n := range []int{1, 10, 100, 1000} {
		for _, tc := range []struct {
			name   string
			apart  time.Duration // between arrivals
			answer time.Duration // how long the backend takes
			delay  func(i int) time.Duration
		}{
			{"Together", 0, 0, nil},
			{"Apart", delay / time.Duration(n), 0, nil},
			{"TogetherSlow", 0, 5 * ms, nil},
			{"ApartSlow", delay / time.Duration(n), 5 * ms, nil},
			{"DifferentDelays", 0, 0, func(i int) time.Duration { return delay + time.Duration(i)*ms/4 }},
		} {
			t.Run(fmt.Sprintf("%s/%d", tc.name, n), func(t *testing.T) {
				t.Parallel()
				if raceDetector && n > 10 {
					// Timers of one bubble that fire together crash it now and
					// then: golang.org/issue/78156.
					t.Skip("not under the race detector")
				}
				synctest.Test(t, func(t *testing.T) {
					w := newWire(t)
					w.store.noLeft = true
					w.dial(w.plain())
					w.store.take("k", time.Hour)
					w.inject(loccotest.Acquire, 0, loccotest.DelayAnswer(tc.answer))
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					for i := range n {
						d := delay
						if tc.delay != nil {
							d = tc.delay(i)
						}
						w.goAcquire(ctx, "k", time.Minute, locco.RetryForever(), locco.RetryDelay(d))
						time.Sleep(tc.apart)
					}
					w.sleepTo(looks*(delay+tc.answer) - ms)
					rs := w.sent(loccotest.Acquire)
					if len(rs) > looks+2 || len(rs) < looks {
						t.Errorf("%d looks by %d waiters; want about %d", len(rs), n, looks)
					}
					for i, r := range rs[1:] {
						if gap := r.sent - rs[i].over; gap > delay {
							t.Errorf("%v between two looks; want at most the delay of %v (spec 3.4)", gap, delay)
						}
					}
				})
			})
		}
	}
}

// spec 3.5: a key that this locker holds or waits for is joined without a
// command, whatever the last answer was.
func TestJoinWithoutACommand(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		before func(t *testing.T, w *wire)
		want   error // of a call that looks once
	}{
		{"HeldHere", func(t *testing.T, w *wire) { w.goAcquire(t.Context(), "k", time.Hour).lock(0) }, locco.ErrHeld},
		{"HeldElsewhere", func(t *testing.T, w *wire) {
			w.store.take("k", time.Hour)
			w.goAcquire(t.Context(), "k", time.Hour, locco.RetryDelay(time.Hour))
		}, locco.ErrHeld},
		{"LastLookFailed", func(t *testing.T, w *wire) {
			w.inject(loccotest.Acquire, 1, loccotest.FailRequest(errPassing))
			w.goAcquire(t.Context(), "k", time.Hour, locco.RetryDelay(time.Hour))
		}, errPassing},
		{"LastLookWasLate", func(t *testing.T, w *wire) {
			w.inject(loccotest.Acquire, 1, loccotest.DropRequest())
			w.goAcquire(t.Context(), "k", time.Hour, locco.RetryDelay(time.Hour))
		}, locco.ErrLate},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWire(t)
				w.dial(w.plain())
				tc.before(t, w)
				w.sleepTo(4 * time.Second)
				for range 5 {
					w.goAcquire(t.Context(), "k", time.Minute, locco.Retries(0)).fails(4*time.Second, tc.want)
				}
				w.wantSent(loccotest.Acquire, 0)
				failed := w.seen(locco.EventAcquireFailed)
				contended := w.seen(locco.EventContended)
				if len(failed) != 5 || len(contended) < 5 {
					t.Errorf("%d failed and %d contended events; want 5 and at least 5", len(failed), len(contended))
				}
			})
		})
	}
}

// spec 3.5: those who join while a look is under way share its answer.
func TestJoinALook(t *testing.T) {
	t.Parallel()
	for _, taken := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWire(t)
			w.dial(w.plain())
			if taken {
				w.store.take("k", time.Hour)
			}
			w.inject(loccotest.Acquire, 1, loccotest.DelayAnswer(100*ms))
			first := w.goAcquire(t.Context(), "k", time.Hour, locco.Retries(0))
			w.sleepTo(50 * ms)
			second := w.goAcquire(t.Context(), "k", time.Hour, locco.Retries(0))
			if taken {
				first.fails(100*ms, locco.ErrHeld)
			} else {
				first.lock(100 * ms)
			}
			err := second.fails(100*ms, locco.ErrHeld)
			if held, ok := errors.AsType[*locco.HeldError](err); !ok || held.Attempts != 1 || held.Elapsed != 50*ms {
				t.Errorf("Acquire = %#v; want one attempt, 50ms", err)
			}
			w.wantSent(loccotest.Acquire, 0)
		})
	}
}

// spec 3.5: a call keeps its place before those who joined during its first look.
func TestFirstLookKeepsItsPlace(t *testing.T) {
	t.Parallel()
	for _, timeout := range []time.Duration{time.Hour, 2 * time.Second} { // inline, detached
		synctest.Test(t, func(t *testing.T) {
			w := newWire(t)
			w.store.noLeft = true
			w.dial(w.plain())
			w.store.take("k", time.Hour)
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			w.inject(loccotest.Acquire, 1, loccotest.DelayAnswer(50*ms))
			first := w.goAcquire(ctx, "k", time.Minute)
			second := w.goAcquire(t.Context(), "k", time.Minute, locco.RetryDelay(20*ms))
			w.sleepTo(60 * ms)
			w.store.free("k")
			l := first.lock(70 * ms) // by a look of the second one's timetable
			second.waits()
			l.Release(t.Context())
			second.lock(70 * ms)
		})
	}
}

// spec 3.5: nobody looks while a local lock holds the key, except at the end of
// its lease.
func TestNoLookWhileHeldHere(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		noLeft bool
		opts   []locco.CallOption
		looks  []time.Duration
		at     time.Duration // when the waiter has it; 0: not within a minute
	}{
		// The holder's view ends 1 % early (spec 1.4); a look at that moment is
		// refused.
		{"LeaseEnds", false, nil, []time.Duration{0, 990 * ms, 1000 * ms}, 1000 * ms},
		{"LeaseEndsNoLeft", true, nil, []time.Duration{0, 990 * ms, 1050 * ms}, 1050 * ms},
		{"Extended", false, []locco.CallOption{locco.AutoExtend(time.Hour)}, []time.Duration{0}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWire(t)
				w.store.noLeft = tc.noLeft
				w.dial(w.plain())
				w.goAcquire(t.Context(), "k", time.Second, tc.opts...).lock(0)
				p := w.goAcquire(t.Context(), "k", time.Minute, locco.RetryForever(), locco.RetryDelay(70*ms))
				if tc.at == 0 {
					w.sleepTo(time.Minute)
					p.waits()
				} else {
					p.lock(tc.at)
				}
				w.wantSent(loccotest.Acquire, tc.looks...)
			})
		})
	}
}

// spec 3.5: a lock that turns out lost lets the waiters look at once.
func TestLossLetsWaitersLook(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		w.dial(w.plain())
		l := w.goAcquire(t.Context(), "k", time.Minute).lock(0)
		p := w.goAcquire(t.Context(), "k", time.Minute, locco.RetryDelay(time.Hour))
		w.sleepTo(50 * ms)
		w.store.free("k")
		if err := l.Check(t.Context()); !errors.Is(err, locco.ErrLost) {
			t.Errorf("Check = %v; want ErrLost", err)
		}
		p.lock(50 * ms)
	})
}

// spec 3.5: a waiter that leaves, for whatever reason and from wherever in the
// queue, fails no other and holds up no other.
func TestWaitersThatLeave(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		leave int // which of five
	}{
		{"First", 0},
		{"Middle", 2},
		{"Last", 4},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			for _, budget := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					w := newWire(t)
					w.store.noLeft = true
					w.dial(w.plain())
					w.store.take("k", time.Hour)
					ctx, cancel := context.WithCancel(t.Context())
					time.AfterFunc(150*ms, cancel)
					var ps []*pending
					for i := range 5 {
						waiting, opts := t.Context(), []locco.CallOption{locco.RetryDelay(100 * ms)}
						switch {
						case i != tc.leave:
						case budget:
							opts = append(opts, locco.RetryTimeout(150*ms))
						default:
							waiting = ctx
						}
						ps = append(ps, w.goAcquire(waiting, "k", time.Minute, opts...))
					}
					ps[tc.leave].fails(150*ms, locco.ErrHeld)
					w.store.free("k")
					at := 200 * ms
					for i, p := range ps {
						if i == tc.leave {
							continue
						}
						p.lock(at)
						p.got.lock.Release(t.Context())
					}
				})
			}
		})
	}
}

// spec 3.5: a driver's error is its waiter's alone: the next one looks for
// itself, with its own token and TTL.
func TestDriverErrorIsItsWaitersAlone(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name     string
		err      error
		detached bool
		most     int // looks: its token may be stored, so perhaps one more once it is undone
	}{
		{"Inline", errBroken, false, 4},
		{"Detached", errBroken, true, 4},
		{"SetUpWrong", errSetUpWrong, false, 3},
	} {
		eachNow(t, tc.name, func(t *testing.T, w *wire) {
			w.store.noLeft = true
			w.dial(w.plain())
			ctx := context.Background()
			if tc.detached {
				ctx = t.Context()
			}
			w.store.take("k", time.Hour)
			w.Inject(loccotest.Fault{Op: loccotest.Acquire, Skip: 1, Times: 1, Effect: loccotest.FailRequest(tc.err)})
			first := w.goAcquire(ctx, "k", time.Second, locco.RetryDelay(100*ms))
			second := w.goAcquire(ctx, "k", 2*time.Second, locco.RetryDelay(150*ms))
			third := w.goAcquire(ctx, "k", 3*time.Second, locco.RetryDelay(150*ms))
			if err := first.fails(100*ms, tc.err); err != tc.err {
				t.Errorf("Acquire = %v; want the driver's error as it is", err)
			}
			second.waits()
			rs := w.sent(loccotest.Acquire)
			if len(rs) < 3 || len(rs) > tc.most || rs[len(rs)-1].sent != 100*ms {
				t.Fatalf("looks = %v; want one at 0s, and at 100ms two or, undone, three", rs)
			}
			w.store.free("k")
			l := second.lock(250 * ms) // its own delay after the last look of a timetable
			if rs[2].token != l.Token() || rs[2].leases[0].TTL != 2*time.Second || rs[2].leases[0].Again {
				t.Errorf("%v with %+v; want it by the second waiter's own token and TTL", rs[2], rs[2].leases[0])
			}
			l.Release(t.Context())
			third.lock(250 * ms)
		})
	}
}

// spec 2.6, 3.5: undoing an attempt of one that gave up lets the next one look.
func TestUndoneAttemptWakesTheNext(t *testing.T) {
	t.Parallel()
	for _, late := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWire(t)
			w.store.noLeft = true
			w.dial(w.plain(), locco.WithCallTimeout(100*ms))
			at, want := time.Duration(0), errBroken
			if late {
				at, want = 100*ms, locco.ErrLate
				w.inject(loccotest.Acquire, 1, loccotest.DropAnswer())
			} else {
				w.inject(loccotest.Acquire, 1, loccotest.FailAnswer(errBroken))
			}
			w.inject(loccotest.Release, 1, loccotest.DelayRequest(50*ms))
			first := w.goAcquire(t.Context(), "k", time.Hour, locco.Retries(0))
			second := w.goAcquire(t.Context(), "k", time.Hour, locco.RetryDelay(time.Hour))
			first.fails(at, want)
			second.lock(at + 50*ms)
		})
	}
}

// spec 3.5: a driver's error of a first look, which others have joined.
func TestDriverErrorOfAFirstLook(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		w.locker = newLocker(t, &brokenOnce{store: newStore(), after: 100 * ms})
		first := w.goAcquire(t.Context(), "k", time.Minute)
		second := w.goAcquire(t.Context(), "k", time.Minute, locco.Retries(0))
		first.fails(100*ms, errBroken)
		second.lock(100 * ms)
	})
}

// brokenOnce fails its first Acquire, a while after it.
type brokenOnce struct {
	*store
	after time.Duration
	calls atomic.Int32
}

func (b *brokenOnce) Acquire(ctx context.Context, l locco.Lease) (locco.Grant, error) {
	if b.calls.Add(1) == 1 {
		time.Sleep(b.after)
		return locco.Grant{}, errBroken
	}
	return b.store.Acquire(ctx, l)
}

// spec 3.5: a release between a refusal and joining the queue is not missed.
func TestReleaseBeforeQueueing(t *testing.T) {
	t.Parallel()
	for _, detached := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWire(t)
			w.store.noLeft = true
			w.dial(w.plain())
			// The grant is stored, and its answer on its way, when another call of
			// the locker looks; so that one looks at the backend and is refused.
			w.inject(loccotest.Acquire, 1, loccotest.DelayAnswer(10*ms))
			try := w.goTry(t.Context(), "k", time.Minute)
			w.inject(loccotest.Acquire, 1, loccotest.DelayAnswer(30*ms))
			ctx := t.Context()
			if detached {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, time.Second)
				defer cancel()
			}
			p := w.goAcquire(ctx, "k", time.Minute)
			l := try.lock(10 * ms)
			w.sleepTo(20 * ms)
			l.Release(t.Context()) // after the refusal, before its answer
			p.lock(30 * ms)
		})
	}
}

// spec 3.5: so it is for a loss and for a detached lock.
func TestLossBeforeQueueing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		w.store.noLeft = true
		w.dial(w.plain())
		w.inject(loccotest.Acquire, 1, loccotest.DelayAnswer(10*ms))
		try := w.goTry(t.Context(), "k", time.Minute)
		w.inject(loccotest.Acquire, 1, loccotest.DelayAnswer(30*ms))
		p := w.goAcquire(t.Context(), "k", time.Minute)
		l := try.lock(10 * ms)
		w.sleepTo(20 * ms)
		w.store.free("k")
		if err := l.Check(t.Context()); !errors.Is(err, locco.ErrLost) {
			t.Errorf("Check = %v; want ErrLost", err)
		}
		p.lock(30 * ms)
	})
}

// spec 3.5, 3.4: who becomes the first in line takes over all that its
// predecessor did for the room, also when that left during a look.
func TestNextInLineTakesOver(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		effect loccotest.Effect
		lease  time.Duration // of the holder elsewhere
		freeAt time.Duration // by a release that wakes; 0: not
		want   time.Duration
	}{
		{"WakeUp", loccotest.DelayAnswer(100 * ms), time.Hour, 300 * ms, 300 * ms},
		{"WakeUpDuringTheLook", loccotest.DelayAnswer(100 * ms), time.Hour, 170 * ms, 200 * ms},
		{"LeaseEnd", loccotest.DelayRequest(100 * ms), 500 * ms, 0, 500 * ms},
		{"LeaseEndDuringTheLook", loccotest.DelayRequest(100 * ms), 180 * ms, 0, 200 * ms},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWire(t)
				w.dial(w.waking())
				w.store.take("k", tc.lease)
				ctx, cancel := context.WithCancel(t.Context())
				p := w.goAcquire(ctx, "k", time.Minute, locco.RetryDelay(100*ms))
				next := w.goAcquire(t.Context(), "k", time.Minute, locco.RetryDelay(time.Hour))
				w.sleepTo(50 * ms)
				w.inject(loccotest.Acquire, 1, tc.effect) // from 100 ms on
				w.sleepTo(150 * ms)
				cancel()
				p.fails(150*ms, context.Canceled)
				if tc.freeAt != 0 {
					w.sleepTo(tc.freeAt)
					_, _ = w.store.Release(context.Background(), "k", w.store.holder("k"))
				}
				next.lock(tc.want)
			})
		})
	}
}

// A delay function that panics, or ends its goroutine, is its caller's own: the
// others are not held up.
//
// spec 3.5
func TestWaiterThatPanics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		w.store.noLeft = true
		lr := w.dial(w.plain(), locco.WithCallTimeout(time.Second))
		w.store.take("k", time.Hour)
		w.Inject(loccotest.Fault{Op: loccotest.Acquire, Times: 1, Effect: loccotest.FailRequest(errPassing)})
		panicked := make(chan any)
		go func() {
			defer func() { panicked <- recover() }()
			_, _ = lr.Acquire(t.Context(), "k", time.Minute, locco.RetryBackoff(
				func(int, time.Duration, time.Duration) time.Duration { panic("backoff") }))
		}()
		if v := <-panicked; v != "backoff" {
			t.Errorf("Acquire panicked with %v; want the function's panic", v)
		}
		synctest.Wait()
		w.wantReleased(w.sent(loccotest.Acquire)[0].token)
		if n := locco.Rooms(lr); n != 0 {
			t.Errorf("the locker has state for %d keys after the panic; want none", n)
		}
		w.store.free("k")
		w.goAcquire(t.Context(), "k", time.Minute).lock(0)
	})
}

// spec 3.5: all views of a locker queue together.
func TestViewsQueueTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		lr := w.dial(w.plain())
		view, err := lr.With(locco.RetryDelay(time.Hour))
		if err != nil {
			t.Fatalf("With = %v; want a view", err)
		}
		l := w.goAcquire(t.Context(), "k", time.Minute).lock(0)
		p := w.start(func() (*locco.Lock, error) { return view.Acquire(t.Context(), "k", time.Minute) })
		w.sleepTo(50 * ms)
		w.wantSent(loccotest.Acquire, 0)
		l.Release(t.Context())
		p.lock(50 * ms)
	})
}

// Waiters of many keys, with contexts that end, budgets that run out and a
// network that loses requests: nobody holds a key that another one holds, and
// nothing is left at the end.
//
// spec 1.1, 2.6, 3.5, 3.6
func TestWaitingConcurrentSafe(t *testing.T) {
	t.Parallel()
	eachBackend(t, func(t *testing.T, w *wire, backend locco.Backend) {
		lr := w.dial(backend, locco.WithCallTimeout(50*ms), locco.WithHandoverLimit(3))
		effects := []loccotest.Effect{
			loccotest.DropRequest(), loccotest.DropAnswer(), loccotest.FailAnswer(errPassing),
			loccotest.FailRequest(errBroken), loccotest.DelayRequest(20 * ms), loccotest.DelayAnswer(20 * ms),
		}
		keys := []string{"a", "b", "c"}
		var mu sync.Mutex
		holders := map[string]*locco.Lock{}
		took := func(l *locco.Lock) {
			mu.Lock()
			defer mu.Unlock()
			key := l.Key()
			if other := holders[key]; other != nil && other.State() == locco.StateHeld && l.State() == locco.StateHeld {
				t.Errorf("%q was granted while another one holds it", key)
			}
			holders[key] = l
		}
		var group sync.WaitGroup
		var grants atomic.Int32
		for i := range 40 {
			group.Go(func() {
				r := rand.New(rand.NewPCG(uint64(i), 1))
				for range 15 {
					key := keys[r.IntN(len(keys))]
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+r.IntN(300))*ms)
					if r.IntN(10) == 0 {
						w.Inject(loccotest.Fault{Key: key, Times: 1, Effect: effects[r.IntN(len(effects))]})
					}
					time.Sleep(time.Duration(r.IntN(5)) * ms)
					opts := []locco.CallOption{locco.RetryDelay(time.Duration(r.IntN(50)) * ms), locco.Retries(5 + r.IntN(10))}
					var set []*locco.Lock
					switch r.IntN(10) {
					case 0:
						if l, err := lr.TryAcquire(ctx, key, 200*ms); err == nil {
							set = []*locco.Lock{l}
						}
					case 1, 2:
						if s, err := lr.AcquireMany(ctx, []string{key, keys[r.IntN(len(keys))]}, 200*ms, opts...); err == nil {
							set = s.Locks()
						}
					default:
						if l, err := lr.Acquire(ctx, key, 200*ms, opts...); err == nil {
							set = []*locco.Lock{l}
						}
					}
					for _, l := range set {
						grants.Add(1)
						took(l)
					}
					time.Sleep(time.Duration(r.IntN(20)) * ms)
					for _, l := range set {
						if r.IntN(10) > 0 {
							_ = l.Release(ctx)
						} // else its lease ends
					}
					cancel()
				}
			})
		}
		group.Wait()
		w.Clear()
		time.Sleep(10 * time.Second)
		if n := locco.Rooms(lr); n != 0 {
			t.Errorf("the locker has state for %d keys at the end; want none", n)
		}
		if grants.Load() < 50 {
			t.Errorf("%d grants; want more for this test to say anything", grants.Load())
		}
	})
}
