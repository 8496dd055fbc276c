package memory_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/memory"
)

// Immediate: no wake-up is lost. Waiters that look only when they are woken or
// when a lease that they were told of ends never sleep while their key is free,
// whatever holders and other waiters do; and everybody's answers are those of a
// model that keeps the leases in a plain map.
func TestNobodyOversleeps(t *testing.T) {
	t.Parallel()
	runs := 2000
	if testing.Short() {
		runs = 200
	}
	for seed := range uint64(runs) {
		s := newSimulation(t, seed)
		for range 200 {
			s.step()
			s.settle()
			if t.Failed() {
				t.Fatalf("seed %d", seed)
			}
		}
	}
}

// simulation runs holders and waiters of a few keys, one thing at a time.
type simulation struct {
	t       *testing.T
	rnd     *rand.Rand
	b       *memory.Backend
	clock   *handClock
	model   map[string]modelLease
	waiters []*simWaiter // in no order
	tokens  int
	fence   int64
}

type modelLease struct {
	token string
	ends  time.Duration
}

// simWaiter waits as a locker does: it looks when woken and at the end of the
// lease that its last refusal told of.
type simWaiter struct {
	watch
	key  string
	next time.Duration
}

func newSimulation(t *testing.T, seed uint64) *simulation {
	t.Helper()
	b, clock := newBackend(t)
	return &simulation{
		t: t, rnd: rand.New(rand.NewPCG(seed, 8)), b: b, clock: clock, //nolint:gosec // a reproducible run
		model: map[string]modelLease{},
	}
}

func (s *simulation) key() string { return [...]string{"a", "b", "c"}[s.rnd.IntN(3)] }

func (s *simulation) lease(key string) locco.Lease {
	s.tokens++
	return locco.Lease{
		Key: key, Token: fmt.Sprint(s.tokens), TTL: time.Duration(1+s.rnd.IntN(20)) * time.Second,
		Fenced: true, WantLeft: true,
	}
}

// live is the model's lease of key, if it has not ended.
func (s *simulation) live(key string) (modelLease, bool) {
	l, ok := s.model[key]
	return l, ok && s.clock.read() < l.ends
}

// step does one thing that may happen.
func (s *simulation) step() {
	s.t.Helper()
	key := s.key()
	present, held := s.live(key)
	switch s.rnd.IntN(10) {
	case 0, 1, 2: // somebody comes to wait
		if len(s.waiters) < 12 {
			w := &simWaiter{watch: startWatch(s.t, s.b, key, "w"), key: key}
			s.waiters = append(s.waiters, w)
			s.look(w)
		}
	case 3: // somebody gives up, whether woken or not
		if len(s.waiters) > 0 {
			s.leave(s.rnd.IntN(len(s.waiters)))
		}
	case 4: // somebody overtakes
		s.acquire(s.lease(key))
	case 5, 6: // the holder releases, or one who was it does
		wantRelease(s.t, s.b, key, s.model[key].token, held)
		delete(s.model, key)
	case 7: // the holder extends, maybe for less
		l := s.lease(key)
		l.Token = s.model[key].token
		wantExtend(s.t, s.b, l, held)
		if held {
			s.model[key] = modelLease{l.Token, s.clock.read() + l.TTL}
		}
	case 8: // the holder hands over
		l := s.lease(key)
		s.granted(l, wantTransfer(s.t, s.b, present.token, l, held))
	case 9:
		if s.rnd.IntN(10) == 0 {
			s.b.Clear()
			clear(s.model)
		} else { // time goes on to when the next thing could happen
			s.clock.advance(s.untilNext())
		}
	}
}

// untilNext is how long the next look or the next end of a lease is away.
func (s *simulation) untilNext() time.Duration {
	now, next := s.clock.read(), s.clock.read()+time.Minute
	for _, w := range s.waiters {
		if w.next > now {
			next = min(next, w.next)
		}
	}
	for _, l := range s.model {
		if l.ends > now {
			next = min(next, l.ends)
		}
	}
	return next - now
}

// settle lets every waiter look that has a reason to, in any order, and checks
// that then nobody waits for a key that is free.
func (s *simulation) settle() {
	s.t.Helper()
	for again := true; again; {
		again = false
		s.rnd.Shuffle(len(s.waiters), func(i, j int) { s.waiters[i], s.waiters[j] = s.waiters[j], s.waiters[i] })
		for i := 0; i < len(s.waiters); i++ {
			w := s.waiters[i]
			if !w.woken() && s.clock.read() < w.next {
				continue
			}
			again = true
			if s.rnd.IntN(8) == 0 || s.look(w) { // it gives up or has the key
				s.leave(i)
				i--
			}
		}
	}
	for _, key := range []string{"a", "b", "c"} {
		first, waiting := time.Duration(1<<62), 0
		for _, w := range s.waiters {
			if w.key == key {
				first, waiting = min(first, w.next), waiting+1
			}
		}
		if waiting == 0 {
			continue
		}
		l, held := s.live(key)
		if !held || first > l.ends {
			s.t.Errorf("at %v: %d wait for %q, the first look is at %v; the lease ends at %v (held: %v)",
				s.clock.read(), waiting, key, first, l.ends, held)
		}
	}
}

// look has w try to take its key, and tells whether it did.
func (s *simulation) look(w *simWaiter) bool {
	s.t.Helper()
	g := s.acquire(s.lease(w.key))
	w.next = s.clock.read() + g.Left
	return g.OK
}

func (s *simulation) leave(i int) {
	s.waiters[i].stop()
	last := len(s.waiters) - 1
	s.waiters[i] = s.waiters[last]
	s.waiters = s.waiters[:last]
}

// acquire asks the backend and the model for l.
func (s *simulation) acquire(l locco.Lease) locco.Grant {
	s.t.Helper()
	present, held := s.live(l.Key)
	g := acquire(s.t, s.b, l)
	if g.OK == held || held && g.Left != present.ends-s.clock.read() {
		s.t.Errorf("Acquire(%q) at %v = %+v; the lease ends at %v (held: %v)", l.Key, s.clock.read(), g, present.ends, held)
	}
	s.granted(l, g)
	return g
}

// granted notes a grant and checks its fence.
func (s *simulation) granted(l locco.Lease, g locco.Grant) {
	s.t.Helper()
	if !g.OK {
		return
	}
	s.model[l.Key] = modelLease{l.Token, s.clock.read() + l.TTL}
	if g.Fence <= s.fence {
		s.t.Errorf("fence %d after %d; want it to grow", g.Fence, s.fence)
	}
	s.fence = g.Fence
}
