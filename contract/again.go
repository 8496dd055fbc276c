package contract

import (
	"context"
	"testing"
	"time"
)

var againCases = []testCase{
	{"Again/FreeKeyIsGranted", 0, testAgainFree},
	{"Again/OwnTokenIsGranted", 0, testAgainOwn},
	{"Again/OwnTokenWithoutAgainIsRefused", 0, testAgainUnset},
	{"Again/ForeignTokenIsRefused", 0, testAgainForeign},
	{"Again/SetsTheLeaseAnew", 0, testAgainSetsTheLease},
	{"Again/RefusalWithoutAgainChangesNothing", 0, testAgainUnsetChangesNothing},
	{"Again/EndedLeaseIsGranted", 0, testAgainEnded},
	{"Again/ThroughPeer", 0, testAgainPeer},
}

func testAgainFree(t *testing.T, s *subject) {
	l := newLease(s.key(), long)
	l.Again = true
	s.wantAcquire("free key, Again", l, true, ruleFree)
	s.wantHeld(l, ruleAgain)
	s.wantRelease("holder's token", l.Key, l.Token, true, ruleHolder)
	s.wantFree(l.Key, ruleRelease)
}

func testAgainOwn(t *testing.T, s *subject) {
	h := s.take(s.key(), long)
	l := h.Lease
	l.Again = true
	for range 3 {
		s.wantAcquire("own token, Again", l, true, ruleAgain)
		s.wantHeld(l, ruleAgain)
	}
	s.wantRelease("holder's token", l.Key, l.Token, true, ruleAgain)
	s.wantRelease("token released before", l.Key, l.Token, false, ruleAgain)
}

func testAgainUnset(t *testing.T, s *subject) {
	h := s.take(s.key(), long)
	s.wantNotAgain("Acquire(own token, not Again)", func(ctx context.Context) (bool, error) {
		g, err := s.b.Acquire(ctx, h.Lease)
		return g.OK, err
	})
	s.wantHeld(h.Lease, ruleNotAgain)
}

func testAgainForeign(t *testing.T, s *subject) {
	h := s.take(s.key(), long)
	l := newLease(h.Key, long)
	l.Again = true
	s.wantAcquire("held key, Again", l, false, ruleExclusive)
	s.wantHolds("refused token", l.Key, l.Token, false, ruleExclusive)
	s.wantHeld(h.Lease, ruleSame)
}

func testAgainSetsTheLease(t *testing.T, s *subject) {
	for _, tc := range []struct{ before, after time.Duration }{
		{long, 4 * s.unit}, // shorter than before
		{6 * s.unit, 8 * s.unit},
	} {
		h := s.take(s.key(), tc.before)
		l := h.with(tc.after)
		l.Again = true
		at := timed(func() { s.wantAcquire("own token, Again", l, true, ruleAgain) })
		s.wantEnd(l.Key, l.TTL, at)
	}
}

func testAgainUnsetChangesNothing(t *testing.T, s *subject) {
	ttl := 4 * s.unit
	h := s.take(s.key(), ttl)
	ctx, cancel := s.context()
	defer cancel()
	switch g, err := s.b.Acquire(ctx, h.with(long)); {
	case g.OK && !s.mayHaveEnded(h), err != nil && !s.passes(err):
		t.Errorf("Acquire(own token, not Again) = %+v, %v; want a refusal (%s)", g, err, ruleNotAgain)
	case !g.OK:
		s.wantEnd(h.Key, ttl, h.span)
	}
}

func testAgainEnded(t *testing.T, s *subject) {
	ttl := 2 * s.unit
	h := s.take(s.key(), ttl)
	s.passEnd(ttl, h.span)
	l := h.with(long)
	l.Again = true
	s.wantAcquire("own ended lease, Again", l, true, ruleEnded)
	s.wantHeld(l, ruleAgain)

	// The key that somebody else took meanwhile is theirs.
	h = s.take(s.key(), ttl)
	s.passEnd(ttl, h.span)
	next := s.take(h.Key, long)
	l = h.with(long)
	l.Again = true
	s.wantAcquire("key that another holder took meanwhile, Again", l, false, ruleExclusive)
	s.wantHeld(next.Lease, ruleSame)
}

func testAgainPeer(t *testing.T, s *subject) {
	h := s.take(s.key(), long)
	l := h.Lease
	l.Again = true
	s.peer.wantAcquire("own token, Again, through another client", l, true, ruleStore)
	s.wantHeld(l, ruleStore)
}
