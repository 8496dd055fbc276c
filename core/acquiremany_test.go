package locco_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/core/loccotest"
)

// sets is plain with sets in one step and extensions of several.
func (w *wire) sets() locco.Backend {
	return struct {
		locco.Backend
		locco.Fencer
		locco.Retryer
		locco.ManyAcquirer
		locco.ManyExtender
	}{w, w, w, w, w}
}

// many is an AcquireMany on a goroutine of its own.
type many struct {
	w    *wire
	set  *locco.LockSet
	err  error
	at   time.Duration
	done chan struct{}
}

func (w *wire) goMany(ctx context.Context, keys []string, ttl time.Duration, opts ...locco.CallOption) *many {
	m := &many{w: w, done: make(chan struct{})}
	go func() {
		defer close(m.done)
		m.set, m.err = w.locker.AcquireMany(ctx, keys, ttl, opts...)
		m.at = w.now()
	}()
	synctest.Wait()
	return m
}

// gets checks that the call gets its locks at want.
func (m *many) gets(want time.Duration) *locco.LockSet {
	m.w.t.Helper()
	<-m.done
	if m.err != nil {
		m.w.t.Fatalf("AcquireMany = %v at %v; want a set", m.err, m.at)
	}
	if m.at != want {
		m.w.t.Errorf("AcquireMany got its set at %v; want %v", m.at, want)
	}
	for _, l := range m.set.Locks() {
		m.w.wantHolder(l.Key(), l)
		if l.State() != locco.StateHeld {
			m.w.t.Errorf("%q is %v; want held", l.Key(), l.State())
		}
	}
	return m.set
}

// fails checks that the call fails at want with an error that matches all of
// targets and names key, and that none of keys is left held.
func (m *many) fails(want time.Duration, key string, keys []string, targets ...error) error {
	m.w.t.Helper()
	<-m.done
	if m.err == nil {
		m.w.t.Fatalf("AcquireMany got a set at %v; want an error", m.at)
	}
	if m.set != nil {
		m.w.t.Errorf("AcquireMany = a set and %v; want no set", m.err)
	}
	if m.at != want {
		m.w.t.Errorf("AcquireMany failed at %v; want %v", m.at, want)
	}
	for _, target := range targets {
		if !errors.Is(m.err, target) {
			m.w.t.Errorf("AcquireMany = %v; want an error that matches %v", m.err, target)
		}
	}
	if !strings.Contains(m.err.Error(), fmt.Sprintf("%q", key)) {
		m.w.t.Errorf("AcquireMany = %v; want the key %q in it", m.err, key)
	}
	synctest.Wait()
	for _, key := range keys {
		m.w.wantHolder(key, nil)
	}
	return m.err
}

func keysOf(set *locco.LockSet) (keys []string) {
	for _, l := range set.Locks() {
		keys = append(keys, l.Key())
	}
	return keys
}

// spec 2.5: duplicates are removed, keys are sorted by bytes; one atomic step
// where the backend can, else one by one.
func TestAcquireMany(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name     string
		backend  func(w *wire) locco.Backend
		together bool
	}{
		{"Together", (*wire).sets, true},
		{"InTurn", (*wire).plain, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWire(t)
				w.dial(tc.backend(w), locco.WithPrefix("p:"), locco.WithFencing())
				set := w.goMany(t.Context(), []string{"b", "é", "a", "b", "Z", "a"}, time.Minute).gets(0)
				want := []string{"p:Z", "p:a", "p:b", "p:é"}
				if got := keysOf(set); !slices.Equal(got, want) {
					t.Errorf("keys = %q; want %q", got, want)
				}
				var asked []string
				for _, r := range w.sent(loccotest.AnyAcquire) {
					for _, l := range r.leases {
						asked = append(asked, l.Key)
						if !l.Fenced || l.TTL != time.Minute || l.Again {
							t.Errorf("the backend was asked for %+v", l)
						}
					}
				}
				if !slices.Equal(asked, want) {
					t.Errorf("the keys were asked for in the order %q; want %q", asked, want)
				}
				if n := len(w.sent(loccotest.AcquireMany)); (n == 1) != tc.together {
					t.Errorf("%d atomic steps; want one: %v", n, tc.together)
				}
				tokens := map[string]bool{}
				for i, l := range set.Locks() {
					tokens[l.Token()] = true
					if l.Fence() != int64(i+1) || l.Waited() != 0 || l.Attempts() != 1 {
						t.Errorf("%q: Fence, Waited, Attempts = %d, %v, %d", l.Key(), l.Fence(), l.Waited(), l.Attempts())
					}
				}
				if len(tokens) != 4 || set.Get("b") != set.Locks()[2] || set.Get("c") != nil {
					t.Errorf("tokens = %v; want four, and Get to find them", tokens)
				}
				if n := len(w.seen(locco.EventAcquired)); n != 4 {
					t.Errorf("%d acquired events; want 4", n)
				}
				if n := len(w.sent(loccotest.AnyExtend)); tc.together && n != 0 {
					t.Errorf("%d extensions; want none: the leases began together", n)
				}
				if err := set.Release(t.Context()); err != nil {
					t.Errorf("Release = %v; want nil", err)
				}
				for _, key := range want {
					w.wantHolder(key, nil)
				}
			})
		})
	}
}

// spec 2.5
func TestAcquireManyOfOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		w.dial(nil)
		set := w.goMany(t.Context(), []string{"k", "k"}, time.Minute).gets(0)
		if len(set.Locks()) != 1 || len(w.sent(^loccotest.Op(0))) != 1 {
			t.Errorf("%d locks for %d commands; want 1 and 1", len(set.Locks()), len(w.sent(^loccotest.Op(0))))
		}
	})
}

// spec 1.9, 2.5
func TestAcquireManyInvalid(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		keys []string
		ttl  time.Duration
	}{
		{"NoKeys", nil, time.Minute},
		{"OneBadKey", []string{"a", "", "c"}, time.Minute},
		{"BadTTL", []string{"a", "b"}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWire(t)
				lr := w.dial(nil)
				if _, err := lr.AcquireMany(t.Context(), tc.keys, tc.ttl); !errors.Is(err, locco.ErrInvalid) {
					t.Errorf("AcquireMany = %v; want ErrInvalid", err)
				}
				if rs := w.sent(^loccotest.Op(0)); len(rs) != 0 {
					t.Errorf("commands = %v; want none", rs)
				}
			})
		})
	}
}

// spec 2.5: the atomic step is tried once, when no key has local holders or
// waiters.
func TestAcquireManyTogetherOnce(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		before func(t *testing.T, w *wire)
		steps  int
	}{
		{"Free", func(*testing.T, *wire) {}, 1},
		{"HeldElsewhere", func(_ *testing.T, w *wire) { w.store.take("b", 500*ms) }, 1},
		{"HeldHere", func(t *testing.T, w *wire) {
			l := w.goAcquire(t.Context(), "b", time.Minute).lock(0)
			time.AfterFunc(500*ms, func() { l.Release(context.Background()) })
		}, 0},
		{"WaitedForHere", func(t *testing.T, w *wire) {
			w.store.take("b", 500*ms)
			p := w.goAcquire(t.Context(), "b", time.Minute)
			time.AfterFunc(600*ms, func() { p.lock(500 * ms).Release(context.Background()) })
		}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWire(t)
				w.dial(w.sets())
				tc.before(t, w)
				m := w.goMany(t.Context(), []string{"a", "b", "c"}, time.Minute, locco.RetryForever())
				<-m.done
				if m.err != nil {
					t.Errorf("AcquireMany = %v; want a set", m.err)
				}
				if n := len(w.sent(loccotest.AcquireMany)); n != tc.steps {
					t.Errorf("%d atomic steps; want %d", n, tc.steps)
				}
			})
		})
	}
}

// spec 2.5, 7.1
func TestAcquireManyRefusedTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		w.store.noLeft = true
		w.dial(w.sets())
		w.store.take("b", time.Hour)
		m := w.goMany(t.Context(), []string{"c", "b", "a"}, time.Minute)
		w.sleepTo(100 * ms)
		w.store.free("b")
		set := m.gets(200 * ms)
		w.wantSent(loccotest.AcquireMany, 0)
		if a, b := set.Get("a"), set.Get("b"); a.Waited() != 0 || b.Waited() != 200*ms {
			t.Errorf("Waited = %v, %v; want 0, 200ms", a.Waited(), b.Waited())
		}
		evs := w.seen(locco.EventContended)
		for _, ev := range evs {
			if ev.Key != "b" || ev.Reason != locco.ReasonHeld {
				t.Errorf("event = %+v; want b held", ev)
			}
		}
		if len(evs) != 2 { // the step, and the first look
			t.Errorf("%d contended events; want 2", len(evs))
		}
	})
}

// spec 2.5: a set that the backend cannot take in one step is taken one by one;
// the next set is another matter.
func TestAcquireManyUnsupported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		w.dial(w.sets())
		w.inject(loccotest.AcquireMany, 1, loccotest.FailRequest(errors.ErrUnsupported))
		set := w.goMany(t.Context(), []string{"a", "b"}, time.Minute).gets(0)
		w.wantSent(loccotest.Acquire, 0, 0)
		w.wantSent(loccotest.Release) // nothing was stored
		set.Release(t.Context())
		w.goMany(t.Context(), []string{"a", "b"}, time.Minute).gets(0)
		w.wantSent(loccotest.AcquireMany, 0, 0)
		w.wantSent(loccotest.Acquire, 0, 0)
	})
}

// spec 2.5: locks already taken are kept alive until the set is returned, and
// refreshed before that, whatever their options say; then they are as these say.
func TestAcquireManyKeepsWhatItHas(t *testing.T) {
	t.Parallel()
	for _, auto := range []bool{false, true} {
		for _, backend := range []func(w *wire) locco.Backend{(*wire).plain, (*wire).sets} {
			synctest.Test(t, func(t *testing.T) {
				w := newWire(t)
				w.dial(backend(w))
				w.store.take("b", 10*time.Second)
				opts := []locco.CallOption{locco.RetryForever()}
				if auto {
					opts = append(opts, locco.AutoExtend(time.Minute))
				}
				m := w.goMany(t.Context(), []string{"a", "b", "c"}, time.Second, opts...)
				for i := range 9 {
					w.sleepTo(time.Duration(i+1)*time.Second + 500*ms)
					if w.store.holder("a") == "" || w.store.holder("c") != "" {
						t.Errorf("after %v: a is held by %q, c by %q; want a kept, c not yet taken", w.now(), w.store.holder("a"), w.store.holder("c"))
					}
				}
				set := m.gets(10 * time.Second)
				for _, l := range set.Locks() {
					if l.Remaining() != 990*ms {
						t.Errorf("%q: Remaining = %v; want a whole lease", l.Key(), l.Remaining())
					}
				}
				w.sleepTo(11500 * ms)
				a, b := set.Get("a"), set.Get("b")
				if !auto {
					for _, l := range set.Locks() {
						if l.State() != locco.StateLost || l.Reason() != locco.ReasonExpired {
							t.Errorf("%q is %v (%v); want it expired, since nothing extends it any more", l.Key(), l.State(), l.Reason())
						}
					}
					return
				}
				// Each counts its own hold deadline.
				if a.State() != locco.StateHeld || b.HoldDeadline().Sub(a.HoldDeadline()) != 10*time.Second {
					t.Errorf("a is %v, the hold deadlines are %v apart; want held, 10s", a.State(), b.HoldDeadline().Sub(a.HoldDeadline()))
				}
			})
		}
	}
}

// spec 2.5: with auto-extension, each lock counts its own hold deadline, from its
// acquisition, also while later ones are waited for.
func TestAcquireManyLosesAnEarlyLock(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		opts   []locco.CallOption
		do     func(w *wire)
		reason locco.Reason
		at     time.Duration
	}{
		{"MaxHold", []locco.CallOption{locco.AutoExtend(5 * time.Second)}, nil, locco.ReasonMaxHold, 5 * time.Second},
		{"Stolen", nil, func(w *wire) { w.store.take("a", time.Hour) }, locco.ReasonExtend, 5 * time.Second},
		{"ExtensionsFail", nil, func(w *wire) {
			w.inject(loccotest.AnyExtend, 0, loccotest.FailRequest(errBroken))
		}, locco.ReasonExtendFailed, 4*time.Second + 2970*ms},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWire(t)
				w.dial(w.plain())
				w.store.take("b", time.Hour)
				m := w.goMany(t.Context(), []string{"a", "b", "c"}, 3*time.Second, append(tc.opts, locco.RetryForever())...)
				w.sleepTo(4500 * ms)
				if tc.do != nil {
					tc.do(w)
				}
				<-m.done
				w.Clear()
				err := m.err
				lost, ok := errors.AsType[*locco.LostError](err)
				if !ok || lost.Key != "a" || lost.Reason != tc.reason {
					t.Errorf("AcquireMany = %#v; want a lost, %v", err, tc.reason)
				}
				matchesNone(t, err, context.Canceled, locco.ErrHeld)
				if m.at != tc.at {
					t.Errorf("AcquireMany failed at %v; want %v", m.at, tc.at)
				}
				synctest.Wait()
				w.wantHolder("c", nil)
			})
		})
	}
}

// spec 2.5: one budget for the whole set, and a retry count for each key.
func TestAcquireManyBudget(t *testing.T) {
	t.Parallel()
	t.Run("CountsPerKey", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWire(t)
			w.store.noLeft = true
			w.dial(w.plain())
			w.store.take("a", 150*ms)
			w.store.take("b", 350*ms)
			w.goMany(t.Context(), []string{"a", "b"}, time.Minute, locco.Retries(2), locco.RetryDelay(100*ms)).gets(400 * ms)
		})
	})
	t.Run("OneTimeout", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWire(t)
			w.dial(w.plain())
			w.store.take("a", 300*ms)
			w.store.take("b", time.Hour)
			m := w.goMany(t.Context(), []string{"a", "b", "c"}, time.Minute, locco.RetryTimeout(500*ms))
			err := m.fails(500*ms, "b", []string{"a", "c"}, locco.ErrHeld)
			if held, ok := errors.AsType[*locco.HeldError](err); !ok || held.Key != "b" || held.Elapsed != 500*ms {
				t.Errorf("AcquireMany = %#v; want b held for 500ms", err)
			}
		})
	})
	t.Run("NoLookAfterTheTimeout", func(t *testing.T) {
		t.Parallel()
		for _, lost := range []bool{false, true} { // the atomic step before
			synctest.Test(t, func(t *testing.T) {
				w := newWire(t)
				w.dial(w.sets(), locco.WithCallTimeout(200*ms))
				at := 100 * ms
				if lost {
					w.inject(loccotest.AcquireMany, 1, loccotest.DropRequest())
					at += 200 * ms
				} else {
					w.inject(loccotest.AcquireMany, 1, loccotest.FailRequest(errors.ErrUnsupported))
				}
				w.inject(loccotest.Acquire, 1, loccotest.DelayAnswer(100*ms)) // may finish
				m := w.goMany(t.Context(), []string{"a", "b", "c"}, time.Minute, locco.RetryTimeout(at-50*ms))
				m.fails(at, "b", []string{"a", "b", "c"})
				w.wantSent(loccotest.Acquire, at-100*ms)
				if n := len(w.sent(loccotest.Release)); lost && n != 3 || !lost && n != 1 {
					t.Errorf("%d releases; want one for each token that may be stored", n)
				}
				if evs := w.seen(locco.EventAcquireFailed); len(evs) != 1 || evs[0].Key != "b" || evs[0].Err == nil {
					t.Errorf("events = %+v; want one of a failed acquire, of b", evs)
				}
			})
		}
	})
}

// spec 2.5: if one key fails, every acquired lock is released, and the error
// names the key.
func TestAcquireManyFails(t *testing.T) {
	t.Parallel()
	keys := []string{"a", "b", "c"}
	for _, tc := range []struct {
		name   string
		before func(w *wire)
		want   error
		key    string
		left   []string // that must be free
		at     time.Duration
	}{
		{"Held", func(w *wire) { w.store.take("b", time.Hour) }, locco.ErrHeld, "b", []string{"a", "c"}, 200 * ms},
		{"Broken", func(w *wire) {
			w.Inject(loccotest.Fault{Op: loccotest.Acquire, Key: "b", Effect: loccotest.FailAnswer(errBroken)})
		}, errBroken, "b", keys, 0},
		{"Passing", func(w *wire) {
			w.Inject(loccotest.Fault{Op: loccotest.Acquire, Key: "b", Effect: loccotest.FailAnswer(errPassing)})
		}, errPassing, "b", keys, 200 * ms},
		{"Late", func(w *wire) {
			w.Inject(loccotest.Fault{Op: loccotest.Acquire, Key: "c", Effect: loccotest.DropAnswer()})
		}, locco.ErrLate, "c", keys, 400 * ms},
		{"RefreshFails", func(w *wire) {
			w.Inject(loccotest.Fault{Op: loccotest.AnyExtend, Key: "b", Effect: loccotest.FailRequest(errBroken)})
		}, errBroken, "b", keys, 0},
		{"RefreshLost", func(w *wire) {
			w.hookRequests(func(r request) {
				if r.op == loccotest.Extend && r.key == "b" {
					w.store.free("b")
				}
			})
		}, locco.ErrLost, "b", keys, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWire(t)
				w.dial(w.plain(), locco.WithCallTimeout(100*ms))
				tc.before(w)
				w.goMany(t.Context(), []string{"c", "b", "a"}, time.Minute, locco.Retries(1)).fails(tc.at, tc.key, tc.left, tc.want)
				rs := w.sent(loccotest.Acquire)
				if last := rs[len(rs)-1].key; tc.key == "b" && tc.want != locco.ErrLost && tc.name != "RefreshFails" && last == "c" {
					t.Error("c was asked for after b had failed")
				}
			})
		})
	}
}

// spec 2.5, 3.7: so is the refresh of a set tried again when it fails by something that
// passes by itself.
func TestAcquireManyRefreshPasses(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		times  int
		effect loccotest.Effect
		opts   []locco.CallOption
		at     time.Duration
		want   error
	}{
		{"Once", 1, loccotest.FailRequest(errPassing), nil, 200 * ms, nil},
		{"Late", 1, loccotest.DropAnswer(), nil, 300 * ms, nil},
		{"AllRetries", 3, loccotest.FailRequest(errPassing), []locco.CallOption{locco.Retries(3)}, 600 * ms, nil},
		{"TooOften", 4, loccotest.FailRequest(errPassing), []locco.CallOption{locco.Retries(3)}, 600 * ms, errPassing},
		{"Timeout", 9, loccotest.FailRequest(errPassing), []locco.CallOption{locco.RetryTimeout(500 * ms)}, 400 * ms, errPassing},
		{"Stays", 1, loccotest.FailRequest(errBroken), nil, 0, errBroken},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWire(t)
				w.dial(w.plain(), locco.WithCallTimeout(100*ms))
				w.Inject(loccotest.Fault{Op: loccotest.AnyExtend, Key: "b", Times: tc.times, Effect: tc.effect})
				m := w.goMany(t.Context(), []string{"a", "b"}, time.Minute, tc.opts...)
				if tc.want != nil {
					m.fails(tc.at, "b", []string{"a", "b"}, tc.want)
					return
				}
				for _, l := range m.gets(tc.at).Locks() {
					if l.Remaining() != time.Minute-600*ms && tc.name != "Late" { // whose answer took its time
						t.Errorf("%q: Remaining = %v; want a whole lease", l.Key(), l.Remaining())
					}
				}
			})
		})
	}
}

// spec 5.6: Close ends the wait before the refresh is tried again.
func TestAcquireManyRefreshEndsWithClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		lr := w.dial(w.plain())
		w.Inject(loccotest.Fault{Op: loccotest.AnyExtend, Key: "b", Effect: loccotest.FailRequest(errPassing)})
		m := w.goMany(t.Context(), []string{"a", "b"}, time.Minute)
		w.sleepTo(50 * ms)
		if err := lr.Close(t.Context()); err != nil {
			t.Errorf("Close = %v; want nil", err)
		}
		m.fails(50*ms, "a", []string{"a", "b"}, locco.ErrClosed)
	})
}

// spec 2.5, 3.7: an error that stays is returned, though another key's passes.
func TestAcquireManyRefreshPartlyStays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		w.dial(w.plain())
		w.Inject(loccotest.Fault{Op: loccotest.AnyExtend, Key: "a", Effect: loccotest.FailRequest(errPassing)})
		w.Inject(loccotest.Fault{Op: loccotest.AnyExtend, Key: "b", Effect: loccotest.FailRequest(errBroken)})
		w.goMany(t.Context(), []string{"a", "b"}, time.Minute).fails(0, "b", []string{"a", "b"}, errBroken)
	})
}

// spec 2.5, 2.6: nor does the wait before the refresh is tried again outlast the caller's
// context.
func TestAcquireManyRefreshEndsWithTheContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		w.dial(w.plain())
		w.Inject(loccotest.Fault{Op: loccotest.AnyExtend, Key: "b", Effect: loccotest.FailRequest(errPassing)})
		ctx, cancel := context.WithTimeout(t.Context(), 50*ms)
		defer cancel()
		m := w.goMany(ctx, []string{"a", "b"}, time.Minute)
		m.fails(50*ms, "a", []string{"a", "b"}, context.DeadlineExceeded)
	})
}

// spec 5.5: HoldAtLeast does not count for a set that could not be had whole.
func TestAcquireManyFailsWithHoldAtLeast(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		w.dial(w.plain())
		w.store.take("b", time.Hour)
		m := w.goMany(t.Context(), []string{"a", "b"}, time.Minute, locco.HoldAtLeast(time.Minute), locco.Retries(0))
		m.fails(0, "b", []string{"a"}, locco.ErrHeld)
	})
}

// spec 2.5, 2.6: a lost answer of the atomic step: the keys are taken one by one
// with the same tokens.
func TestAcquireManyAnswerLost(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		effect loccotest.Effect
		over   time.Duration
	}{
		{"AnswerLost", loccotest.DropAnswer(), 100 * ms},
		{"RequestLost", loccotest.DropRequest(), 100 * ms},
		{"AnswerFailed", loccotest.FailAnswer(errPassing), 0},
		{"RequestFailed", loccotest.FailRequest(errPassing), 0},
		{"AnswerLate", loccotest.LateAnswer(9900 * ms), 9900 * ms},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWire(t)
				w.dial(w.sets(), locco.WithCallTimeout(100*ms), locco.WithFencing())
				w.inject(loccotest.AcquireMany, 1, tc.effect)
				set := w.goMany(t.Context(), []string{"a", "b"}, 10*time.Second).gets(tc.over)
				for i, l := range set.Locks() {
					if token := w.sent(loccotest.AcquireMany)[0].leases[i].Token; l.Token() != token {
						t.Errorf("%q has the token %q; want that of the atomic step", l.Key(), l.Token())
					}
				}
				w.wantSent(loccotest.Acquire, tc.over, tc.over)
				w.wantSent(loccotest.Release)
			})
		})
	}
}

// spec 2.5, 2.6: what a lost atomic step may have stored is undone, once, when
// the set fails.
func TestAcquireManyAnswerLostThenFails(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		cause func(w *wire, cancel context.CancelFunc)
		key   string
		want  []error
	}{
		{"Held", func(w *wire, _ context.CancelFunc) { w.store.take("b", 5*time.Second) }, "b", []error{locco.ErrHeld}},
		{"FirstHeld", func(w *wire, _ context.CancelFunc) { w.store.take("a", 5*time.Second) }, "a", []error{locco.ErrHeld}},
		{"Broken", func(w *wire, _ context.CancelFunc) {
			w.Inject(loccotest.Fault{Op: loccotest.Acquire, Key: "b", Effect: loccotest.FailRequest(errBroken)})
		}, "b", []error{errBroken}},
		{"Canceled", func(w *wire, cancel context.CancelFunc) {
			w.store.take("b", 5*time.Second)
			time.AfterFunc(250*ms, cancel)
		}, "b", []error{context.Canceled, locco.ErrHeld}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWire(t)
				w.store.noLeft = true
				w.dial(w.sets(), locco.WithCallTimeout(100*ms))
				w.inject(loccotest.AcquireMany, 1, loccotest.DropRequest())
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				tc.cause(w, cancel)
				m := w.goMany(ctx, []string{"a", "b", "c"}, time.Minute, locco.Retries(2))
				<-m.done
				for _, want := range tc.want {
					if !errors.Is(m.err, want) {
						t.Errorf("AcquireMany = %v; want an error that matches %v", m.err, want)
					}
				}
				w.sleepTo(10 * time.Second)
				for i, key := range []string{"a", "b", "c"} {
					w.wantHolder(key, nil)
					w.wantReleased(w.sent(loccotest.AcquireMany)[0].leases[i].Token)
				}
			})
		})
	}
}

// spec 2.5, 3.7: an error of the atomic step that stays.
func TestAcquireManyBrokenTogether(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		err      error
		released int
	}{{errBroken, 2}, {errSetUpWrong, 0}} {
		synctest.Test(t, func(t *testing.T) {
			w := newWire(t)
			w.dial(w.sets())
			w.inject(loccotest.AcquireMany, 1, loccotest.FailAnswer(tc.err))
			if tc.released == 0 {
				w.Clear()
				w.inject(loccotest.AcquireMany, 1, loccotest.FailRequest(tc.err))
			}
			m := w.goMany(t.Context(), []string{"a", "b"}, time.Minute)
			<-m.done
			if !errors.Is(m.err, tc.err) {
				t.Errorf("AcquireMany = %v; want the driver's error", m.err)
			}
			synctest.Wait()
			if n := len(w.sent(loccotest.Release)); n != tc.released {
				t.Errorf("%d releases; want %d", n, tc.released)
			}
			w.wantSent(loccotest.Acquire)
			w.wantHolder("a", nil)
			w.wantHolder("b", nil)
			if n := len(w.seen(locco.EventAcquireFailed)); n != 1 {
				t.Errorf("%d events of a failed acquire; want 1", n)
			}
		})
	}
}

// badMany answers the atomic step with nonsense.
type badMany struct {
	*wire
	grants  int
	refused int
	fence   int64
}

func (b badMany) AcquireMany(ctx context.Context, ls []locco.Lease) ([]locco.Grant, int, error) {
	grants, _, err := b.wire.AcquireMany(ctx, ls)
	if b.fence != 0 {
		grants[1].Fence = b.fence
	}
	return grants[:b.grants], b.refused, err
}

// A backend that breaks the contract gets an error, not a panic, and no lock is
// reported that it did not store.
//
// spec 1.3, 6.1
func TestAcquireManyBadAnswers(t *testing.T) {
	t.Parallel()
	for _, tc := range []badMany{{grants: 1, refused: -1}, {grants: 0, refused: 2}, {grants: 2, refused: -1, fence: -1}} {
		synctest.Test(t, func(t *testing.T) {
			w := newWire(t)
			tc.wire = w
			lr := w.dial(tc, locco.WithFencing())
			_, err := lr.AcquireMany(t.Context(), []string{"a", "b"}, time.Minute)
			if err == nil {
				t.Errorf("AcquireMany with %d grants, refused %d = nil; want an error", tc.grants, tc.refused)
			}
			synctest.Wait()
			w.wantHolder("a", nil)
			w.wantHolder("b", nil)
		})
	}
}

// spec 2.5, 2.6: what a context that ends does, in each phase.
func TestAcquireManyCanceled(t *testing.T) {
	t.Parallel()
	keys := []string{"a", "b", "c"}
	for _, tc := range []struct {
		name     string
		backend  func(w *wire) locco.Backend
		deadline time.Duration // of the context, by which its first attempt is detached; 0: none
		before   func(w *wire)
		at       time.Duration
		held     bool
	}{
		{"TogetherInline", (*wire).sets, 0, func(w *wire) {
			w.inject(loccotest.AcquireMany, 1, loccotest.DelayAnswer(100*ms))
		}, 100 * ms, false},
		{"TogetherInlineRefused", (*wire).sets, 0, func(w *wire) {
			w.inject(loccotest.AcquireMany, 1, loccotest.DelayAnswer(100*ms))
			w.store.take("b", 5*time.Second)
		}, 100 * ms, false},
		{"TogetherInlineLost", (*wire).sets, 0, func(w *wire) {
			w.inject(loccotest.AcquireMany, 1, loccotest.DropAnswer())
		}, 3 * time.Second, false},
		{"TogetherDetached", (*wire).sets, time.Second, func(w *wire) {
			w.inject(loccotest.AcquireMany, 1, loccotest.DelayAnswer(100*ms))
		}, 50 * ms, false},
		{"TogetherDetachedLost", (*wire).sets, time.Second, func(w *wire) {
			w.inject(loccotest.AcquireMany, 1, loccotest.DropAnswer())
		}, 50 * ms, false},
		{"TogetherDetachedRefused", (*wire).sets, time.Second, func(w *wire) {
			w.inject(loccotest.AcquireMany, 1, loccotest.DelayAnswer(100*ms))
			w.store.take("b", 5*time.Second)
		}, 50 * ms, false},
		{"InTurnSecond", (*wire).plain, 0, func(w *wire) { w.store.take("b", 5*time.Second) }, 50 * ms, true},
		{"InTurnSecondDetached", (*wire).plain, time.Second, func(w *wire) {
			w.Inject(loccotest.Fault{Op: loccotest.Acquire, Key: "b", Times: 1, Effect: loccotest.DelayAnswer(100 * ms)})
		}, 50 * ms, false},
		{"InTurnFirst", (*wire).plain, 0, func(w *wire) {
			w.inject(loccotest.Acquire, 1, loccotest.DelayAnswer(100*ms))
		}, 100 * ms, false},
		{"Refresh", (*wire).plain, 0, func(w *wire) {
			w.inject(loccotest.AnyExtend, 0, loccotest.DelayAnswer(100*ms))
		}, 50 * ms, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWire(t)
				w.dial(tc.backend(w))
				tc.before(w)
				ctx, cancel := context.WithCancelCause(t.Context())
				if tc.deadline != 0 {
					var stop context.CancelFunc
					ctx, stop = context.WithTimeout(ctx, tc.deadline)
					defer stop()
				}
				time.AfterFunc(50*ms, func() { cancel(errCause) })
				m := w.goMany(ctx, keys, time.Minute)
				<-m.done
				if m.at != tc.at {
					t.Errorf("AcquireMany returned at %v; want %v", m.at, tc.at)
				}
				if !errors.Is(m.err, context.Canceled) || !errors.Is(m.err, errCause) || errors.Is(m.err, locco.ErrHeld) != tc.held {
					t.Errorf("AcquireMany = %v; want the context's errors, and ErrHeld: %v", m.err, tc.held)
				}
				w.sleepTo(10 * time.Second)
				for _, key := range keys {
					w.wantHolder(key, nil)
				}
				if n := len(w.seen(locco.EventAcquireFailed)); n != 1 && tc.name != "Refresh" {
					t.Errorf("%d events of a failed acquire; want 1", n)
				}
				acquired, released := len(w.seen(locco.EventAcquired)), len(w.seen(locco.EventReleased))
				if acquired != released {
					t.Errorf("%d acquired, %d released events; want as many", acquired, released)
				}
			})
		})
	}
}

// spec 2.6: a context that is over starts nothing, also between two keys.
func TestAcquireManyCanceledBetweenKeys(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		w.dial(w.plain())
		ctx, cancel := context.WithCancelCause(t.Context())
		w.hookEvents(func(ev locco.Event) {
			if ev.Kind == locco.EventAcquired {
				cancel(errCause)
			}
		})
		m := w.goMany(ctx, []string{"a", "b"}, time.Minute)
		m.fails(0, "b", []string{"a", "b"}, context.Canceled, errCause)
		w.wantSent(loccotest.Acquire, 0)
	})
}

// spec 5.6, 7.2: a wait that Close ends does not look like the end of the
// caller's context.
func TestAcquireManyClosed(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"a", "b"} {
		synctest.Test(t, func(t *testing.T) {
			w := newWire(t)
			lr := w.dial(w.plain())
			w.store.take(key, time.Hour)
			m := w.goMany(t.Context(), []string{"a", "b"}, time.Minute)
			w.sleepTo(50 * ms)
			if err := lr.Close(t.Context()); err != nil {
				t.Errorf("Close = %v; want nil", err)
			}
			<-m.done
			if !errors.Is(m.err, locco.ErrClosed) {
				t.Errorf("AcquireMany = %v; want ErrClosed", m.err)
			}
			matchesNone(t, m.err, context.Canceled, locco.ErrReleased)
			synctest.Wait()
			if key == "b" {
				w.wantHolder("a", nil)
			}
		})
	}
}

// spec 5.6, 2.6: what the atomic step brings after Close is given back.
func TestAcquireManyClosedTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		lr := w.dial(w.sets())
		w.inject(loccotest.AcquireMany, 1, loccotest.DelayAnswer(100*ms))
		m := w.goMany(t.Context(), []string{"a", "b"}, time.Minute)
		if err := lr.Close(t.Context()); err != nil {
			t.Errorf("Close = %v; want nil", err)
		}
		<-m.done
		if !errors.Is(m.err, locco.ErrClosed) {
			t.Errorf("AcquireMany = %v; want ErrClosed", m.err)
		}
		synctest.Wait()
		w.wantHolder("a", nil)
		w.wantHolder("b", nil)
	})
}

// A call that came while the atomic step was under way queues behind the set.
//
// spec 2.5, 3.5
func TestAcquireManyJoinedMeanwhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		w.store.noLeft = true
		w.dial(nil)
		w.inject(loccotest.AcquireMany, 1, loccotest.DelayAnswer(100*ms))
		m := w.goMany(t.Context(), []string{"a", "b"}, time.Minute)
		p := w.goAcquire(t.Context(), "b", time.Minute, locco.RetryDelay(time.Hour))
		set := m.gets(100 * ms)
		w.sleepTo(150 * ms)
		if err := set.Release(t.Context()); err != nil {
			t.Errorf("Release = %v; want nil", err)
		}
		p.lock(150 * ms)
		w.wantHolder("a", nil)
	})
}

// spec 2.5: overlapping sets cannot deadlock.
func TestAcquireManyConcurrentSafe(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		backend func(w *wire) locco.Backend
	}{
		{"Plain", (*wire).plain},
		{"Sets", (*wire).sets},
		{"All", func(w *wire) locco.Backend { return w }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWire(t)
				lr := w.dial(tc.backend(w))
				keys := []string{"a", "b", "c", "d", "e"}
				var mu sync.Mutex
				held := map[string]int{}
				var group sync.WaitGroup
				for i := range 12 {
					group.Go(func() {
						r := rand.New(rand.NewPCG(uint64(i), 2))
						for range 10 {
							mine := slices.Clone(keys)
							r.Shuffle(len(mine), func(i, j int) { mine[i], mine[j] = mine[j], mine[i] })
							mine = mine[:1+r.IntN(4)]
							set, err := lr.AcquireMany(t.Context(), mine, time.Second, locco.RetryForever(), locco.RetryDelay(10*ms))
							if err != nil {
								t.Errorf("AcquireMany of %q = %v; want a set", mine, err)
								return
							}
							mu.Lock()
							for _, key := range mine {
								if held[key]++; held[key] > 1 {
									t.Errorf("%q is held twice", key)
								}
							}
							mu.Unlock()
							time.Sleep(time.Duration(r.IntN(10)) * ms)
							mu.Lock()
							for _, key := range mine {
								held[key]--
							}
							mu.Unlock()
							if err := set.Release(t.Context()); err != nil {
								t.Errorf("Release of %q = %v; want nil", mine, err)
							}
						}
					})
				}
				group.Wait()
			})
		})
	}
}
