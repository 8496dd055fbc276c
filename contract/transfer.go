package contract

import (
	"testing"
	"time"
)

var transferCases = []testCase{
	{"Transfer/ReplacesTheHolder", transfer, testTransferReplaces},
	{"Transfer/SetsANewLease", transfer, testTransferLease},
	{"Transfer/OldTokenCanDoNothing", transfer, testTransferOldToken},
	{"Transfer/NewTokenCanDoAll", transfer, testTransferNewToken},
	{"Transfer/ForeignTokenIsRefused", transfer, testTransferForeign},
	{"Transfer/RefusalChangesNothing", transfer, testTransferRefusalChangesNothing},
	{"Transfer/AbsentKeyIsNotCreated", transfer, testTransferAbsent},
	{"Transfer/AfterReleaseIsRefused", transfer, testTransferReleased},
	{"Transfer/AfterTransferIsRefused", transfer, testTransferTwice},
	{"Transfer/OtherKeysStay", transfer, testTransferOtherKeys},
	{"Transfer/LostAnswerIsFoundAgain", transfer, testTransferAgain},
	{"Transfer/PeerCan", transfer, testTransferPeer},
}

func testTransferReplaces(t *testing.T, s *subject) {
	h := s.take(s.key(), long)
	to := newLease(h.Key, long)
	s.wantTransfer("holder's token", h.Token, to, true, ruleTransfer)
	s.wantHolds("token that a transfer took the key from", h.Key, h.Token, false, ruleTransfer)
	s.wantHeld(to, ruleTransfer)
}

func testTransferLease(t *testing.T, s *subject) {
	h := s.take(s.key(), long)
	to := newLease(h.Key, 4*s.unit)
	at := timed(func() { s.wantTransfer("holder's token, shorter TTL", h.Token, to, true, ruleTransfer) })
	s.wantEnd(to.Key, to.TTL, at)

	// A longer one, which may need several tries on a busy machine.
	for ttl := 4 * s.unit; ; ttl *= 2 {
		h = s.take(s.key(), ttl)
		to = newLease(h.Key, 2*ttl)
		var ok bool
		at = timed(func() { ok = s.transfer(h.Token, to).OK })
		if ok {
			s.wantEnd(to.Key, to.TTL, at)
			return
		}
		if !s.mayHaveEnded(h) || ttl > 64*s.unit {
			t.Fatalf("Transfer(holder's token) after %v of a lease of %v was refused; want a grant (%s)",
				time.Since(h.sent), ttl, ruleTransfer)
		}
	}
}

func testTransferOldToken(t *testing.T, s *subject) {
	h := s.take(s.key(), long)
	to := newLease(h.Key, long)
	s.wantTransfer("holder's token", h.Token, to, true, ruleTransfer)
	s.wantHolds("token that a transfer took the key from", h.Key, h.Token, false, ruleLate)
	s.wantExtend("token that a transfer took the key from", h.with(time.Millisecond), false, ruleLate)
	s.wantRelease("token that a transfer took the key from", h.Key, h.Token, false, ruleLate)
	again := h.Lease
	again.Again = true
	s.wantAcquire("token that a transfer took the key from, Again", again, false, ruleLate)
	s.wait(s.unit) // had it been extended to 1 ms, it would be gone
	s.wantHeld(to, ruleLate)
}

func testTransferNewToken(t *testing.T, s *subject) {
	h := s.take(s.key(), long)
	to := newLease(h.Key, long)
	s.wantTransfer("holder's token", h.Token, to, true, ruleTransfer)
	s.wantExtend("token that a transfer gave", to, true, ruleTransfer)
	next := newLease(h.Key, long)
	s.wantTransfer("token that a transfer gave", to.Token, next, true, ruleTransfer)
	s.wantHeld(next, ruleTransfer)
	s.wantRelease("token that a transfer gave", h.Key, next.Token, true, ruleTransfer)
	s.wantFree(h.Key, ruleTransfer)
}

func testTransferForeign(t *testing.T, s *subject) {
	h := s.take(s.key(), long)
	to := newLease(h.Key, long)
	s.wantTransfer("foreign token", newToken(), to, false, ruleNoTransfer)
	s.wantHolds("refused token", h.Key, to.Token, false, ruleNoTransfer)
	s.wantTransfer("the new token itself", to.Token, to, false, ruleNoTransfer)
	s.wantHeld(h.Lease, ruleNoTransfer)
}

func testTransferRefusalChangesNothing(t *testing.T, s *subject) {
	ttl := 4 * s.unit
	h := s.take(s.key(), ttl)
	s.wantTransfer("foreign token", newToken(), newLease(h.Key, long), false, ruleNoTransfer)
	s.wantTransfer("foreign token", newToken(), newLease(h.Key, time.Millisecond), false, ruleNoTransfer)
	s.wantEnd(h.Key, ttl, h.span)
}

func testTransferAbsent(t *testing.T, s *subject) {
	to := newLease(s.key(), long)
	s.wantTransfer("key that nobody ever had", newToken(), to, false, ruleNoTransfer)
	s.wantHolds("refused token", to.Key, to.Token, false, ruleNoTransfer)
	s.wantFree(to.Key, ruleNoTransfer)
}

func testTransferReleased(t *testing.T, s *subject) {
	h := s.take(s.key(), long)
	s.wantRelease("holder's token", h.Key, h.Token, true, ruleRelease)
	to := newLease(h.Key, long)
	s.wantTransfer("released token", h.Token, to, false, ruleNoTransfer)
	s.wantHolds("refused token", to.Key, to.Token, false, ruleNoTransfer)
	s.wantFree(h.Key, ruleNoTransfer)
}

func testTransferTwice(t *testing.T, s *subject) {
	h := s.take(s.key(), long)
	first, second := newLease(h.Key, long), newLease(h.Key, long)
	s.wantTransfer("holder's token", h.Token, first, true, ruleTransfer)
	s.wantTransfer("token that a transfer took the key from", h.Token, second, false, ruleNoTransfer)
	s.wantHolds("refused token", h.Key, second.Token, false, ruleNoTransfer)
	s.wantHeld(first, ruleNoTransfer)
}

func testTransferOtherKeys(t *testing.T, s *subject) {
	a, b := s.take(s.key(), long), s.take(s.key(), long)
	to := newLease(a.Key, long)
	s.wantTransfer("token of another key", b.Token, to, false, ruleNoTransfer)
	s.wantTransfer("holder's token", a.Token, to, true, ruleTransfer)
	s.wantHeld(to, ruleTransfer)
	s.wantHeld(b.Lease, ruleSame)
}

// testTransferAgain has the attempt that follows a transfer whose answer was
// lost.
func testTransferAgain(t *testing.T, s *subject) {
	h := s.take(s.key(), long)
	to := newLease(h.Key, long)
	s.transfer(h.Token, to)
	to.Again = true
	s.wantAcquire("token that a transfer gave, Again", to, true, ruleAgain)
	s.wantHeld(to, ruleAgain)
}

func testTransferPeer(t *testing.T, s *subject) {
	h := s.take(s.key(), long)
	to := newLease(h.Key, long)
	s.peer.wantTransfer("token granted through another client", h.Token, to, true, ruleStore)
	s.wantHolds("token that a transfer took the key from", h.Key, h.Token, false, ruleStore)
	s.wantHeld(to, ruleStore)
}
