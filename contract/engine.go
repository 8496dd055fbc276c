package contract

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	locco "github.com/locco-go/locco/core"
)

// The cases of the group Locker have a full Locker on top of the backend. They
// are about what the two must do together; the engine's own rules are tested in
// core.
var engineCases = slices.Concat([]testCase{
	{"Locker/NewAcceptsTheBackend", 0, testLockerNew},
	{"Locker/AcquiresAndReleases", 0, testLockerAcquire},
	{"Locker/TryAcquireTellsHeld", 0, testLockerTry},
	{"Locker/PrefixIsPartOfTheKey", 0, testLockerPrefix},
	{"Locker/ExtendSetsTheLease", 0, testLockerExtend},
	{"Locker/WithLockFreesTheKey", 0, testLockerWithLock},
	{"Locker/TryWithLockDoesNotRun", 0, testLockerTryWithLock},
	{"Locker/TakesSets", 0, testLockerSet},
	{"Locker/SetLeavesNothingWhenOneIsHeld", 0, testLockerSetHeld},
	{"Locker/DetachedLockMovesToPeer", 0, testLockerDetach},
	{"Locker/CloseFreesTheKeys", 0, testLockerClose},
	{"Locker/BrokenIsNotHeld", broken, testLockerBroken},
}, waitCases, holdCases)

// locker returns a Locker on c, with fencing if there is any, that is closed at
// the end of the case.
func (s *subject) locker(c *client, opts ...locco.Option) *locco.Locker {
	s.t.Helper()
	if !s.h.WithoutFencing {
		opts = append(opts, locco.WithFencing())
	}
	locker, err := locco.New(c.b, opts...)
	if err != nil {
		s.t.Fatalf("locco.New error = %v; want a Locker", err)
	}
	s.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
		defer cancel()
		_ = locker.Close(ctx) // a case about a lost lock leaves one behind
	})
	return locker
}

// patient returns a context that ends when what should happen soon has not.
func (s *subject) patient() (context.Context, context.CancelFunc) {
	return context.WithTimeout(s.t.Context(), s.patience)
}

// lock takes a key that must be free.
func (s *subject) lock(locker *locco.Locker, key string, ttl time.Duration, opts ...locco.HoldOption) *locco.Lock {
	s.t.Helper()
	ctx, cancel := s.patient()
	defer cancel()
	lock, err := locker.TryAcquire(ctx, key, ttl, opts...)
	if err != nil {
		s.t.Fatalf("TryAcquire(free key) error = %v; want a lock (%s)", err, ruleFree)
	}
	return lock
}

// wantErr checks an error by errors.Is; nil means none.
func (s *subject) wantErr(what string, err, want error, rule string) {
	s.t.Helper()
	if !errors.Is(err, want) {
		s.t.Errorf("%s error = %v; want %v (%s)", what, err, want, rule)
	}
}

func (s *subject) wantReleased(lock *locco.Lock) {
	s.t.Helper()
	s.wantErr("Lock.Release", lock.Release(s.t.Context()), nil, ruleLockRelease)
}

func testLockerNew(t *testing.T, s *subject) {
	locker, err := locco.New(s.b)
	if err != nil {
		t.Fatalf("locco.New error = %v; want a Locker", err)
	}
	s.wantErr("Locker.Close", locker.Close(t.Context()), nil, "spec 5.6")
	_, err = locco.New(s.b, locco.WithFencing())
	want := error(nil)
	if s.h.WithoutFencing {
		want = locco.ErrInvalid
	}
	s.wantErr("locco.New(WithFencing)", err, want, "spec 6.3: a backend without fencing is a validation error")
}

func testLockerAcquire(t *testing.T, s *subject) {
	locker := s.locker(s.client)
	key := s.key()
	last := int64(0)
	for range 3 {
		lock, err := locker.Acquire(t.Context(), key, long)
		if err != nil {
			t.Fatalf("Acquire(free key) error = %v; want a lock (%s)", err, ruleFree)
		}
		s.wantHolds("token of the lock", lock.Key(), lock.Token(), true, ruleStore)
		s.peer.wantAcquire("key of the lock", newLease(key, long), false, ruleExclusive)
		s.wantErr("Lock.Check", lock.Check(t.Context()), nil, "spec 5.8")
		if !s.h.WithoutFencing {
			s.wantFence(last, lock.Fence(), "an earlier lock")
			last = lock.Fence()
		}
		s.wantReleased(lock)
		s.wantHolds("token of the released lock", lock.Key(), lock.Token(), false, ruleRelease)
	}
	s.wantFree(key, ruleRelease)
}

func testLockerTry(t *testing.T, s *subject) {
	lock := s.lock(s.locker(s.client), s.key(), long)
	other := s.locker(s.peer)
	_, err := other.TryAcquire(t.Context(), lock.Key(), long)
	s.wantErr("TryAcquire(held key)", err, locco.ErrHeld, ruleTry)
	_, err = other.Acquire(t.Context(), lock.Key(), long, locco.Retries(2), locco.RetryDelay(s.step))
	s.wantErr("Acquire(held key)", err, locco.ErrHeld, "spec 2.1")
	var held *locco.HeldError
	if errors.As(err, &held) && held.Attempts < 1 {
		t.Errorf("Acquire(held key): %+v; want at least 1 attempt", held)
	}
	s.wantReleased(lock)
	s.wantReleased(s.lock(other, lock.Key(), long))
}

func testLockerPrefix(t *testing.T, s *subject) {
	name := s.key()
	a := s.lock(s.locker(s.client, locco.WithPrefix("a:")), name, long)
	b := s.lock(s.locker(s.client, locco.WithPrefix("b:")), name, long)
	s.wantHolds("token of the lock", "a:"+name, a.Token(), true, "spec 1.9: the key has the prefix")
	s.wantHolds("token of the lock", "b:"+name, b.Token(), true, "spec 1.9: the key has the prefix")
	s.wantReleased(a)
	s.wantHolds("token of the lock", "b:"+name, b.Token(), true, ruleSame)
	s.wantFree(name, ruleFree)
}

func testLockerExtend(t *testing.T, s *subject) {
	lock := s.lock(s.locker(s.client), s.key(), long)
	ttl := 6 * s.unit
	at := timed(func() {
		s.wantErr("Lock.Extend", lock.Extend(t.Context(), ttl), nil, ruleExtend)
	})
	if left := lock.Remaining(); left > ttl {
		t.Errorf("Lock.Remaining after Extend(%v) = %v; want less (%s)", ttl, left, ruleExtend)
	}
	s.wantEnd(lock.Key(), ttl, at)
	s.wantErr("Lock.Extend(ended lease)", lock.Extend(t.Context(), long), locco.ErrLost, ruleEnded)
	s.wantFree(lock.Key(), ruleNever)
}

func testLockerWithLock(t *testing.T, s *subject) {
	locker, key := s.locker(s.client), s.key()
	failure := errors.New("of the callback")
	for _, want := range []error{nil, failure} {
		err := locker.WithLock(t.Context(), key, long, func(ctx context.Context, lock *locco.Lock) error {
			s.wantHolds("token of the lock", key, lock.Token(), true, ruleStore)
			s.wantErr("context of the callback", ctx.Err(), nil, "spec 2.3")
			return want
		})
		s.wantErr("WithLock", err, want, "spec 2.3")
		s.wantFree(key, "spec 2.3: the key is freed when the callback returned")
	}
	err := locker.WithLock(t.Context(), key, long, func(_ context.Context, lock *locco.Lock) error {
		s.peer.wantRelease("token of the lock, behind its back", key, lock.Token(), true, ruleStore)
		return nil
	})
	var lost *locco.LostError
	if !errors.As(err, &lost) || !lost.Completed {
		t.Errorf("WithLock(key freed behind its back) error = %v; want a LostError that says completed (spec 2.3)", err)
	}
}

func testLockerTryWithLock(t *testing.T, s *subject) {
	lock := s.lock(s.locker(s.client), s.key(), long)
	ran, err := s.locker(s.peer).TryWithLock(t.Context(), lock.Key(), long, func(context.Context, *locco.Lock) error { return nil })
	if ran || !errors.Is(err, locco.ErrHeld) {
		t.Errorf("TryWithLock(held key) = %v, %v; want false, locco.ErrHeld (%s)", ran, err, ruleTry)
	}
}

func testLockerSet(t *testing.T, s *subject) {
	keys := s.keys(5)
	given := append(slices.Clone(keys), keys[2]) // one of them twice
	slices.Reverse(given)
	ctx, cancel := s.patient()
	defer cancel()
	set, err := s.locker(s.client).AcquireMany(ctx, given, long)
	if err != nil {
		t.Fatalf("AcquireMany(5 free keys) error = %v; want a set (%s)", err, ruleSet)
	}
	if got := len(set.Locks()); got != len(keys) {
		t.Errorf("AcquireMany(5 free keys): %d locks; want 5 (%s)", got, ruleSet)
	}
	for _, key := range keys {
		s.wantHolds("token of a lock of the set", key, set.Get(key).Token(), true, ruleSet)
	}
	_, err = s.locker(s.peer).TryAcquire(ctx, keys[3], long)
	s.wantErr("TryAcquire(key of a set)", err, locco.ErrHeld, ruleTry)
	s.wantErr("LockSet.Extend", set.Extend(ctx, long), nil, ruleSet)
	s.wantErr("LockSet.Release", set.Release(ctx), nil, ruleSet)
	for _, key := range keys {
		s.wantFree(key, ruleSet)
	}
}

func testLockerSetHeld(t *testing.T, s *subject) {
	for _, held := range []int{0, 2, 4} {
		keys := s.keys(5)
		h := s.take(keys[held], long)
		_, err := s.locker(s.client).AcquireMany(t.Context(), keys, long, locco.Retries(1), locco.RetryDelay(s.step))
		s.wantErr("AcquireMany(one key held)", err, locco.ErrHeld, ruleSet)
		var heldError *locco.HeldError
		if errors.As(err, &heldError) && heldError.Key != keys[held] {
			t.Errorf("AcquireMany(one key held) error names %s; want %s (%s)", show(heldError.Key), show(keys[held]), ruleSet)
		}
		for i, key := range keys {
			if i != held {
				s.wantFree(key, ruleSet)
			}
		}
		s.wantHeld(h.Lease, ruleSame)
	}
}

func testLockerDetach(t *testing.T, s *subject) {
	lock := s.lock(s.locker(s.client), s.key(), long)
	handle, err := lock.Detach()
	if err != nil {
		t.Fatalf("Lock.Detach error = %v; want a Handle (spec 5.7)", err)
	}
	s.wantHolds("detached token", handle.Key, handle.Token, true, "spec 5.7: the key stays taken")
	ttl := 20 * s.unit
	var attached *locco.Lock
	at := timed(func() { attached, err = s.locker(s.peer).Attach(t.Context(), handle, ttl) })
	if err != nil {
		t.Fatalf("Locker.Attach error = %v; want a lock (spec 5.7)", err)
	}
	if attached.Fence() != lock.Fence() {
		t.Errorf("Fence of the attached lock = %d; want that of the detached one, %d (spec 5.7)", attached.Fence(), lock.Fence())
	}
	s.wantEnd(handle.Key, ttl, at)
}

func testLockerClose(t *testing.T, s *subject) {
	locker := s.locker(s.client)
	locks := []*locco.Lock{
		s.lock(locker, s.key(), long),
		s.lock(locker, s.key(), long, locco.AutoExtend(2*long)),
		s.lock(locker, s.key(), long),
	}
	s.wantErr("Locker.Close", locker.Close(t.Context()), nil, "spec 5.6")
	for _, lock := range locks {
		s.wantFree(lock.Key(), "spec 5.6: Close releases what is held")
	}
	_, err := locker.TryAcquire(t.Context(), s.key(), long)
	s.wantErr("TryAcquire after Close", err, locco.ErrClosed, "spec 5.6")
}

// testLockerBroken looks for the failure that a careless caller takes for "the
// work is being done elsewhere".
func testLockerBroken(t *testing.T, s *subject) {
	locker := s.locker(s.broken(), locco.WithCallTimeout(10*s.unit))
	key := s.key()
	_, try := locker.TryAcquire(t.Context(), key, long)
	_, once := locker.Acquire(t.Context(), key, long, locco.Retries(1), locco.RetryDelay(s.step))
	_, set := locker.AcquireMany(t.Context(), []string{key, s.key()}, long, locco.Retries(0))
	for _, tc := range []struct {
		what string
		err  error
	}{{"TryAcquire", try}, {"Acquire", once}, {"AcquireMany", set}} {
		if tc.err == nil || errors.Is(tc.err, locco.ErrHeld) || errors.Is(tc.err, locco.ErrInvalid) {
			t.Errorf("%s, server out of reach: error = %v; want the driver's, or locco.ErrLate (%s)", tc.what, tc.err, ruleTry)
		}
		if s.h.BrokenCause != nil && !errors.Is(tc.err, s.h.BrokenCause) {
			t.Errorf("%s, server out of reach: error = %v; want one that matches %v (%s)", tc.what, tc.err, s.h.BrokenCause, ruleDriver)
		}
	}
}
