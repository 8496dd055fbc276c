package locco_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/core/loccotest"
)

// spec 3.1, 3.2, 3.3: when a call that is alone looks, and when it fails.
func TestTimetable(t *testing.T) {
	t.Parallel()
	const s1 = time.Second
	every := func(from, to, step time.Duration) (at []time.Duration) {
		for ; from <= to; from += step {
			at = append(at, from)
		}
		return at
	}
	for _, tc := range []struct {
		name   string
		opts   []locco.CallOption
		answer time.Duration // how long each look takes
		looks  []time.Duration
		fails  time.Duration
	}{
		{"BuiltIn", nil, 0, every(0, 2*s1, 200*ms), 2 * s1},
		{"NoRetries", []locco.CallOption{locco.Retries(0)}, 0, []time.Duration{0}, 0},
		{"NoRetriesNoDelay", []locco.CallOption{locco.Retries(0), locco.RetryDelay(0)}, 0, []time.Duration{0}, 0},
		{"Retries", []locco.CallOption{locco.Retries(3)}, 0, every(0, 600*ms, 200*ms), 600 * ms},
		{"Delay", []locco.CallOption{locco.Retries(2), locco.RetryDelay(ms)}, 0, every(0, 2*ms, ms), 2 * ms},
		{"CountsFromTheAnswer", []locco.CallOption{locco.Retries(3), locco.RetryDelay(100 * ms)}, 10 * ms, every(0, 330*ms, 110*ms), 340 * ms},
		// spec 3.1: with a delay of 0 a retry is spent per refusal.
		{"NoDelay", []locco.CallOption{locco.Retries(3), locco.RetryDelay(0)}, 0, []time.Duration{0, 0, 0, 0}, 0},
		{"NoDelaySlow", []locco.CallOption{locco.Retries(3), locco.RetryDelay(0)}, 10 * ms, every(0, 30*ms, 10*ms), 40 * ms},
		// spec 3.2: a layer that sets a timeout without a count removes the count.
		{"Timeout", []locco.CallOption{locco.RetryTimeout(s1 - ms)}, 0, every(0, s1-ms, 200*ms), s1 - ms},
		{"TimeoutLong", []locco.CallOption{locco.RetryTimeout(5*s1 - ms)}, 0, every(0, 5*s1-ms, 200*ms), 5*s1 - ms},
		{"TimeoutAndCount", []locco.CallOption{locco.RetryTimeout(s1), locco.Retries(2)}, 0, every(0, 400*ms, 200*ms), 400 * ms},
		{"TimeoutBeforeTheDelay", []locco.CallOption{locco.RetryTimeout(50 * ms)}, 0, []time.Duration{0}, 50 * ms},
		// spec 3.1: one that is in flight may finish.
		{"TimeoutDuringALook", []locco.CallOption{locco.RetryTimeout(450 * ms)}, 100 * ms, []time.Duration{0, 300 * ms}, 450 * ms},
		{"TimeoutDuringTheLastLook", []locco.CallOption{locco.RetryTimeout(350 * ms)}, 100 * ms, []time.Duration{0, 300 * ms}, 400 * ms},
		{"TimeoutDuringTheFirstLook", []locco.CallOption{locco.RetryTimeout(50 * ms)}, 100 * ms, []time.Duration{0}, 100 * ms},
		{"ConstantBackoff", []locco.CallOption{locco.Retries(2), locco.RetryBackoff(locco.ConstantBackoff(50 * ms))}, 0, every(0, 100*ms, 50*ms), 100 * ms},
		{
			"ExponentialBackoff",
			[]locco.CallOption{locco.Retries(5), locco.RetryBackoff(locco.ExponentialBackoff(10*ms, 50*ms))},
			0,
			[]time.Duration{0, 10 * ms, 30 * ms, 70 * ms, 120 * ms, 170 * ms},
			170 * ms,
		},
		{
			"NegativeBackoff",
			[]locco.CallOption{locco.Retries(2), locco.RetryBackoff(locco.ConstantBackoff(-s1))},
			0,
			[]time.Duration{0, 0, 0},
			0,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			for _, ctx := range []context.Context{t.Context(), context.Background()} {
				synctest.Test(t, func(t *testing.T) {
					w := newWire(t)
					w.store.noLeft = true
					w.dial(w.plain())
					w.store.take("k", time.Hour)
					w.inject(loccotest.Acquire, 0, loccotest.DelayAnswer(tc.answer))
					if ctx != context.Background() {
						ctx = t.Context() // the bubble's
					}
					err := w.goAcquire(ctx, "k", time.Minute, tc.opts...).fails(tc.fails, locco.ErrHeld)
					w.wantSent(loccotest.Acquire, tc.looks...)
					if held, ok := errors.AsType[*locco.HeldError](err); !ok || held.Attempts != len(tc.looks) || held.Elapsed != tc.fails {
						t.Errorf("Acquire = %#v; want %d attempts, %v", err, len(tc.looks), tc.fails)
					}
				})
			}
		})
	}
}

// spec 3.1: unlimited retries.
func TestTimetableForever(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		w.store.noLeft = true
		w.dial(w.plain())
		w.store.take("k", 10*time.Minute)
		p := w.goAcquire(t.Context(), "k", time.Minute, locco.RetryForever(), locco.RetryDelay(time.Second))
		p.lock(10 * time.Minute)
		if n := len(w.sent(loccotest.Acquire)); n != 601 {
			t.Errorf("%d looks in ten minutes; want 601", n)
		}
	})
}

// spec 3.3: a delay function gets the attempt, the elapsed time and the previous
// delay.
func TestTimetableOfAFunction(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		w.store.noLeft = true
		w.dial(w.plain())
		w.store.take("k", time.Hour)
		w.inject(loccotest.Acquire, 0, loccotest.DelayAnswer(5*ms))
		type args struct {
			attempt           int
			elapsed, previous time.Duration
		}
		var got []args
		backoff := func(attempt int, elapsed, previous time.Duration) time.Duration {
			got = append(got, args{attempt, elapsed, previous})
			return []time.Duration{10 * ms, -ms, 30 * ms}[attempt-1]
		}
		w.goAcquire(t.Context(), "k", time.Minute, locco.Retries(3), locco.RetryBackoff(backoff)).fails(60*ms, locco.ErrHeld)
		w.wantSent(loccotest.Acquire, 0, 15*ms, 20*ms, 55*ms)
		if want := []args{{1, 5 * ms, 0}, {2, 20 * ms, 10 * ms}, {3, 25 * ms, 0}}; !slices.Equal(got, want) {
			t.Errorf("the function was called with %v; want %v", got, want)
		}
	})
}

// spec 3.2: a policy is a value: used twice, two budgets.
func TestTimetablePolicyIsAValue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		lr := w.dial(w.plain(), locco.WithDefaults(locco.Retries(3), locco.RetryTimeout(350*ms)))
		w.store.take("k", time.Hour)
		w.goAcquire(t.Context(), "k", time.Minute).fails(350*ms, locco.ErrHeld)
		w.goAcquire(t.Context(), "k", time.Minute).fails(700*ms, locco.ErrHeld)
		w.store.free("k")
		l, err := lr.Acquire(t.Context(), "k", time.Minute, locco.RetryDelay(ms))
		if err != nil {
			t.Fatalf("Acquire = %v; want a lock", err)
		}
		if got := l.Retry(); got.Retries != 3 || got.Timeout != 350*ms || got.Delay != ms {
			t.Errorf("Retry = %+v; want the merged policy", got)
		}
	})
}

// spec 3.1: a retry is spent when its delay has run out, wherever the waiter
// stands in the queue and whatever it waits for.
func TestTimetableInTheQueue(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		opts  []locco.CallOption
		fails time.Duration // after it joined
	}{
		{"NoRetries", []locco.CallOption{locco.Retries(0)}, 0},
		{"NoRetriesNoDelay", []locco.CallOption{locco.Retries(0), locco.RetryDelay(0)}, 0},
		{"Retries", []locco.CallOption{locco.Retries(3), locco.RetryDelay(70 * ms)}, 210 * ms},
		{"NoDelay", []locco.CallOption{locco.Retries(5), locco.RetryDelay(0)}, 0},
		{"VeryManyRetriesNoDelay", []locco.CallOption{locco.Retries(math.MaxInt), locco.RetryDelay(0)}, 0},
		{"NoDelayByAFunction", []locco.CallOption{locco.Retries(5), locco.RetryBackoff(locco.ConstantBackoff(0))}, 0},
		{"Timeout", []locco.CallOption{locco.RetryTimeout(333 * ms)}, 333 * ms},
		{"TimeoutNoDelay", []locco.CallOption{locco.RetryTimeout(333 * ms), locco.RetryDelay(0)}, 333 * ms},
		{"Backoff", []locco.CallOption{locco.Retries(3), locco.RetryBackoff(locco.ExponentialBackoff(30*ms, time.Hour))}, 210 * ms},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			for _, foreign := range []bool{false, true} {
				if foreign && (tc.name == "TimeoutNoDelay" || tc.name == "VeryManyRetriesNoDelay") {
					continue // looks without a pause, and here answers take no time
				}
				eachNow(t, fmt.Sprintf("Foreign%v", foreign), func(t *testing.T, w *wire) {
					w.store.noLeft = true
					w.dial(w.plain())
					if foreign {
						w.store.take("k", time.Hour)
					} else {
						w.goAcquire(t.Context(), "k", time.Hour).lock(0)
					}
					for range 3 {
						w.goAcquire(t.Context(), "k", time.Minute, locco.Retries(1), locco.RetryDelay(time.Hour))
					}
					w.sleepTo(11 * ms)
					p := w.goAcquire(t.Context(), "k", time.Minute, tc.opts...)
					p.fails(11*ms+tc.fails, locco.ErrHeld)
					if n := len(w.sent(loccotest.Acquire)); !foreign && n != 1 {
						t.Errorf("%d looks; want only the holder's", n)
					}
				})
			}
		})
	}
}

// eachNow is a subtest in a bubble.
func eachNow(t *testing.T, name string, f func(t *testing.T, w *wire)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) { f(t, newWire(t)) })
	})
}

// spec 3.1: without an end to the retries and without a delay, a waiter behind a
// local holder, or at a backend that wakes it surely, does not turn in circles.
func TestTimetableForeverWithoutADelay(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		backend func(w *wire) locco.Backend
		foreign bool
		delay   locco.CallOption
	}{
		{"Local", (*wire).plain, false, locco.RetryDelay(0)},
		{"LocalByAFunction", (*wire).plain, false, locco.RetryBackoff(locco.ConstantBackoff(0))},
		{"Reliable", (*wire).reliable, true, locco.RetryDelay(0)},
		{"ReliableByAFunction", (*wire).reliable, true, locco.RetryBackoff(locco.ConstantBackoff(0))},
		{"ReliableLocal", (*wire).reliable, false, locco.RetryDelay(0)},
	} {
		eachNow(t, tc.name, func(t *testing.T, w *wire) {
			w.dial(tc.backend(w))
			var l *locco.Lock
			if tc.foreign {
				w.store.take("k", time.Hour)
			} else {
				l = w.goAcquire(t.Context(), "k", time.Hour).lock(0)
			}
			ps := []*pending{
				w.goAcquire(t.Context(), "k", time.Minute, locco.RetryForever(), tc.delay),
				w.goAcquire(t.Context(), "k", time.Minute, locco.RetryForever(), tc.delay),
			}
			w.sleepTo(333 * ms) // for ever if it turns in circles
			if tc.foreign {
				_, _ = w.store.Release(context.Background(), "k", w.store.holder("k"))
			} else {
				l.Release(t.Context())
			}
			ps[0].lock(333 * ms).Release(t.Context())
			ps[1].lock(333 * ms)
		})
	}
}

// spec 3.1: what wake-ups, lease ends and other waiters cause neither uses up a
// retry nor moves it.
func TestTimetableIsNotMoved(t *testing.T) {
	t.Parallel()
	opts := []locco.CallOption{locco.Retries(3), locco.RetryDelay(100 * ms)}
	t.Run("ByWakeUps", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWire(t)
			w.store.noLeft = true
			w.dial(w.waking())
			w.store.take("k", time.Hour)
			p := w.goAcquire(t.Context(), "k", time.Minute, opts...)
			for _, at := range []time.Duration{30 * ms, 60 * ms, 130 * ms, 290 * ms} {
				w.sleepTo(at) // a wake-up, but somebody else is faster
				_, _ = w.store.Release(context.Background(), "k", w.store.holder("k"))
				w.store.take("k", time.Hour)
			}
			p.fails(300*ms, locco.ErrHeld)
			w.wantSent(loccotest.Acquire, 0, 0 /* the watch is live */, 30*ms, 60*ms, 100*ms, 130*ms, 200*ms, 290*ms, 300*ms)
		})
	})
	t.Run("ByLeaseEnds", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWire(t)
			w.dial(w.plain())
			w.store.take("k", 70*ms)
			p := w.goAcquire(t.Context(), "k", time.Minute, opts...)
			w.sleepTo(60 * ms)
			w.store.take("k", 190*ms) // to 250 ms: the holder extended it
			w.sleepTo(240 * ms)
			w.store.take("k", time.Hour)
			p.fails(300*ms, locco.ErrHeld)
			w.wantSent(loccotest.Acquire, 0, 70*ms, 100*ms, 200*ms, 250*ms, 300*ms)
		})
	})
	t.Run("ByOtherWaiters", func(t *testing.T) {
		t.Parallel()
		for _, first := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				w := newWire(t)
				w.store.noLeft = true
				w.dial(w.plain())
				w.store.take("k", time.Hour)
				others := func() {
					for _, d := range []time.Duration{30 * ms, 70 * ms, 45 * ms} {
						w.goAcquire(t.Context(), "k", time.Minute, locco.RetryTimeout(time.Second), locco.RetryDelay(d))
					}
				}
				if first {
					others()
				}
				p := w.goAcquire(t.Context(), "k", time.Minute, opts...)
				if !first {
					others()
				}
				err := p.fails(300*ms, locco.ErrHeld)
				if held, ok := errors.AsType[*locco.HeldError](err); !ok || held.Attempts < 4 {
					t.Errorf("Acquire = %#v; want at least its own four attempts", err)
				}
			})
		}
	})
	t.Run("ByLocalHolders", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWire(t)
			w.dial(w.handing())
			l := w.goAcquire(t.Context(), "k", time.Hour).lock(0)
			next := w.goAcquire(t.Context(), "k", time.Hour)
			p := w.goAcquire(t.Context(), "k", time.Minute, opts...)
			w.sleepTo(150 * ms)
			l.Release(t.Context())
			next.lock(150 * ms)
			p.fails(300*ms, locco.ErrHeld)
		})
	})
}

// spec 3.5: the room's next look is the earliest point of any timetable in it.
func TestTimetableOfARoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		w.store.noLeft = true
		w.dial(w.plain())
		w.store.take("k", time.Hour)
		ctx, cancel := context.WithCancel(t.Context())
		w.goAcquire(ctx, "k", time.Minute, locco.RetryForever(), locco.RetryDelay(10*time.Second))
		w.sleepTo(100 * ms)
		w.goAcquire(ctx, "k", time.Minute, locco.Retries(2), locco.RetryDelay(time.Second)).fails(2100*ms, locco.ErrHeld)
		w.wantSent(loccotest.Acquire, 0, 1100*ms, 2100*ms)
		w.sleepTo(22 * time.Second)
		cancel()
		if n := len(w.sent(loccotest.Acquire)); n < 5 || n > 6 { // and then every ten seconds
			t.Errorf("%d looks in 22s; want 5 or 6", n)
		}
	})
}

// spec 3.5: a point that is its waiter's last is served by a look of its own, or
// of another at that time, so that the call does not fail while the key is free.
func TestTimetableLastPoint(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		w.store.noLeft = true
		w.dial(w.plain())
		w.store.take("k", time.Hour)
		first := w.goAcquire(t.Context(), "k", time.Minute, locco.Retries(3), locco.RetryDelay(100*ms))
		w.sleepTo(50 * ms)
		second := w.goAcquire(t.Context(), "k", time.Minute, locco.Retries(1), locco.RetryDelay(60*ms))
		w.sleepTo(105 * ms)
		w.store.free("k")
		l := first.lock(110 * ms) // by the look for the second one, which comes behind
		second.fails(110*ms, locco.ErrHeld)
		l.Release(t.Context())
	})
}

// spec 3.4, 3.1: without wake-ups, the delay is the longest wait.
func TestTimetableAfterALocalRelease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		w.store.noLeft = true
		w.dial(w.plain())
		l := w.goAcquire(t.Context(), "k", time.Hour).lock(0)
		p := w.goAcquire(t.Context(), "k", time.Minute, locco.RetryDelay(100*ms), locco.RetryForever())
		w.sleepTo(250 * ms)
		w.hookAnswers(func(r request) { // somebody else is faster
			if r.op == loccotest.Release {
				w.store.take("k", time.Hour)
			}
		})
		l.Release(t.Context())
		w.sleepTo(450 * ms)
		w.wantSent(loccotest.Acquire, 0, 250*ms, 300*ms, 400*ms)
		w.store.free("k")
		p.lock(500 * ms)
	})
}

// spec 3.4: when the backend knows how long the present lease runs, nobody sleeps
// past its end.
func TestLeaseEndEndsTheWait(t *testing.T) {
	t.Parallel()
	eachBackend(t, func(t *testing.T, w *wire, backend locco.Backend) {
		w.dial(backend)
		w.store.take("k", 777*ms)
		p := w.goAcquire(t.Context(), "k", time.Minute, locco.RetryDelay(time.Hour))
		p.lock(777 * ms)
	})
}
