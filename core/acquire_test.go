package locco_test

import (
	"bytes"
	"context"
	"errors"
	"math"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/core/loccotest"
)

// spec 2.1, 2.8, 7.1
func TestAcquireFree(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		lr := w.dial(nil, locco.WithPrefix("p:"), locco.WithFencing())
		l, err := lr.Acquire(t.Context(), "k", time.Second)
		if err != nil {
			t.Fatalf("Acquire = %v; want a lock", err)
		}
		w.wantHolder("p:k", l)
		if l.Waited() != 0 || l.Attempts() != 1 {
			t.Errorf("Waited, Attempts = %v, %d; want 0, 1", l.Waited(), l.Attempts())
		}
		if r := w.sent(loccotest.Acquire)[0]; r.leases[0] != (locco.Lease{
			Key: "p:k", Token: l.Token(), TTL: time.Second, Fenced: true, WantLeft: true,
		}) {
			t.Errorf("the backend was asked for %+v", r.leases[0])
		}
		if err := l.Release(t.Context()); err != nil {
			t.Errorf("Release = %v; want nil", err)
		}
		w.wantHolder("p:k", nil)
		if n := len(w.sent(^loccotest.Op(0))); n != 2 {
			t.Errorf("Acquire and Release cost %d commands; want 2", n)
		}
		w.wantKinds(locco.EventAcquired, locco.EventReleased)
		if got, want := w.seen(locco.EventAcquired)[0], (locco.Event{
			Kind: locco.EventAcquired, Key: "p:k", TTL: time.Second, Attempts: 1, Fence: 1,
		}); got != want {
			t.Errorf("event = %+v; want %+v", got, want)
		}
	})
}

// spec 2.1, 2.8, 3.1, 7.1
func TestAcquireWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		w.store.noLeft = true
		w.dial(w.plain())
		w.store.take("k", time.Hour)
		p := w.goAcquire(t.Context(), "k", time.Second)
		w.sleepTo(350 * ms)
		p.waits()
		w.store.free("k")
		l := p.lock(400 * ms)
		if l.Waited() != 400*ms || l.Attempts() != 3 {
			t.Errorf("Waited, Attempts = %v, %d; want 400ms, 3", l.Waited(), l.Attempts())
		}
		w.wantSent(loccotest.Acquire, 0, 200*ms, 400*ms)
		w.wantKinds(locco.EventContended, locco.EventContended, locco.EventAcquired)
		for i, got := range w.seen(locco.EventContended) {
			if want := (locco.Event{
				Kind: locco.EventContended, Key: "k", TTL: time.Second,
				Attempts: i + 1, Elapsed: time.Duration(i) * 200 * ms, Reason: locco.ReasonHeld,
			}); got != want {
				t.Errorf("event %d = %+v; want %+v", i, got, want)
			}
		}
		if got, want := w.seen(locco.EventAcquired)[0], (locco.Event{
			Kind: locco.EventAcquired, Key: "k", TTL: time.Second, Waited: 400 * ms, Attempts: 3,
		}); got != want {
			t.Errorf("event = %+v; want %+v", got, want)
		}
	})
}

// spec 2.1, 3.7, 7.1, 7.2
func TestAcquireHeld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		w.dial(w.plain())
		w.store.take("k", time.Hour)
		err := w.goAcquire(t.Context(), "k", time.Second, locco.Retries(2)).fails(400*ms, locco.ErrHeld)
		matchesNone(t, err, locco.ErrLate, locco.ErrLost, locco.ErrInvalid, context.DeadlineExceeded)
		held, ok := errors.AsType[*locco.HeldError](err)
		if want := (locco.HeldError{Key: "k", Attempts: 3, Elapsed: 400 * ms}); !ok || *held != want {
			t.Errorf("Acquire = %#v; want %#v", err, want)
		}
		w.wantKinds(locco.EventContended, locco.EventContended, locco.EventContended, locco.EventAcquireFailed)
		if got, want := w.seen(locco.EventAcquireFailed)[0], (locco.Event{
			Kind: locco.EventAcquireFailed, Key: "k", TTL: time.Second, Err: err, Waited: 400 * ms, Attempts: 3,
		}); got != want {
			t.Errorf("event = %+v; want %+v", got, want)
		}
		if n := len(w.sent(loccotest.Release)); n != 0 {
			t.Errorf("a token that was refused was released %d times; want 0", n)
		}
	})
}

// spec 2.8
func TestAcquireWaited(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		acquire func(t *testing.T, w *wire) *locco.Lock
		zero    bool
	}{
		{"FirstLook", func(t *testing.T, w *wire) *locco.Lock {
			w.inject(loccotest.Acquire, 1, loccotest.DelayAnswer(10*ms))
			return w.goAcquire(t.Context(), "k", time.Second).lock(10 * ms)
		}, true},
		{"FirstLookDetached", func(t *testing.T, w *wire) *locco.Lock {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			t.Cleanup(cancel)
			w.inject(loccotest.Acquire, 1, loccotest.DelayAnswer(10*ms))
			return w.goAcquire(ctx, "k", time.Second).lock(10 * ms)
		}, true},
		{"QueuedForNoTime", func(t *testing.T, w *wire) *locco.Lock {
			first := w.goAcquire(t.Context(), "k", time.Second).lock(0)
			p := w.goAcquire(t.Context(), "k", time.Second)
			first.Release(t.Context())
			return p.lock(0)
		}, false},
		{"SecondLook", func(t *testing.T, w *wire) *locco.Lock {
			w.store.take("k", 50*ms)
			return w.goAcquire(t.Context(), "k", time.Second).lock(50 * ms)
		}, false},
		{"SecondLookAtOnce", func(t *testing.T, w *wire) *locco.Lock {
			w.inject(loccotest.Acquire, 1, loccotest.FailRequest(errPassing))
			return w.goAcquire(t.Context(), "k", time.Second, locco.RetryDelay(0)).lock(0)
		}, false},
		{"HandedOverAfterOneLook", func(t *testing.T, w *wire) *locco.Lock {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			t.Cleanup(cancel)
			w.inject(loccotest.Acquire, 1, loccotest.DelayAnswer(10*ms))
			try := w.goTry(t.Context(), "k", time.Second)
			p := w.goAcquire(ctx, "k", time.Second) // refused: the other's answer is on its way
			try.lock(10 * ms).Release(t.Context())
			return p.lock(10 * ms)
		}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWire(t)
				w.dial(nil)
				l := tc.acquire(t, w)
				if (l.Waited() == 0) != tc.zero {
					t.Errorf("Waited = %v; want it to be zero: %v", l.Waited(), tc.zero)
				}
				evs := w.seen(locco.EventAcquired)
				if ev := evs[len(evs)-1]; ev.Waited != l.Waited() {
					t.Errorf("the event says that it waited %v; want %v", ev.Waited, l.Waited())
				}
			})
		})
	}
}

// spec 1.8
func TestAcquireIsNotReentrant(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		lr := w.dial(nil)
		l := w.goAcquire(t.Context(), "k", time.Hour).lock(0)
		p := w.goAcquire(t.Context(), "k", time.Hour, locco.Retries(1))
		if _, err := lr.TryAcquire(t.Context(), "k", time.Hour); !errors.Is(err, locco.ErrHeld) {
			t.Errorf("TryAcquire by the holder = %v; want ErrHeld", err)
		}
		p.fails(200*ms, locco.ErrHeld)
		w.wantHolder("k", l)
	})
}

// spec 2.7
func TestAcquireContextBoundsTheWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		lr := w.dial(nil)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		l, err := lr.Acquire(ctx, "k", 3*time.Second, locco.AutoExtend(time.Hour))
		if err != nil {
			t.Fatalf("Acquire = %v; want a lock", err)
		}
		bound := l.Bind(t.Context())
		cancel()
		w.sleepTo(time.Minute)
		if l.State() != locco.StateHeld || bound.Err() != nil {
			t.Errorf("a minute after its context ended: State = %v, bound: %v; want held, nil", l.State(), bound.Err())
		}
		w.wantHolder("k", l)
		if n := len(w.sent(loccotest.AnyExtend)); n != 60 {
			t.Errorf("extended %d times in a minute; want 60", n)
		}
	})
}

type testKey struct{}

// spec 2.6, 8
func TestCallContext(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name        string
		ttl         time.Duration
		callTimeout time.Duration
		deadline    time.Duration // of the caller; 0: none
		want        time.Duration
	}{
		{"Default", time.Minute, 0, 0, 3 * time.Second},
		{"ShortLease", time.Second, 0, 0, time.Second},
		{"ShortTimeout", time.Minute, time.Second, 0, time.Second},
		{"LongTimeout", 20 * time.Second, time.Minute, 0, 20 * time.Second},
		{"CallerIsShorter", time.Minute, 0, 300 * ms, 3 * time.Second},
		{"CallerIsLonger", time.Minute, 0, time.Hour, 3 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWire(t)
				w.hookAnswers(func(r request) { // after the caller has given up
					select {
					case <-r.ctx.Done():
						t.Errorf("%v: its context is done; want it to run to its deadline", r)
					default:
					}
					if v := r.ctx.Value(testKey{}); v != "v" {
						t.Errorf("%v: the context's value is %v; want the caller's", r, v)
					}
				})
				var opts []locco.Option
				if tc.callTimeout != 0 {
					opts = append(opts, locco.WithCallTimeout(tc.callTimeout))
				}
				lr := w.dial(nil, opts...)
				w.inject(0, 0, loccotest.DelayAnswer(600*ms))
				ctx, cancel := context.WithCancel(context.WithValue(t.Context(), testKey{}, "v"))
				if tc.deadline != 0 {
					ctx, cancel = context.WithTimeout(ctx, tc.deadline)
				}
				time.AfterFunc(500*ms, cancel)
				calls := []func() error{
					func() error { _, err := lr.Acquire(ctx, "a", tc.ttl); return err },
					func() error { _, err := lr.Acquire(ctx, "held", tc.ttl); return err },
					func() error { _, err := lr.TryAcquire(ctx, "b", tc.ttl); return err },
					func() error { _, err := lr.AcquireMany(ctx, []string{"c", "d"}, tc.ttl); return err },
				}
				w.store.take("held", time.Hour)
				for _, call := range calls {
					go func() {
						if err := call(); err == nil {
							t.Error("a call whose context ended got a lock")
						}
					}()
				}
				w.sleepTo(10 * time.Second)
				for _, op := range []loccotest.Op{loccotest.Acquire, loccotest.AcquireMany, loccotest.Release} {
					if len(w.sent(op)) == 0 {
						t.Errorf("%v was not called", op)
					}
				}
				for _, r := range w.sent(loccotest.AnyAcquire) {
					if r.limit != tc.want {
						t.Errorf("%v: its context gives it %v; want %v", r, r.limit, tc.want)
					}
				}
				w.hookAnswers(nil)
				w.Clear()
			})
		})
	}
}

// goroutine returns the name of the calling goroutine.
func goroutine() string {
	b := make([]byte, 64)
	b = b[:runtime.Stack(b, false)]
	name, _, _ := bytes.Cut(bytes.TrimPrefix(b, []byte("goroutine ")), []byte(" "))
	return string(name)
}

// spec 2.6
func TestWhereAttemptsRun(t *testing.T) {
	t.Parallel()
	type take func(ctx context.Context, lr *locco.Locker) error
	acquire := func(ctx context.Context, lr *locco.Locker) error {
		_, err := lr.Acquire(ctx, "k", time.Minute)
		return err
	}
	try := func(ctx context.Context, lr *locco.Locker) error {
		_, err := lr.TryAcquire(ctx, "k", time.Minute)
		return err
	}
	many := func(ctx context.Context, lr *locco.Locker) error {
		_, err := lr.AcquireMany(ctx, []string{"j", "k"}, time.Minute)
		return err
	}
	for _, tc := range []struct {
		name      string
		call      take
		deadline  time.Duration // of the caller; 0: none, -1: it cannot be canceled
		immediate bool
		later     bool // the attempt is the call's second
		inline    bool
	}{
		{"NeverCanceled", acquire, -1, false, false, true},
		{"NeverCanceledLater", acquire, -1, false, true, true},
		{"NoDeadline", acquire, 0, false, false, true},
		{"LateDeadline", acquire, time.Minute, false, false, true},
		{"DeadlineOfTheCall", acquire, 3 * time.Second, false, false, true},
		{"EarlyDeadline", acquire, 3*time.Second - 1, false, false, false},
		{"Later", acquire, 0, false, true, false},
		{"LaterLateDeadline", acquire, time.Minute, false, true, false},
		{"Immediate", acquire, 2 * time.Second, true, false, true},
		{"ImmediateLater", acquire, 2 * time.Second, true, true, true},
		{"TryNeverCanceled", try, -1, false, false, true},
		{"TryNoDeadline", try, 0, false, false, true},
		{"TryEarlyDeadline", try, time.Second, false, false, false},
		{"TryImmediate", try, time.Second, true, false, true},
		{"ManyNeverCanceled", many, -1, false, false, true},
		{"ManyNoDeadline", many, 0, false, false, true},
		{"ManyEarlyDeadline", many, time.Second, false, false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWire(t)
				w.immediate = tc.immediate
				var mine string
				cancelAt, attempts := 50*ms, 0
				w.hookRequests(func(r request) {
					if r.op&loccotest.AnyAcquire == 0 {
						return
					}
					if attempts++; attempts != 1 != tc.later {
						return
					}
					if inline := goroutine() == mine; inline != tc.inline {
						t.Errorf("%v: on the caller's goroutine: %v; want %v", r, inline, tc.inline)
					}
				})
				lr := w.dial(struct { // without wake-ups, which would look too
					locco.Backend
					immediater
					locco.ManyAcquirer
				}{w, w, w})
				if tc.later {
					w.store.take("k", 200*ms)
					w.Inject(loccotest.Fault{Op: loccotest.Acquire, Skip: 1, Times: 1, Effect: loccotest.DelayAnswer(time.Second)})
					cancelAt += 200 * ms
				} else {
					w.inject(loccotest.AnyAcquire, 1, loccotest.DelayAnswer(time.Second))
				}
				ctx := context.Background()
				if tc.deadline >= 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithCancel(ctx)
					if tc.deadline > 0 {
						ctx, cancel = context.WithTimeout(ctx, tc.deadline)
					}
					time.AfterFunc(cancelAt, cancel)
				}
				var err error
				done := make(chan struct{})
				go func() {
					defer close(done)
					mine = goroutine()
					err = tc.call(ctx, lr)
				}()
				<-done
				want := cancelAt
				if tc.inline {
					want += time.Second - 50*ms
				}
				if w.now() != want {
					t.Errorf("the call returned at %v; want %v", w.now(), want)
				}
				if tc.deadline >= 0 != errors.Is(err, context.Canceled) {
					t.Errorf("the call = %v; want context.Canceled if it was", err)
				}
				w.sleepTo(5 * time.Second)
				if tc.deadline >= 0 {
					w.wantHolder("k", nil)
				}
			})
		})
	}
}

// spec 1.6, 7.2: an answer counts if it comes before the lease could have ended.
func TestLateAnswer(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name        string
		callTimeout time.Duration
		after       time.Duration // of a lease of a second
		late        bool
	}{
		{"JustInTime", time.Minute, 990*ms - 1, false},
		{"JustLate", time.Minute, 990 * ms, true},
		{"AfterTheLease", time.Minute, 1500 * ms, true},
		{"AfterTheCallTimeout", 100 * ms, 200 * ms, false}, // it still came
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			for _, try := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					w := newWire(t)
					w.dial(nil, locco.WithCallTimeout(tc.callTimeout))
					w.inject(loccotest.Acquire, 1, loccotest.LateAnswer(tc.after))
					p := w.goTake(t.Context(), try, "k", time.Second)
					if !tc.late {
						l := p.lock(tc.after)
						if want := 990*ms - tc.after; l.Remaining() != want {
							t.Errorf("Remaining = %v; want %v (spec 1.4)", l.Remaining(), want)
						}
						return
					}
					err := p.fails(tc.after, locco.ErrLate)
					matchesNone(t, err, locco.ErrHeld, locco.ErrLost, context.DeadlineExceeded, context.Canceled)
					late, ok := errors.AsType[*locco.LateError](err)
					if want := (locco.LateError{Key: "k", Attempts: 1, Elapsed: tc.after}); !ok || *late != want {
						t.Errorf("Acquire = %#v; want %#v", err, want)
					}
					synctest.Wait()
					w.wantHolder("k", nil)
					w.wantReleased(w.sent(loccotest.Acquire)[0].token)
					w.wantKinds(locco.EventContended, locco.EventAcquireFailed, locco.EventGivenBack)
					if ev := w.seen(locco.EventContended)[0]; ev.Reason != locco.ReasonLate || ev.Err != nil {
						t.Errorf("event = %+v; want late without an error", ev)
					}
				})
			}
		})
	}
}

// spec 1.6: the give-back does not hold up the caller, and is bounded.
func TestLateAnswerIsGivenBackInTheBackground(t *testing.T) {
	t.Parallel()
	for _, try := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWire(t)
			w.dial(nil)
			w.inject(loccotest.Acquire, 1, loccotest.LateAnswer(990*ms))
			w.inject(loccotest.Release, 1, loccotest.DropRequest())
			w.goTake(context.Background(), try, "k", time.Second).fails(990*ms, locco.ErrLate)
			synctest.Wait()
			if r := w.sent(loccotest.Release)[0]; r.limit != 3*time.Second || r.over != -1 {
				t.Errorf("%v: its context gives it %v; want 3s, and that it is under way", r, r.limit)
			}
			w.sleepTo(10 * time.Second)
			if evs := w.seen(locco.EventGivenBack); len(evs) != 1 || !errors.Is(evs[0].Err, locco.ErrLate) {
				t.Errorf("events of giving back = %+v; want one with an error that matches ErrLate", evs)
			}
		})
	}
}

// spec 2.6, 7.2: a timeout of ours is late, wraps the driver's error and does not
// look like the caller's.
func TestCallTimeoutIsLate(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		effect loccotest.Effect
	}{
		{"DropRequest", loccotest.DropRequest()},
		{"DropAnswer", loccotest.DropAnswer()},
		{"DelayRequest", loccotest.DelayRequest(time.Second)},
		{"DelayAnswer", loccotest.DelayAnswer(time.Second)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			for _, try := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					w := newWire(t)
					w.dial(nil, locco.WithCallTimeout(100*ms))
					w.inject(loccotest.Acquire, 1, tc.effect)
					p := w.goTake(t.Context(), try, "k", time.Minute)
					err := p.fails(100*ms, locco.ErrLate)
					matchesNone(t, err, locco.ErrHeld, context.DeadlineExceeded, context.Canceled)
					r := w.sent(loccotest.Acquire)[0]
					late, ok := errors.AsType[*locco.LateError](err)
					if want := (locco.LateError{Key: "k", Attempts: 1, Elapsed: 100 * ms, Err: r.err}); !ok || *late != want {
						t.Errorf("Acquire = %#v; want %#v", err, want)
					}
					synctest.Wait()
					w.wantHolder("k", nil)
					w.wantReleased(r.token)
					w.wantKinds(locco.EventContended, locco.EventAcquireFailed, locco.EventGivenBack)
					if ev := w.seen(locco.EventContended)[0]; ev.Reason != locco.ReasonLate || ev.Err != r.err {
						t.Errorf("event = %+v; want late with the driver's error", ev)
					}
				})
			}
		})
	}
}

// driverError is a driver's error of a type of its own.
type driverError struct{ code int }

func (e *driverError) Error() string { return "driver: error" }

// slowDriver fails after its deadline with an error of its own.
type slowDriver struct{ locco.Backend }

func (d slowDriver) Acquire(ctx context.Context, l locco.Lease) (locco.Grant, error) {
	<-ctx.Done()
	return locco.Grant{}, &driverError{42}
}

// spec 2.6: "its error wraps the driver's".
func TestLateErrorWrapsTheDrivers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lr := newLocker(t, slowDriver{newStore()})
		_, err := lr.TryAcquire(t.Context(), "k", time.Second)
		if cause, ok := errors.AsType[*driverError](err); !ok || cause.code != 42 || !errors.Is(err, locco.ErrLate) {
			t.Errorf("TryAcquire = %v; want ErrLate around the driver's error", err)
		}
	})
}

// spec 2.6: a lost answer is a possible grant, and the retry takes its own stored
// token for one.
func TestLostAnswer(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		effect loccotest.Effect
		over   time.Duration // when the first attempt is
		fence  int64
	}{
		{"DropAnswer", loccotest.DropAnswer(), 500 * ms, 2},
		{"DropRequest", loccotest.DropRequest(), 500 * ms, 1},
		{"FailAnswer", loccotest.FailAnswer(errPassing), 0, 2},
		{"FailRequest", loccotest.FailRequest(errPassing), 0, 1},
		{"LateAnswer", loccotest.LateAnswer(9900 * ms), 9900 * ms, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWire(t)
				w.dial(nil, locco.WithCallTimeout(500*ms), locco.WithFencing())
				w.inject(loccotest.Acquire, 1, tc.effect)
				l := w.goAcquire(t.Context(), "k", 10*time.Second).lock(tc.over + 200*ms)
				w.wantSent(loccotest.Acquire, 0, tc.over+200*ms)
				rs := w.sent(loccotest.Acquire)
				if rs[0].token != l.Token() || rs[1].token != l.Token() {
					t.Errorf("the attempts used the tokens %q and %q; want the lock's", rs[0].token, rs[1].token)
				}
				if rs[0].leases[0].Again || !rs[1].leases[0].Again {
					t.Error("Again is not set on the second attempt, or on the first")
				}
				w.wantHolder("k", l)
				if l.Fence() != tc.fence {
					t.Errorf("Fence = %d; want %d, that of the second grant", l.Fence(), tc.fence)
				}
				if l.Attempts() != 2 || l.Remaining() != 9900*ms {
					t.Errorf("Attempts, Remaining = %d, %v; want 2, 9.9s", l.Attempts(), l.Remaining())
				}
				if n := len(w.sent(loccotest.Release)); n != 0 {
					t.Errorf("the token was released %d times; want 0", n)
				}
				if err := l.Release(t.Context()); err != nil {
					t.Errorf("Release = %v; want nil", err)
				}
				w.wantHolder("k", nil)
			})
		})
	}
}

// spec 2.6: a lost attempt whose key somebody else got is undone once, after the
// last attempt.
func TestLostAnswerGivenUp(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		lost  int // attempts, of three
		taken bool
		want  error
		at    time.Duration
	}{
		{"AllLost", 3, false, locco.ErrLate, 700 * ms},
		{"FirstLostThenHeld", 1, true, locco.ErrHeld, 500 * ms},
		{"TwoLostThenHeld", 2, true, locco.ErrHeld, 600 * ms},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWire(t)
				w.dial(w.plain(), locco.WithCallTimeout(100*ms))
				w.inject(loccotest.Acquire, tc.lost, loccotest.DropRequest())
				if tc.taken {
					w.store.take("k", time.Hour)
				}
				err := w.goAcquire(t.Context(), "k", time.Minute, locco.Retries(2)).fails(tc.at, tc.want)
				if tc.want == locco.ErrHeld {
					matchesNone(t, err, locco.ErrLate)
				} else {
					matchesNone(t, err, locco.ErrHeld)
				}
				synctest.Wait()
				rs := w.sent(loccotest.Acquire)
				if len(rs) != 3 || rs[1].token != rs[0].token || rs[2].token != rs[0].token {
					t.Errorf("attempts = %v; want three with one token", rs)
				}
				w.wantReleased(rs[0].token)
				if evs := w.seen(locco.EventGivenBack); len(evs) != 1 || evs[0].Err != nil {
					t.Errorf("events of giving back = %+v; want one without an error", evs)
				}
			})
		})
	}
}

// spec 2.6: the key is free again when a given up token is undone.
func TestLostAnswerFreesTheKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		w.dial(nil, locco.WithCallTimeout(100*ms))
		w.inject(loccotest.Acquire, 2, loccotest.DropAnswer())
		w.goAcquire(t.Context(), "k", time.Minute, locco.Retries(1)).fails(400*ms, locco.ErrLate)
		synctest.Wait()
		w.wantHolder("k", nil)
		w.goTry(t.Context(), "k", time.Minute).lock(400 * ms)
	})
}

// spec 3.7: an error that stays is returned as it is, and what it may have stored
// is undone.
func TestDriverErrorThatStays(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		effect  loccotest.Effect
		want    error
		release bool
	}{
		{"Request", loccotest.FailRequest(errBroken), errBroken, true},
		{"Answer", loccotest.FailAnswer(errBroken), errBroken, true},
		{"SetUpWrong", loccotest.FailRequest(errSetUpWrong), errSetUpWrong, false}, // stores nothing (spec 1.9)
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			for _, try := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					w := newWire(t)
					w.dial(nil)
					w.inject(loccotest.Acquire, 1, tc.effect)
					p := w.goTake(t.Context(), try, "k", time.Minute)
					if err := p.fails(0, tc.want); err != tc.want {
						t.Errorf("the call = %v; want the driver's error as it is", err)
					}
					synctest.Wait()
					w.wantSent(loccotest.Acquire, 0)
					w.wantHolder("k", nil)
					if tc.release {
						w.wantReleased(w.sent(loccotest.Acquire)[0].token)
						w.wantKinds(locco.EventAcquireFailed, locco.EventGivenBack)
					} else {
						w.wantSent(loccotest.Release)
						w.wantKinds(locco.EventAcquireFailed)
					}
				})
			}
		})
	}
}

var errSetUpWrong = &locco.ValidationError{Field: "table", Value: "locks", Rule: "must exist"}

// spec 3.7: a passing error is a look without a grant; the final error is that of
// the last look.
func TestFinalError(t *testing.T) {
	t.Parallel()
	const (
		held    = "held"
		late    = "late"
		passing = "passing"
		broken  = "broken"
	)
	for _, tc := range []struct {
		name  string
		looks []string
		want  error
		at    time.Duration
	}{
		{"PassingThenHeld", []string{passing, held}, locco.ErrHeld, 200 * ms},
		{"HeldThenPassing", []string{held, passing}, errPassing, 200 * ms},
		{"AllPassing", []string{passing, passing, passing}, errPassing, 400 * ms},
		{"LateThenHeld", []string{late, held}, locco.ErrHeld, 250 * ms},
		{"HeldThenLate", []string{held, late}, locco.ErrLate, 250 * ms},
		{"PassingThenLate", []string{passing, late}, locco.ErrLate, 250 * ms},
		{"LateThenPassing", []string{late, passing}, errPassing, 250 * ms},
		{"HeldThenBroken", []string{held, broken, held}, errBroken, 200 * ms}, // at once
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWire(t)
				w.dial(w.plain(), locco.WithCallTimeout(50*ms))
				w.store.take("k", time.Hour)
				for _, look := range tc.looks {
					w.inject(loccotest.Acquire, 1, map[string]loccotest.Effect{
						late:    loccotest.DropRequest(),
						passing: loccotest.FailRequest(errPassing),
						broken:  loccotest.FailRequest(errBroken),
					}[look])
				}
				err := w.goAcquire(t.Context(), "k", time.Minute, locco.Retries(len(tc.looks)-1)).fails(tc.at, tc.want)
				for _, other := range []error{locco.ErrHeld, locco.ErrLate, errPassing, errBroken} {
					if other != tc.want {
						matchesNone(t, err, other)
					}
				}
				if (tc.want == errPassing || tc.want == errBroken) && err != tc.want {
					t.Errorf("Acquire = %v; want the driver's error as it is", err)
				}
			})
		})
	}
}

// spec 3.7: TryAcquire does not repeat, and without Retryer no error passes.
func TestPassingErrorIsNotRepeated(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		backend func(w *wire) locco.Backend
		try     bool
	}{
		{"TryAcquire", func(w *wire) locco.Backend { return w }, true},
		{"NoRetryer", func(w *wire) locco.Backend { return plainStore{w} }, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWire(t)
				w.dial(tc.backend(w))
				w.inject(loccotest.Acquire, 1, loccotest.FailRequest(errPassing))
				if tc.try {
					w.goTry(t.Context(), "k", time.Minute).fails(0, errPassing)
				} else {
					w.goAcquire(t.Context(), "k", time.Minute).fails(0, errPassing)
				}
				w.wantSent(loccotest.Acquire, 0)
			})
		})
	}
}

// spec 2.6, 1.9: a context that is over, and what is wrong, start nothing.
func TestNothingIsStarted(t *testing.T) {
	t.Parallel()
	over, cancel := context.WithCancelCause(context.Background())
	errOver := errors.New("over")
	cancel(errOver)
	for _, tc := range []struct {
		name string
		ctx  context.Context
		key  string
		ttl  time.Duration
		want []error
	}{
		{"ContextOver", over, "k", time.Second, []error{context.Canceled, errOver}},
		{"NilContext", nil, "k", time.Second, []error{locco.ErrInvalid}},
		{"NoKey", context.Background(), "", time.Second, []error{locco.ErrInvalid}},
		{"NoTTL", context.Background(), "k", 0, []error{locco.ErrInvalid}},
		{"HugeTTL", context.Background(), "k", math.MaxInt64, []error{locco.ErrInvalid}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWire(t)
				lr := w.dial(nil)
				_, acquireErr := lr.Acquire(tc.ctx, tc.key, tc.ttl)
				_, tryErr := lr.TryAcquire(tc.ctx, tc.key, tc.ttl)
				_, manyErr := lr.AcquireMany(tc.ctx, []string{tc.key, "l"}, tc.ttl)
				for _, err := range []error{acquireErr, tryErr, manyErr} {
					for _, want := range tc.want {
						if !errors.Is(err, want) {
							t.Errorf("the call = %v; want an error that matches %v", err, want)
						}
					}
					matchesNone(t, err, locco.ErrHeld, locco.ErrLate)
				}
				if rs := w.sent(^loccotest.Op(0)); len(rs) != 0 {
					t.Errorf("commands = %v; want none", rs)
				}
			})
		})
	}
}

// spec 1.2, 1.7: every call has a token of its own, kept over its attempts.
func TestTokens(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		lr := w.dial(w.plain())
		var tokens []string
		for range 3 {
			l := w.goAcquire(t.Context(), "k", time.Minute).lock(0)
			tokens = append(tokens, l.Token())
			l.Release(t.Context())
			if err := l.Release(t.Context()); err != nil {
				t.Errorf("second Release = %v; want nil", err)
			}
		}
		l := w.goAcquire(t.Context(), "k", time.Minute).lock(0)
		if slices.Contains(tokens, l.Token()) || tokens[0] == tokens[1] || len(l.Token()) != 32 {
			t.Errorf("tokens = %v and %v; want 32 digits, each its own", tokens, l.Token())
		}
		_, err := lr.Acquire(t.Context(), "k", time.Minute, locco.Retries(2))
		if !errors.Is(err, locco.ErrHeld) {
			t.Errorf("Acquire = %v; want ErrHeld", err)
		}
	})
}

// panicking panics at its n-th Acquire.
type panicking struct {
	*store
	n int
}

func (p *panicking) Acquire(ctx context.Context, l locco.Lease) (locco.Grant, error) {
	if p.n--; p.n == 0 {
		panic("backend")
	}
	return p.store.Acquire(ctx, l)
}

// A panic of the backend is the caller's; it leaves nothing behind that would
// hold up others.
func TestPanicOfTheBackend(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2} { // which look
		synctest.Test(t, func(t *testing.T) {
			b := &panicking{newStore(), n}
			lr := newLocker(t, b)
			b.take("k", time.Hour)
			panicked := func() (v any) {
				defer func() { v = recover() }()
				_, _ = lr.Acquire(context.Background(), "k", time.Minute)
				return nil
			}
			if v := panicked(); v != "backend" {
				t.Errorf("Acquire panicked with %v; want the backend's panic", v)
			}
			synctest.Wait()
			if n := locco.Rooms(lr); n != 0 {
				t.Errorf("the locker has state for %d keys after the panic; want none", n)
			}
			b.free("k")
			if _, err := lr.Acquire(t.Context(), "k", time.Minute, locco.Retries(0)); err != nil {
				t.Errorf("Acquire after the panic = %v; want a lock", err)
			}
		})
	}
}

// slowPanic panics in its first Acquire, a while after it began, and in every
// Transfer.
type slowPanic struct {
	*store
	after time.Duration
}

func (p *slowPanic) Acquire(ctx context.Context, l locco.Lease) (locco.Grant, error) {
	if after := p.after; after > 0 {
		p.after = 0
		time.Sleep(after)
		panic("backend")
	}
	return p.store.Acquire(ctx, l)
}

func (p *slowPanic) Transfer(context.Context, string, locco.Lease) (locco.Grant, error) {
	panic("backend")
}

// A panic in somebody else's call does not hold up those who wait.
func TestPanicOfTheBackendIsItsCallersAlone(t *testing.T) {
	t.Parallel()
	panics := func(t *testing.T, f func()) {
		t.Helper()
		defer func() {
			if v := recover(); v != "backend" {
				t.Errorf("panic = %v; want the backend's", v)
			}
		}()
		f()
	}
	t.Run("FirstLook", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWire(t)
			w.locker = newLocker(t, &slowPanic{newStore(), 100 * ms})
			first := make(chan struct{})
			go func() {
				defer close(first)
				panics(t, func() { _, _ = w.locker.Acquire(t.Context(), "k", time.Minute) })
			}()
			synctest.Wait()
			p := w.goAcquire(t.Context(), "k", time.Minute)
			<-first
			p.lock(100 * ms)
		})
	})
	t.Run("HandOver", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWire(t)
			w.locker = newLocker(t, &slowPanic{newStore(), 0})
			l := w.goAcquire(t.Context(), "k", time.Minute).lock(0)
			p := w.goAcquire(t.Context(), "k", time.Minute)
			panics(t, func() { _ = l.Release(t.Context()) })
			if err := l.Release(t.Context()); err != nil { // an ordinary one, since it failed
				t.Errorf("second Release = %v; want nil", err)
			}
			p.lock(0)
		})
	})
}

// spec 7.1: a panic of the hook is contained, and the hook may use the locker.
func TestHookOfAcquiring(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		lr := w.dial(w.plain())
		w.hookEvents(func(ev locco.Event) {
			if ev.Key != "other" {
				l, err := lr.Acquire(context.Background(), "other", time.Minute)
				if err != nil {
					t.Errorf("Acquire in the hook of %v = %v; want a lock", ev.Kind, err)
				}
				l.Release(context.Background())
			}
			panic("hook")
		})
		w.store.take("k", 300*ms)
		w.goAcquire(t.Context(), "k", time.Minute, locco.Retries(0)).fails(0, locco.ErrHeld)
		w.goAcquire(t.Context(), "k", time.Minute).lock(300 * ms)
		w.inject(loccotest.Acquire, 2, loccotest.FailAnswer(errPassing)) // one for "other"
		_, _ = lr.TryAcquire(context.Background(), "j", time.Minute)
		synctest.Wait()
		w.hookEvents(nil)
	})
}

// spec 5.6
func TestCloseEndsWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		lr := w.dial(w.plain())
		w.store.take("k", time.Hour)
		first := w.goAcquire(t.Context(), "k", time.Minute, locco.RetryForever())
		second := w.goAcquire(context.Background(), "k", time.Minute, locco.RetryForever())
		w.sleepTo(100 * ms)
		if err := lr.Close(t.Context()); err != nil {
			t.Errorf("Close = %v; want nil", err)
		}
		first.fails(100*ms, locco.ErrClosed)
		second.fails(100*ms, locco.ErrClosed)
		if _, err := lr.TryAcquire(t.Context(), "j", time.Minute); !errors.Is(err, locco.ErrClosed) {
			t.Errorf("TryAcquire after Close = %v; want ErrClosed", err)
		}
	})
}

// spec 5.6, 2.6: a grant that comes after Close is given back.
func TestCloseWhileTheFirstLookRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		lr := w.dial(nil)
		w.store.take("held", time.Hour)
		w.inject(loccotest.Acquire, 0, loccotest.DelayAnswer(100*ms))
		p := w.goAcquire(t.Context(), "k", time.Minute)
		refused := w.goAcquire(t.Context(), "held", time.Minute)
		try := w.goTry(t.Context(), "j", time.Minute)
		if err := lr.Close(t.Context()); err != nil {
			t.Errorf("Close = %v; want nil", err)
		}
		p.fails(100*ms, locco.ErrClosed)
		refused.fails(100*ms, locco.ErrClosed)
		try.fails(100*ms, locco.ErrClosed)
		synctest.Wait()
		w.wantHolder("k", nil)
		w.wantHolder("j", nil)
	})
}

// spec 5.6: Close waits for what waiters left behind.
func TestCloseWaitsForGiveBacks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		lr := w.dial(w.plain(), locco.WithCallTimeout(100*ms))
		w.inject(loccotest.Acquire, 1, loccotest.DropAnswer())
		p := w.goAcquire(t.Context(), "k", time.Minute)
		w.sleepTo(200 * ms)
		w.inject(loccotest.Release, 1, loccotest.DelayRequest(50*ms))
		if err := lr.Close(t.Context()); err != nil {
			t.Errorf("Close = %v; want nil", err)
		}
		w.wantHolder("k", nil) // at once
		p.fails(200*ms, locco.ErrClosed)
	})
}

// spec 5.6: and for detached looks, and what they win.
func TestCloseWaitsForDetachedLooks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		lr := w.dial(w.plain())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		w.inject(loccotest.Acquire, 1, loccotest.DelayAnswer(100*ms))
		p := w.goAcquire(ctx, "k", time.Minute)
		w.inject(loccotest.Release, 1, loccotest.DelayRequest(50*ms))
		if err := lr.Close(t.Context()); err != nil {
			t.Errorf("Close = %v; want nil", err)
		}
		if w.now() != 150*ms {
			t.Errorf("Close returned at %v; want 150ms", w.now())
		}
		w.wantHolder("k", nil)
		p.fails(0, locco.ErrClosed)
	})
}

// spec 7.1: an acquisition is reported once, as acquired or as failed, and a lock
// that was acquired is reported as ended.
func TestCloseInTheAcquiredEvent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		lr := w.dial(nil)
		w.hookEvents(func(ev locco.Event) {
			if ev.Kind == locco.EventAcquired {
				go lr.Close(context.Background())
				time.Sleep(10 * ms)
			}
		})
		_, err := lr.Acquire(t.Context(), "k", time.Minute)
		synctest.Wait()
		w.wantHolder("k", nil)
		acquired, failed := len(w.seen(locco.EventAcquired)), len(w.seen(locco.EventAcquireFailed))
		if acquired+failed != 1 || (err != nil) != (failed == 1) {
			t.Errorf("Acquire = %v with %d acquired and %d failed; want one of the two", err, acquired, failed)
		}
		if ended := len(w.seen(locco.EventReleased)) + len(w.seen(locco.EventLost)); ended != acquired {
			t.Errorf("%d endings for %d acquired locks; want as many", ended, acquired)
		}
	})
}
