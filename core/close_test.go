package locco_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/core/loccotest"
)

// spec 5.6: Close refuses new work, of all views.
func TestCloseRefusesNewWork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := loccotest.Wrap(newStore())
		locker := holdingLocker(t, b)
		view, err := locker.With(locco.Retries(0))
		if err != nil {
			t.Fatalf("With = %v", err)
		}
		ctx := context.Background()
		handle := detach(t, hold(t, locker, "k", time.Hour))
		if err := view.Close(ctx); err != nil {
			t.Errorf("Close = %v; want nil", err)
		}
		before := b.Calls(^loccotest.Op(0))
		never := func(context.Context, *locco.Lock) error {
			t.Error("a callback ran")
			return nil
		}
		for _, lr := range []*locco.Locker{locker, view} {
			_, acquireErr := lr.Acquire(ctx, "a", time.Second)
			_, tryErr := lr.TryAcquire(ctx, "a", time.Second)
			_, manyErr := lr.AcquireMany(ctx, []string{"a", "b"}, time.Second)
			_, attachErr := lr.Attach(ctx, handle, time.Second)
			ran, tryWithErr := lr.TryWithLock(ctx, "a", time.Second, never)
			_, doErr := locco.Do(ctx, lr, "a", time.Second, func(context.Context, *locco.Lock) (int, error) { panic("ran") })
			if ran {
				t.Error("TryWithLock says that it ran")
			}
			for i, err := range []error{
				acquireErr, tryErr, manyErr, attachErr, tryWithErr, doErr,
				lr.WithLock(ctx, "a", time.Second, never),
				lr.WithLocks(ctx, []string{"a"}, time.Second, func(context.Context, *locco.LockSet) error { panic("ran") }),
			} {
				if !errors.Is(err, locco.ErrClosed) {
					t.Errorf("error %d = %v; want ErrClosed", i, err)
				}
			}
			if n := len(lr.Held()); n != 0 {
				t.Errorf("Held = %d locks; want 0", n)
			}
		}
		if n := b.Calls(^loccotest.Op(0)) - before; n != 0 {
			t.Errorf("calls after Close = %d; want 0", n)
		}
		if err := locker.Close(nil); !errors.Is(err, locco.ErrInvalid) { //nolint:staticcheck // on purpose
			t.Errorf("Close(nil) = %v; want ErrInvalid", err)
		}
	})
}

// spec 5.6: waits end at once, and get nothing from the locks that are released.
func TestCloseEndsTheWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inner := newStore()
		locker := holdingLocker(t, loccotest.Wrap(inner))
		inner.take("foreign", time.Hour)
		hold(t, locker, "local", time.Hour)
		ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
		defer cancel()
		var waits []func() (error, time.Duration, bool)
		for i := range 6 {
			waits = append(waits, later(func() error {
				key := []string{"foreign", "local"}[i%2]
				switch i / 2 {
				case 0:
					_, err := locker.Acquire(ctx, key, time.Minute, locco.RetryForever())
					return err
				case 1:
					return locker.WithLock(context.Background(), key, time.Minute, func(context.Context, *locco.Lock) error {
						t.Error("a callback ran")
						return nil
					}, locco.RetryForever())
				default:
					_, err := locker.AcquireMany(ctx, []string{"a", key}, time.Minute, locco.RetryForever())
					return err
				}
			}))
		}
		elapse(10 * time.Second)
		if err := locker.Close(context.Background()); err != nil {
			t.Errorf("Close = %v; want nil", err)
		}
		for i, wait := range waits {
			err, took, done := wait()
			if !done || !errors.Is(err, locco.ErrClosed) || took != 10*time.Second {
				t.Errorf("wait %d = %v after %v, done %v; want ErrClosed at once", i, err, took, done)
			}
			if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("wait %d = %v; want no error that looks like the end of its context", i, err)
			}
		}
		for _, key := range []string{"local", "a"} {
			if inner.holder(key) != "" {
				t.Errorf("%q is taken after Close", key)
			}
		}
	})
}

// spec 5.6: callbacks are told, waited for, and keep their lock meanwhile.
func TestCloseWaitsForCallbacks(t *testing.T) {
	t.Parallel()
	for _, with := range withLocks {
		t.Run(with.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				inner := newStore()
				locker := holdingLocker(t, loccotest.Wrap(inner))
				other := hold(t, locker, "other", time.Hour)
				bound := other.Bind(context.Background())
				work := later(func() error {
					return with.run(context.Background(), locker, func(ctx context.Context, lock *locco.Lock) error {
						<-ctx.Done()
						if !errors.Is(context.Cause(ctx), locco.ErrClosed) {
							t.Errorf("Cause in the callback = %v; want ErrClosed", context.Cause(ctx))
						}
						if late := lock.Bind(context.Background()); !errors.Is(context.Cause(late), locco.ErrClosed) {
							t.Errorf("Cause of Bind during Close = %v; want ErrClosed", context.Cause(late))
						}
						time.Sleep(time.Minute)
						wantState(t, lock, locco.StateHeld) // still renewed
						if inner.holder("k") != lock.Token() {
							t.Error("the key was freed before the callback returned")
						}
						return errWork
					}, locco.AutoExtend(time.Hour))
				})
				elapse(time.Second)
				begin := time.Now()
				if err := locker.Close(context.Background()); err != nil {
					t.Errorf("Close = %v; want nil: the callback's error is its own", err)
				}
				if took := time.Since(begin); took != time.Minute {
					t.Errorf("Close took %v; want 1m, the callback's time", took)
				}
				if inner.holder("k") != "" || inner.holder("other") != "" {
					t.Error("a key is taken after Close")
				}
				if !errors.Is(context.Cause(bound), locco.ErrClosed) {
					t.Errorf("Cause of a bound context = %v; want ErrClosed", context.Cause(bound))
				}
				wantState(t, other, locco.StateReleased)
				if err, _, done := work(); !done || err != errWork {
					t.Errorf("the callback's call = %v, done %v; want its error", err, done)
				}
			})
		})
	}
}

// spec 5.6: the rest is released, and the errors are joined.
func TestCloseReleasesTheRest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inner := newStore()
		b := loccotest.Wrap(inner)
		h := &hookLog{}
		locker := holdingLocker(t, b, locco.WithEvents(h.hook))
		var locks []*locco.Lock
		for i := range 200 {
			locks = append(locks, hold(t, locker, fmt.Sprint("k", i), time.Hour, locco.AutoExtend(day)))
		}
		b.Inject(loccotest.Fault{Op: loccotest.Release, Key: "k7", Times: 1, Effect: loccotest.FailRequest(errBroken)})
		b.Inject(loccotest.Fault{Op: loccotest.Release, Key: "k9", Times: 1, Effect: loccotest.FailRequest(errPassing)})
		b.Free(context.Background(), "k11")
		b.Inject(loccotest.Fault{Op: loccotest.Release, Effect: loccotest.DelayAnswer(time.Second)})
		begin := time.Now()
		err := locker.Close(context.Background())
		if took := time.Since(begin); took > 10*time.Second {
			t.Errorf("Close of 200 slow releases took %v; want many at a time", took)
		}
		for _, want := range []error{errBroken, errPassing, locco.ErrLost} {
			if !errors.Is(err, want) {
				t.Errorf("Close = %v; want it to match %v", err, want)
			}
		}
		for i, lock := range locks {
			want, events := locco.StateReleased, "acquired, released freed"
			switch i {
			case 7, 9:
				events = "acquired, release failed"
			case 11:
				want, events = locco.StateLost, "acquired, lost release"
			}
			wantState(t, lock, want)
			wantEvents(t, h, lock.Key(), events)
			if freed := inner.holder(lock.Key()) == ""; freed != (i != 7 && i != 9) {
				t.Errorf("%q freed = %v", lock.Key(), freed)
			}
		}
		b.Clear()
		if err := locker.Close(context.Background()); err != nil { // tries the two again
			t.Errorf("Close again = %v; want nil", err)
		}
		if inner.holder("k7") != "" || inner.holder("k9") != "" {
			t.Error("a key whose release failed is taken after the second Close")
		}
		wantEvents(t, h, "k7", "acquired, release failed, released freed")
	})
}

// spec 5.6, 5.5
func TestCloseKeepsWhatIsHeldAtLeast(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inner := newStore()
		locker := holdingLocker(t, loccotest.Wrap(inner))
		hold(t, locker, "k", time.Minute, locco.HoldAtLeast(10*time.Second))
		if err := locker.Close(context.Background()); err != nil {
			t.Errorf("Close = %v; want nil", err)
		}
		elapse(10*time.Second - 1)
		if inner.holder("k") == "" {
			t.Error("the key is free before HoldAtLeast has passed")
		}
		elapse(1)
		if inner.holder("k") != "" {
			t.Error("the key is taken when HoldAtLeast has passed")
		}
	})
}

// spec 5.6: past its context Close stops renewing and returns, whatever hangs.
func TestCloseWhenItsContextEnds(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		limit time.Duration
	}{
		{"During", time.Second},
		{"Before", 0},
	} {
		for _, hang := range []string{"Callback", "Backend", "HangingHeartbeat", "Nothing"} {
			t.Run(tc.name+"/"+hang, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					if hang == "Nothing" && tc.limit > 0 {
						return // it is in time
					}
					inner := newStore()
					b := loccotest.Wrap(inner)
					calls := logCalls(b)
					locker := holdingLocker(t, b)
					var locks []*locco.Lock
					for i := range 100 {
						locks = append(locks, hold(t, locker, manyKey(i), 9*time.Second, locco.AutoExtend(day)))
					}
					over := make(chan struct{})
					var work func() (error, time.Duration, bool)
					switch hang {
					case "Callback":
						work = later(func() error {
							return locker.WithLock(context.Background(), "work", 9*time.Second, func(context.Context, *locco.Lock) error {
								<-over
								return nil
							}, locco.AutoExtend(day))
						})
					case "Backend":
						b.Inject(loccotest.Fault{Op: loccotest.Release, Effect: loccotest.DropRequest()})
					case "HangingHeartbeat":
						b.Inject(loccotest.Fault{Op: loccotest.AnyExtend, Times: 1, Effect: loccotest.DropRequest()})
					}
					elapse(4 * time.Second)
					sent := b.Calls(loccotest.AnyExtend)
					if sent == 0 {
						t.Error("no heartbeat before Close")
					}
					ctx, cancel := context.WithCancelCause(context.Background())
					time.AfterFunc(tc.limit, func() { cancel(errPassing) })
					if tc.limit == 0 {
						cancel(errPassing)
					}
					begin := time.Now()
					err := locker.Close(ctx)
					if took := time.Since(begin); took != tc.limit {
						t.Errorf("Close took %v; want %v", took, tc.limit)
					}
					if !errors.Is(err, errPassing) || !errors.Is(err, context.Canceled) {
						t.Errorf("Close = %v; want the context's cause and error", err)
					}
					b.Clear()
					elapse(30 * time.Second)
					if n := b.Calls(loccotest.AnyExtend) - sent; n != 0 {
						t.Errorf("extensions after Close = %d, at %v; want 0", n, calls.times(loccotest.AnyExtend, ""))
					}
					for _, lock := range locks {
						if lock.State() == locco.StateHeld {
							t.Fatalf("%q is held long after Close; want its lease over", lock.Key())
						}
					}
					close(over)
					if work != nil {
						if err, _, done := work(); !done || !errors.Is(err, locco.ErrLost) {
							t.Errorf("the callback's call = %v, done %v; want ErrLost", err, done)
						}
					}
					if err := locker.Close(context.Background()); err != nil { // what was left has expired
						t.Errorf("Close again = %v; want nil", err)
					}
				})
			})
		}
	}
}

// spec 5.6: a callback or a hook that closes waits for itself, but not longer than
// its context.
func TestCloseFromWithin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inner := newStore()
		var closed atomic.Int32
		var locker *locco.Locker
		closeIt := func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			if err := locker.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Close = %v; want DeadlineExceeded", err)
			}
			closed.Add(1)
		}
		locker = holdingLocker(t, loccotest.Wrap(inner), locco.WithEvents(func(ev locco.Event) {
			if ev.Kind == locco.EventExtended && closed.Load() == 0 {
				closeIt()
			}
		}))
		hold(t, locker, "k", 9*time.Second, locco.AutoExtend(day))
		err := locker.WithLock(context.Background(), "w", 30*time.Second, func(ctx context.Context, _ *locco.Lock) error {
			<-ctx.Done() // by the hook's
			closeIt()
			return nil
		})
		if err != nil {
			t.Errorf("WithLock = %v; want nil", err)
		}
		synctest.Wait()
		if closed.Load() != 2 {
			t.Errorf("closed %d times; want 2", closed.Load())
		}
		if err := locker.Close(context.Background()); err != nil {
			t.Errorf("Close = %v; want nil", err)
		}
		if inner.holder("k") != "" || inner.holder("w") != "" {
			t.Error("a key is taken after Close")
		}
	})
}

// spec 5.6: that its context had ended already is not overlooked when nothing
// takes time.
func TestCloseWithAnEndedContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		inner := newStore()
		for i := range 200 {
			b := loccotest.Wrap(inner)
			locker := holdingLocker(t, b)
			lock := hold(t, locker, fmt.Sprint("k", i), 9*time.Second, locco.AutoExtend(day))
			if err := locker.Close(ended); !errors.Is(err, context.Canceled) {
				t.Errorf("Close = %v; want Canceled: the lock was not released", err)
			}
			wantState(t, lock, locco.StateHeld)
			elapse(10 * time.Second)
			wantState(t, lock, locco.StateLost)
			if n := b.Calls(loccotest.AnyExtend); n != 0 {
				t.Errorf("extensions after Close = %d; want 0", n)
			}
		}
		if err := holdingLocker(t, inner).Close(ended); err != nil {
			t.Errorf("Close without locks = %v; want nil: nothing was left to do", err)
		}
	})
}

// spec 5.6: a second Close waits in the same way.
func TestCloseTwice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := loccotest.Wrap(newStore())
		locker := holdingLocker(t, b)
		hold(t, locker, "k", time.Minute)
		b.Inject(loccotest.Fault{Op: loccotest.Release, Effect: loccotest.DelayAnswer(2 * time.Second)})
		first := later(func() error { return locker.Close(context.Background()) })
		time.Sleep(time.Second)
		begin := time.Now()
		if err := locker.Close(context.Background()); err != nil {
			t.Errorf("the second Close = %v; want nil", err)
		}
		if took := time.Since(begin); took != time.Second {
			t.Errorf("the second Close took %v; want 1s, until the release is over", took)
		}
		if err, took, done := first(); err != nil || took != 2*time.Second || !done {
			t.Errorf("the first Close = %v after %v, done %v; want nil after 2s", err, took, done)
		}
		if n := b.Calls(loccotest.Release); n != 1 {
			t.Errorf("releases sent = %d; want 1", n)
		}
	})
}

// spec 5.6, 2.6: what is granted after Close began is given back before Close
// returns.
func TestCloseGivesBackWhatIsInFlight(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		acquire func(locker *locco.Locker) error
	}{
		{"Acquire", func(locker *locco.Locker) error {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			_, err := locker.Acquire(ctx, "k", time.Minute)
			return err
		}},
		{"AcquireOnItsGoroutine", func(locker *locco.Locker) error {
			_, err := locker.Acquire(context.Background(), "k", time.Minute)
			return err
		}},
		{"TryAcquire", func(locker *locco.Locker) error {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			_, err := locker.TryAcquire(ctx, "k", time.Minute)
			return err
		}},
		{"WithLock", func(locker *locco.Locker) error {
			return locker.WithLock(context.Background(), "k", time.Minute, func(context.Context, *locco.Lock) error { panic("ran") })
		}},
		{"AcquireMany", func(locker *locco.Locker) error {
			_, err := locker.AcquireMany(context.Background(), []string{"k", "l"}, time.Minute)
			return err
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				inner := newStore()
				b := loccotest.Wrap(inner)
				b.Inject(loccotest.Fault{Op: loccotest.AnyAcquire, Effect: loccotest.DelayAnswer(500 * time.Millisecond)})
				b.Inject(loccotest.Fault{Op: loccotest.Release, Effect: loccotest.DelayRequest(500 * time.Millisecond)})
				h := &hookLog{}
				locker := holdingLocker(t, b, locco.WithEvents(h.hook))
				acquire := later(func() error { return tc.acquire(locker) })
				elapse(100 * time.Millisecond)
				if inner.holder("k") == "" {
					t.Fatal("nothing is in flight")
				}
				if err := locker.Close(context.Background()); err != nil {
					t.Errorf("Close = %v; want nil", err)
				}
				err, took, _ := acquire()
				if tc.name == "AcquireOnItsGoroutine" || tc.name == "TryAcquire" || tc.name == "AcquireMany" {
					elapse(2 * time.Second) // Close does not wait for the calls of others
					err, took, _ = acquire()
				}
				if !errors.Is(err, locco.ErrClosed) {
					t.Errorf("the call = %v after %v; want ErrClosed", err, took)
				}
				for _, key := range []string{"k", "l"} {
					if inner.holder(key) != "" {
						t.Errorf("%q is taken after Close", key)
					}
					if got := h.of(key); strings.Contains(got, "acquired") {
						t.Errorf("events = %s; want no acquired", got)
					}
				}
			})
		})
	}
}

// spec 5.6, 5.7: a lock that is being taken over when Close comes is left to its
// handle.
func TestCloseDuringAttach(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inner := newStore()
		b := loccotest.Wrap(inner)
		h := &hookLog{}
		first, second := holdingLocker(t, b), holdingLocker(t, b, locco.WithEvents(h.hook))
		handle := detach(t, hold(t, first, "k", time.Minute))
		b.Inject(loccotest.Fault{Op: loccotest.Extend, Times: 1, Effect: loccotest.DelayAnswer(time.Second)})
		attach := later(func() error {
			_, err := second.Attach(context.Background(), handle, time.Minute, locco.AutoExtend(day))
			return err
		})
		elapse(500 * time.Millisecond)
		if err := second.Close(context.Background()); err != nil {
			t.Errorf("Close = %v; want nil", err)
		}
		elapse(time.Second)
		if err, _, done := attach(); !done || !errors.Is(err, locco.ErrClosed) {
			t.Errorf("Attach = %v, done %v; want ErrClosed", err, done)
		}
		if got := h.of("k"); strings.Contains(got, "acquired") {
			t.Errorf("events = %s; want no acquired", got)
		}
		if inner.holder("k") != handle.Token {
			t.Error("the key was freed; want it left to its handle")
		}
		if _, err := first.Attach(context.Background(), handle, time.Minute); err != nil {
			t.Errorf("Attach elsewhere = %v; want nil", err)
		}
	})
}

// spec 5.6, 4.4: Close does not return while an extension is in flight.
func TestCloseWaitsForTheBackground(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := loccotest.Wrap(newStore())
		locker := holdingLocker(t, b)
		hold(t, locker, "k", 9*time.Second, locco.AutoExtend(day))
		b.Inject(loccotest.Fault{Op: loccotest.Extend, Effect: loccotest.DelayAnswer(2 * time.Second)})
		elapse(3 * time.Second)
		begin := time.Now()
		if err := locker.Close(context.Background()); err != nil {
			t.Errorf("Close = %v; want nil", err)
		}
		if took := time.Since(begin); took != 2*time.Second {
			t.Errorf("Close took %v; want 2s, until the heartbeat is over", took)
		}
		if n := locco.InBackground(locker); n != 0 {
			t.Errorf("calls in the background after Close = %d; want 0", n)
		}
	})
}

// spec 5.6: everything while Close runs.
func TestCloseConcurrentSafe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inner := newStore()
		b := loccotest.Wrap(inner)
		b.Inject(loccotest.Fault{Op: loccotest.Acquire, Skip: 3, Times: 5, Effect: loccotest.DelayAnswer(15 * time.Millisecond)})
		h := &hookLog{}
		locker := holdingLocker(t, b, locco.WithEvents(h.hook))
		var group sync.WaitGroup
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		for i := range 60 {
			key := fmt.Sprint("k", i%7)
			group.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				switch i % 5 {
				case 0:
					if lock, err := locker.Acquire(ctx, key, 9*time.Second, locco.AutoExtend(day)); err == nil {
						<-lock.Bind(ctx).Done()
					}
				case 1:
					locker.WithLock(ctx, key, 9*time.Second, func(ctx context.Context, _ *locco.Lock) error {
						time.Sleep(20 * time.Millisecond)
						return nil
					})
				case 2:
					if set, err := locker.AcquireMany(ctx, []string{key, "z"}, 9*time.Second); err == nil {
						time.Sleep(time.Millisecond)
						set.Release(ctx)
					}
				case 3:
					if lock, err := locker.TryAcquire(context.Background(), key, 9*time.Second); err == nil {
						lock.Release(ctx)
					}
				case 4:
					if i > 30 {
						locker.Close(ctx)
					}
				}
			})
		}
		group.Wait()
		if err := locker.Close(ctx); err != nil {
			t.Errorf("Close = %v; want nil", err)
		}
		for i := range 7 {
			key := fmt.Sprint("k", i)
			if inner.holder(key) != "" {
				t.Errorf("%q is taken after Close", key)
			}
			got := h.of(key)
			begun := strings.Count(got, "acquired")
			ended := strings.Count(got, "released ") + strings.Count(got, "lost ")
			if begun != ended {
				t.Errorf("events of %q = %s; want an ending for each acquired", key, got)
			}
		}
	})
}
