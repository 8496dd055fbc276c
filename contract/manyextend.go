package contract

import (
	"testing"
	"time"

	locco "github.com/locco-go/locco/core"
)

var manyExtendCases = []testCase{
	{"ManyExtend/HoldersCan", manyExtend, testExtendManyHolders},
	{"ManyExtend/VerdictsAreInOrder", manyExtend, testExtendManyOrder},
	{"ManyExtend/BadEntryHarmsNoOther", manyExtend, testExtendManyBad},
	{"ManyExtend/EachKeyHasItsLease", manyExtend, testExtendManyLeases},
	{"ManyExtend/NothingIsCreated", manyExtend, testExtendManyNever},
	{"ManyExtend/RefusalChangesNothing", manyExtend, testExtendManyRefusal},
	{"ManyExtend/OneKey", manyExtend, testExtendManyOne},
	{"ManyExtend/NoKeysAreHarmless", manyExtend, testExtendManyNone},
	{"ManyExtend/TwoHundredKeys", manyExtend, testExtendManyTwoHundred},
	{"ManyExtend/PeerCan", manyExtend, testExtendManyPeer},
}

// wantVerdicts checks one verdict a lease.
func (c *client) wantVerdicts(what string, ls []locco.Lease, want []bool, rule string) {
	c.t.Helper()
	for i, v := range c.extendMany(ls) {
		if v.Err != nil || v.OK != want[i] {
			c.t.Errorf("ExtendMany(%s): verdict %d = %+v; want OK %v (%s)", what, i, v, want[i], rule)
		}
	}
}

// takeEach takes n keys, one by one.
func (s *subject) takeEach(n int, ttl time.Duration) (leases []locco.Lease) {
	for range n {
		leases = append(leases, s.take(s.key(), ttl).Lease)
	}
	return leases
}

func all(n int, value bool) []bool {
	values := make([]bool, n)
	for i := range values {
		values[i] = value
	}
	return values
}

func testExtendManyHolders(t *testing.T, s *subject) {
	leases := s.takeEach(5, long)
	s.wantVerdicts("holders' tokens", leases, all(5, true), ruleVerdicts)
	for _, l := range leases {
		s.wantHeld(l, ruleVerdicts)
	}
}

// testExtendManyOrder has a pattern of verdicts that no rotation, reversal or
// sorting of the keys or tokens leaves as it is.
func testExtendManyOrder(t *testing.T, s *subject) {
	want := []bool{true, false, false, true, false, true, true, true, false, false, false, true}
	leases := s.takeEach(len(want), long)
	for i, ours := range want {
		if !ours {
			leases[i].Token = newToken()
		}
	}
	s.wantVerdicts("holders' and foreign tokens", leases, want, ruleVerdicts)
	for i, j := 0, len(leases)-1; i < j; i, j = i+1, j-1 {
		leases[i], leases[j] = leases[j], leases[i]
		want[i], want[j] = want[j], want[i]
	}
	s.wantVerdicts("the same in reverse order", leases, want, ruleVerdicts)
}

// testExtendManyBad has every kind of bad entry between good ones.
func testExtendManyBad(t *testing.T, s *subject) {
	ended := s.ended()
	released := s.take(s.key(), long)
	s.wantRelease("holder's token", released.Key, released.Token, true, ruleRelease)
	good := s.takeEach(4, long)
	foreign := newLease(s.take(s.key(), long).Key, long)
	absent := newLease(s.key(), long)
	leases := []locco.Lease{
		good[0], good[1], foreign, good[2], ended.with(long), released.Lease, absent, good[3],
	}
	s.wantVerdicts("good and bad entries", leases, []bool{true, true, false, true, false, false, false, true}, ruleNoHarm)
	for _, l := range good {
		s.wantHeld(l, ruleNoHarm)
	}
}

func testExtendManyLeases(t *testing.T, s *subject) {
	leases := s.takeEach(4, long)
	for i := range leases {
		leases[i].TTL = time.Duration(3+2*i) * s.unit
	}
	leases[0].TTL = 2 * long
	at := timed(func() { s.wantVerdicts("holders' tokens, shorter TTLs", leases, all(4, true), ruleVerdicts) })
	s.wantEnds(leases[1:], at)
	s.wantHeld(leases[0], ruleExtend)

	h, at := s.extendInTime(4*s.unit, 12*s.unit, func(l locco.Lease) bool {
		return s.extendMany([]locco.Lease{l})[0].OK
	})
	s.wantEnd(h.Key, 12*s.unit, at)
}

func testExtendManyNever(t *testing.T, s *subject) {
	ended := s.ended()
	released := s.take(s.key(), long)
	s.wantRelease("holder's token", released.Key, released.Token, true, ruleRelease)
	leases := []locco.Lease{ended.with(long), released.Lease, newLease(s.key(), long)}
	s.wantVerdicts("ended, released and absent", leases, all(3, false), ruleNever)
	for _, l := range leases {
		s.wantHolds("refused token", l.Key, l.Token, false, ruleNever)
		s.wantFree(l.Key, ruleNever)
	}
}

func testExtendManyRefusal(t *testing.T, s *subject) {
	ttl := 4 * s.unit
	h := s.take(s.key(), ttl)
	good := s.take(s.key(), long)
	s.wantVerdicts("a foreign token and a holder's",
		[]locco.Lease{newLease(h.Key, long), good.Lease}, []bool{false, true}, ruleNoHarm)
	s.wantEnd(h.Key, ttl, h.span)
}

func testExtendManyOne(t *testing.T, s *subject) {
	leases := s.takeEach(1, long)
	s.wantVerdicts("one holder's token", leases, all(1, true), ruleVerdicts)
	leases[0].Token = newToken()
	s.wantVerdicts("one foreign token", leases, all(1, false), ruleVerdicts)
}

func testExtendManyNone(t *testing.T, s *subject) {
	s.wantVerdicts("no leases", nil, nil, ruleVerdicts)
	s.wantVerdicts("no leases", []locco.Lease{}, nil, ruleVerdicts)
}

func testExtendManyTwoHundred(t *testing.T, s *subject) {
	leases := s.takeEach(200, long)
	want := all(len(leases), true)
	for _, bad := range []int{0, 17, 99, 100, 198} {
		leases[bad].Token, want[bad] = newToken(), false
	}
	s.wantVerdicts("200 leases, 5 of them bad", leases, want, ruleNoHarm)
}

func testExtendManyPeer(t *testing.T, s *subject) {
	leases := s.takeEach(3, long)
	for i := range leases {
		leases[i].TTL = 4 * s.unit
	}
	at := timed(func() {
		s.peer.wantVerdicts("tokens granted through another client", leases, all(3, true), ruleStore)
	})
	s.wantEnds(leases, at)
}
