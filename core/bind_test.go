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

// spec 5.3, 5.6: what ends a bound context, and with which cause.
func TestBindEnds(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, tc := range []struct {
		name  string
		end   func(t *testing.T, locker *locco.Locker, b *loccotest.Backend, lock *locco.Lock, cancel context.CancelCauseFunc)
		cause error
	}{
		{
			"Context",
			func(_ *testing.T, _ *locco.Locker, _ *loccotest.Backend, _ *locco.Lock, cancel context.CancelCauseFunc) {
				cancel(errPassing)
			}, errPassing,
		},
		{
			"Loss",
			func(*testing.T, *locco.Locker, *loccotest.Backend, *locco.Lock, context.CancelCauseFunc) {
				elapse(9900 * time.Millisecond)
			},
			locco.ErrLost,
		},
		{
			"LossFoundByExtend",
			func(_ *testing.T, _ *locco.Locker, b *loccotest.Backend, lock *locco.Lock, _ context.CancelCauseFunc) {
				b.Free(ctx, "k")
				lock.Extend(ctx, time.Second)
			}, locco.ErrLost,
		},
		{
			"Release",
			func(_ *testing.T, _ *locco.Locker, _ *loccotest.Backend, lock *locco.Lock, _ context.CancelCauseFunc) {
				lock.Release(ctx)
			}, locco.ErrReleased,
		},
		{
			// When its request leaves, not when it is answered.
			"ReleaseUnderWay",
			func(_ *testing.T, _ *locco.Locker, b *loccotest.Backend, lock *locco.Lock, _ context.CancelCauseFunc) {
				b.Inject(loccotest.Fault{Op: loccotest.Release, Effect: loccotest.DelayRequest(time.Second)})
				go lock.Release(ctx)
			}, locco.ErrReleased,
		},
		{
			"Detach",
			func(_ *testing.T, _ *locco.Locker, _ *loccotest.Backend, lock *locco.Lock, _ context.CancelCauseFunc) {
				lock.Detach()
			}, locco.ErrReleased,
		},
		{
			"Close",
			func(_ *testing.T, locker *locco.Locker, _ *loccotest.Backend, _ *locco.Lock, _ context.CancelCauseFunc) {
				locker.Close(ctx)
			}, locco.ErrClosed,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := loccotest.Wrap(newStore())
				locker := holdingLocker(t, b)
				lock := hold(t, locker, "k", 10*time.Second)
				parent, cancel := context.WithCancelCause(context.WithValue(ctx, ctxKey{}, "v"))
				defer cancel(nil)
				bound := lock.Bind(parent)
				child, cancelChild := context.WithCancel(lock.Bind(bound)) // one on top of the other
				defer cancelChild()
				if bound.Err() != nil || child.Err() != nil || bound.Value(ctxKey{}) != "v" {
					t.Errorf("Bind = %v, %v with value %v; want it live, with the values of its context",
						bound.Err(), child.Err(), bound.Value(ctxKey{}))
				}
				tc.end(t, locker, b, lock, cancel)
				synctest.Wait()
				for _, c := range []context.Context{bound, child} {
					if !errors.Is(c.Err(), context.Canceled) || !errors.Is(context.Cause(c), tc.cause) {
						t.Errorf("Err, Cause = %v, %v; want Canceled, %v", c.Err(), context.Cause(c), tc.cause)
					}
				}
				if tc.cause == locco.ErrLost && context.Cause(bound) != lock.Err() {
					t.Errorf("Cause = %v; want the lock's own LostError, %v", context.Cause(bound), lock.Err())
				}
				if tc.name != "Context" {
					if n := locco.BoundContexts(lock); n != 0 {
						t.Errorf("bound contexts kept = %d; want 0", n)
					}
					late := lock.Bind(ctx)
					if late.Err() == nil || context.Cause(late) != lock.Err() {
						t.Errorf("Bind afterwards: Err, Cause = %v, %v; want it ended by %v", late.Err(), context.Cause(late), lock.Err())
					}
				}
				elapse(time.Second) // what is under way
			})
		})
	}
}

// spec 5.3: the deadline of the context stays.
func TestBindKeepsTheDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		locker := holdingLocker(t, newStore())
		lock := hold(t, locker, "k", time.Minute)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		bound := lock.Bind(ctx)
		if deadline, ok := bound.Deadline(); !ok || time.Until(deadline) != time.Second {
			t.Errorf("Deadline = in %v, %v; want in 1s", time.Until(deadline), ok)
		}
		elapse(time.Second)
		if !errors.Is(bound.Err(), context.DeadlineExceeded) {
			t.Errorf("Err = %v; want DeadlineExceeded", bound.Err())
		}
		wantState(t, lock, locco.StateHeld)
	})
}

// spec 5.3: an ended context, a lock that is over, no context.
func TestBindToWhatIsOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		locker := holdingLocker(t, newStore())
		lock := hold(t, locker, "k", time.Minute)
		ended, cancel := context.WithCancelCause(context.Background())
		cancel(errPassing)
		if bound := lock.Bind(ended); !errors.Is(context.Cause(bound), errPassing) {
			t.Errorf("Cause of a context bound to an ended one = %v; want its cause", context.Cause(bound))
		}
		bound := lock.Bind(nil) //nolint:staticcheck // on purpose
		if bound == nil || bound.Err() == nil || !errors.Is(context.Cause(bound), locco.ErrInvalid) {
			t.Errorf("Bind(nil) = %v; want an ended context, because of ErrInvalid", bound)
		}
		synctest.Wait()
		if n := locco.BoundContexts(lock); n != 0 {
			t.Errorf("bound contexts kept = %d; want 0", n)
		}
	})
}

// spec 5.3: short contexts on a long hold leave nothing behind.
func TestBindLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		locker := holdingLocker(t, newStore())
		lock := hold(t, locker, "k", time.Hour)
		var cancels []context.CancelFunc
		for range 100 {
			ctx, cancel := context.WithCancel(context.Background())
			cancels = append(cancels, cancel)
			lock.Bind(ctx)
		}
		if n := locco.BoundContexts(lock); n != 100 {
			t.Errorf("bound contexts kept = %d; want 100 while they live", n)
		}
		for i := range cancels { // from the middle to both ends
			cancels[(i*37+50)%100]()
			synctest.Wait()
			if n := locco.BoundContexts(lock); n != 99-i {
				t.Fatalf("bound contexts kept = %d; want %d", n, 99-i)
			}
		}
		wantState(t, lock, locco.StateHeld)
	})
}

// spec 5.3: every context that is bound ends, whatever is bound, ended and lost
// at the same time.
func TestBindConcurrentSafe(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		end  func(locker *locco.Locker, lock *locco.Lock)
	}{
		{"Release", func(_ *locco.Locker, lock *locco.Lock) { lock.Release(context.Background()) }},
		{"Loss", func(_ *locco.Locker, lock *locco.Lock) { lock.State() }},
		{"Close", func(locker *locco.Locker, _ *locco.Lock) { locker.Close(context.Background()) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				clock := newJumpClock()
				locker := holdingLocker(t, newStore(), locco.WithClock(clock.now))
				lock := hold(t, locker, "k", time.Hour)
				var group sync.WaitGroup
				for i := range 50 {
					group.Go(func() {
						parent, cancel := context.WithCancel(context.Background())
						defer cancel()
						if i%3 == 0 {
							parent = context.Background()
						}
						if i%5 == 0 {
							go cancel()
						}
						<-lock.Bind(parent).Done()
					})
				}
				group.Go(func() {
					if tc.name == "Loss" {
						clock.jump(2 * time.Hour)
					}
					tc.end(locker, lock)
				})
				group.Wait() // hangs if a context was forgotten
				synctest.Wait()
				if n := locco.BoundContexts(lock); n != 0 {
					t.Errorf("bound contexts kept = %d; want 0", n)
				}
			})
		})
	}
}
