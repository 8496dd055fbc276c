package locco_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/core/loccotest"
)

// watchers returns how many watches of key are live.
func (s *store) watching(key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.watchers[key])
}

// released frees key as its holder elsewhere does: that wakes.
func (w *wire) released(key string) {
	w.t.Helper()
	if ours, err := w.store.Release(context.Background(), key, w.store.holder(key)); err != nil || !ours {
		w.t.Fatalf("Release by the holder elsewhere = %v, %v; want true", ours, err)
	}
}

// spec 8.6, 3.4, 7.1: a wake-up cuts the wait short.
func TestWakeUp(t *testing.T) {
	t.Parallel()
	for _, backend := range []func(w *wire) locco.Backend{
		(*wire).waking, (*wire).reliable, func(w *wire) locco.Backend { return w },
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWire(t)
			w.dial(backend(w))
			w.store.take("k", time.Hour)
			p := w.goAcquire(t.Context(), "k", time.Minute, locco.RetryDelay(time.Hour))
			w.sleepTo(123 * ms)
			p.waits()
			w.released("k")
			l := p.lock(123 * ms)
			// The first, one more after the watch was live, and the one that was
			// woken.
			w.wantSent(loccotest.Acquire, 0, 0, 123*ms)
			w.wantSent(loccotest.Watch, 0)
			evs := w.seen(locco.EventWakeUp)
			if want := (locco.Event{
				Kind: locco.EventWakeUp, Key: "k", TTL: time.Minute, Outcome: locco.OutcomeReceived,
			}); len(evs) != 1 || evs[0] != want {
				t.Errorf("events = %+v; want %+v", evs, want)
			}
			synctest.Wait()
			if n := w.store.watching("k"); n != 0 {
				t.Errorf("%d watches are live; want none, since nobody waits any more", n)
			}
			l.Release(t.Context())
		})
	}
}

// spec 8.6: a watch costs nothing until a look was refused.
func TestNoWatchWithoutContention(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		lr := w.dial(nil)
		w.goAcquire(t.Context(), "k", time.Minute).lock(0).Release(t.Context())
		w.store.take("k", time.Hour)
		w.goTry(t.Context(), "k", time.Minute).fails(0, locco.ErrHeld)
		w.goAcquire(t.Context(), "k", time.Minute, locco.Retries(0)).fails(0, locco.ErrHeld)
		w.goAcquire(t.Context(), "j", time.Minute).lock(0)
		w.goAcquire(t.Context(), "j", time.Minute).waits() // held here: no command
		w.wantSent(loccotest.Watch)
		_ = lr
	})
}

// spec 8.6: a release between the refusal and the moment at which the watch is
// live is not missed.
func TestReleaseBeforeTheWatchIsLive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		w.dial(w.waking())
		w.store.take("k", time.Hour)
		w.inject(loccotest.Watch, 1, loccotest.DelayRequest(100*ms))
		p := w.goAcquire(t.Context(), "k", time.Minute, locco.RetryDelay(time.Hour))
		w.sleepTo(50 * ms)
		w.released("k")
		p.lock(100 * ms)
		w.wantSent(loccotest.Acquire, 0, 100*ms)
	})
}

// spec 8.6, 3.5: one watch serves all who wait, and ends when nobody does.
func TestOneWatchForAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		w.dial(w.waking())
		w.store.take("k", time.Hour)
		ctx, cancel := context.WithCancel(t.Context())
		var ps []*pending
		for i := range 20 {
			waiting := t.Context()
			if i < 10 {
				waiting = ctx
			}
			ps = append(ps, w.goAcquire(waiting, "k", time.Minute, locco.RetryDelay(time.Hour)))
		}
		w.wantSent(loccotest.Watch, 0)
		w.sleepTo(50 * ms)
		cancel()
		synctest.Wait()
		if n := w.store.watching("k"); n != 1 {
			t.Errorf("%d watches are live; want 1, for those who stay", n)
		}
		w.sleepTo(100 * ms)
		w.released("k")
		for i, p := range ps {
			if i < 10 {
				p.fails(50*ms, context.Canceled)
				continue
			}
			p.lock(100 * ms).Release(t.Context())
		}
		synctest.Wait()
		if n := w.store.watching("k"); n != 0 {
			t.Errorf("%d watches are live; want none", n)
		}
		w.wantSent(loccotest.Watch, 0)
	})
}

// spec 8.6: however the last waiter leaves, its watch is stopped; also one whose
// set-up was under way.
func TestWatchIsStopped(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		effect loccotest.Effect // of the set-up
		cancel time.Duration
		opts   []locco.CallOption
		then   func(w *wire)
	}{
		{"Canceled", loccotest.Effect{}, 50 * ms, nil, nil},
		{"BudgetSpent", loccotest.Effect{}, 0, []locco.CallOption{locco.RetryTimeout(50 * ms)}, nil},
		{"Granted", loccotest.Effect{}, 0, nil, func(w *wire) { w.released("k") }},
		{"LeaseEnds", loccotest.Effect{}, 0, nil, nil},
		{"Failed", loccotest.Effect{}, 0, nil, func(w *wire) {
			w.inject(loccotest.Acquire, 1, loccotest.FailRequest(errBroken))
			w.released("k")
		}},
		{"Closed", loccotest.Effect{}, 0, nil, func(w *wire) { w.locker.Close(context.Background()) }},
		{"CanceledDuringTheSetUp", loccotest.DelayAnswer(100 * ms), 50 * ms, nil, nil},
		{"ClosedDuringTheSetUp", loccotest.DelayAnswer(100 * ms), 0, nil, func(w *wire) { w.locker.Close(context.Background()) }},
		{"CanceledDuringALostSetUp", loccotest.DropAnswer(), 50 * ms, nil, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWire(t)
				lr := w.dial(w.waking())
				w.store.take("k", 10*time.Second)
				w.inject(loccotest.Watch, 1, tc.effect)
				ctx, cancel := context.WithCancel(t.Context())
				if tc.cancel != 0 {
					time.AfterFunc(tc.cancel, cancel)
				}
				opts := append([]locco.CallOption{locco.RetryDelay(time.Hour)}, tc.opts...)
				p := w.goAcquire(ctx, "k", time.Minute, opts...)
				w.sleepTo(50 * ms)
				if tc.then != nil {
					tc.then(w)
				}
				p.wait()
				w.sleepTo(11 * time.Second)
				if len(w.sent(loccotest.Watch)) != 1 {
					t.Errorf("watches = %v; want one", w.sent(loccotest.Watch))
				}
				if n := w.store.watching("k"); n != 0 {
					t.Errorf("%d watches are live; want none", n)
				}
				cancel()
				_ = lr
			})
		})
	}
}

// A call that got the key while its watch was being set up leaves the room
// without one; the next waiter sets up its own.
//
// spec 8.6
func TestWatchAfterASetUpThatNobodyWantedAnyMore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		w.dial(w.waking())
		w.store.take("k", 50*ms)
		w.inject(loccotest.Watch, 1, loccotest.DelayAnswer(100*ms))
		l := w.goAcquire(t.Context(), "k", time.Minute).lock(50 * ms)
		w.sleepTo(150 * ms)
		if n := w.store.watching("k"); n != 0 {
			t.Errorf("%d watches are live; want none", n)
		}
		p := w.goAcquire(t.Context(), "k", time.Minute, locco.RetryDelay(time.Hour))
		w.hookAnswers(func(r request) { // somebody else is faster
			if r.op == loccotest.Release {
				w.store.take("k", time.Hour)
			}
		})
		l.Release(t.Context())
		w.sleepTo(200 * ms)
		w.released("k")
		p.lock(200 * ms)
	})
}

// spec 8.6: "a lost wake-up costs at most the retry delay", and is reported.
func TestWakeUpLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		w.dial(w.waking())
		w.store.take("k", time.Hour)
		w.LoseWakeups("k", 0)
		p := w.goAcquire(t.Context(), "k", time.Minute)
		w.sleepTo(250 * ms)
		w.released("k")
		p.lock(400 * ms)
		synctest.Wait()
		evs := w.seen(locco.EventWakeUp)
		if len(evs) != 1 || evs[0].Outcome != locco.OutcomeMissed {
			t.Errorf("events = %+v; want a missed wake-up", evs)
		}
	})
}

// spec 3.4: a look that a wake-up or the end of a lease asked for, and that had no
// answer, is repeated long before the retry delay: after 50 ms, and twice that each
// time. It costs no retry.
func TestWakeUpWhoseLookFails(t *testing.T) {
	t.Parallel()
	for name, wake := range map[string]func(w *wire){
		"Release":  func(w *wire) { w.released("k") },
		"LeaseEnd": func(*wire) {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWire(t)
				w.dial(w.waking())
				w.store.take("k", time.Second)
				p := w.goAcquire(t.Context(), "k", time.Minute, locco.Retries(1), locco.RetryDelay(time.Hour))
				w.sleepTo(500 * ms)
				p.waits()
				w.Inject(loccotest.Fault{
					Op: loccotest.Acquire, Times: 3, Effect: loccotest.FailRequest(loccotest.Transient(errors.New("failing over"))),
				})
				start := time.Second
				if wake(w); name == "Release" {
					start = 500 * ms
				}
				p.lock(start + 350*ms)
				w.wantSent(loccotest.Acquire, 0, 0, start, start+50*ms, start+150*ms, start+350*ms)
			})
		})
	}
}

// spec 7.1: the end of a lease, which wakes nobody, is no missed wake-up.
func TestLeaseEndIsNoMissedWakeUp(t *testing.T) {
	t.Parallel()
	for _, lease := range []time.Duration{300 * ms, 400 * ms} { // between two looks, and at one
		synctest.Test(t, func(t *testing.T) {
			w := newWire(t)
			w.dial(w.waking())
			w.store.take("k", lease)
			w.goAcquire(t.Context(), "k", time.Minute).lock(lease)
			synctest.Wait()
			if evs := w.seen(locco.EventWakeUp); len(evs) != 0 {
				t.Errorf("events = %+v; want none", evs)
			}
		})
	}
}

// spec 8.6: spurious wake-ups cost a look each, and nothing else.
func TestWakeUpSpurious(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		w.dial(w.waking())
		w.store.take("k", time.Hour)
		p := w.goAcquire(t.Context(), "k", time.Minute, locco.Retries(1), locco.RetryDelay(time.Second))
		for i := range 5 {
			w.sleepTo(time.Duration(i+1) * 100 * ms)
			w.released("k")
			w.store.take("k", time.Hour)
		}
		p.fails(time.Second, locco.ErrHeld)
		if n := len(w.sent(loccotest.Acquire)); n != 8 {
			t.Errorf("%d looks; want 8: the first, the watch's, five woken, the last", n)
		}
	})
}

// spec 8.6, 7.1: a watch that cannot be set up gives a notice, and is tried again
// after a later refusal, not at once.
func TestWatchFails(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		effect loccotest.Effect
		tries  []time.Duration
	}{
		{"AtOnce", loccotest.FailRequest(errBroken), []time.Duration{0, 200 * ms, 400 * ms}},
		{"Late", loccotest.DropRequest(), []time.Duration{0, 400 * ms, 800 * ms}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWire(t)
				w.store.noLeft = true
				w.dial(w.waking(), locco.WithCallTimeout(300*ms))
				w.store.take("k", time.Hour)
				w.inject(loccotest.Watch, 2, tc.effect)
				p := w.goAcquire(t.Context(), "k", time.Minute)
				w.sleepTo(990 * ms)
				w.wantSent(loccotest.Watch, tc.tries...)
				if evs := w.seen(locco.EventNotice); len(evs) != 2 || evs[0].Err == nil || evs[0].Key != "k" {
					t.Errorf("notices = %+v; want two with key and error", evs)
				}
				w.released("k") // now it is live
				p.lock(990 * ms)
			})
		})
	}
}

// spec 3.4, 8.6: a backend that never blocks and loses no wake-up is not polled.
func TestReliableIsNotPolled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		w.dial(w.reliable())
		w.store.take("k", time.Hour)
		var ps []*pending
		for range 5 {
			ps = append(ps, w.goAcquire(t.Context(), "k", time.Minute, locco.RetryForever(), locco.RetryDelay(50*ms)))
		}
		w.sleepTo(time.Minute)
		w.wantSent(loccotest.Acquire, 0, 0)
		w.released("k")
		for i, p := range ps {
			p.lock(time.Minute).Release(t.Context())
			if n := len(w.sent(loccotest.Acquire)); n > 3+2*i+2 {
				t.Errorf("%d looks for %d grants; want about one each", n, i+1)
			}
		}
	})
}

// spec 3.1: but the budget is counted, and its end is looked at.
func TestReliableSpendsItsBudget(t *testing.T) {
	t.Parallel()
	for _, delay := range []time.Duration{0, 50 * ms} {
		synctest.Test(t, func(t *testing.T) {
			w := newWire(t)
			w.dial(w.reliable())
			w.store.take("k", time.Hour)
			err := w.goAcquire(t.Context(), "k", time.Minute, locco.Retries(4), locco.RetryDelay(delay)).fails(4*delay, locco.ErrHeld)
			if held, ok := errors.AsType[*locco.HeldError](err); !ok || held.Attempts != 5 {
				t.Errorf("Acquire = %#v; want five attempts", err)
			}
			if n := len(w.sent(loccotest.Acquire)); delay > 0 && n > 3 {
				t.Errorf("%d looks; want at most three", n)
			}
		})
	}
}

// A reliable backend whose watch cannot be set up is asked again and again like
// any other, or its waiters would never know.
//
// spec 8.6, 3.4
func TestReliableWatchFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		w.store.noLeft = true
		w.dial(w.reliable())
		w.store.take("k", time.Hour)
		w.inject(loccotest.Watch, 0, loccotest.FailRequest(errBroken))
		p := w.goAcquire(t.Context(), "k", time.Minute, locco.RetryForever())
		w.sleepTo(500 * ms)
		w.store.free("k")
		p.lock(600 * ms)
	})
}

// spec 8.6: a backend that says that it has no wake-ups after all is polled, and
// never asked for a watch again.
func TestWatchUnsupported(t *testing.T) {
	t.Parallel()
	for _, backend := range []func(w *wire) locco.Backend{(*wire).waking, (*wire).reliable} {
		synctest.Test(t, func(t *testing.T) {
			w := newWire(t)
			w.store.noLeft = true
			w.dial(backend(w))
			w.inject(loccotest.Watch, 0, loccotest.FailRequest(errors.ErrUnsupported))
			for i, key := range []string{"j", "k"} {
				from := w.now()
				w.store.take(key, time.Hour)
				p := w.goAcquire(t.Context(), key, time.Minute, locco.RetryForever())
				w.sleepTo(from + 450*ms)
				w.store.free(key)
				p.lock(from + 600*ms)
				if n := len(w.sent(loccotest.Watch)); n != 1 {
					t.Errorf("%d watches after %d keys; want 1", n, i+1)
				}
			}
			if evs := w.seen(locco.EventNotice); len(evs) != 1 || !errors.Is(evs[0].Err, errors.ErrUnsupported) {
				t.Errorf("notices = %+v; want one", evs)
			}
		})
	}
}

// spec 3.5, 8.6: a wake-up that reaches a waiter just as it leaves is not lost to
// the others.
func TestWakeUpOfAWaiterThatLeaves(t *testing.T) {
	t.Parallel()
	for range 20 { // either may come first
		synctest.Test(t, func(t *testing.T) {
			w := newWire(t)
			w.dial(w.waking())
			w.store.take("k", time.Hour)
			ctx, cancel := context.WithCancel(t.Context())
			first := w.goAcquire(ctx, "k", time.Minute, locco.RetryDelay(time.Hour))
			second := w.goAcquire(t.Context(), "k", time.Minute, locco.RetryDelay(time.Hour))
			w.sleepTo(50 * ms)
			var group sync.WaitGroup
			group.Go(cancel)
			group.Go(func() { w.released("k") })
			group.Wait()
			if o := first.wait(); o.err == nil {
				o.lock.Release(t.Context())
			}
			second.lock(50 * ms)
		})
	}
}
