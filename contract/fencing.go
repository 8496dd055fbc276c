package contract

import (
	"testing"
	"time"

	locco "github.com/locco-go/locco/core"
)

var fencingCases = []testCase{
	{"Fencing/IsPositiveAndBelow2To53", fencing, testFenceRange},
	{"Fencing/UnfencedGrantHasNone", 0, testFenceUnfenced},
	{"Fencing/UnfencedHoldersAreSeen", fencing, testFenceMixed},
	{"Fencing/GrowsAfterRelease", fencing, testFenceRelease},
	{"Fencing/GrowsAfterExpiry", fencing, testFenceExpiry},
	{"Fencing/GrowsAfterRefusals", fencing, testFenceRefusals},
	{"Fencing/GrowsAfterUnfencedGrants", fencing, testFenceUnfencedBetween},
	{"Fencing/GrowsWithAgain", fencing, testFenceAgain},
	{"Fencing/GrowsAfterExtend", fencing, testFenceExtend},
	{"Fencing/GrowsWithTransfer", fencing | transfer, testFenceTransfer},
	{"Fencing/GrowsWithAcquireMany", fencing | manyAcquire, testFenceAcquireMany},
	{"Fencing/GrowsAcrossClients", fencing, testFencePeer},
	{"Fencing/GrowsOverEveryPath", fencing, testFenceEveryPath},
	{"Fencing/KeysDoNotDisturbEachOther", fencing, testFenceKeys},
}

// maxFence is the first number that a float64, and so JSON and JavaScript,
// cannot tell from its neighbor.
const maxFence = 1 << 53

// wantFence checks a fence against that of the grant before it (0: none).
func (c *client) wantFence(before, got int64, after string) {
	c.t.Helper()
	if got <= before || got <= 0 || got >= maxFence {
		c.t.Errorf("Fence of a grant after %s = %d; want above %d, positive and below 2^53 (%s)", after, got, before, ruleFence)
	}
}

func testFenceRange(t *testing.T, s *subject) {
	for range 5 {
		h := s.takeFenced(s.key(), long)
		s.wantFence(0, h.fence, "none")
	}
}

func testFenceUnfenced(t *testing.T, s *subject) {
	h := s.take(s.key(), long)
	if h.fence != 0 {
		t.Errorf("Fence of a grant that was not to be fenced = %d; want 0 (%s)", h.fence, ruleNoFence)
	}
	if s.h.WithoutFencing {
		return
	}
	s.release(h.Key, h.Token)
	fenced := s.takeFenced(h.Key, long)
	s.release(fenced.Key, fenced.Token)
	if h = s.take(h.Key, long); h.fence != 0 {
		t.Errorf("Fence of an unfenced grant after a fenced one = %d; want 0 (%s)", h.fence, ruleNoFence)
	}
}

func testFenceMixed(t *testing.T, s *subject) {
	unfenced := s.take(s.key(), long)
	l := newLease(unfenced.Key, long)
	l.Fenced = true
	s.wantAcquire("key held without a fence, fenced", l, false, ruleMixed)
	l.Token, l.Again = unfenced.Token, true
	g := s.wantAcquire("own token without a fence, fenced, Again", l, true, ruleMixed)
	s.wantFence(0, g.Fence, "an unfenced one of the same token")
	s.wantRelease("holder's token", l.Key, l.Token, true, ruleMixed)

	fenced := s.takeFenced(s.key(), long)
	s.wantAcquire("key held with a fence, unfenced", newLease(fenced.Key, long), false, ruleMixed)
	s.wantExtend("holder's token", fenced.with(long), true, ruleMixed)
	s.wantHeld(fenced.Lease, ruleMixed)
	s.wantRelease("holder's token", fenced.Key, fenced.Token, true, ruleMixed)
	s.wantFree(fenced.Key, ruleMixed)
}

func testFenceRelease(t *testing.T, s *subject) {
	key := s.key()
	var last int64
	for range 100 {
		h := s.takeFenced(key, long)
		s.wantFence(last, h.fence, "release")
		last = h.fence
		s.wantRelease("holder's token", key, h.Token, true, ruleRelease)
	}
}

func testFenceExpiry(t *testing.T, s *subject) {
	key := s.key()
	var last int64
	for _, ttl := range []time.Duration{time.Millisecond, s.unit, 2 * s.unit, s.unit} {
		h := s.takeFenced(key, ttl)
		s.wantFence(last, h.fence, "expiry")
		last = h.fence
		s.passEnd(ttl, h.span)
	}
}

func testFenceRefusals(t *testing.T, s *subject) {
	h := s.takeFenced(s.key(), long)
	for range 20 {
		l := newLease(h.Key, long)
		l.Fenced = true
		s.wantAcquire("held key", l, false, ruleExclusive)
	}
	s.wantRelease("holder's token", h.Key, h.Token, true, ruleRelease)
	s.wantFence(h.fence, s.takeFenced(h.Key, long).fence, "refusals")
}

func testFenceUnfencedBetween(t *testing.T, s *subject) {
	key := s.key()
	var last int64
	for range 5 {
		fenced := s.takeFenced(key, long)
		s.wantFence(last, fenced.fence, "an unfenced grant")
		last = fenced.fence
		s.wantRelease("fenced holder's token", key, fenced.Token, true, ruleRelease)
		for range 3 {
			unfenced := s.take(key, long)
			s.wantRelease("unfenced holder's token", key, unfenced.Token, true, ruleRelease)
		}
	}
}

func testFenceAgain(t *testing.T, s *subject) {
	h := s.takeFenced(s.key(), long)
	last := h.fence
	for range 5 {
		l := h.Lease
		l.Again = true
		g := s.wantAcquire("own token, Again", l, true, ruleAgain)
		s.wantFence(last, g.Fence, "an earlier grant of the same token")
		last = g.Fence
	}
	s.wantRelease("holder's token", h.Key, h.Token, true, ruleRelease)
	s.wantFence(last, s.takeFenced(h.Key, long).fence, "a repeated grant")
}

func testFenceExtend(t *testing.T, s *subject) {
	key := s.key()
	var last int64
	for range 5 {
		h := s.takeFenced(key, long)
		s.wantFence(last, h.fence, "a grant that was extended")
		last = h.fence
		for range 3 {
			s.wantExtend("holder's token", h.with(long), true, ruleExtend)
		}
		s.wantRelease("holder's token", key, h.Token, true, ruleRelease)
	}
}

func testFenceTransfer(t *testing.T, s *subject) {
	h := s.takeFenced(s.key(), long)
	last := h.fence
	for range 5 {
		to := newLease(h.Key, long)
		to.Fenced = true
		g := s.wantTransfer("holder's token", h.Token, to, true, ruleTransfer)
		s.wantFence(last, g.Fence, "a transfer")
		last, h.Token = g.Fence, to.Token
	}
	to := newLease(h.Key, long)
	if g := s.wantTransfer("holder's token, unfenced", h.Token, to, true, ruleTransfer); g.Fence != 0 {
		t.Errorf("Transfer(unfenced).Fence = %d; want 0 (%s)", g.Fence, ruleNoFence)
	}
	s.wantRelease("holder's token", h.Key, to.Token, true, ruleRelease)
	s.wantFence(last, s.takeFenced(h.Key, long).fence, "a transfer and a release")
}

func testFenceAcquireMany(t *testing.T, s *subject) {
	keys := s.keys(5)
	last := make([]int64, len(keys))
	for range 4 {
		for i, h := range s.takeMany(keys, long, true) {
			s.wantFence(last[i], h.fence, "a grant of the key alone")
			s.wantRelease("holder's token", h.Key, h.Token, true, ruleRelease)
			alone := s.takeFenced(h.Key, long)
			s.wantFence(h.fence, alone.fence, "a grant of the whole set")
			last[i] = alone.fence
			s.wantRelease("holder's token", h.Key, alone.Token, true, ruleRelease)
		}
	}
	for _, h := range s.takeMany(keys, long, false) {
		if h.fence != 0 {
			t.Errorf("AcquireMany(unfenced): Fence = %d; want 0 (%s)", h.fence, ruleNoFence)
		}
	}
}

func testFencePeer(t *testing.T, s *subject) {
	key := s.key()
	var last int64
	for i := range 20 {
		c := s.client
		if i%2 == 1 {
			c = s.peer
		}
		h := c.takeFenced(key, long)
		s.wantFence(last, h.fence, "a grant through another client")
		last = h.fence
		c.wantRelease("holder's token", key, h.Token, true, ruleRelease)
	}
}

// testFenceEveryPath lets every way that one grant can follow another follow
// every other.
func testFenceEveryPath(t *testing.T, s *subject) {
	key := s.keys(1)[0]
	h := s.takeFenced(key, long)
	release := func() { s.wantRelease("holder's token", key, h.Token, true, ruleRelease) }
	type path struct {
		name string
		next func(l locco.Lease) locco.Grant
	}
	paths := []path{
		{"release", func(l locco.Lease) locco.Grant {
			release()
			return s.acquire(l)
		}},
		{"expiry", func(l locco.Lease) locco.Grant {
			at := timed(func() { s.wantExtend("holder's token, 1 ms", h.with(time.Millisecond), true, ruleExtend) })
			s.passEnd(time.Millisecond, at)
			return s.acquire(l)
		}},
		{"a grant through another client", func(l locco.Lease) locco.Grant {
			release()
			return s.peer.acquire(l)
		}},
		{"an unfenced grant", func(l locco.Lease) locco.Grant {
			release()
			unfenced := s.take(key, long)
			s.wantRelease("unfenced holder's token", key, unfenced.Token, true, ruleRelease)
			return s.acquire(l)
		}},
		{"an earlier grant of the same token", func(l locco.Lease) locco.Grant {
			g := s.acquire(locco.Lease{Key: key, Token: h.Token, TTL: long, Fenced: true, Again: true})
			s.wantFence(h.fence, g.Fence, "an earlier grant of the same token")
			h.fence = g.Fence
			release()
			return s.acquire(l)
		}},
	}
	if !s.h.WithoutTransfer {
		paths = append(paths, path{"a transfer", func(l locco.Lease) locco.Grant { return s.transfer(h.Token, l) }})
	}
	if !s.h.WithoutManyAcquire {
		paths = append(paths, path{"a grant of a set", func(l locco.Lease) locco.Grant {
			release()
			grants, refused := s.acquireMany([]locco.Lease{l})
			if refused != -1 || len(grants) != 1 {
				t.Fatalf("AcquireMany(one free key) = %v, %d; want a grant, -1 (%s)", grants, refused, ruleAllOrNone)
			}
			return grants[0]
		}})
	}
	for _, first := range paths {
		for _, second := range paths {
			for _, p := range []path{first, second} {
				l := newLease(key, long)
				l.Fenced = true
				g := p.next(l)
				if !g.OK {
					t.Fatalf("grant after %s = %+v; want it OK (%s)", p.name, g, ruleFree)
				}
				s.wantFence(h.fence, g.Fence, p.name)
				h.Lease, h.fence = l, g.Fence
			}
		}
	}
}

func testFenceKeys(t *testing.T, s *subject) {
	keys := []string{s.key(), s.key(), s.key()}
	last := map[string]int64{}
	for i := range 30 {
		key := keys[i*i%len(keys)]
		h := s.takeFenced(key, long)
		s.wantFence(last[key], h.fence, "grants of other keys")
		last[key] = h.fence
		s.wantRelease("holder's token", key, h.Token, true, ruleRelease)
	}
}
