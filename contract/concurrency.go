package contract

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	locco "github.com/locco-go/locco/core"
)

var concurrencyCases = []testCase{
	{"Concurrency/OneWinner", 0, testRaceOneWinner},
	{"Concurrency/OneWinnerAfterExpiry", 0, testRaceAfterExpiry},
	{"Concurrency/OneGrantOfAToken", 0, testRaceOneToken},
	{"Concurrency/OneReleaseCounts", 0, testRaceRelease},
	{"Concurrency/ExtendNeverOutlivesRelease", 0, testRaceExtendRelease},
	{"Concurrency/MutualExclusion", 0, testRaceExclusion},
	{"Concurrency/FencesGrow", fencing, testRaceFences},
	{"Concurrency/KeysAreIndependent", 0, testRaceKeys},
	{"Concurrency/OneTransferWins", transfer, testRaceTransfer},
	{"Concurrency/SetsAreAtomic", manyAcquire, testRaceSets},
	{"Concurrency/SetsAndSingleKeys", manyAcquire, testRaceSetsAndKeys},
}

// rounds is how often a case repeats itself: few times with -short.
func rounds(n int) int {
	if testing.Short() {
		return max(n/10, 2)
	}
	return n
}

// either returns one of the two clients of the store.
func (s *subject) either(i int) *client {
	if i%2 == 1 {
		return s.peer
	}
	return s.client
}

// together runs n calls of fn at the same time, as far as there are processors,
// and waits for them.
func together(n int, fn func(i int)) {
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-start
			fn(i)
		})
	}
	close(start)
	wg.Wait()
}

// oneWinner lets n goroutines ask for a key and checks that one gets it.
func (s *subject) oneWinner(key string, n int, lease func() locco.Lease) locco.Lease {
	s.t.Helper()
	var winners atomic.Int32
	leases := make([]locco.Lease, n)
	won := make([]bool, n)
	for i := range leases {
		leases[i] = lease()
	}
	together(n, func(i int) {
		if won[i] = s.either(i).tryAcquire(leases[i]).OK; won[i] {
			winners.Add(1)
		}
	})
	if got := winners.Load(); got != 1 {
		s.t.Fatalf("Acquire(%s) by %d goroutines: %d grants; want 1 (%s)", show(key), n, got, ruleExclusive)
	}
	for i := range won {
		if won[i] {
			return leases[i]
		}
	}
	return locco.Lease{}
}

func testRaceOneWinner(t *testing.T, s *subject) {
	for range rounds(20) {
		key := s.key()
		l := s.oneWinner(key, 16, func() locco.Lease { return newLease(key, long) })
		s.wantHeld(l, ruleExclusive)
		s.wantRelease("winner's token", key, l.Token, true, ruleHolder)
	}
}

func testRaceAfterExpiry(t *testing.T, s *subject) {
	for range rounds(5) {
		h := s.ended()
		l := s.oneWinner(h.Key, 16, func() locco.Lease { return newLease(h.Key, long) })
		s.wantHeld(l, ruleExclusive)
	}
}

// testRaceOneToken has attempts with the same token, as they happen when a driver
// repeats a request: without Again only one may count.
func testRaceOneToken(t *testing.T, s *subject) {
	for range rounds(20) {
		l := newLease(s.key(), long)
		var grants atomic.Int32
		together(8, func(i int) {
			c := s.either(i)
			ctx, cancel := c.context()
			defer cancel()
			g, err := c.b.Acquire(ctx, l)
			if err != nil && !c.passes(err) {
				t.Errorf("Acquire(%s) = %+v, %v; want a grant or a refusal (%s)", show(l.Key), g, err, ruleNotAgain)
			}
			if err == nil && g.OK {
				grants.Add(1)
			}
		})
		if got := grants.Load(); got != 1 {
			t.Fatalf("Acquire(%s) by 8 goroutines with one token: %d grants; want 1 (%s)", show(l.Key), got, ruleNotAgain)
		}
		s.wantHeld(l, ruleNotAgain)
	}
}

func testRaceRelease(t *testing.T, s *subject) {
	for range rounds(20) {
		h := s.take(s.key(), long)
		var freed atomic.Int32
		together(8, func(i int) {
			if s.either(i).tryRelease(h.Key, h.Token) {
				freed.Add(1)
			}
		})
		if got := freed.Load(); got != 1 {
			t.Fatalf("Release(holder's token) by 8 goroutines: %d times true; want once (%s)", got, ruleHolder)
		}
		s.wantFree(h.Key, ruleRelease)
	}
}

func testRaceExtendRelease(t *testing.T, s *subject) {
	for range rounds(20) {
		h := s.take(s.key(), long)
		together(8, func(i int) {
			if i == 4 {
				if !s.tryRelease(h.Key, h.Token) {
					t.Errorf("Release(holder's token) = false, <nil>, while it was extended; want true (%s)", ruleHolder)
				}
				return
			}
			ctx, cancel := s.context()
			defer cancel()
			if _, err := s.either(i).b.Extend(ctx, h.with(long)); err != nil {
				t.Errorf("Extend(holder's token) error = %v, while it was released; want none (%s)", err, ruleError)
			}
		})
		s.wantHolds("released token", h.Key, h.Token, false, ruleNever)
		s.wantFree(h.Key, ruleNever)
	}
}

// contend lets n goroutines take the lock of key, each as often as turns says;
// work runs while it is held.
func (s *subject) contend(key string, n, turns int, fenced bool, work func(g locco.Grant)) {
	s.t.Helper()
	deadline := time.Now().Add(6 * s.patience)
	together(n, func(i int) {
		c := s.either(i)
		for range turns {
			l := newLease(key, long)
			l.Fenced = fenced
			g := c.tryAcquire(l)
			for !g.OK {
				if time.Now().After(deadline) || s.t.Failed() {
					s.t.Errorf("Acquire(%s) by %d goroutines: no grant in time (%s)", show(key), n, ruleFree)
					return
				}
				c.wait(c.step)
				g = c.tryAcquire(l)
			}
			work(g)
			if !c.tryRelease(key, l.Token) {
				s.t.Errorf("Release(holder's token) = false, <nil>; want true (%s)", ruleHolder)
			}
		}
	})
}

func testRaceExclusion(t *testing.T, s *subject) {
	key := s.key()
	var inside, entries atomic.Int32
	s.contend(key, 8, rounds(20), false, func(locco.Grant) {
		if n := inside.Add(1); n != 1 {
			t.Errorf("%d holders of %s at the same time; want 1 (%s)", n, show(key), ruleExclusive)
		}
		entries.Add(1)
		s.wait(s.step / 5)
		inside.Add(-1)
	})
	if got, want := int(entries.Load()), 8*rounds(20); got != want {
		t.Errorf("%d holders of %s one after another; want %d", got, show(key), want)
	}
	s.wantFree(key, ruleRelease)
}

// testRaceFences compares the fences in the order of the holds, which only the
// lock itself can give: a fence that was drawn before the key was won is seen.
func testRaceFences(t *testing.T, s *subject) {
	key := s.key()
	var last atomic.Int64
	s.contend(key, 8, rounds(20), true, func(g locco.Grant) {
		s.wantFence(last.Swap(g.Fence), g.Fence, "grants to other goroutines")
	})
}

func testRaceKeys(t *testing.T, s *subject) {
	keys := make([]string, 32)
	for i := range keys {
		keys[i] = s.key()
	}
	together(len(keys), func(i int) {
		c := s.either(i)
		for range rounds(10) {
			l := newLease(keys[i], long)
			c.wantAcquire("free key", l, true, ruleFree)
			s.wait(s.step / 5)
			c.wantExtend("holder's token", l, true, ruleExtend)
			c.wantHolds("holder's token", l.Key, l.Token, true, ruleHolds)
			c.wantRelease("holder's token", l.Key, l.Token, true, ruleHolder)
		}
	})
}

func testRaceTransfer(t *testing.T, s *subject) {
	as[locco.Transferrer](s.client)
	as[locco.Transferrer](s.peer)
	for range rounds(20) {
		h := s.take(s.key(), long)
		var winners atomic.Int32
		tokens := make([]string, 8)
		won := make([]bool, len(tokens))
		together(len(tokens), func(i int) {
			to := newLease(h.Key, long)
			tokens[i] = to.Token
			ctx, cancel := s.context()
			defer cancel()
			g, err := s.either(i).b.(locco.Transferrer).Transfer(ctx, h.Token, to)
			if err != nil {
				t.Errorf("Transfer(holder's token) error = %v; want none (%s)", err, ruleError)
			}
			if won[i] = g.OK; g.OK {
				winners.Add(1)
			}
		})
		if got := winners.Load(); got != 1 {
			t.Fatalf("Transfer(holder's token) by %d goroutines: %d grants; want 1 (%s)", len(tokens), got, ruleTransfer)
		}
		for i, token := range tokens {
			s.wantHolds("token of a racing transfer", h.Key, token, won[i], ruleTransfer)
		}
	}
}

// testRaceSets lets goroutines take overlapping sets. Whoever gets one must
// have all of it, and nobody may wait for ever.
func testRaceSets(t *testing.T, s *subject) {
	as[locco.ManyAcquirer](s.client)
	as[locco.ManyAcquirer](s.peer)
	keys := s.keys(6)
	holders := make([]atomic.Int32, len(keys))
	deadline := time.Now().Add(6 * s.patience)
	together(6, func(i int) {
		first := min(i, len(keys)-3)
		for range rounds(10) {
			leases := newLeases(keys[first:first+3], long)
			for !s.either(i).tryAcquireMany(leases) {
				if time.Now().After(deadline) || t.Failed() {
					t.Errorf("AcquireMany(overlapping sets) by 6 goroutines: no grant in time (%s)", ruleAllOrNone)
					return
				}
				s.wait(s.step)
			}
			for j := range leases {
				if n := holders[first+j].Add(1); n != 1 {
					t.Errorf("%d holders of %s at the same time; want 1 (%s)", n, show(leases[j].Key), ruleAllOrNone)
				}
			}
			s.wait(s.step / 5)
			for j, l := range leases {
				holders[first+j].Add(-1)
				s.either(i).wantRelease("holder's token of a set", l.Key, l.Token, true, ruleAllOrNone)
			}
		}
	})
	for _, key := range keys {
		s.wantFree(key, ruleAllOrNone)
	}
}

// testRaceSetsAndKeys lets sets race with single keys of them: a set must not
// take a key that somebody has, and a refused one must leave nothing.
func testRaceSetsAndKeys(t *testing.T, s *subject) {
	as[locco.ManyAcquirer](s.client)
	as[locco.ManyAcquirer](s.peer)
	for round := range rounds(20) {
		keys := s.keys(4)
		set, single := newLeases(keys, long), newLease(keys[2], long)
		var gotSet, gotSingle bool
		together(2, func(i int) {
			if i == round%2 { // either may be the first that runs
				gotSet = s.either(i).tryAcquireMany(set)
			} else {
				gotSingle = s.either(i).tryAcquire(single).OK
			}
		})
		if gotSet == gotSingle {
			t.Fatalf("AcquireMany and Acquire of one of its keys at the same time: granted %v and %v; want one of them (%s)",
				gotSet, gotSingle, ruleAllOrNone)
		}
		for _, l := range set {
			s.wantHolds("token of a racing set", l.Key, l.Token, gotSet, ruleAllOrNone)
		}
		s.wantHolds("token of a racing key", single.Key, single.Token, gotSingle, ruleAllOrNone)
	}
}
