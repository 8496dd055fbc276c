package locco_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	locco "github.com/locco-go/locco/core"
)

// holding is a lock that a locker has returned.
type holding struct {
	*locco.Lock
	process *process
	bound   context.Context // ends with the lock; may be nil
	maxHold time.Duration
}

// granted is called by the store at every grant, under its mutex.
func (s *simulation) granted(key, token string) {
	fence := s.store.fence
	s.mu.Lock()
	if s.fenced {
		if fence <= s.lastOf[key] {
			s.t.Errorf("fence %d after %d of %q; want it to grow (spec 6.1)", fence, s.lastOf[key], key)
		}
		s.lastOf[key] = fence
		s.fences[token] = append(s.fences[token], fence)
	}
	s.mu.Unlock()
	s.logf(key, "granted to %s, fence %d", token, fence)
	s.check(key, token)
}

// checkKey compares what holders believe with what the store has.
func (s *simulation) checkKey(key string) {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	row, _ := s.store.live(key)
	s.check(key, row.token)
}

// check is called under the store's mutex: nobody but token may believe to hold
// key, and it not for longer than the store.
func (s *simulation) check(key, token string) {
	s.mu.Lock()
	active := slices.Clone(s.active[key])
	s.mu.Unlock()
	over := map[*holding]bool{}
	for _, h := range active {
		bound := h.bound != nil && h.bound.Err() == nil
		h.process.observe(func() {
			left, state := h.Remaining(), h.State()
			over[h] = state != locco.StateHeld
			switch {
			case s.isRobbed(h.Token()):
			case h.Token() != token && state == locco.StateHeld:
				s.failf(key, "%q has the key, and %s still believes to hold it as %q (spec 5.3)", token, h.process.name, h.Token())
			case h.Token() != token && bound && h.process.steady():
				s.failf(key, "%q has the key, and a context bound to %q of %s has not ended (spec 5.3)", token, h.Token(), h.process.name)
			case h.Token() == token && left > 0:
				stored := time.Until(s.store.rows[key].ends)
				if left = h.process.inStoreTime(left); left > stored {
					s.failf(key, "%s believes that the lease of %q runs for %v; the store has %v (spec 1.4)", h.process.name, token, left, stored)
				}
			}
		})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.active[key] = slices.DeleteFunc(s.active[key], func(h *holding) bool { return over[h] })
}

func (s *simulation) isRobbed(token string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.robbed[token]
}

// freed notes that the store has freed key by its token, which nobody may hold.
func (s *simulation) freed(key, token string) {
	s.mu.Lock()
	s.gone[token] = true
	active := slices.Clone(s.active[key])
	s.mu.Unlock()
	for _, h := range active {
		if h.Token() == token {
			h.process.observe(func() {
				if h.State() == locco.StateHeld {
					s.failf(key, "%s: %s was freed while it was held (spec 4.6)", h.process.name, token)
				}
			})
		}
	}
}

// returned takes in a lock that a locker has returned.
func (s *simulation) returned(p *process, lock *locco.Lock, r *rand.Rand, maxHold time.Duration) *holding {
	key, token, fence := lock.Key(), lock.Token(), lock.Fence()
	h := &holding{Lock: lock, process: p, maxHold: maxHold}
	if r != nil && r.IntN(2) == 0 {
		h.bound = lock.Bind(context.Background())
	}
	s.logf(key, "%s: got %s, fence %d, waited %v, attempts %d", p.name, token, fence, lock.Waited(), lock.Attempts())
	if lock.Waited() == 0 && lock.Attempts() != 1 {
		s.failf(key, "%s: got %s without a wait in %d attempts", p.name, token, lock.Attempts())
	}
	s.mu.Lock()
	gone, known, used := s.gone[token], s.fences[token], s.used[fence]
	s.used[fence] = true
	s.active[key] = append(s.active[key], h)
	s.all = append(s.all, h)
	s.mu.Unlock()
	switch {
	case s.fenced && !slices.Contains(known, fence):
		s.failf(key, "%s: got %s with fence %d; the store drew %v", p.name, token, fence, known)
	case s.fenced && used && lock.Attempts() > 0 && !s.isAttached(token):
		s.failf(key, "%s: fence %d was given to two locks (spec 6.1)", p.name, fence)
	case gone && lock.State() == locco.StateHeld:
		s.failf(key, "%s: got %s, which was given back already (spec 1.7)", p.name, token)
	}
	s.checkKey(key)
	return h
}

// isAttached tells whether several locks had token: it was handed on by Detach.
func (s *simulation) isAttached(token string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, h := range s.all {
		if h.Token() == token {
			n++
		}
	}
	return n > 1
}

// write has the holder write to the resource that key guards.
func (s *simulation) write(h *holding) {
	if !s.fenced || h.State() != locco.StateHeld {
		return
	}
	s.mu.Lock()
	largest, robbed := s.resource[h.Key()], s.robbed[h.Token()]
	if h.Fence() > largest {
		s.resource[h.Key()] = h.Fence()
	}
	s.mu.Unlock()
	if h.Fence() < largest && !robbed && h.State() == locco.StateHeld {
		s.failf(h.Key(), "%s holds %s with fence %d, and fence %d has written already (spec 6.1)", h.process.name, h.Token(), h.Fence(), largest)
	}
}

// finally checks what is left.
func (s *simulation) finally() {
	s.mu.Lock()
	all, processes := s.all, s.processes
	s.mu.Unlock()
	lost := map[*tallies]map[locco.Reason]int{}
	for _, h := range all {
		if h.State() == locco.StateHeld {
			s.failf(h.Key(), "%s: %s is held after the end", h.process.name, h.Token())
		}
		if held := h.HeldFor(); h.maxHold > 0 && held > h.maxHold {
			s.failf(h.Key(), "%s: %s was held for %v; want at most %v (spec 4.3)", h.process.name, h.Token(), held, h.maxHold)
		}
		if h.bound != nil && h.bound.Err() == nil {
			s.failf(h.Key(), "%s: a context bound to %s has not ended", h.process.name, h.Token())
		}
		if reason := h.Reason(); reason != "" {
			c := h.process.of(h.Key())
			if lost[c] == nil {
				lost[c] = map[locco.Reason]int{}
			}
			lost[c][reason]++
		}
	}
	for _, p := range processes {
		for key, c := range p.events {
			if c.acquired != c.ended {
				s.failf(key, "%s: %d locks were acquired and %d ended; want one ending each (spec 7.1)", p.name, c.acquired, c.ended)
			}
			for reason, n := range lost[c] {
				if n > c.lost[reason] {
					s.failf(key, "%s: %d locks were lost (%s), %d events say so", p.name, n, reason, c.lost[reason])
				}
			}
		}
	}
	if n := len(s.store.watchers); n > 0 {
		s.failf("", "%d keys are watched after Close; want none", n)
	}
}

// line is an entry of the log that a failure prints.
type line struct {
	at     time.Duration
	key    string
	format string
	args   []any
}

func (s *simulation) logf(key, format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trace = append(s.trace, line{time.Since(s.began), key, format, args})
}

// failf reports the first failure of a run, and what happened to its key.
func (s *simulation) failf(key, format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed {
		return
	}
	s.failed = true
	var text strings.Builder
	fmt.Fprintf(&text, format, args...)
	fmt.Fprintf(&text, "\nat %v; before that:\n", time.Since(s.began))
	lines := slices.DeleteFunc(slices.Clone(s.trace), func(l line) bool { return key != "" && l.key != "" && l.key != key })
	for _, l := range lines[max(0, len(lines)-*simLines):] {
		fmt.Fprintf(&text, "%v %s\n", l.at, fmt.Sprintf(l.format, l.args...))
	}
	s.t.Error(text.String())
}
