package contract

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	locco "github.com/locco-go/locco/core"
)

var manyAcquireCases = []testCase{
	{"ManyAcquire/FreeKeysAreGranted", manyAcquire, testManyFree},
	{"ManyAcquire/OneKey", manyAcquire, testManyOne},
	{"ManyAcquire/FiftyKeys", manyAcquire, testManyFifty},
	{"ManyAcquire/NoKeysAreHarmless", manyAcquire, testManyNone},
	{"ManyAcquire/OneHeldKeyStoresNothing", manyAcquire, testManyHeld},
	{"ManyAcquire/RefusedIsAHeldKey", manyAcquire, testManyRefused},
	{"ManyAcquire/RefusalChangesNothing", manyAcquire, testManyRefusalChangesNothing},
	{"ManyAcquire/EachKeyHasItsLease", manyAcquire, testManyLeases},
	{"ManyAcquire/EachKeyHasItsToken", manyAcquire, testManyTokens},
	{"ManyAcquire/EndedLeasesAreFree", manyAcquire, testManyEnded},
	{"ManyAcquire/Again", manyAcquire, testManyAgain},
	{"ManyAcquire/OwnTokenWithoutAgainIsRefused", manyAcquire, testManyNotAgain},
	{"ManyAcquire/PeerSeesTheLeases", manyAcquire, testManyPeer},
	{"ManyAcquire/UnsupportedSetStoresNothing", manyAcquire, testManyUnsupported},
}

func testManyFree(t *testing.T, s *subject) {
	holds := s.takeMany(s.keys(3), long, false)
	for _, h := range holds {
		s.wantHeld(h.Lease, ruleAllOrNone)
	}
	for _, h := range holds {
		s.wantRelease("holder's token of a set", h.Key, h.Token, true, ruleAllOrNone)
		s.wantFree(h.Key, ruleRelease)
	}
}

func testManyOne(t *testing.T, s *subject) {
	h := s.takeMany(s.keys(1), long, false)[0]
	s.wantHeld(h.Lease, ruleAllOrNone)
	s.wantManyRefused(newLeases([]string{h.Key}, long), 0)
}

func testManyFifty(t *testing.T, s *subject) {
	holds := s.takeMany(s.keys(50), long, false)
	for _, h := range holds {
		s.wantHolds("holder's token of a set of 50", h.Key, h.Token, true, ruleAllOrNone)
	}
	for _, h := range holds {
		s.wantRelease("holder's token of a set of 50", h.Key, h.Token, true, ruleAllOrNone)
	}
	s.takeMany(s.keys(50), long, false)
}

func testManyNone(t *testing.T, s *subject) {
	ctx, cancel := s.context()
	defer cancel()
	grants, refused, err := as[locco.ManyAcquirer](s.client).AcquireMany(ctx, nil)
	if len(grants) != 0 || err == nil && refused != -1 {
		t.Errorf("AcquireMany(no leases) = %v, %d, %v; want no grants and -1, or an error (%s)", grants, refused, err, ruleRefused)
	}
}

// wantManyRefused checks that a set is refused because of one of its keys, those
// of held, and that none of the others is stored.
func (c *client) wantManyRefused(ls []locco.Lease, held ...int) {
	c.t.Helper()
	grants, refused := c.acquireMany(ls)
	isHeld := map[int]bool{}
	for _, i := range held {
		isHeld[i] = true
	}
	if !isHeld[refused] {
		c.t.Errorf("AcquireMany(%d keys, held: %v) refused = %d; want one of the held (%s)", len(ls), held, refused, ruleRefused)
	}
	for i, g := range grants {
		if g.OK {
			c.t.Errorf("AcquireMany(%d keys, held: %v): grant %d = %+v; want none (%s)", len(ls), held, i, g, ruleAllOrNone)
		}
	}
	for i, l := range ls {
		c.wantHolds(fmt.Sprintf("token %d of a refused set", i), l.Key, l.Token, false, ruleAllOrNone)
	}
}

func testManyHeld(t *testing.T, s *subject) {
	for _, held := range []int{0, 2, 4} { // first, middle, last
		keys := s.keys(5)
		h := s.take(keys[held], long)
		s.wantManyRefused(newLeases(keys, long), held)
		for i, key := range keys {
			if i != held {
				s.wantFree(key, ruleAllOrNone)
			}
		}
		s.wantHeld(h.Lease, ruleSame)
		s.wantRelease("holder's token", h.Key, h.Token, true, ruleHolder)
		s.takeMany(keys, long, false)
	}
}

func testManyRefused(t *testing.T, s *subject) {
	keys := s.keys(6)
	for i, key := range keys {
		h := s.take(key, long)
		s.wantManyRefused(newLeases(keys, long), i)
		s.wantRelease("holder's token", h.Key, h.Token, true, ruleHolder)
	}
	s.take(keys[1], long)
	s.take(keys[4], long)
	s.wantManyRefused(newLeases(keys, long), 1, 4)
}

func testManyRefusalChangesNothing(t *testing.T, s *subject) {
	keys := s.keys(3)
	ttl := 4 * s.unit
	h := s.take(keys[1], ttl)
	if _, refused := s.acquireMany(newLeases(keys, long)); refused == -1 {
		if !s.mayHaveEnded(h) {
			t.Errorf("AcquireMany(3 keys, held: [1]) refused = -1; want 1 (%s)", ruleRefused)
		}
		return
	}
	s.wantEnd(h.Key, ttl, h.span)
	s.wantFree(keys[0], ruleAllOrNone)
	s.wantFree(keys[2], ruleAllOrNone)
}

func testManyLeases(t *testing.T, s *subject) {
	leases := newLeases(s.keys(4), 0)
	for i := range leases {
		leases[i].TTL = time.Duration(3+2*i) * s.unit
	}
	leases[0].TTL = long
	at := timed(func() {
		if _, refused := s.acquireMany(leases); refused != -1 {
			t.Fatalf("AcquireMany(4 free keys) refused = %d; want -1 (%s)", refused, ruleAllOrNone)
		}
	})
	s.wantEnds(leases[1:], at)
	s.wantHeld(leases[0], ruleTTL)
}

func testManyTokens(t *testing.T, s *subject) {
	holds := s.takeMany(s.keys(3), long, false)
	for i, h := range holds {
		other := holds[(i+1)%len(holds)].Token
		s.wantHolds("token of another key of the set", h.Key, other, false, ruleHolder)
		s.wantExtend("token of another key of the set", newLeaseOf(h, other), false, ruleHolder)
		s.wantRelease("token of another key of the set", h.Key, other, false, ruleHolder)
	}
	s.wantRelease("holder's token of a set", holds[1].Key, holds[1].Token, true, ruleHolder)
	s.wantHeld(holds[0].Lease, ruleSame)
	s.wantHeld(holds[2].Lease, ruleSame)
}

func testManyEnded(t *testing.T, s *subject) {
	keys := s.keys(3)
	old := s.take(keys[1], 2*s.unit)
	s.passEnd(old.TTL, old.span)
	for _, h := range s.takeMany(keys, long, false) {
		s.wantHeld(h.Lease, ruleEnded)
	}
	s.wantRelease("token of an ended lease", old.Key, old.Token, false, ruleLate)
}

// testManyAgain has the second attempt at a set whose first answer was lost.
func testManyAgain(t *testing.T, s *subject) {
	holds := s.takeMany(s.keys(3), long, false)
	leases := make([]locco.Lease, len(holds))
	for i, h := range holds {
		leases[i] = h.with(4 * s.unit)
		leases[i].Again = true
	}
	s.wantRelease("holder's token of a set", holds[1].Key, holds[1].Token, true, ruleHolder)
	at := timed(func() {
		if grants, refused := s.acquireMany(leases); refused != -1 || len(grants) != len(leases) {
			t.Fatalf("AcquireMany(own tokens, Again) = %v, %d; want 3 grants, -1 (%s)", grants, refused, ruleAgain)
		}
	})
	s.wantEnds(leases, at)

	holds = s.takeMany(s.keys(3), long, false)
	leases = newLeases([]string{holds[0].Key, holds[1].Key, holds[2].Key}, long)
	for i := range leases {
		leases[i].Again = true
	}
	leases[0].Token = holds[0].Token
	grants, refused := s.acquireMany(leases)
	if refused != 1 && refused != 2 {
		t.Errorf("AcquireMany(one own token, two foreign, Again) = %v, %d; want 1 or 2 refused (%s)", grants, refused, ruleRefused)
	}
	for _, h := range holds {
		s.wantHeld(h.Lease, ruleSame)
	}
}

func testManyNotAgain(t *testing.T, s *subject) {
	keys := s.keys(2)
	h := s.take(keys[0], long)
	leases := newLeases(keys, long)
	leases[0].Token = h.Token
	s.wantNotAgain("AcquireMany(own token, not Again)", func(ctx context.Context) (bool, error) {
		_, refused, err := as[locco.ManyAcquirer](s.client).AcquireMany(ctx, leases)
		return refused != 0, err
	})
	s.wantHeld(h.Lease, ruleSame)
	s.wantFree(keys[1], ruleAllOrNone)
}

func testManyPeer(t *testing.T, s *subject) {
	holds := s.takeMany(s.keys(3), long, false)
	for _, h := range holds {
		s.peer.wantHeld(h.Lease, ruleStore)
	}
	s.peer.wantManyRefused(newLeases([]string{holds[0].Key, holds[1].Key}, long), 0, 1)
}

// testManyUnsupported has keys that nothing binds together. A backend that can
// not take them in one step says so and has stored none of them.
func testManyUnsupported(t *testing.T, s *subject) {
	var keys []string
	for range 8 {
		keys = append(keys, s.key())
	}
	leases := newLeases(sorted(keys), long)
	ctx, cancel := s.context()
	defer cancel()
	grants, refused, err := as[locco.ManyAcquirer](s.client).AcquireMany(ctx, leases)
	granted := err == nil && refused == -1 && len(grants) == len(leases)
	if !granted && !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("AcquireMany(unrelated keys) = %d grants, %d, %v; want all of them or errors.ErrUnsupported (%s)",
			len(grants), refused, err, ruleAllOrNone)
	}
	for _, l := range leases {
		s.wantHolds("token of a set of unrelated keys", l.Key, l.Token, granted, ruleAllOrNone)
	}
}
