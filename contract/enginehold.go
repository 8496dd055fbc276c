package contract

import (
	"context"
	"errors"
	"testing"
	"time"

	locco "github.com/locco-go/locco/core"
)

// holdCases are about keeping a lock, and about losing it.
var holdCases = []testCase{
	{"Locker/AutoExtendKeepsTheKey", 0, testHoldAutoExtend},
	{"Locker/MaxHoldEndsTheLock", 0, testHoldMax},
	{"Locker/LossIsKnownBeforeTheNextGrant", 0, testHoldLoss},
	{"Locker/StolenKeyIsNoticed", 0, testHoldStolen},
	{"Locker/CheckNoticesTheLoss", 0, testHoldCheck},
	{"Locker/ManyLocksAreExtendedTogether", 0, testHoldMany},
	{"Locker/HoldAtLeastKeepsTheKey", 0, testHoldAtLeast},
	{"Locker/LockDelayKeepsTheKey", 0, testHoldLockDelay},
}

// heldTTL is a lease that a heartbeat keeps alive on a busy machine, too.
func (s *subject) heldTTL() time.Duration { return 20 * s.unit }

func testHoldAutoExtend(t *testing.T, s *subject) {
	ttl := s.heldTTL()
	lock := s.lock(s.locker(s.client), s.key(), ttl, locco.AutoExtend(long))
	for end := time.Now().Add(2 * ttl); time.Now().Before(end); s.wait(s.unit) {
		if s.peer.acquire(newLease(lock.Key(), long)).OK {
			t.Fatalf("Acquire(key with auto-extension) was granted; want refusals for longer than the TTL (spec 4.2)")
		}
	}
	s.wantErr("Lock.Err with auto-extension", lock.Err(), nil, "spec 4.2")
	s.wantReleased(lock)
	s.wantFree(lock.Key(), "spec 4.6: nothing extends a released lock")
}

func testHoldMax(t *testing.T, s *subject) {
	ttl := s.heldTTL()
	maxHold := ttl + ttl/2
	var lock *locco.Lock
	at := timed(func() { lock = s.lock(s.locker(s.client), s.key(), ttl, locco.AutoExtend(maxHold)) })
	s.wantLost(lock, "the hold deadline")
	if lock.Reason() != locco.ReasonMaxHold {
		t.Errorf("Lock.Reason = %q; want %q (spec 4.3)", lock.Reason(), locco.ReasonMaxHold)
	}
	if took := time.Since(at.sent); took > maxHold+s.patience {
		t.Errorf("the lock ended after %v; want %v (spec 4.3)", took, maxHold)
	}
	// The backend believes in it a little longer, but not for another TTL.
	deadline := at.answered.Add(maxHold + ttl/2)
	for {
		sent := time.Now()
		l := newLease(lock.Key(), long)
		if s.peer.acquire(l).OK {
			s.peer.wantRelease("holder's token", l.Key, l.Token, true, ruleHolder)
			return
		}
		if sent.After(deadline) {
			t.Fatalf("Acquire(key after its hold deadline) is still refused %v after the grant; want it free about %v after it (spec 4.3)",
				sent.Sub(at.answered), maxHold)
		}
		s.wait(s.step)
	}
}

// wantLost checks that the lock is lost soon and says so in every way.
func (s *subject) wantLost(lock *locco.Lock, by string) {
	s.t.Helper()
	timeout := time.NewTimer(s.heldTTL() + s.patience)
	defer timeout.Stop()
	select {
	case <-lock.Lost():
	case <-timeout.C:
		s.t.Fatalf("Lock.Lost is still open long after %s; want it closed (spec 5.3)", by)
	}
	if lock.State() != locco.StateLost {
		s.t.Errorf("Lock.State after %s = %v; want lost (spec 5.2)", by, lock.State())
	}
	s.wantErr("Lock.Err after "+by, lock.Err(), locco.ErrLost, "spec 5.3")
}

// testHoldLoss has a holder that does nothing, and a next one that cannot wait.
func testHoldLoss(t *testing.T, s *subject) {
	ttl := s.heldTTL()
	lock := s.lock(s.locker(s.client), s.key(), ttl)
	ctx, cancel := context.WithTimeout(t.Context(), ttl+s.patience)
	defer cancel()
	next, err := s.locker(s.peer).Acquire(ctx, lock.Key(), long, locco.RetryForever(), locco.RetryDelay(s.step))
	state := lock.State()
	if err != nil {
		t.Fatalf("Acquire(held key), after the end of its lease, error = %v; want a lock (%s)", err, ruleTTL)
	}
	if state != locco.StateLost {
		t.Errorf("Lock.State when the next holder has the key = %v; want lost (spec 5.3: the holder can know before)", state)
	}
	s.wantErr("Lock.Release of a lost lock", lock.Release(t.Context()), locco.ErrLost, ruleLockRelease)
	s.wantHolds("token of the next lock", next.Key(), next.Token(), true, ruleLate)
	s.wantReleased(next)
}

// testHoldStolen frees the key behind the holder's back and gives it to another
// one: the next heartbeat must notice.
func testHoldStolen(t *testing.T, s *subject) {
	lock := s.lock(s.locker(s.client), s.key(), s.heldTTL(), locco.AutoExtend(long))
	ctx := lock.Bind(t.Context())
	s.peer.wantRelease("token of the lock, behind its back", lock.Key(), lock.Token(), true, ruleStore)
	thief := s.peer.take(lock.Key(), long)
	s.wantLost(lock, "the loss of the key")
	select {
	case <-ctx.Done():
	case <-time.After(s.patience):
		t.Fatalf("the context of Lock.Bind goes on after the loss (spec 5.3)")
	}
	s.wantErr("context.Cause(Lock.Bind)", context.Cause(ctx), locco.ErrLost, "spec 5.3")
	var lost *locco.LostError
	if errors.As(lock.Err(), &lost) && lost.Reason != locco.ReasonExtend {
		t.Errorf("Lock.Reason = %q; want %q (spec 4.5: the backend said the key was not ours)", lost.Reason, locco.ReasonExtend)
	}
	s.wantErr("Lock.Release of a lost lock", lock.Release(t.Context()), locco.ErrLost, ruleLockRelease)
	s.wantHeld(thief.Lease, ruleLate)
}

func testHoldCheck(t *testing.T, s *subject) {
	lock := s.lock(s.locker(s.client), s.key(), long)
	s.wantErr("Lock.Check", lock.Check(t.Context()), nil, "spec 5.8")
	s.peer.wantRelease("token of the lock, behind its back", lock.Key(), lock.Token(), true, ruleStore)
	s.wantErr("Lock.Check of a lost key", lock.Check(t.Context()), locco.ErrLost, "spec 5.8")
	if lock.Reason() != locco.ReasonObserved {
		t.Errorf("Lock.Reason = %q; want %q (spec 4.5)", lock.Reason(), locco.ReasonObserved)
	}
	s.wantFree(lock.Key(), ruleNever)
}

// testHoldMany has locks whose extensions fall due together, some of them for
// keys that are gone.
func testHoldMany(t *testing.T, s *subject) {
	locker := s.locker(s.client)
	ttl := s.heldTTL()
	var locks []*locco.Lock
	for range 40 {
		locks = append(locks, s.lock(locker, s.key(), ttl, locco.AutoExtend(long)))
	}
	stolen := map[int]bool{0: true, 17: true, 38: true}
	for i := range stolen {
		s.peer.wantRelease("token of the lock, behind its back", locks[i].Key(), locks[i].Token(), true, ruleStore)
	}
	for end := time.Now().Add(2 * ttl); time.Now().Before(end); {
		s.wait(s.unit)
	}
	for i, lock := range locks {
		want, state := locco.StateHeld, lock.State()
		if stolen[i] {
			want = locco.StateLost
		}
		if state != want {
			t.Errorf("Lock.State of lock %d of 40, of which 3 lost their keys, = %v, %v; want %v (%s)", i, state, lock.Err(), want, ruleNoHarm)
		}
		s.wantHolds("token of the lock", lock.Key(), lock.Token(), !stolen[i], ruleNoHarm)
	}
}

func testHoldAtLeast(t *testing.T, s *subject) {
	var lock *locco.Lock
	least := s.heldTTL()
	at := timed(func() { lock = s.lock(s.locker(s.client), s.key(), long, locco.HoldAtLeast(least)) })
	s.wantReleased(lock)
	for {
		l := newLease(lock.Key(), long)
		var g locco.Grant
		look := timed(func() { g = s.peer.acquire(l) })
		if ran := look.answered.Sub(at.sent); g.OK && ran < least-s.early {
			t.Errorf("Acquire(key with HoldAtLeast(%v)) was granted after %v (spec 5.5)", least, ran)
		}
		if g.OK {
			return
		}
		if ran := look.sent.Sub(at.answered); ran > least+least/2 {
			t.Fatalf("Acquire(key with HoldAtLeast(%v)) is still refused after %v (spec 5.5)", least, ran)
		}
		s.wait(s.step)
	}
}

func testHoldLockDelay(t *testing.T, s *subject) {
	ttl, delay := s.heldTTL(), 10*s.unit
	var lock *locco.Lock
	at := timed(func() { lock = s.lock(s.locker(s.client), s.key(), ttl, locco.LockDelay(delay)) })
	s.wantEnd(lock.Key(), ttl+delay, at)
	s.wantErr("Lock.Err after the TTL", lock.Err(), locco.ErrLost, "spec 1.10")

	lock = s.lock(s.locker(s.client), s.key(), long, locco.LockDelay(delay))
	s.wantReleased(lock)
	s.wantFree(lock.Key(), "spec 1.10: a clean release frees the key at once")
}
