package locco_test

import (
	"context"
	"errors"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/core/loccotest"
)

// These are bugs that were found once. Each test says what went wrong.

// regress makes a bubble with a store that faults can be put before.
func regress(t *testing.T, f func(t *testing.T, s *store, b *loccotest.Backend)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		t.Helper()
		s := newStore()
		f(t, s, loccotest.Wrap(s))
	})
}

func mustAcquire(t *testing.T, locker *locco.Locker, key string, ttl time.Duration, opts ...locco.CallOption) *locco.Lock {
	t.Helper()
	lock, err := locker.Acquire(context.Background(), key, ttl, opts...)
	if err != nil {
		t.Fatalf("Acquire(%q) = %v; want a lock", key, err)
	}
	return lock
}

// spec 1.5, 4.2, 5.3: after a pause the keeper took its timer, which had stood
// still, for one that was about to fire, and extended nothing until then.
func TestTimerIsArmedAfterAPause(t *testing.T) {
	regress(t, func(t *testing.T, s *store, _ *loccotest.Backend) {
		var mu sync.Mutex
		var pause time.Duration
		base := time.Now()
		locker := newLocker(t, s, locco.WithClock(func() time.Duration {
			mu.Lock()
			defer mu.Unlock()
			return time.Since(base) + pause
		}))
		mustAcquire(t, locker, "a", 10*time.Hour)
		time.Sleep(100 * time.Millisecond)
		mu.Lock()
		pause = time.Hour
		mu.Unlock()
		b := mustAcquire(t, locker, "b", 300*time.Millisecond, locco.AutoExtend(time.Hour))
		time.Sleep(2 * time.Second)
		if b.State() != locco.StateHeld {
			t.Errorf("State = %v, %v; want held: it is extended", b.State(), b.Err())
		}
	})
}

// spec 2.5, 5.5: the keys that a failed set had taken stayed for HoldAtLeast.
func TestFailedSetIgnoresHoldAtLeast(t *testing.T) {
	regress(t, func(t *testing.T, s *store, _ *loccotest.Backend) {
		locker := newLocker(t, s)
		s.take("b", time.Hour)
		_, err := locker.AcquireMany(context.Background(), []string{"a", "b"}, time.Hour,
			locco.HoldAtLeast(30*time.Minute), locco.Retries(0))
		if !errors.Is(err, locco.ErrHeld) {
			t.Errorf("AcquireMany = %v; want %v", err, locco.ErrHeld)
		}
		if holder := s.holder("a"); holder != "" {
			t.Errorf("a is held by %q; want it free", holder)
		}
	})
}

// spec 3.4, 3.5: a Release without an answer kept local waiters from looking
// after the lease had ended, until they gave up.
func TestWaitersLookThoughAReleaseHangs(t *testing.T) {
	regress(t, func(t *testing.T, s *store, b *loccotest.Backend) {
		s.noLeft = true
		locker := newLocker(t, plainStore{b})
		lock := mustAcquire(t, locker, "k", 200*time.Millisecond)
		b.Inject(loccotest.Fault{Op: loccotest.Release, Times: 1, Effect: loccotest.DropRequest()})
		released := make(chan error)
		go func() { released <- lock.Release(context.Background()) }()
		synctest.Wait()
		next := mustAcquire(t, locker, "k", time.Second)
		if next.Waited() > 500*time.Millisecond {
			t.Errorf("Waited = %v; want no longer than the lease and a retry delay", next.Waited())
		}
		if err := <-released; err == nil {
			t.Error("Release = nil; want an error: its request was lost")
		}
		if lock.Reason() != locco.ReasonRelease {
			t.Errorf("Reason = %q; want %q", lock.Reason(), locco.ReasonRelease)
		}
	})
}

// spec 5.5: a heartbeat under way when the lock was released undid the shorter
// lease of HoldAtLeast.
func TestHoldAtLeastWaitsForTheHeartbeat(t *testing.T) {
	regress(t, func(t *testing.T, s *store, b *loccotest.Backend) {
		locker := newLocker(t, b)
		granted := time.Now()
		lock := mustAcquire(t, locker, "k", time.Hour, locco.AutoExtend(2*time.Hour),
			locco.ExtendEvery(time.Second), locco.HoldAtLeast(10*time.Second))
		b.Inject(loccotest.Fault{Op: loccotest.AnyExtend, Times: 1, Effect: loccotest.DelayRequest(time.Second)})
		time.Sleep(1500 * time.Millisecond)
		if err := lock.Release(context.Background()); err != nil {
			t.Errorf("Release = %v; want nil", err)
		}
		time.Sleep(time.Until(granted.Add(9900 * time.Millisecond)))
		if s.holder("k") == "" {
			t.Error("the key is free 9.9s after the grant; want it kept for 10s")
		}
		time.Sleep(200 * time.Millisecond)
		if s.holder("k") != "" {
			t.Error("the key is held 10.1s after the grant; want it free")
		}
	})
}

// spec 5.6: Close did not try again what the end of a callback had failed to
// release.
func TestCloseReleasesWhatACallbackLeft(t *testing.T) {
	regress(t, func(t *testing.T, s *store, b *loccotest.Backend) {
		locker := newLocker(t, b)
		b.Inject(loccotest.Fault{Op: loccotest.Release, Times: 1, Effect: loccotest.FailRequest(errBroken)})
		err := locker.WithLock(context.Background(), "k", time.Hour, func(context.Context, *locco.Lock) error { return nil })
		if err != nil {
			t.Errorf("WithLock = %v; want nil", err)
		}
		if err := locker.Close(context.Background()); err != nil {
			t.Errorf("Close = %v; want nil", err)
		}
		if s.holder("k") != "" {
			t.Error("the key is still held; want it free")
		}
	})
}

// spec 2.5, 3.1: an atomic attempt that hung past the retry timeout was followed
// by another attempt.
func TestSetLooksAtNothingAfterItsTimeout(t *testing.T) {
	regress(t, func(t *testing.T, _ *store, b *loccotest.Backend) {
		locker := newLocker(t, b)
		b.Inject(loccotest.Fault{Op: loccotest.AcquireMany, Times: 1, Effect: loccotest.DropRequest()})
		_, err := locker.AcquireMany(context.Background(), []string{"a", "b"}, time.Minute, locco.RetryTimeout(time.Second))
		if !errors.Is(err, locco.ErrLate) || b.Calls(loccotest.Acquire) != 0 {
			t.Errorf("AcquireMany = %v after %d further looks; want %v, none", err, b.Calls(loccotest.Acquire), locco.ErrLate)
		}
	})
}

// spec 2.2: TryAcquire said held because a local call waited, though that one
// only knew that the server does not answer.
func TestTryAcquireIsNotHeldByASilentServer(t *testing.T) {
	regress(t, func(t *testing.T, _ *store, b *loccotest.Backend) {
		locker := newLocker(t, b)
		b.Inject(loccotest.Fault{Op: loccotest.Acquire, Effect: loccotest.DropRequest()})
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = locker.Acquire(context.Background(), "k", time.Minute, locco.Retries(2))
		}()
		time.Sleep(3100 * time.Millisecond)
		_, err := locker.TryAcquire(context.Background(), "k", time.Minute)
		if !errors.Is(err, locco.ErrLate) || errors.Is(err, locco.ErrHeld) {
			t.Errorf("TryAcquire = %v; want %v", err, locco.ErrLate)
		}
		<-done
	})
}

// spec 3.1: the largest number of retries, without a delay, overflowed: the call
// turned in circles while a local lock held the key.
func TestLargestRetriesWithoutDelay(t *testing.T) {
	regress(t, func(t *testing.T, s *store, _ *loccotest.Backend) {
		locker := newLocker(t, s)
		mustAcquire(t, locker, "k", time.Minute)
		_, err := locker.Acquire(context.Background(), "k", time.Minute, locco.Retries(math.MaxInt), locco.RetryDelay(0))
		if !errors.Is(err, locco.ErrHeld) {
			t.Errorf("Acquire = %v; want %v", err, locco.ErrHeld)
		}
	})
}

// spec 3.6, 5.4: the tiny lease of a waiter cut short the hand-over, and with it
// the release.
func TestTinyLeaseOfAWaiterDoesNotFailTheRelease(t *testing.T) {
	regress(t, func(t *testing.T, s *store, b *loccotest.Backend) {
		locker := newLocker(t, b)
		b.Inject(loccotest.Fault{Op: loccotest.Transfer | loccotest.Release, Effect: loccotest.DelayRequest(10 * time.Millisecond)})
		lock := mustAcquire(t, locker, "k", time.Hour)
		waited := make(chan error)
		go func() {
			_, err := locker.Acquire(context.Background(), "k", 5*time.Millisecond)
			waited <- err
		}()
		synctest.Wait()
		if err := lock.Release(context.Background()); err != nil {
			t.Errorf("Release = %v; want nil", err)
		}
		if err := <-waited; err != nil {
			t.Errorf("Acquire = %v; want the key that was freed", err)
		}
		time.Sleep(time.Second)
		if s.holder("k") != "" {
			t.Error("the key is still held; want it free")
		}
	})
}

// spec 3.5: a hand-over that was refused made the room forget that another lock
// had the key.
func TestRefusedHandOverLeavesTheOwner(t *testing.T) {
	regress(t, func(t *testing.T, s *store, b *loccotest.Backend) {
		locker := newLocker(t, b)
		ctx := context.Background()
		lock := mustAcquire(t, locker, "k", time.Hour)
		s.free("k")
		b.Inject(loccotest.Fault{Op: loccotest.Acquire, Times: 1, Effect: loccotest.DelayAnswer(10 * time.Millisecond)})
		b.Inject(loccotest.Fault{Op: loccotest.Transfer, Times: 1, Effect: loccotest.DelayAnswer(20 * time.Millisecond)})
		tried := make(chan *locco.Lock)
		go func() {
			l, err := locker.TryAcquire(ctx, "k", time.Hour)
			if err != nil {
				t.Errorf("TryAcquire = %v; want the key", err)
			}
			tried <- l
		}()
		synctest.Wait()
		waited := make(chan *locco.Lock)
		go func() {
			waited <- mustAcquire(t, locker, "k", time.Hour, locco.RetryForever(), locco.RetryDelay(time.Minute))
		}()
		synctest.Wait()
		if err := lock.Release(ctx); !errors.Is(err, locco.ErrLost) {
			t.Errorf("Release = %v; want %v", err, locco.ErrLost)
		}
		looks := b.Calls(loccotest.Acquire)
		owner := <-tried
		time.Sleep(5 * time.Minute)
		if n := b.Calls(loccotest.Acquire) - looks; n != 0 {
			t.Errorf("looks while a local lock holds the key = %d; want 0", n)
		}
		if err := owner.Release(ctx); err != nil {
			t.Errorf("Release = %v; want nil", err)
		}
		if n := b.Calls(loccotest.Transfer); n != 2 {
			t.Errorf("hand-overs = %d; want 2", n)
		}
		<-waited
	})
}

// spec 4.1: a backend that panicked in Extend, on a goroutine that recovered,
// kept every later extension waiting until the lease had ended.
func TestPanicInExtendKeepsNobodyWaiting(t *testing.T) {
	regress(t, func(t *testing.T, _ *store, b *loccotest.Backend) {
		locker := newLocker(t, b)
		lock := mustAcquire(t, locker, "k", time.Hour)
		b.OnCall(func(c loccotest.Call) {
			if c.Op == loccotest.Extend {
				panic("driver")
			}
		})
		func() {
			defer func() { _ = recover() }()
			_ = lock.Extend(context.Background(), time.Hour)
		}()
		b.OnCall(nil)
		if err := lock.Extend(context.Background(), time.Hour); err != nil {
			t.Errorf("Extend = %v; want nil", err)
		}
	})
}

// spec 4.1: Extend on a lock that is lost or released said that the context had
// ended, when it had.
func TestExtendSaysReleasedFirst(t *testing.T) {
	regress(t, func(t *testing.T, s *store, _ *loccotest.Backend) {
		lock := mustAcquire(t, newLocker(t, s), "k", time.Hour)
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		if err := lock.Release(ended); err != nil {
			t.Errorf("Release = %v; want nil", err)
		}
		if err := lock.Extend(ended, time.Hour); !errors.Is(err, locco.ErrReleased) {
			t.Errorf("Extend = %v; want %v", err, locco.ErrReleased)
		}
	})
}

// spec 5.6: an extension that was about to be sent when Close gave up was sent
// after it.
func TestNothingIsExtendedAfterCloseGaveUp(t *testing.T) {
	regress(t, func(t *testing.T, _ *store, b *loccotest.Backend) {
		locker := newLocker(t, b)
		lock := mustAcquire(t, locker, "k", time.Minute)
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		if err := locker.Close(ended); !errors.Is(err, context.Canceled) {
			t.Errorf("Close = %v; want %v", err, context.Canceled)
		}
		if err := lock.Extend(context.Background(), time.Minute); !errors.Is(err, locco.ErrClosed) {
			t.Errorf("Extend = %v; want %v", err, locco.ErrClosed)
		}
		if n := b.Calls(loccotest.AnyExtend); n != 0 {
			t.Errorf("extensions = %d; want 0", n)
		}
		if err := lock.Release(context.Background()); err != nil {
			t.Errorf("Release = %v; want nil", err)
		}
	})
}
