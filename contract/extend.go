package contract

import (
	"testing"
	"time"

	locco "github.com/locco-go/locco/core"
)

var extendCases = []testCase{
	{"Extend/HolderCan", 0, testExtendHolder},
	{"Extend/ForeignTokenIsRefused", 0, testExtendForeign},
	{"Extend/AbsentKeyIsNotCreated", 0, testExtendAbsent},
	{"Extend/AfterReleaseIsNotCreated", 0, testExtendReleased},
	{"Extend/OldTokenCannotTouchNextGrant", 0, testExtendOldToken},
	{"Extend/Lengthens", 0, testExtendLengthens},
	{"Extend/Shortens", 0, testExtendShortens},
	{"Extend/CountsFromNow", 0, testExtendCountsFromNow},
	{"Extend/ReadsKeyTokenAndTTLOnly", 0, testExtendReadsLittle},
	{"Extend/PeerCan", 0, testExtendPeer},
}

// newLeaseOf returns the lease of h in the name of another token.
func newLeaseOf(h hold, token string) locco.Lease {
	return locco.Lease{Key: h.Key, Token: token, TTL: h.TTL}
}

// with returns the lease of h with another TTL, as an extension asks for it.
func (h hold) with(ttl time.Duration) locco.Lease {
	return locco.Lease{Key: h.Key, Token: h.Token, TTL: ttl}
}

func testExtendHolder(t *testing.T, s *subject) {
	h := s.take(s.key(), long)
	for range 3 {
		s.wantExtend("holder's token", h.with(long), true, ruleExtend)
		s.wantHeld(h.Lease, ruleExtend)
	}
	s.wantRelease("holder's token", h.Key, h.Token, true, ruleHolder)
}

func testExtendForeign(t *testing.T, s *subject) {
	ttl := 4 * s.unit
	h := s.take(s.key(), ttl)
	foreign := newLease(h.Key, long)
	s.wantExtend("foreign token", foreign, false, ruleHolder)
	s.wantHolds("foreign token", h.Key, foreign.Token, false, ruleHolder)
	foreign.TTL = time.Millisecond
	s.wantExtend("foreign token", foreign, false, ruleHolder)
	s.wantEnd(h.Key, ttl, h.span) // neither longer nor shorter because of it
}

func testExtendAbsent(t *testing.T, s *subject) {
	l := newLease(s.key(), long)
	s.wantExtend("key that nobody ever had", l, false, ruleNever)
	s.wantHolds("key that nobody ever had", l.Key, l.Token, false, ruleNever)
	s.wantFree(l.Key, ruleNever)
}

func testExtendReleased(t *testing.T, s *subject) {
	h := s.take(s.key(), long)
	s.wantRelease("holder's token", h.Key, h.Token, true, ruleRelease)
	s.wantExtend("released token", h.with(long), false, ruleNever)
	s.wantHolds("released token", h.Key, h.Token, false, ruleNever)
	s.wantFree(h.Key, ruleNever)
}

func testExtendOldToken(t *testing.T, s *subject) {
	old := s.take(s.key(), long)
	s.wantRelease("holder's token", old.Key, old.Token, true, ruleRelease)
	ttl := 4 * s.unit
	h := s.take(old.Key, ttl)
	s.wantExtend("token of an earlier grant", old.with(long), false, ruleLate)
	s.wantEnd(h.Key, ttl, h.span)
}

// extendInTime takes a key for ttl and extends it at once. On a machine so
// busy that the lease may have ended between the two it tries again with a
// longer one.
func (s *subject) extendInTime(ttl, extended time.Duration, extend func(locco.Lease) bool) (hold, span) {
	s.t.Helper()
	for try := 1; ; try++ {
		h := s.take(s.key(), ttl)
		var ours bool
		at := timed(func() { ours = extend(h.with(extended)) })
		if ours {
			return h, at
		}
		if try == 5 || at.answered.Sub(h.sent) < ttl-s.early {
			s.t.Fatalf("Extend(holder's token) = false, <nil> after %v of a lease of %v; want true (%s)",
				at.answered.Sub(h.sent), ttl, ruleExtend)
		}
		ttl *= 2
	}
}

func testExtendLengthens(t *testing.T, s *subject) {
	h, at := s.extendInTime(4*s.unit, 12*s.unit, s.extend)
	s.wantEnd(h.Key, 12*s.unit, at)
}

func testExtendShortens(t *testing.T, s *subject) {
	h := s.take(s.key(), long)
	at := timed(func() { s.wantExtend("holder's token, shorter TTL", h.with(4*s.unit), true, ruleExtend) })
	s.wantEnd(h.Key, 4*s.unit, at)
}

func testExtendCountsFromNow(t *testing.T, s *subject) {
	h := s.take(s.key(), long)
	s.wait(3 * s.unit)
	at := timed(func() { s.wantExtend("holder's token", h.with(6*s.unit), true, ruleExtend) })
	s.wantEnd(h.Key, 6*s.unit, at) // not counted from the grant, not added to what was left
}

// testExtendReadsLittle sets the fields that concern an Acquire only.
func testExtendReadsLittle(t *testing.T, s *subject) {
	h := s.take(s.key(), long)
	l := h.with(4 * s.unit)
	l.Fenced, l.Again, l.WantLeft = true, true, true
	foreign := newLease(h.Key, long)
	foreign.Fenced, foreign.Again, foreign.WantLeft = true, true, true
	s.wantExtend("foreign token, Again", foreign, false, ruleHolder)
	at := timed(func() { s.wantExtend("holder's token, Again", l, true, ruleExtend) })
	s.wantEnd(h.Key, l.TTL, at)
	l.TTL = long
	s.wantExtend("ended lease, Again", l, false, ruleNever)
	s.wantFree(h.Key, ruleNever)
}

func testExtendPeer(t *testing.T, s *subject) {
	h := s.take(s.key(), long)
	ttl := 4 * s.unit
	at := timed(func() {
		s.peer.wantExtend("token granted through another client", h.with(ttl), true, ruleStore)
	})
	s.wantEnd(h.Key, ttl, at)
}
