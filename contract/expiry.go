package contract

import (
	"testing"
	"time"

	locco "github.com/locco-go/locco/core"
)

var expiryCases = []testCase{
	{"Expiry/FreesTheKey", 0, testExpiryFrees},
	{"Expiry/OddMilliseconds", 0, testExpiryOdd},
	{"Expiry/OneMillisecond", 0, testExpiryOneMillisecond},
	{"Expiry/YearsAreKept", 0, testExpiryYears},
	{"Expiry/HoldsIsFalse", 0, testExpiryHolds},
	{"Expiry/ExtendIsRefused", 0, testExpiryExtend},
	{"Expiry/ReleaseIsFalse", 0, testExpiryRelease},
	{"Expiry/TransferIsRefused", transfer, testExpiryTransfer},
	{"Expiry/OldTokenCannotTouchNextGrant", 0, testExpiryOldToken},
	{"Expiry/PeerTakesTheKey", 0, testExpiryPeer},
}

func testExpiryFrees(t *testing.T, s *subject) {
	h := s.take(s.key(), 4*s.unit)
	s.wantEnd(h.Key, h.TTL, h.span)
}

// testExpiryOdd has leases that suffer when a TTL is rounded to ten or a
// hundred milliseconds, or to seconds.
func testExpiryOdd(t *testing.T, s *subject) {
	extras := []int{1, 7, 49, 99, 250, 499, 997}
	keys := make([]string, len(extras))
	for i := range keys {
		keys[i] = s.key()
	}
	together(len(extras), func(i int) {
		l := newLease(keys[i], 4*s.unit+time.Duration(extras[i])*time.Millisecond)
		at := timed(func() { s.wantAcquire("free key", l, true, ruleFree) })
		s.wantEnd(l.Key, l.TTL, at)
	})
}

func testExpiryOneMillisecond(t *testing.T, s *subject) {
	h := s.take(s.key(), time.Millisecond)
	s.wantEnd(h.Key, h.TTL, h.span)
	h = s.take(s.key(), long)
	at := timed(func() { s.wantExtend("holder's token, 1 ms", h.with(time.Millisecond), true, ruleExtend) })
	s.wantEnd(h.Key, time.Millisecond, at)
}

// testExpiryYears has the longest leases that core asks for: MaxDuration as TTL
// and as lock delay.
func testExpiryYears(t *testing.T, s *subject) {
	for _, ttl := range []time.Duration{365 * 24 * time.Hour, locco.MaxDuration, 2 * locco.MaxDuration} {
		h := s.take(s.key(), ttl)
		s.wantHeld(h.Lease, ruleTTL)
		s.wantExtend("holder's token, years", h.Lease, true, ruleTTL)
		s.wait(2 * s.unit)
		s.wantHeld(h.Lease, ruleTTL)
		s.wantRelease("holder's token, years", h.Key, h.Token, true, ruleTTL)
		s.wantFree(h.Key, ruleRelease)
	}
}

// ended returns a hold whose lease has ended and was not touched since.
func (s *subject) ended() hold {
	s.t.Helper()
	h := s.take(s.key(), 2*s.unit)
	s.passEnd(h.TTL, h.span)
	return h
}

func testExpiryHolds(t *testing.T, s *subject) {
	h := s.ended()
	s.wantHolds("ended lease", h.Key, h.Token, false, ruleEnded)
	s.wantFree(h.Key, ruleEnded)
}

func testExpiryExtend(t *testing.T, s *subject) {
	h := s.ended()
	s.wantExtend("ended lease", h.with(long), false, ruleEnded)
	s.wantHolds("ended lease", h.Key, h.Token, false, ruleEnded)
	s.wantFree(h.Key, ruleEnded)
}

func testExpiryRelease(t *testing.T, s *subject) {
	h := s.ended()
	s.wantRelease("ended lease", h.Key, h.Token, false, ruleEnded)
	s.wantFree(h.Key, ruleEnded)
}

func testExpiryTransfer(t *testing.T, s *subject) {
	h := s.ended()
	to := newLease(h.Key, long)
	s.wantTransfer("ended lease", h.Token, to, false, ruleEnded)
	s.wantHolds("refused token", to.Key, to.Token, false, ruleEnded)
	s.wantFree(h.Key, ruleEnded)
}

func testExpiryOldToken(t *testing.T, s *subject) {
	old := s.ended()
	h := s.take(old.Key, long)
	s.wantHolds("token of an ended lease", old.Key, old.Token, false, ruleLate)
	s.wantExtend("token of an ended lease", old.with(time.Millisecond), false, ruleLate)
	s.wantRelease("token of an ended lease", old.Key, old.Token, false, ruleLate)
	s.wait(s.unit) // had it been extended to 1 ms, it would be gone
	s.wantHeld(h.Lease, ruleLate)
	s.wantRelease("holder's token", h.Key, h.Token, true, ruleHolder)
}

func testExpiryPeer(t *testing.T, s *subject) {
	h := s.take(s.key(), 4*s.unit)
	s.peer.wantEnd(h.Key, h.TTL, h.span)
}
