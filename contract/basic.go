package contract

import (
	"testing"
)

var basicCases = []testCase{
	{"Acquire/FreeKeyIsGranted", 0, testAcquireFree},
	{"Acquire/HeldKeyIsRefused", 0, testAcquireHeld},
	{"Acquire/RefusalChangesNothing", 0, testAcquireRefusalChangesNothing},
	{"Acquire/KeysAreIndependent", 0, testAcquireIndependent},
	{"Acquire/PeerSeesTheLease", 0, testAcquirePeer},
	{"Release/FreesTheKey", 0, testReleaseFrees},
	{"Release/ForeignTokenIsRefused", 0, testReleaseForeign},
	{"Release/AbsentKeyIsFalse", 0, testReleaseAbsent},
	{"Release/TwiceIsFalse", 0, testReleaseTwice},
	{"Release/OldTokenCannotFreeNextGrant", 0, testReleaseOldToken},
	{"Release/OtherKeysStay", 0, testReleaseOtherKeys},
	{"Release/PeerCan", 0, testReleasePeer},
	{"Holds/OnlyTheHolder", 0, testHoldsOnlyHolder},
	{"Holds/AbsentKeyIsFalse", 0, testHoldsAbsent},
	{"Holds/AfterReleaseIsFalse", 0, testHoldsReleased},
	{"Holds/ChangesNothing", 0, testHoldsChangesNothing},
	{"Holds/AsksTheStore", 0, testHoldsAsksTheStore},
}

func testAcquireFree(t *testing.T, s *subject) {
	l := newLease(s.key(), long)
	s.wantAcquire("free key", l, true, ruleFree)
	s.wantHolds("holder's token", l.Key, l.Token, true, ruleHolds)
}

func testAcquireHeld(t *testing.T, s *subject) {
	h := s.take(s.key(), long)
	for range 3 {
		s.wantAcquire("held key", newLease(h.Key, long), false, ruleExclusive)
	}
	s.wantHolds("holder's token", h.Key, h.Token, true, ruleSame)
}

func testAcquireRefusalChangesNothing(t *testing.T, s *subject) {
	ttl := 4 * s.unit
	h := s.take(s.key(), ttl)
	for _, refused := range []string{"longer", "shorter"} {
		l := newLease(h.Key, long)
		if refused == "shorter" {
			l.TTL = s.unit / 10
		}
		if g := s.acquire(l); g.OK {
			break // the machine was too slow, or wantEnd says what is wrong
		}
		s.wantHolds("token of a refused attempt", h.Key, l.Token, false, ruleSame)
		s.wantRelease("token of a refused attempt", h.Key, l.Token, false, ruleSame)
	}
	// The attempts asked for other leases: the holder's must be as it was.
	s.wantEnd(h.Key, ttl, h.span)
}

func testAcquireIndependent(t *testing.T, s *subject) {
	a := s.take(s.key(), long)
	b := s.take(s.key(), long)
	s.wantHolds("token of another key", a.Key, b.Token, false, ruleHolds)
	s.wantExtend("token of another key", newLeaseOf(a, b.Token), false, ruleHolder)
	s.wantRelease("token of another key", a.Key, b.Token, false, ruleHolder)
	s.wantHeld(a.Lease, ruleSame)
	s.wantHeld(b.Lease, ruleSame)
}

func testAcquirePeer(t *testing.T, s *subject) {
	h := s.take(s.key(), long)
	s.peer.wantAcquire("key held through another client", newLease(h.Key, long), false, ruleStore)
	s.peer.wantHolds("token granted through another client", h.Key, h.Token, true, ruleStore)
	p := s.peer.take(s.key(), long)
	s.wantAcquire("key held through another client", newLease(p.Key, long), false, ruleStore)
}

func testReleaseFrees(t *testing.T, s *subject) {
	h := s.take(s.key(), long)
	s.wantRelease("holder's token", h.Key, h.Token, true, ruleRelease)
	s.wantHolds("released token", h.Key, h.Token, false, ruleHolds)
	s.wantAcquire("released key", newLease(h.Key, long), true, ruleRelease)
}

func testReleaseForeign(t *testing.T, s *subject) {
	h := s.take(s.key(), long)
	s.wantRelease("foreign token", h.Key, newToken(), false, ruleHolder)
	s.wantHeld(h.Lease, ruleSame)
	s.wantRelease("holder's token", h.Key, h.Token, true, ruleHolder)
}

func testReleaseAbsent(t *testing.T, s *subject) {
	key := s.key()
	s.wantRelease("key that nobody ever had", key, newToken(), false, ruleNobody)
	s.wantFree(key, ruleFree)
	s.wantRelease("key that nobody has now", key, newToken(), false, ruleNobody)
}

func testReleaseTwice(t *testing.T, s *subject) {
	h := s.take(s.key(), long)
	s.wantRelease("holder's token", h.Key, h.Token, true, ruleRelease)
	s.wantRelease("token released before", h.Key, h.Token, false, ruleNobody)
	s.wantFree(h.Key, ruleFree)
}

func testReleaseOldToken(t *testing.T, s *subject) {
	old := s.take(s.key(), long)
	s.wantRelease("holder's token", old.Key, old.Token, true, ruleRelease)
	h := s.take(old.Key, long)
	s.wantRelease("token of an earlier grant", old.Key, old.Token, false, ruleLate)
	s.wantHeld(h.Lease, ruleLate)
}

func testReleaseOtherKeys(t *testing.T, s *subject) {
	var holds []hold
	for range 5 {
		holds = append(holds, s.take(s.key(), long))
	}
	s.wantRelease("holder's token", holds[2].Key, holds[2].Token, true, ruleRelease)
	for _, i := range []int{0, 1, 3, 4} {
		s.wantHeld(holds[i].Lease, ruleSame)
	}
}

func testReleasePeer(t *testing.T, s *subject) {
	h := s.take(s.key(), long)
	s.peer.wantRelease("token granted through another client", h.Key, h.Token, true, ruleStore)
	s.wantHolds("token released through another client", h.Key, h.Token, false, ruleStore)
	s.wantFree(h.Key, ruleStore)
}

func testHoldsOnlyHolder(t *testing.T, s *subject) {
	h := s.take(s.key(), long)
	for range 3 {
		s.wantHolds("holder's token", h.Key, h.Token, true, ruleHolds)
		s.wantHolds("foreign token", h.Key, newToken(), false, ruleHolds)
	}
}

func testHoldsAbsent(t *testing.T, s *subject) {
	key := s.key()
	s.wantHolds("key that nobody ever had", key, newToken(), false, ruleNobody)
	s.wantFree(key, ruleHolds)
	s.wantHolds("key that nobody has now", key, newToken(), false, ruleNobody)
}

func testHoldsReleased(t *testing.T, s *subject) {
	old := s.take(s.key(), long)
	s.wantRelease("holder's token", old.Key, old.Token, true, ruleRelease)
	s.wantHolds("released token", old.Key, old.Token, false, ruleHolds)
	h := s.take(old.Key, long)
	s.wantHolds("token of an earlier grant", old.Key, old.Token, false, ruleLate)
	s.wantHolds("holder's token", h.Key, h.Token, true, ruleHolds)
}

func testHoldsChangesNothing(t *testing.T, s *subject) {
	ttl := 4 * s.unit
	h := s.take(s.key(), ttl)
	for range 3 {
		s.wait(s.unit / 2)
		ctx, cancel := s.context()
		if _, err := s.b.Holds(ctx, h.Key, h.Token); err != nil {
			t.Errorf("Holds(holder's token) error = %v; want none (%s)", err, ruleHolds)
		}
		cancel()
	}
	s.wantEnd(h.Key, ttl, h.span)
}

// testHoldsAsksTheStore lets the key change hands behind the back of the client
// that took it.
func testHoldsAsksTheStore(t *testing.T, s *subject) {
	h := s.take(s.key(), long)
	s.wantHolds("holder's token", h.Key, h.Token, true, ruleHolds)
	s.peer.wantRelease("token granted through another client", h.Key, h.Token, true, ruleStore)
	p := s.peer.take(h.Key, long)
	s.wantHolds("token released through another client", h.Key, h.Token, false, ruleStore)
	s.wantHolds("token granted through another client", h.Key, p.Token, true, ruleStore)
}
