package contract

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	locco "github.com/locco-go/locco/core"
)

// waitCases are about getting a key that another holder has.
var waitCases = []testCase{
	{"Locker/WaiterGetsTheReleasedKey", 0, testWaitPolls},
	{"Locker/WaiterIsWokenByRelease", watcher, testWaitWoken},
	{"Locker/WaiterGetsTheKeyAtTheLeasesEnd", left, testWaitLeaseEnd},
	{"Locker/CanceledWaiterLeavesNothing", 0, testWaitCanceled},
	{"Locker/WaitersOfOneLockerGetTheirTurn", 0, testWaitTurns},
	{"Locker/MutualExclusion", 0, testLockerExclusion},
	{"Locker/OverlappingSetsDoNotDeadlock", 0, testLockerSets},
}

// waiting is an Acquire under way.
type waiting struct {
	s      *subject
	locker *locco.Locker
	done   chan struct{}
	lock   *locco.Lock
	err    error
}

// waitFor begins an Acquire of a key that is held, by a Locker of its own on c,
// and returns when it has been refused and waits.
func (s *subject) waitFor(ctx context.Context, c *client, key string, opts ...locco.CallOption) *waiting {
	s.t.Helper()
	refused := make(chan struct{}, 1)
	w := &waiting{s: s, done: make(chan struct{})}
	w.locker = s.locker(c, locco.WithEvents(func(e locco.Event) {
		if e.Kind == locco.EventContended {
			select {
			case refused <- struct{}{}:
			default:
			}
		}
	}))
	go func() {
		defer close(w.done)
		w.lock, w.err = w.locker.Acquire(ctx, key, long, opts...)
	}()
	s.wantReturn("the first refusal of Acquire(held key)", s.patience, func() {
		select {
		case <-refused:
		case <-w.done: // the case says what is wrong
		}
	}, ruleExclusive)
	for range 10 { // time for its watch, if it can have one
		s.wait(s.step)
	}
	return w
}

// wantLock checks that the Acquire gets its lock soon.
func (w *waiting) wantLock(after, rule string) *locco.Lock {
	w.s.t.Helper()
	w.s.wantReturn("Acquire(held key), after "+after, w.s.patience, func() { <-w.done }, rule)
	if w.err != nil {
		w.s.t.Fatalf("Acquire(held key), after %s, error = %v; want a lock (%s)", after, w.err, rule)
	}
	return w.lock
}

func testWaitPolls(t *testing.T, s *subject) {
	holder := s.lock(s.locker(s.client), s.key(), long)
	ctx, cancel := s.patient()
	defer cancel()
	w := s.waitFor(ctx, s.peer, holder.Key(), locco.RetryForever(), locco.RetryDelay(2*s.step))
	s.wantReleased(holder)
	lock := w.wantLock("release", "spec 2.1")
	s.wantHolds("token of the lock", lock.Key(), lock.Token(), true, ruleStore)
	if lock.Waited() <= 0 {
		t.Errorf("Lock.Waited = %v; want more than 0 (spec 2.8)", lock.Waited())
	}
	s.wantReleased(lock)
}

func testWaitWoken(t *testing.T, s *subject) {
	holder := s.lock(s.locker(s.client), s.key(), long)
	ctx, cancel := s.patient()
	defer cancel()
	// Neither its delay nor the end of the lease bring it the key in time.
	w := s.waitFor(ctx, s.peer, holder.Key(), locco.RetryForever(), locco.RetryDelay(long))
	s.wantReleased(holder)
	s.wantReleased(w.wantLock("release, with a retry delay of a minute", "spec 3.4: a wake-up cuts the wait short"))
}

func testWaitLeaseEnd(t *testing.T, s *subject) {
	ttl := 20 * s.unit
	h := s.take(s.key(), ttl) // by somebody who never comes back
	ctx, cancel := context.WithTimeout(t.Context(), ttl+s.patience)
	defer cancel()
	lock, err := s.locker(s.peer).Acquire(ctx, h.Key, long, locco.RetryForever(), locco.RetryDelay(long))
	if err != nil {
		t.Fatalf("Acquire(held key), after the end of its lease, error = %v; want a lock (spec 3.4)", err)
	}
	if took := time.Since(h.sent); took < ttl-s.early {
		t.Errorf("Acquire(held key) got the lock after %v of a lease of %v (%s)", took, ttl, ruleTTL)
	}
	s.wantReleased(lock)
}

func testWaitCanceled(t *testing.T, s *subject) {
	holder := s.lock(s.locker(s.client), s.key(), long)
	cause := errors.New("the caller has left")
	ctx, cancel := context.WithCancelCause(t.Context())
	w := s.waitFor(ctx, s.peer, holder.Key(), locco.RetryForever(), locco.RetryDelay(2*s.step))
	cancel(cause)
	s.wantReturn("Acquire(held key), with its context canceled", s.patience, func() { <-w.done }, "spec 2.6")
	s.wantErr("Acquire(held key), canceled", w.err, context.Canceled, "spec 2.6")
	s.wantErr("Acquire(held key), canceled", w.err, cause, "spec 2.6")
	s.wantHolds("holder's token", holder.Key(), holder.Token(), true, ruleSame)
	s.wantReleased(holder)
	for range 10 { // nothing that it began may take the key now
		s.wait(s.step)
		s.wantFree(holder.Key(), "spec 2.6: no lock is orphaned")
	}
	s.wantReleased(s.lock(w.locker, holder.Key(), long))
}

// testWaitTurns has goroutines of one Locker, among which a released key goes
// from hand to hand where the backend can transfer.
func testWaitTurns(t *testing.T, s *subject) {
	locker, key := s.locker(s.client), s.key()
	first := s.lock(locker, key, long)
	var last atomic.Int64
	last.Store(first.Fence())
	ctx, cancel := context.WithTimeout(t.Context(), 3*s.patience)
	defer cancel()
	var wg sync.WaitGroup
	var inside atomic.Int32
	for range 12 {
		wg.Go(func() {
			lock, err := locker.Acquire(ctx, key, long, locco.RetryForever(), locco.RetryDelay(2*s.step))
			if err != nil {
				t.Errorf("Acquire by 12 goroutines of one Locker: error = %v; want a lock (spec 3.5)", err)
				return
			}
			if n := inside.Add(1); n != 1 {
				t.Errorf("%d goroutines of one Locker hold the same key; want 1 (%s)", n, ruleExclusive)
			}
			s.wantHolds("token of the lock", key, lock.Token(), true, "spec 3.6")
			if !s.h.WithoutFencing {
				s.wantFence(last.Swap(lock.Fence()), lock.Fence(), "a hand-over")
			}
			inside.Add(-1)
			s.wantReleased(lock)
		})
	}
	for range 10 {
		s.wait(s.step)
	}
	s.wantReleased(first)
	wg.Wait()
	s.wantFree(key, ruleRelease)
}

// testLockerExclusion has several Lockers, of both clients, with several
// goroutines each. The counter that they share has no other protection.
func testLockerExclusion(t *testing.T, s *subject) {
	const goroutines = 3
	lockers := []*locco.Locker{s.locker(s.client), s.locker(s.peer), s.locker(s.client), s.locker(s.peer)}
	key := s.key()
	ctx, cancel := context.WithTimeout(t.Context(), 6*s.patience)
	defer cancel()
	var inside, done atomic.Int32
	var last atomic.Int64
	together(len(lockers)*goroutines, func(i int) {
		for range rounds(10) {
			err := lockers[i%len(lockers)].WithLock(ctx, key, long, func(_ context.Context, lock *locco.Lock) error {
				if n := inside.Add(1); n != 1 {
					t.Errorf("%d holders of the same key; want 1 (%s)", n, ruleExclusive)
				}
				if !s.h.WithoutFencing {
					s.wantFence(last.Swap(lock.Fence()), lock.Fence(), "grants to other Lockers")
				}
				s.wait(s.step / 5)
				done.Add(1)
				inside.Add(-1)
				return nil
			}, locco.RetryForever(), locco.RetryDelay(s.step))
			if err != nil {
				t.Errorf("WithLock by %d Lockers: error = %v; want none", len(lockers), err)
				return
			}
		}
	})
	if got, want := int(done.Load()), len(lockers)*goroutines*rounds(10); got != want {
		t.Errorf("callbacks under one lock: %d ran; want %d", got, want)
	}
}

func testLockerSets(t *testing.T, s *subject) {
	lockers := []*locco.Locker{s.locker(s.client), s.locker(s.peer), s.locker(s.client)}
	keys := s.keys(5)
	holders := make(map[string]*atomic.Int32)
	for _, key := range keys {
		holders[key] = new(atomic.Int32)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 6*s.patience)
	defer cancel()
	together(6, func(i int) {
		mine := []string{keys[i%5], keys[(i+1)%5], keys[(i+3)%5]}
		slices.Reverse(mine)
		for range rounds(5) {
			err := lockers[i%len(lockers)].WithLocks(ctx, mine, long, func(_ context.Context, set *locco.LockSet) error {
				for _, key := range mine {
					if n := holders[key].Add(1); n != 1 {
						t.Errorf("%d holders of %s; want 1 (%s)", n, show(key), ruleSet)
					}
					s.wantHolds("token of a lock of the set", key, set.Get(key).Token(), true, ruleSet)
				}
				s.wait(s.step / 5)
				for _, key := range mine {
					holders[key].Add(-1)
				}
				return nil
			}, locco.RetryForever(), locco.RetryDelay(s.step))
			if err != nil {
				t.Errorf("WithLocks(overlapping sets) error = %v; want none (%s)", err, ruleSet)
				return
			}
		}
	})
	for _, key := range keys {
		s.wantFree(key, ruleSet)
	}
}
