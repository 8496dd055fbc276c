package contract

import (
	"testing"
	"time"

	locco "github.com/locco-go/locco/core"
)

var leftCases = []testCase{
	{"Left/IsWhatTheLeaseStillRuns", left, testLeft},
	{"Left/FollowsAnExtension", left, testLeftExtend},
	{"Left/FollowsTheNextGrant", left, testLeftNext},
	{"Left/OfYears", left, testLeftYears},
	{"Left/IsZeroWhenNotAsked", 0, testLeftNotAsked},
}

// wantLeft checks the Left of a refusal against a lease of ttl that was set by
// a call at that time.
func (c *client) wantLeft(key string, ttl time.Duration, at span) {
	c.t.Helper()
	l := newLease(key, long)
	l.WantLeft = true
	var g locco.Grant
	look := timed(func() { g = c.wantAcquire("held key, WantLeft", l, false, ruleExclusive) })
	if g.OK {
		return
	}
	least := ttl - look.answered.Sub(at.sent) - c.early
	most := ttl - look.sent.Sub(at.answered) + c.late
	if g.Left <= 0 || g.Left < least || g.Left > min(most, ttl) {
		c.t.Errorf("Acquire(held key, WantLeft).Left = %v; want between %v and %v of a lease of %v (%s)",
			g.Left, least, min(most, ttl), ttl, ruleLeft)
	}
}

func testLeft(t *testing.T, s *subject) {
	h := s.take(s.key(), long)
	for range 3 {
		s.wantLeft(h.Key, h.TTL, h.span)
		s.wait(2*s.unit + 3*time.Millisecond)
	}
	s.peer.wantLeft(h.Key, h.TTL, h.span)
}

func testLeftExtend(t *testing.T, s *subject) {
	h := s.take(s.key(), long)
	for _, ttl := range []time.Duration{2 * long, long / 2} {
		at := timed(func() { s.wantExtend("holder's token", h.with(ttl), true, ruleExtend) })
		s.wantLeft(h.Key, ttl, at)
	}
}

func testLeftNext(t *testing.T, s *subject) {
	h := s.take(s.key(), 2*long)
	s.wantLeft(h.Key, h.TTL, h.span)
	s.wantRelease("holder's token", h.Key, h.Token, true, ruleRelease)
	h = s.take(h.Key, long)
	s.wantLeft(h.Key, h.TTL, h.span)
	if s.h.WithoutTransfer {
		return
	}
	to := newLease(h.Key, long/2)
	at := timed(func() { s.wantTransfer("holder's token", h.Token, to, true, ruleTransfer) })
	s.wantLeft(to.Key, to.TTL, at)
}

func testLeftYears(t *testing.T, s *subject) {
	for _, ttl := range []time.Duration{locco.MaxDuration, 2 * locco.MaxDuration} {
		h := s.take(s.key(), ttl)
		s.wantLeft(h.Key, h.TTL, h.span)
	}
}

func testLeftNotAsked(t *testing.T, s *subject) {
	h := s.take(s.key(), long)
	if g := s.wantAcquire("held key", newLease(h.Key, long), false, ruleExclusive); g.Left != 0 {
		t.Errorf("Acquire(held key).Left = %v; want 0 (locco.Grant.Left: 0 when that was not asked)", g.Left)
	}
}
