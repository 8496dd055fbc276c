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

var errCause = errors.New("the caller's cause")

// spec 2.6: what a context that ends during the first look does.
func TestCancelDuringTheFirstLook(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name     string
		effect   loccotest.Effect
		taken    bool // by somebody else
		detached bool
		released bool // the token
		at       time.Duration
		held     bool // the error tells of contention
	}{
		{"InlineGranted", loccotest.DelayAnswer(100 * ms), false, false, true, 100 * ms, false},
		{"InlineHeld", loccotest.DelayAnswer(100 * ms), true, false, false, 100 * ms, true},
		{"InlineLost", loccotest.DropAnswer(), false, false, true, time.Second, false},
		{"InlineLate", loccotest.LateAnswer(time.Minute), false, false, true, time.Minute, false},
		{"DetachedGranted", loccotest.DelayAnswer(100 * ms), false, true, true, 50 * ms, false},
		{"DetachedGrantedLater", loccotest.DelayRequest(100 * ms), false, true, true, 50 * ms, false},
		{"DetachedHeld", loccotest.DelayAnswer(100 * ms), true, true, false, 50 * ms, false},
		{"DetachedLost", loccotest.DropAnswer(), false, true, true, 50 * ms, false},
		{"DetachedLate", loccotest.LateAnswer(time.Minute), false, true, true, 50 * ms, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWire(t)
				lr := w.dial(nil, locco.WithCallTimeout(time.Second))
				if tc.taken {
					w.store.take("k", time.Hour)
				}
				ctx, cancel := context.WithCancelCause(t.Context())
				if tc.detached {
					var stop context.CancelFunc
					ctx, stop = context.WithTimeout(ctx, 500*ms)
					defer stop()
				}
				time.AfterFunc(50*ms, func() { cancel(errCause) })
				w.inject(loccotest.Acquire, 1, tc.effect)
				err := w.goAcquire(ctx, "k", time.Minute).fails(tc.at, context.Canceled, errCause)
				if errors.Is(err, locco.ErrHeld) != tc.held {
					t.Errorf("Acquire = %v; want it to match ErrHeld: %v", err, tc.held)
				}
				matchesNone(t, err, locco.ErrLate, context.DeadlineExceeded)
				w.sleepTo(2 * time.Minute)
				w.wantSent(loccotest.Acquire, 0)
				if tc.released {
					w.wantReleased(w.sent(loccotest.Acquire)[0].token)
					w.wantHolder("k", nil)
				} else {
					w.wantSent(loccotest.Release)
				}
				if n := locco.Rooms(lr); n != 0 {
					t.Errorf("the locker has state for %d keys; want none", n)
				}
				if n := len(w.seen(locco.EventAcquireFailed)); n != 1 {
					t.Errorf("%d events of a failed acquire; want 1", n)
				}
			})
		})
	}
}

// spec 2.6: the driver fails after the caller has left; the error of the call
// stays what it was.
func TestCancelThenTheDriverFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &brokenAfter{store: newStore(), after: 100 * ms}
		lr := newLocker(t, b)
		ctx, cancel := context.WithTimeout(t.Context(), 50*ms)
		defer cancel()
		_, err := lr.Acquire(ctx, "k", time.Minute)
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, errBroken) {
			t.Errorf("Acquire = %v; want the context's error", err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if b.releases != 1 || locco.Rooms(lr) != 0 {
			t.Errorf("%d releases, state for %d keys; want 1, 0", b.releases, locco.Rooms(lr))
		}
	})
}

// brokenAfter fails every Acquire, a while after it.
type brokenAfter struct {
	*store
	after    time.Duration
	releases int
}

func (b *brokenAfter) Acquire(context.Context, locco.Lease) (locco.Grant, error) {
	time.Sleep(b.after)
	return locco.Grant{}, errBroken
}

func (b *brokenAfter) Release(ctx context.Context, key, token string) (bool, error) {
	b.releases++
	return b.store.Release(ctx, key, token)
}

// spec 2.6: a waiting caller gets its error at once, with all that it waited for.
func TestCancelInTheQueue(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		wait func(t *testing.T, w *wire, ctx context.Context) *pending // behind somebody
		held bool
	}{
		{"BehindAForeignHolder", func(t *testing.T, w *wire, ctx context.Context) *pending {
			w.store.take("k", time.Hour)
			return w.goAcquire(ctx, "k", time.Minute, locco.RetryForever())
		}, true},
		{"BehindALocalHolder", func(t *testing.T, w *wire, ctx context.Context) *pending {
			w.goAcquire(t.Context(), "k", time.Hour).lock(0)
			return w.goAcquire(ctx, "k", time.Minute, locco.RetryForever())
		}, true},
		{"BehindAWaiter", func(t *testing.T, w *wire, ctx context.Context) *pending {
			w.store.take("k", time.Hour)
			w.goAcquire(t.Context(), "k", time.Minute, locco.Retries(2))
			return w.goAcquire(ctx, "k", time.Minute, locco.RetryForever())
		}, true},
		{"BehindALook", func(t *testing.T, w *wire, ctx context.Context) *pending {
			w.inject(loccotest.Acquire, 1, loccotest.DelayAnswer(time.Second))
			w.goAcquire(t.Context(), "k", time.Hour)
			return w.goAcquire(ctx, "k", time.Minute, locco.RetryForever())
		}, false}, // whether somebody has it is not known
		{"AfterALateLook", func(t *testing.T, w *wire, ctx context.Context) *pending {
			w.inject(loccotest.Acquire, 1, loccotest.LateAnswer(990*ms))
			w.inject(loccotest.Release, 1, loccotest.DropRequest())
			return w.goAcquire(ctx, "k", time.Second, locco.RetryForever(), locco.RetryDelay(time.Minute))
		}, false},
		{"AfterAPassingError", func(t *testing.T, w *wire, ctx context.Context) *pending {
			w.inject(loccotest.Acquire, 1, loccotest.FailRequest(errPassing))
			return w.goAcquire(ctx, "k", time.Minute, locco.RetryForever(), locco.RetryDelay(time.Minute))
		}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWire(t)
				w.dial(w.plain())
				ctx, cancel := context.WithCancelCause(t.Context())
				p := tc.wait(t, w, ctx)
				at := 330 * ms
				if tc.name == "AfterALateLook" {
					at += 990 * ms
				}
				w.sleepTo(at)
				cancel(errCause)
				err := p.fails(at, context.Canceled, errCause)
				if errors.Is(err, locco.ErrHeld) != tc.held {
					t.Errorf("Acquire = %v; want it to match ErrHeld: %v", err, tc.held)
				}
				if held, ok := errors.AsType[*locco.HeldError](err); ok && (held.Key != "k" || held.Elapsed != at || held.Attempts < 1) {
					t.Errorf("Acquire = %#v; want its key, %v and its attempts", held, at)
				}
			})
		})
	}
}

// spec 2.6: a deadline is a context's end like any other.
func TestCancelByDeadline(t *testing.T) {
	t.Parallel()
	for _, timeout := range []time.Duration{330 * ms, 5 * time.Second} { // its first look is detached, or not
		synctest.Test(t, func(t *testing.T) {
			w := newWire(t)
			w.dial(nil)
			w.store.take("k", time.Hour)
			ctx, cancel := context.WithTimeoutCause(t.Context(), timeout, errCause)
			defer cancel()
			p := w.goAcquire(ctx, "k", time.Minute, locco.RetryForever())
			p.fails(timeout, context.DeadlineExceeded, errCause, locco.ErrHeld)
		})
	}
}

// spec 2.6: during a later look, which is detached, the caller gets its error at
// once, and what the look wins is given back.
func TestCancelDuringALaterLook(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name     string
		effect   loccotest.Effect
		freed    bool // before the look
		released bool
	}{
		{"Granted", loccotest.DelayAnswer(100 * ms), true, true},
		{"GrantedAfterwards", loccotest.DelayRequest(100 * ms), true, true},
		{"Held", loccotest.DelayAnswer(100 * ms), false, false},
		{"Lost", loccotest.DropAnswer(), true, true},
		{"LostWhileHeld", loccotest.DropRequest(), false, true},
		{"Failed", loccotest.FailAnswer(errPassing), true, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWire(t)
				w.store.noLeft = true
				w.dial(w.plain(), locco.WithCallTimeout(time.Second))
				w.store.take("k", time.Hour)
				ctx, cancel := context.WithCancelCause(t.Context())
				p := w.goAcquire(ctx, "k", time.Minute)
				w.sleepTo(100 * ms)
				if tc.freed {
					w.store.free("k")
				}
				w.inject(loccotest.Acquire, 1, tc.effect)
				time.AfterFunc(150*ms, func() { cancel(errCause) })
				err := p.fails(250*ms, context.Canceled, errCause)
				if tc.name != "Failed" && !errors.Is(err, locco.ErrHeld) {
					t.Errorf("Acquire = %v; want it to match ErrHeld: it had waited for a holder", err)
				}
				w.sleepTo(5 * time.Second)
				w.wantSent(loccotest.Acquire, 0, 200*ms)
				if tc.released {
					w.wantReleased(w.sent(loccotest.Acquire)[0].token)
				} else {
					w.wantSent(loccotest.Release)
				}
				if tc.freed {
					w.wantHolder("k", nil)
				}
			})
		})
	}
}

// spec 2.6, 3.5: what a look wins for a waiter that has left goes to the next
// one, or back and then to the next one. In any case the next one has it as soon
// as can be.
func TestCancelPassesTheGrantOn(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name      string
		backend   func(w *wire) locco.Backend
		transfers int
	}{
		{"HandedOver", (*wire).handing, 1},
		{"GivenBack", (*wire).plain, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWire(t)
				w.store.noLeft = true
				lr := w.dial(tc.backend(w), locco.WithFencing())
				w.store.take("k", time.Hour)
				ctx, cancel := context.WithCancel(t.Context())
				p := w.goAcquire(ctx, "k", time.Minute)
				next := w.goAcquire(t.Context(), "k", 2*time.Minute, locco.RetryDelay(time.Hour))
				w.sleepTo(100 * ms)
				w.store.free("k")
				w.inject(loccotest.Acquire, 1, loccotest.DelayAnswer(100*ms))
				time.AfterFunc(150*ms, cancel)
				p.fails(250*ms, context.Canceled)
				next.waits()
				l := next.lock(300 * ms)
				w.wantHolder("k", l)
				if l.Fence() != 2 || l.TTL() != 2*time.Minute || l.Waited() != 300*ms {
					t.Errorf("Fence, TTL, Waited = %d, %v, %v; want 2, 2m, 300ms", l.Fence(), l.TTL(), l.Waited())
				}
				if n := len(w.sent(loccotest.Transfer)); n != tc.transfers {
					t.Errorf("%d hand-overs; want %d", n, tc.transfers)
				}
				if n := len(w.sent(loccotest.Release)); n != 1-tc.transfers {
					t.Errorf("%d releases; want %d", n, 1-tc.transfers)
				}
				if n := len(w.seen(locco.EventGivenBack)); n != 1 {
					t.Errorf("%d events of giving back; want 1", n)
				}
				if locco.Rooms(lr) != 1 {
					t.Errorf("the locker has state for %d keys; want 1", locco.Rooms(lr))
				}
			})
		})
	}
}

// spec 2.6, 3.6: passing a grant on may fail in all the ways in which a hand-over
// can.
func TestCancelPassesTheGrantOnInVain(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name     string
		effect   loccotest.Effect
		stolen   bool
		released bool          // the token of the one that left
		at       time.Duration // when the next one has the key
	}{
		{"AnswerLost", loccotest.DropAnswer(), false, true, 400 * ms},
		{"RequestLost", loccotest.DropRequest(), false, true, 400 * ms},
		{"AnswerFailed", loccotest.FailAnswer(errBroken), false, true, 300 * ms},
		{"RequestFailed", loccotest.FailRequest(errBroken), false, true, 300 * ms},
		{"Unsupported", loccotest.FailRequest(errors.ErrUnsupported), false, true, 300 * ms},
		{"Refused", loccotest.Effect{}, true, false, 300 * ms},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWire(t)
				w.store.noLeft = true
				w.dial(w.handing(), locco.WithCallTimeout(100*ms))
				w.store.take("k", time.Hour)
				ctx, cancel := context.WithCancel(t.Context())
				p := w.goAcquire(ctx, "k", time.Minute)
				next := w.goAcquire(t.Context(), "k", time.Minute, locco.RetryDelay(time.Hour))
				w.sleepTo(100 * ms)
				w.store.free("k")
				w.inject(loccotest.Acquire, 1, loccotest.LateAnswer(100*ms))
				w.inject(loccotest.Transfer, 1, tc.effect)
				w.hookRequests(func(r request) {
					if r.op == loccotest.Transfer && tc.stolen {
						w.store.free("k")
					}
				})
				time.AfterFunc(150*ms, cancel)
				p.fails(250*ms, context.Canceled)
				w.wantHolder("k", next.lock(tc.at))
				synctest.Wait()
				token := w.sent(loccotest.Acquire)[0].token
				if tc.released {
					w.wantReleased(token)
				} else {
					w.wantSent(loccotest.Release)
				}
			})
		})
	}
}

// spec 2.6, 3.5: all waiters may leave during one look.
func TestCancelOfAll(t *testing.T) {
	t.Parallel()
	for _, backend := range []func(w *wire) locco.Backend{(*wire).handing, (*wire).plain} {
		synctest.Test(t, func(t *testing.T) {
			w := newWire(t)
			w.store.noLeft = true
			lr := w.dial(backend(w))
			w.store.take("k", time.Hour)
			ctx, cancel := context.WithCancel(t.Context())
			var ps []*pending
			for range 5 {
				ps = append(ps, w.goAcquire(ctx, "k", time.Minute))
			}
			w.sleepTo(100 * ms)
			w.store.free("k")
			w.inject(loccotest.Acquire, 1, loccotest.DelayAnswer(100*ms))
			time.AfterFunc(150*ms, cancel)
			for _, p := range ps {
				p.fails(250*ms, context.Canceled, locco.ErrHeld)
			}
			w.sleepTo(300 * ms)
			w.wantHolder("k", nil)
			if n := locco.Rooms(lr); n != 0 {
				t.Errorf("the locker has state for %d keys; want none", n)
			}
		})
	}
}

// spec 2.6: "the context wins", also when it ends exactly when the key is
// granted, whichever way the grant comes.
func TestCancelWhenGranted(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		timeout time.Duration // of the context
		wait    func(t *testing.T, w *wire)
		at      time.Duration
	}{
		{"FirstInline", time.Hour, nil, 0},
		{"FirstDetached", time.Second, nil, 0},
		{"Later", time.Hour, func(_ *testing.T, w *wire) { w.store.take("k", 50*ms) }, 50 * ms},
		{"HandedOver", time.Hour, func(t *testing.T, w *wire) {
			l := w.goAcquire(t.Context(), "k", time.Hour).lock(0)
			time.AfterFunc(50*ms, func() { l.Release(context.Background()) })
		}, 50 * ms},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			for _, next := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					w := newWire(t)
					lr := w.dial(w.handing())
					if tc.wait != nil {
						tc.wait(t, w)
					}
					ctx, cancel := context.WithTimeoutCause(t.Context(), tc.timeout, errCause)
					w.store.mu.Lock()
					w.store.onGrant = func(string, string) { cancel() }
					w.store.mu.Unlock()
					at, second := tc.at, (*pending)(nil)
					if next {
						at += ms
						w.hookRequests(func(r request) { // joins the room while the request is on its way
							if r.sent < tc.at {
								return
							}
							w.hookRequests(nil)
							second = w.goCall(func() (*locco.Lock, error) {
								return lr.Acquire(context.Background(), "k", time.Minute)
							})
							time.Sleep(ms)
						})
					}
					p := w.goAcquire(ctx, "k", time.Minute)
					err := p.fails(at, context.Canceled)
					matchesNone(t, err, locco.ErrLate)
					synctest.Wait()
					if next {
						w.wantHolder("k", second.lock(at))
						return
					}
					w.wantHolder("k", nil)
					if n := locco.Rooms(lr); n != 0 {
						t.Errorf("the locker has state for %d keys; want none", n)
					}
				})
			}
		})
	}
}

// spec 2.6, 3.6: a waiter that leaves while it is handed the key.
func TestCancelDuringAHandOver(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name     string
		effect   loccotest.Effect
		stolen   bool // before
		next     bool // another one waits
		at       time.Duration
		released bool  // the token of the one that left
		release  error // of the holder
	}{
		{"Done", loccotest.DelayAnswer(100 * ms), false, false, 0, true, nil},
		{"DonePassedOn", loccotest.DelayAnswer(100 * ms), false, true, 200 * ms, false, nil},
		{"DoneLater", loccotest.DelayRequest(100 * ms), false, false, 0, true, nil},
		{"Refused", loccotest.DelayAnswer(100 * ms), true, false, 0, false, locco.ErrLost},
		{"AnswerLost", loccotest.DropAnswer(), false, false, 0, true, locco.ErrLate},
		{"AnswerLostNextWoken", loccotest.DropAnswer(), false, true, 1100 * ms, true, locco.ErrLate},
		{"RequestLost", loccotest.DropRequest(), false, false, 0, true, locco.ErrLate},
		{"Failed", loccotest.FailAnswer(errBroken), false, true, 100 * ms, true, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWire(t)
				w.store.noLeft = true
				w.dial(w.handing(), locco.WithCallTimeout(time.Second))
				holder := w.goAcquire(t.Context(), "k", 10*time.Second).lock(0)
				ctx, cancel := context.WithCancel(t.Context())
				p := w.goAcquire(ctx, "k", time.Minute)
				token := func() string { return w.sent(loccotest.Transfer)[0].token }
				var next *pending
				if tc.next {
					next = w.goAcquire(t.Context(), "k", time.Minute, locco.RetryDelay(time.Hour))
				}
				w.sleepTo(100 * ms)
				if tc.stolen {
					w.store.take("k", time.Hour)
				}
				w.inject(loccotest.Transfer, 1, tc.effect)
				done := make(chan error)
				go func() { done <- holder.Release(context.Background()) }()
				if tc.name == "Failed" { // at once: leaves before it can look again
					w.hookAnswers(func(r request) {
						if r.op == loccotest.Transfer {
							cancel()
						}
					})
				} else {
					time.AfterFunc(50*ms, cancel)
				}
				if err := <-done; !errors.Is(err, tc.release) || tc.release == nil && err != nil {
					t.Errorf("Release = %v; want %v", err, tc.release)
				}
				if tc.name == "Failed" {
					p.fails(100*ms, context.Canceled)
				} else {
					p.fails(150*ms, context.Canceled, locco.ErrHeld)
				}
				if tc.next {
					w.wantHolder("k", next.lock(tc.at))
				}
				w.sleepTo(5 * time.Second)
				if tc.released {
					w.wantReleased(token())
				} else {
					for _, r := range w.sent(loccotest.Release) {
						if r.token == token() {
							t.Errorf("%v; want it not to be released", r)
						}
					}
				}
				if !tc.next && tc.name != "RequestLost" && !tc.stolen {
					w.wantHolder("k", nil)
				}
			})
		})
	}
}

// spec 2.6, 3.6: an attempt that may have stored the token is undone also when
// the waiter leaves during a hand-over that is refused.
func TestCancelDuringARefusedHandOverUndoesEarlierAttempts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		lr := w.dial(w.handing(), locco.WithCallTimeout(100*ms))
		detached := w.goAcquire(t.Context(), "k", time.Hour).lock(0)
		h, err := detached.Detach() // the key stays stored, nobody here has it
		if err != nil {
			t.Fatalf("Detach = %v; want a handle", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		w.inject(loccotest.Acquire, 1, loccotest.DropRequest())
		p := w.goAcquire(ctx, "k", time.Minute, locco.RetryDelay(time.Hour))
		w.sleepTo(150 * ms)
		holder, err := lr.Attach(t.Context(), h, time.Hour)
		if err != nil {
			t.Fatalf("Attach = %v; want a lock", err)
		}
		w.store.take("k", time.Second)
		w.inject(loccotest.Transfer, 1, loccotest.DelayAnswer(50*ms))
		time.AfterFunc(20*ms, cancel)
		if err := holder.Release(context.Background()); !errors.Is(err, locco.ErrLost) {
			t.Errorf("Release = %v; want ErrLost", err)
		}
		p.fails(170*ms, context.Canceled)
		synctest.Wait()
		w.wantReleased(w.sent(loccotest.Transfer)[0].token)
	})
}

// spec 2.6: a waiter whose attempts had no answer undoes them when it leaves,
// also when nothing is under way.
func TestCancelUndoesUnansweredAttempts(t *testing.T) {
	t.Parallel()
	for _, lost := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			w := newWire(t)
			w.dial(w.plain(), locco.WithCallTimeout(100*ms))
			w.inject(loccotest.Acquire, lost, loccotest.DropAnswer())
			ctx, cancel := context.WithCancel(t.Context())
			p := w.goAcquire(ctx, "k", time.Minute)
			at := time.Duration(lost)*300*ms - 50*ms
			w.sleepTo(at)
			cancel()
			err := p.fails(at, context.Canceled)
			matchesNone(t, err, locco.ErrLate, locco.ErrHeld)
			synctest.Wait()
			w.wantReleased(w.sent(loccotest.Acquire)[0].token)
			w.wantHolder("k", nil)
		})
	}
}

// spec 2.6: a context that is over starts no further look.
func TestCancelBetweenLooks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		w.dial(w.plain())
		w.store.take("k", time.Hour)
		ctx, cancel := context.WithCancel(t.Context())
		w.hookEvents(func(ev locco.Event) {
			if ev.Kind == locco.EventContended && ev.Attempts == 3 {
				cancel()
			}
		})
		p := w.goAcquire(ctx, "k", time.Minute, locco.RetryForever(), locco.RetryDelay(0))
		p.fails(0, context.Canceled, locco.ErrHeld)
		w.wantSent(loccotest.Acquire, 0, 0, 0)
	})
}
