package locco_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/core/loccotest"
)

// holdSet takes a set of keys that are free.
func holdSet(t *testing.T, locker *locco.Locker, keys string, ttl time.Duration, opts ...locco.CallOption) *locco.LockSet {
	t.Helper()
	set, err := locker.AcquireMany(context.Background(), strings.Fields(keys), ttl, opts...)
	if err != nil {
		t.Fatalf("AcquireMany(%s) = %v; want a set", keys, err)
	}
	return set
}

// spec 2.5: a set has its locks.
func TestLockSetHasItsLocks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		locker := holdingLocker(t, newStore(), locco.WithPrefix("p:"))
		set := holdSet(t, locker, "c a b a", time.Minute)
		var keys []string
		for _, lock := range set.Locks() {
			keys = append(keys, lock.Key())
			wantState(t, lock, locco.StateHeld)
		}
		if got := strings.Join(keys, " "); got != "p:a p:b p:c" {
			t.Errorf("Locks = %s; want p:a p:b p:c", got)
		}
		if got := set.Get("b"); got != set.Locks()[1] {
			t.Errorf("Get(b) = %v; want the second lock", got)
		}
		if got := set.Get("p:b"); got != nil {
			t.Errorf("Get(p:b) = %v; want nil", got)
		}
		set.Locks()[0] = nil
		if set.Locks()[0] == nil {
			t.Error("a change of the result of Locks changed the set")
		}
		if err := set.Err(); err != nil {
			t.Errorf("Err = %v; want nil", err)
		}
	})
}

// spec 5.4: a nil set is "not held", as a nil lock.
func TestNilLockSet(t *testing.T) {
	t.Parallel()
	var set *locco.LockSet
	ctx := context.Background()
	if set.Locks() != nil || set.Get("k") != nil {
		t.Error("Locks or Get of a nil set is something")
	}
	if err := set.Err(); !errors.Is(err, locco.ErrReleased) {
		t.Errorf("Err = %v; want ErrReleased", err)
	}
	if err := set.Extend(ctx, time.Second); !errors.Is(err, locco.ErrReleased) {
		t.Errorf("Extend = %v; want ErrReleased", err)
	}
	if err := set.Release(ctx); err != nil {
		t.Errorf("Release = %v; want nil", err)
	}
	if !isClosed(set.Lost()) {
		t.Error("Lost is open; want it closed")
	}
	if bound := set.Bind(ctx); !errors.Is(context.Cause(bound), locco.ErrReleased) {
		t.Errorf("Cause of Bind = %v; want ErrReleased", context.Cause(bound))
	}
}

// spec 2.5, 5.3: the shared loss signal is the first loss of any lock.
func TestLockSetLoss(t *testing.T) {
	t.Parallel()
	for _, early := range []bool{true, false} {
		t.Run(map[bool]string{true: "ChannelFromBefore", false: "ChannelFromAfter"}[early], func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				locker := holdingLocker(t, newStore())
				set := holdSet(t, locker, "a b c", time.Minute)
				set.Get("a").Extend(context.Background(), time.Hour)
				set.Get("b").Extend(context.Background(), 10*time.Second)
				set.Get("c").Extend(context.Background(), 30*time.Second)
				if early {
					lost := set.Lost()
					if lost != set.Lost() {
						t.Error("Lost returned two channels; want the same")
					}
					bound := set.Bind(context.Background())
					elapse(9900*time.Millisecond - 1)
					if isClosed(lost) || bound.Err() != nil {
						t.Error("the loss signals before any loss; want none")
					}
					elapse(1)
					if !isClosed(lost) {
						t.Error("Lost is open after the first loss; want it closed")
					}
					wantLostError(t, context.Cause(bound), "b", locco.ReasonExpired, nil)
					elapse(30 * time.Second)
				} else {
					elapse(20 * time.Second)
					wantLostError(t, set.Err(), "b", locco.ReasonExpired, nil)
					elapse(20 * time.Second)
					if !isClosed(set.Lost()) {
						t.Error("Lost is open after the first loss; want it closed")
					}
				}
				wantLostError(t, set.Err(), "b", locco.ReasonExpired, nil) // it stays the first
				if bound := set.Bind(context.Background()); !errors.Is(context.Cause(bound), locco.ErrLost) {
					t.Errorf("Cause of Bind after the loss = %v; want ErrLost", context.Cause(bound))
				}
				wantState(t, set.Get("a"), locco.StateHeld)
				if err := set.Release(context.Background()); !errors.Is(err, locco.ErrLost) {
					t.Errorf("Release = %v; want ErrLost", err)
				}
				wantState(t, set.Get("a"), locco.StateReleased)
				wantLostError(t, set.Err(), "b", locco.ReasonExpired, nil)
			})
		})
	}
}

// spec 2.5, 5.3: a release is no loss; it ends bound contexts all the same.
func TestLockSetRelease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inner := newStore()
		b := loccotest.Wrap(inner)
		h := &hookLog{}
		locker := holdingLocker(t, b, locco.WithEvents(h.hook))
		set := holdSet(t, locker, "a b c", time.Minute)
		lost, bound := set.Lost(), set.Bind(context.Background())
		b.Inject(loccotest.Fault{Op: loccotest.Release, Effect: loccotest.DelayAnswer(time.Second)})
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		begin := time.Now()
		if err := set.Release(ended); err != nil {
			t.Errorf("Release = %v; want nil", err)
		}
		if took := time.Since(begin); took != time.Second {
			t.Errorf("Release of three slow keys took %v; want 1s: together", took)
		}
		if isClosed(lost) || isClosed(set.Lost()) {
			t.Error("Lost is closed after a release; want it open")
		}
		if !errors.Is(context.Cause(bound), locco.ErrReleased) {
			t.Errorf("Cause of the bound context = %v; want ErrReleased", context.Cause(bound))
		}
		if err := set.Err(); !errors.Is(err, locco.ErrReleased) || errors.Is(err, locco.ErrLost) {
			t.Errorf("Err = %v; want ErrReleased", err)
		}
		for key := range strings.FieldsSeq("a b c") {
			if inner.holder(key) != "" {
				t.Errorf("%q is taken after Release", key)
			}
			wantEvents(t, h, key, "acquired, released freed")
		}
		if err := set.Release(context.Background()); err != nil {
			t.Errorf("Release again = %v; want nil", err)
		}
		if n := b.Calls(loccotest.Release); n != 3 {
			t.Errorf("releases sent = %d; want 3", n)
		}
	})
}

// spec 2.5: Release tries every key, joins the errors and names the keys.
func TestLockSetReleaseTriesEveryKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inner := newStore()
		b := loccotest.Wrap(inner)
		locker := holdingLocker(t, b)
		set := holdSet(t, locker, "a b c d", time.Minute)
		b.Inject(loccotest.Fault{Op: loccotest.Release, Key: "a", Times: 1, Effect: loccotest.FailRequest(errBroken)})
		b.Inject(loccotest.Fault{Op: loccotest.Release, Key: "b", Times: 1, Effect: loccotest.FailRequest(errPassing)})
		b.Free(context.Background(), "c")
		err := set.Release(context.Background())
		for _, want := range []error{errBroken, errPassing, locco.ErrLost} {
			if !errors.Is(err, want) {
				t.Errorf("Release = %v; want it to match %v", err, want)
			}
		}
		for _, key := range []string{`"a"`, `"b"`, `"c"`} {
			if !strings.Contains(err.Error(), key) {
				t.Errorf("Release = %v; want it to name %s", err, key)
			}
		}
		if inner.holder("d") != "" {
			t.Error("the last key is taken; want every key tried")
		}
		wantLostError(t, set.Err(), "c", locco.ReasonRelease, nil)
		if err := set.Release(context.Background()); !errors.Is(err, locco.ErrLost) || errors.Is(err, errBroken) {
			t.Errorf("Release again = %v; want the loss only", err)
		}
	})
}

// spec 2.5, 8.5: Extend asks for all together, with a verdict for each key.
func TestLockSetExtend(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, tc := range []struct {
		name string
		wrap func(*loccotest.Backend) locco.Backend
		call int // for how many calls
	}{
		{"Together", func(b *loccotest.Backend) locco.Backend { return b }, 1},
		{"OneByOne", func(b *loccotest.Backend) locco.Backend { return plainStore{b} }, 5},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := loccotest.Wrap(newStore())
				locker := holdingLocker(t, tc.wrap(b))
				set := holdSet(t, locker, "a b c d e f", time.Minute)
				before := b.Calls(loccotest.AnyExtend)
				b.Inject(loccotest.Fault{Op: loccotest.AnyExtend, Key: "b", Times: 1, Effect: loccotest.FailRequest(errBroken)})
				b.Free(ctx, "c")
				set.Get("f").Release(ctx)
				err := set.Extend(ctx, time.Hour)
				for _, want := range []error{errBroken, locco.ErrLost, locco.ErrReleased} {
					if !errors.Is(err, want) {
						t.Errorf("Extend = %v; want it to match %v", err, want)
					}
				}
				for _, key := range []string{`"b"`, `"c"`, `"f"`} {
					if !strings.Contains(err.Error(), key) {
						t.Errorf("Extend = %v; want it to name %s", err, key)
					}
				}
				if n := b.Calls(loccotest.AnyExtend) - before; n != tc.call {
					t.Errorf("calls = %d; want %d", n, tc.call)
				}
				for key := range strings.FieldsSeq("a d e") {
					if got := set.Get(key).Remaining(); got != 3564*time.Second {
						t.Errorf("Remaining of %q = %v; want 59m24s", key, got)
					}
				}
				wantState(t, set.Get("b"), locco.StateHeld)
				wantLost(t, set.Get("c"), locco.ReasonExtend, nil)
				wantState(t, set.Get("f"), locco.StateReleased)
			})
		})
	}
}

// spec 1.3, 2.6
func TestLockSetExtendRefuses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := loccotest.Wrap(newStore())
		locker := holdingLocker(t, b)
		set := holdSet(t, locker, "a b", time.Minute)
		before := b.Calls(loccotest.AnyExtend)
		ended, cancel := context.WithCancelCause(context.Background())
		cancel(errPassing)
		if err := set.Extend(context.Background(), 0); !errors.Is(err, locco.ErrInvalid) {
			t.Errorf("Extend(0) = %v; want ErrInvalid", err)
		}
		if err := set.Extend(nil, time.Second); !errors.Is(err, locco.ErrInvalid) { //nolint:staticcheck // on purpose
			t.Errorf("Extend without a context = %v; want ErrInvalid", err)
		}
		if err := set.Release(nil); !errors.Is(err, locco.ErrInvalid) { //nolint:staticcheck // on purpose
			t.Errorf("Release without a context = %v; want ErrInvalid", err)
		}
		if err := set.Extend(ended, time.Second); !errors.Is(err, errPassing) || !errors.Is(err, context.Canceled) {
			t.Errorf("Extend with an ended context = %v; want its error and cause", err)
		}
		if n := b.Calls(loccotest.AnyExtend) - before; n != 0 {
			t.Errorf("extensions sent = %d; want 0", n)
		}
		if err := set.Err(); err != nil {
			t.Errorf("Err = %v; want nil", err)
		}
	})
}

// spec 4.1: the caller's context ends the call; the answers are taken in.
func TestLockSetExtendWhenItsContextEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := loccotest.Wrap(newStore())
		locker := holdingLocker(t, b)
		set := holdSet(t, locker, "a b", time.Minute)
		b.Inject(loccotest.Fault{Op: loccotest.AnyExtend, Effect: loccotest.DelayAnswer(2 * time.Second)})
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		begin := time.Now()
		if err := set.Extend(ctx, time.Hour); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Extend = %v; want DeadlineExceeded", err)
		}
		if took := time.Since(begin); took != time.Second {
			t.Errorf("Extend took %v; want 1s", took)
		}
		elapse(time.Second)
		for _, lock := range set.Locks() {
			if got := lock.Remaining(); got != 3562*time.Second {
				t.Errorf("Remaining of %q = %v; want 59m22s", lock.Key(), got)
			}
		}
	})
}

// spec 8.5: a key whose extension hangs does not take the others' time, neither
// the hanging call of this Extend nor that of a heartbeat.
func TestLockSetExtendWithAHangingKey(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		opts []locco.CallOption
	}{
		{"Its", nil},
		{"AHeartbeats", []locco.CallOption{locco.AutoExtend(day)}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := loccotest.Wrap(newStore())
				locker := holdingLocker(t, plainStore{b})
				var locks []*locco.Lock
				set := holdSet(t, locker, "a b c d", 4*time.Second, tc.opts...)
				locks = set.Locks()
				elapse(1200 * time.Millisecond)
				for _, key := range []string{"a", "c"} {
					b.Inject(loccotest.Fault{Op: loccotest.Extend, Key: key, Times: 1, Effect: loccotest.DropRequest()})
				}
				elapse(200 * time.Millisecond) // at 1.33s, the heartbeats leave
				begin := time.Now()
				err := set.Extend(context.Background(), 4*time.Second)
				if tc.opts == nil && !errors.Is(err, locco.ErrLost) {
					t.Errorf("Extend = %v; want the loss of the hanging keys", err)
				}
				left := 3960*time.Millisecond - time.Since(begin)
				for _, i := range []int{1, 3} {
					if locks[i].State() != locco.StateHeld || locks[i].Remaining() < left {
						t.Errorf("%q: State, Remaining = %v, %v; want it held for %v", locks[i].Key(), locks[i].State(), locks[i].Remaining(), left)
					}
				}
			})
		})
	}
}

// spec 4.4, 2.5: a key with an extension under way is extended after that.
func TestLockSetExtendAfterAHeartbeat(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := loccotest.Wrap(newStore())
		locker := holdingLocker(t, plainStore{b})
		set := holdSet(t, locker, "a b", 9*time.Second, locco.AutoExtend(day))
		b.Inject(loccotest.Fault{Op: loccotest.Extend, Key: "a", Times: 1, Effect: loccotest.DelayAnswer(2 * time.Second)})
		b.Inject(loccotest.Fault{Op: loccotest.Extend, Key: "a", Times: 1, Effect: loccotest.FailRequest(errBroken)})
		calls := logCalls(b)
		elapse(3500 * time.Millisecond)
		if err := set.Extend(context.Background(), time.Hour); !errors.Is(err, errBroken) || !strings.Contains(err.Error(), `"a"`) {
			t.Errorf("Extend = %v; want the error of the second extension of a, with its key", err)
		}
		wantTimes(t, "extensions of a", calls.times(loccotest.Extend, "a"), 3*time.Second, 5*time.Second)
		wantTimes(t, "extensions of b", calls.times(loccotest.Extend, "b"), 3*time.Second, 3500*time.Millisecond)
		if err := set.Extend(context.Background(), time.Hour); err != nil {
			t.Errorf("Extend = %v; want nil", err)
		}
	})
}

// spec 2.5, 4.3: each lock of a set counts its own hold deadline, and keeps its
// heartbeat.
func TestLockSetHeartbeats(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := loccotest.Wrap(newStore())
		locker := holdingLocker(t, b)
		set := holdSet(t, locker, "a b", 9*time.Second, locco.AutoExtend(30*time.Second))
		lost := set.Lost()
		elapse(30*time.Second - 1)
		if err := set.Err(); err != nil || isClosed(lost) {
			t.Errorf("Err just before the hold deadline = %v; want nil", err)
		}
		elapse(1)
		if !isClosed(lost) {
			t.Error("Lost is open at the hold deadline; want it closed")
		}
		for _, lock := range set.Locks() {
			wantLost(t, lock, locco.ReasonMaxHold, nil)
		}
	})
}

// spec 2.5, 5.3: what ends the bound context of a set, and what it leaves behind.
func TestLockSetBind(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, tc := range []struct {
		name  string
		end   func(locker *locco.Locker, set *locco.LockSet, cancel context.CancelCauseFunc)
		cause error
	}{
		{"Context", func(_ *locco.Locker, _ *locco.LockSet, cancel context.CancelCauseFunc) { cancel(errPassing) }, errPassing},
		{"OneReleased", func(_ *locco.Locker, set *locco.LockSet, _ context.CancelCauseFunc) { set.Get("b").Release(ctx) }, locco.ErrReleased},
		{"Loss", func(*locco.Locker, *locco.LockSet, context.CancelCauseFunc) { elapse(time.Hour) }, locco.ErrLost},
		{"Close", func(locker *locco.Locker, _ *locco.LockSet, _ context.CancelCauseFunc) { locker.Close(ctx) }, locco.ErrClosed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				locker := holdingLocker(t, newStore())
				set := holdSet(t, locker, "a b c", time.Minute)
				parent, cancel := context.WithCancelCause(context.WithValue(ctx, ctxKey{}, "v"))
				defer cancel(nil)
				bound := set.Bind(parent)
				if bound.Err() != nil || bound.Value(ctxKey{}) != "v" {
					t.Errorf("Bind = %v with value %v; want it live, with the values of its context", bound.Err(), bound.Value(ctxKey{}))
				}
				tc.end(locker, set, cancel)
				synctest.Wait()
				if !errors.Is(context.Cause(bound), tc.cause) {
					t.Errorf("Cause = %v; want %v", context.Cause(bound), tc.cause)
				}
				for _, lock := range set.Locks() {
					if n := locco.BoundContexts(lock); n != 0 {
						t.Errorf("bound contexts kept by %q = %d; want 0", lock.Key(), n)
					}
				}
				if bound := set.Bind(nil); !errors.Is(context.Cause(bound), locco.ErrInvalid) { //nolint:staticcheck // on purpose
					t.Errorf("Cause of Bind(nil) = %v; want ErrInvalid", context.Cause(bound))
				}
			})
		})
	}
}

// spec 2.5: everything at once.
func TestLockSetConcurrentSafe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := loccotest.Wrap(newStore())
		locker := holdingLocker(t, b)
		set := holdSet(t, locker, "a b c", 9*time.Second, locco.AutoExtend(day))
		ctx := context.Background()
		var group sync.WaitGroup
		for i := range 60 {
			group.Go(func() {
				time.Sleep(time.Duration(i) * 100 * time.Millisecond)
				switch i % 6 {
				case 0:
					set.Extend(ctx, 9*time.Second)
				case 1:
					<-set.Lost()
				case 2:
					<-set.Bind(ctx).Done()
				case 3:
					set.Err()
				case 4:
					set.Get("b").Extend(ctx, 9*time.Second)
				case 5:
					if i > 50 {
						b.Free(ctx, "a")
						set.Release(ctx)
					}
				}
			})
		}
		group.Wait()
		wantLostError(t, set.Err(), "a", set.Get("a").Reason(), nil)
	})
}
