package locco_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/core/loccotest"
)

// spec 3.6, 7.1
func TestHandOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		w.dial(w.handing(), locco.WithFencing())
		l := w.goAcquire(t.Context(), "k", time.Minute).lock(0)
		p := w.goAcquire(t.Context(), "k", 10*time.Second, locco.AutoExtend(time.Minute))
		bound := l.Bind(t.Context())
		w.sleepTo(50 * ms)
		w.inject(loccotest.Transfer, 1, loccotest.DelayAnswer(30*ms))
		if err := l.Release(t.Context()); err != nil {
			t.Errorf("Release = %v; want nil", err)
		}
		next := p.lock(80 * ms)
		if l.State() != locco.StateReleased || !errors.Is(context.Cause(bound), locco.ErrReleased) {
			t.Errorf("State, cause = %v, %v; want released, ErrReleased", l.State(), context.Cause(bound))
		}
		w.wantHolder("k", next)
		// The grant counts from the request: its lease and its hold limit too.
		if got, want := next.Remaining(), 9900*ms-30*ms; got != want {
			t.Errorf("Remaining = %v; want %v", got, want)
		}
		if got, want := time.Until(next.HoldDeadline()), time.Minute-30*ms; got != want {
			t.Errorf("the hold deadline is in %v; want %v", got, want)
		}
		if next.HeldFor() != 30*ms || next.Fence() != 2 || next.Waited() != 80*ms || next.Token() == l.Token() {
			t.Errorf("HeldFor, Fence, Waited = %v, %d, %v; want 30ms, 2, 80ms and a token of its own",
				next.HeldFor(), next.Fence(), next.Waited())
		}
		rs := w.sent(loccotest.Transfer | loccotest.Release)
		if len(rs) != 1 || rs[0].from != l.Token() || rs[0].leases[0] != (locco.Lease{
			Key: "k", Token: next.Token(), TTL: 10 * time.Second, Fenced: true,
		}) {
			t.Errorf("requests = %+v; want one hand-over to the waiter", rs)
		}
		if rs[0].limit != 3*time.Second {
			t.Errorf("its context gives it %v; want the call timeout", rs[0].limit)
		}
		w.wantSent(loccotest.Acquire, 0)
		released := w.seen(locco.EventReleased)
		if len(released) != 1 || released[0].Outcome != locco.OutcomeHandedOver || released[0].TTL != time.Minute {
			t.Errorf("events = %+v; want one release, handed over", released)
		}
		acquired := w.seen(locco.EventAcquired)
		if len(acquired) != 2 || acquired[1] != (locco.Event{
			Kind: locco.EventAcquired, Key: "k", TTL: 10 * time.Second, Waited: 80 * ms, Attempts: 1, Fence: 2,
		}) {
			t.Errorf("events = %+v; want two", acquired)
		}
		w.sleepTo(50*ms + time.Minute)
		if next.State() != locco.StateLost || next.Reason() != locco.ReasonMaxHold {
			t.Errorf("State, Reason = %v, %v; want lost by its own hold limit", next.State(), next.Reason())
		}
	})
}

// spec 3.6: consecutive hand-overs are bounded, and then start anew.
func TestHandOverLimit(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		opts []locco.Option
		want int // hand-overs between two releases
	}{
		{"Default", nil, 8},
		{"Three", []locco.Option{locco.WithHandoverLimit(3)}, 3},
		{"Off", []locco.Option{locco.WithHandoverLimit(0)}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWire(t)
				w.dial(w.handing(), tc.opts...)
				const n = 30
				ps := []*pending{w.goAcquire(t.Context(), "k", time.Hour)}
				for range n {
					ps = append(ps, w.goAcquire(t.Context(), "k", time.Hour, locco.RetryForever()))
				}
				for i, p := range ps {
					at := time.Duration(i) * ms
					w.sleepTo(at)
					l := p.lock(at)
					w.sleepTo(at + ms)
					l.Release(t.Context())
				}
				var got, run []int
				for _, r := range w.sent(loccotest.Transfer | loccotest.Release) {
					if r.op == loccotest.Transfer {
						run = append(run, 1)
						continue
					}
					got = append(got, len(run))
					run = nil
				}
				got = got[:len(got)-1] // the last one has nobody to hand over to
				if slices.ContainsFunc(got, func(n int) bool { return n != tc.want }) || len(got) < n/(tc.want+1)-1 {
					t.Errorf("hand-overs between releases = %v; want %d each time", got, tc.want)
				}
			})
		})
	}
}

// spec 3.6: so that other processes get their turn.
func TestHandOverLimitLetsOthersIn(t *testing.T) {
	t.Parallel()
	for _, foreign := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWire(t)
			lr := w.dial(w, locco.WithHandoverLimit(2)) // with wake-ups
			other := newLocker(t, w.Backend)
			first := w.goAcquire(t.Context(), "k", time.Hour).lock(0)
			var ps []*pending
			for range 4 {
				ps = append(ps, w.goAcquire(t.Context(), "k", time.Hour, locco.RetryForever(), locco.RetryDelay(time.Hour)))
			}
			var theirs *pending
			if foreign {
				theirs = w.start(func() (*locco.Lock, error) {
					return other.Acquire(t.Context(), "k", time.Hour, locco.RetryForever(), locco.RetryDelay(time.Hour))
				})
			}
			first.Release(t.Context())
			ps[0].lock(0).Release(t.Context())
			l := ps[1].lock(0)
			w.sleepTo(10 * ms)
			w.wantSent(loccotest.Transfer, 0, 0)
			if foreign {
				w.hookRequests(func(r request) { // the wake-up goes to both; theirs comes first
					if r.op == loccotest.Acquire {
						time.Sleep(ms)
					}
				})
			}
			l.Release(t.Context())
			w.wantSent(loccotest.Transfer, 0, 0)
			if foreign {
				theirs.lock(10 * ms)
				ps[2].waits()
				theirs.got.lock.Release(t.Context())
			}
			o := ps[2].wait()
			if o.err != nil || o.at > 20*ms {
				t.Fatalf("Acquire = %v at %v; want a lock soon after 10ms", o.err, o.at)
			}
			o.lock.Release(t.Context())
			ps[3].wait()
			_ = lr
		})
	}
}

// spec 3.6, 3.4: at the bound the waiter waits to be woken, and looks by itself
// soon after, in case that is lost.
func TestHandOverLimitWithALostWakeUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		w.dial(w, locco.WithHandoverLimit(1))
		first := w.goAcquire(t.Context(), "k", time.Hour).lock(0)
		w.inject(loccotest.Watch, 1, loccotest.DelayAnswer(100*ms)) // live during the second hold
		ps := []*pending{
			w.goAcquire(t.Context(), "k", time.Hour, locco.RetryDelay(time.Hour)),
			w.goAcquire(t.Context(), "k", time.Hour, locco.RetryDelay(time.Hour)),
		}
		first.Release(t.Context())
		l := ps[0].lock(0)
		w.sleepTo(150 * ms)
		w.LoseWakeups("k", 0)
		l.Release(t.Context())
		ps[1].waits() // for its wake-up, not before everybody else
		if o := ps[1].wait(); o.err != nil || o.at > 200*ms {
			t.Errorf("Acquire = %v at %v; want a lock within 50ms", o.err, o.at)
		}
	})
}

// spec 3.6: "Refused: the releaser's lock is lost (reason release) and the waiter
// looks."
func TestHandOverRefused(t *testing.T) {
	t.Parallel()
	for _, free := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWire(t)
			w.store.noLeft = true
			w.dial(w.handing())
			l := w.goAcquire(t.Context(), "k", time.Minute).lock(0)
			p := w.goAcquire(t.Context(), "k", time.Minute)
			w.sleepTo(50 * ms)
			if free {
				w.store.free("k")
			} else {
				w.store.take("k", time.Hour)
			}
			err := l.Release(t.Context())
			lost, ok := errors.AsType[*locco.LostError](err)
			if !ok || lost.Reason != locco.ReasonRelease || lost.Key != "k" || lost.Err != nil {
				t.Errorf("Release = %#v; want lost, reason release", err)
			}
			if l.State() != locco.StateLost || l.Reason() != locco.ReasonRelease {
				t.Errorf("State, Reason = %v, %v; want lost, release", l.State(), l.Reason())
			}
			if ended, lost := len(w.seen(locco.EventReleased)), len(w.seen(locco.EventLost)); ended != 0 || lost != 1 {
				t.Errorf("%d released and %d lost events; want 0, 1", ended, lost)
			}
			if free {
				p.lock(50 * ms)
			} else {
				w.sleepTo(60 * ms)
				p.waits()
				w.store.free("k")
				p.lock(200 * ms)
			}
			w.wantSent(loccotest.Transfer, 50*ms)
			if rs := w.sent(loccotest.Acquire); rs[1].sent != 50*ms || rs[1].leases[0].Again {
				t.Errorf("%v; want a look at once, not again", rs[1])
			}
		})
	}
}

// spec 3.6: "Unanswered: the waiter looks again with its token."
func TestHandOverUnanswered(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		effect loccotest.Effect
		over   time.Duration // when the hand-over is
		want   error         // of the Release; nil: none
		done   bool          // the hand-over was
	}{
		{"AnswerLost", loccotest.DropAnswer(), 150 * ms, locco.ErrLate, true},
		{"RequestLost", loccotest.DropRequest(), 150 * ms, locco.ErrLate, false},
		{"AnswerFailed", loccotest.FailAnswer(errBroken), 50 * ms, nil, true},
		{"RequestFailed", loccotest.FailRequest(errBroken), 50 * ms, nil, false},
		{"AnswerFailedPassing", loccotest.FailAnswer(errPassing), 50 * ms, nil, true},
		{"AnswerLate", loccotest.LateAnswer(9900 * ms), 9950 * ms, nil, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWire(t)
				w.store.noLeft = true
				w.repeats = true
				w.dial(w.handing(), locco.WithCallTimeout(100*ms), locco.WithFencing())
				l := w.goAcquire(t.Context(), "k", time.Minute).lock(0)
				p := w.goAcquire(t.Context(), "k", 10*time.Second, locco.RetryForever())
				w.sleepTo(50 * ms)
				w.inject(loccotest.Transfer, 1, tc.effect)
				err := l.Release(t.Context())
				if !errors.Is(err, tc.want) || tc.want == nil && err != nil {
					t.Errorf("Release = %v; want %v", err, tc.want)
				}
				matchesNone(t, err, context.DeadlineExceeded, locco.ErrLost)
				synctest.Wait()
				rs := w.sent(loccotest.Acquire)
				if len(rs) < 2 || rs[1].sent != tc.over || !rs[1].leases[0].Again || rs[1].token != w.sent(loccotest.Transfer)[0].token {
					t.Fatalf("looks = %v; want the waiter's second with its token, again, at %v", rs, tc.over)
				}
				if !tc.done && tc.want != nil { // the key is still the releaser's, who can try again
					p.waits()
					w.wantHolder("k", l)
					if err := l.Release(t.Context()); err != nil {
						t.Errorf("second Release = %v; want nil", err)
					}
				}
				next := p.lock(tc.over)
				w.wantHolder("k", next)
				if next.Remaining() != 9900*ms {
					t.Errorf("Remaining = %v; want 9.9s, counted from the look", next.Remaining())
				}
				if want := int64(2); tc.done && next.Fence() != want+1 || !tc.done && next.Fence() != want {
					t.Errorf("Fence = %d; want a new one by the look", next.Fence())
				}
				if tc.done && tc.want != nil { // "not ours" then counts as released (spec 5.4)
					if err := l.Release(t.Context()); err != nil {
						t.Errorf("second Release = %v; want nil", err)
					}
				}
			})
		})
	}
}

// spec 3.6, 5.4: what a hand-over needs and a release does not, such as memory or a lease
// that is long enough, does not keep the key: it is freed.
func TestHandOverFailedFreesTheKey(t *testing.T) {
	t.Parallel()
	invalid := &locco.ValidationError{Field: "ttl", Rule: "must be longer"}
	for _, tc := range []struct {
		name   string
		effect loccotest.Effect
		stolen bool
		broken bool    // the release after it too
		want   []error // of the Release
	}{
		{name: "Failed", effect: loccotest.FailRequest(errBroken)},
		{name: "FailedForGood", effect: loccotest.FailRequest(errBroken), broken: true, want: []error{errBroken, errPassing}},
		{name: "Invalid", effect: loccotest.FailRequest(invalid)},
		{name: "InvalidAndGone", effect: loccotest.FailRequest(invalid), stolen: true, want: []error{locco.ErrLost}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWire(t)
				w.dial(w.handing())
				l := w.goAcquire(t.Context(), "k", time.Minute).lock(0)
				p := w.goAcquire(t.Context(), "k", 2*time.Minute, locco.RetryDelay(time.Hour))
				w.sleepTo(50 * ms)
				if tc.stolen {
					w.store.take("k", time.Minute)
				}
				w.inject(loccotest.Transfer, 1, tc.effect)
				if tc.broken {
					w.inject(loccotest.Release, 1, loccotest.FailRequest(errPassing))
				}
				err := l.Release(t.Context())
				if tc.want == nil && err != nil {
					t.Errorf("Release = %v; want nil", err)
				}
				for _, want := range tc.want {
					if !errors.Is(err, want) {
						t.Errorf("Release = %v; want %v", err, want)
					}
				}
				if rs := w.sent(loccotest.Release); len(rs) != 1 || rs[0].token != l.Token() {
					t.Errorf("releases = %v; want one, by the holder's token", rs)
				}
				if tc.want == nil {
					w.wantHolder("k", p.lock(50*ms))
				} else {
					p.waits()
				}
			})
		})
	}
}

// A waiter with a short lease cuts the hand-over's call short (spec 8); the
// releaser's own time does not end with it.
//
// spec 3.6, 5.4
func TestHandOverToAShortLease(t *testing.T) {
	t.Parallel()
	for _, effect := range []loccotest.Effect{loccotest.DropRequest(), loccotest.DropAnswer()} {
		synctest.Test(t, func(t *testing.T) {
			w := newWire(t)
			w.store.noLeft = true
			w.dial(w.handing())
			l := w.goAcquire(t.Context(), "k", time.Minute).lock(0)
			p := w.goAcquire(t.Context(), "k", 50*ms, locco.RetryDelay(time.Hour))
			w.inject(loccotest.Transfer, 1, effect)
			if err := l.Release(t.Context()); err != nil || w.now() != 50*ms {
				t.Errorf("Release = %v at %v; want nil at 50ms", err, w.now())
			}
			w.wantHolder("k", p.lock(50*ms))
			w.wantReleased(l.Token())
		})
	}
}

// spec 3.6: not before the end of a HoldAtLeast.
func TestHandOverNotBeforeHoldAtLeast(t *testing.T) {
	t.Parallel()
	for _, early := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWire(t)
			w.dial(w.handing())
			l := w.goAcquire(t.Context(), "k", time.Minute, locco.HoldAtLeast(time.Second)).lock(0)
			p := w.goAcquire(t.Context(), "k", time.Minute, locco.RetryForever(), locco.RetryDelay(time.Hour))
			at := 1000 * ms
			if early {
				at = 400 * ms
			}
			w.sleepTo(at)
			if err := l.Release(t.Context()); err != nil {
				t.Errorf("Release = %v; want nil", err)
			}
			if early {
				w.sleepTo(999 * ms)
				p.waits()
				w.wantHolder("k", l)
				w.wantSent(loccotest.Transfer)
			}
			p.lock(time.Second) // as soon as the key is free
			if !early {
				w.wantSent(loccotest.Transfer, time.Second)
			}
		})
	}
}

// spec 3.6: with nobody waiting, with a backend that cannot, and on a lost lock
// there is nothing to hand over.
func TestNoHandOver(t *testing.T) {
	t.Parallel()
	t.Run("NobodyWaits", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWire(t)
			w.dial(w.handing())
			w.goAcquire(t.Context(), "k", time.Minute).lock(0).Release(t.Context())
			w.wantSent(loccotest.Transfer)
			w.wantSent(loccotest.Release, 0)
		})
	})
	t.Run("Lost", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWire(t)
			w.dial(w.handing())
			l := w.goAcquire(t.Context(), "k", time.Second).lock(0)
			w.store.take("k", time.Hour)
			p := w.goAcquire(t.Context(), "k", time.Minute, locco.RetryDelay(time.Hour))
			w.sleepTo(time.Second)
			if err := l.Release(t.Context()); !errors.Is(err, locco.ErrLost) {
				t.Errorf("Release = %v; want ErrLost", err)
			}
			w.wantSent(loccotest.Transfer)
			w.wantSent(loccotest.Release, time.Second)
			p.waits()
			w.store.free("k")
		})
	})
	t.Run("Unsupported", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWire(t)
			w.dial(w.handing())
			w.inject(loccotest.Transfer, 0, loccotest.FailRequest(errors.ErrUnsupported))
			l := w.goAcquire(t.Context(), "k", time.Minute).lock(0)
			p := w.goAcquire(t.Context(), "k", time.Minute)
			q := w.goAcquire(t.Context(), "k", time.Minute)
			w.inject(loccotest.Release, 1, loccotest.DelayRequest(50*ms))
			if err := l.Release(t.Context()); err != nil {
				t.Errorf("Release = %v; want nil", err)
			}
			p.lock(50 * ms).Release(t.Context())
			q.lock(50 * ms)
			w.wantSent(loccotest.Transfer, 0)              // never again
			w.wantSent(loccotest.Release, 0, 50*ms)        // the ordinary ones
			w.wantSent(loccotest.Acquire, 0, 50*ms, 50*ms) // not while it was held here
			if evs := w.seen(locco.EventNotice); len(evs) != 1 || !errors.Is(evs[0].Err, errors.ErrUnsupported) {
				t.Errorf("notices = %+v; want one", evs)
			}
		})
	})
}

// spec 2.6, 3.6: with hand-over turned off, what a waiter that left has won is
// given back, not handed over.
func TestHandOverLimitOfGivenUpGrants(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		w.dial(w.handing(), locco.WithHandoverLimit(0))
		ctx, cancel := context.WithTimeout(t.Context(), 50*ms)
		defer cancel()
		w.inject(loccotest.Acquire, 1, loccotest.DelayAnswer(100*ms))
		p := w.goAcquire(ctx, "k", time.Minute)
		next := w.goAcquire(t.Context(), "k", time.Minute)
		p.fails(50*ms, context.DeadlineExceeded)
		next.lock(100 * ms)
		w.wantSent(loccotest.Transfer)
		w.wantReleased(w.sent(loccotest.Acquire)[0].token)
	})
}

// spec 3.6, 3.1: a waiter whose time runs out during the hand-over still gets the
// key: what is in flight may finish.
func TestHandOverAtTheTimeout(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		opt  locco.CallOption
	}{
		{"Timeout", locco.RetryTimeout(100 * ms)},
		{"Retries", locco.Retries(1)},
	} {
		eachNow(t, tc.name, func(t *testing.T, w *wire) {
			lr := w.dial(w.handing())
			l := w.goAcquire(t.Context(), "k", time.Minute).lock(0)
			p := w.goAcquire(t.Context(), "k", time.Minute, locco.RetryDelay(100*ms), tc.opt)
			w.sleepTo(90 * ms)
			w.inject(loccotest.Transfer, 1, loccotest.DelayAnswer(50*ms))
			l.Release(t.Context())
			next := p.lock(140 * ms)
			w.wantHolder("k", next)
			next.Release(t.Context())
			synctest.Wait()
			if n := locco.Rooms(lr); n != 0 {
				t.Errorf("the locker has state for %d keys; want none", n)
			}
		})
	}
}

// spec 3.6: if the hand-over then fails, so does the call whose time is over.
func TestHandOverFailsAfterTheTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		w.dial(w.handing(), locco.WithCallTimeout(50*ms))
		l := w.goAcquire(t.Context(), "k", time.Minute).lock(0)
		p := w.goAcquire(t.Context(), "k", time.Minute, locco.RetryTimeout(100*ms))
		next := w.goAcquire(t.Context(), "k", time.Minute)
		w.sleepTo(90 * ms)
		w.inject(loccotest.Transfer, 1, loccotest.DropAnswer())
		if err := l.Release(t.Context()); !errors.Is(err, locco.ErrLate) {
			t.Errorf("Release = %v; want ErrLate", err)
		}
		p.fails(140 * ms)
		next.lock(140 * ms) // its token is undone, and the next one is woken
		w.wantReleased(w.sent(loccotest.Transfer)[0].token)
	})
}

// Closing while a hand-over is under way frees the key.
//
// spec 5.6, 3.6
func TestHandOverWhileClosing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		lr := w.dial(w.handing())
		l := w.goAcquire(t.Context(), "k", time.Minute).lock(0)
		p := w.goAcquire(t.Context(), "k", time.Minute)
		w.inject(loccotest.Transfer, 1, loccotest.DelayAnswer(50*ms))
		released := make(chan error, 1)
		go func() { released <- l.Release(context.Background()) }()
		synctest.Wait()
		if err := lr.Close(t.Context()); err != nil {
			t.Errorf("Close = %v; want nil", err)
		}
		p.fails(0, locco.ErrClosed)
		if err := <-released; err != nil {
			t.Errorf("Release = %v; want nil", err)
		}
		synctest.Wait()
		w.wantHolder("k", nil)
	})
}
