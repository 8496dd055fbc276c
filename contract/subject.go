package contract

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"slices"
	"testing"
	"time"

	locco "github.com/locco-go/locco/core"
)

// long is a lease that does not end while a case runs.
const long = time.Minute

// subject is what one case works with: a fresh backend, another client of its
// store, keys that nobody else uses, and the measures of time.
type subject struct {
	*client // the backend under test
	peer    *client
	h       Harness
	unique  string
	made    int // keys so far
}

func newSubject(t *testing.T, h Harness) *subject {
	t.Helper()
	b := h.New(t)
	if b == nil {
		t.Fatal("contract: Harness.New returned nil; want a backend")
	}
	p := h.Peer(t, b)
	if p == nil {
		t.Fatal("contract: Harness.Peer returned nil; want a backend")
	}
	m := measures(h)
	return &subject{
		client: &client{t: t, b: b, measure: m},
		peer:   &client{t: t, b: p, measure: m},
		h:      h,
		unique: "contract:" + newToken()[:12],
	}
}

// key returns a key that no other case and no other run has.
func (s *subject) key() string {
	s.made++
	return fmt.Sprintf("%s:%d", s.unique, s.made)
}

// keys returns n distinct keys, sorted by their bytes, that can be taken in one
// step.
func (s *subject) keys(n int) []string {
	s.t.Helper()
	s.made++
	keys := sorted(s.h.Keys(fmt.Sprintf("%s:%d", s.unique, s.made), n))
	if len(slices.Compact(slices.Clone(keys))) != n {
		s.t.Fatalf("contract: Harness.Keys(unique, %d) = %q; want %d distinct keys", n, keys, n)
	}
	return keys
}

func sorted(keys []string) []string {
	slices.Sort(keys)
	return keys
}

// newToken returns a token as spec 1.2 wants it.
func newToken() string {
	var b [16]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// newLease returns a lease with a token of its own.
func newLease(key string, ttl time.Duration) locco.Lease {
	return locco.Lease{Key: key, Token: newToken(), TTL: ttl}
}

// measure holds the measures of time, which differ between a bubble and a real
// server.
type measure struct {
	unit     time.Duration // leases that are waited for are multiples of it
	step     time.Duration // between two looks at something that is waited for
	early    time.Duration // how much too early a lease may seem to end
	late     time.Duration // and how much too late
	patience time.Duration // for what should happen soon
	exact    bool
}

func measures(h Harness) measure {
	if h.exact {
		return measure{
			unit: h.Unit, step: time.Millisecond, patience: 5 * time.Second, exact: true,
			late: time.Millisecond, // a lease may include its last millisecond
		}
	}
	return measure{
		unit: h.Unit, step: max(h.Unit/10, time.Millisecond), patience: 10 * time.Second,
		early: 2 * time.Millisecond, // servers count in whole milliseconds
		late:  h.Unit,
	}
}

// wait is the only place where the suite lets time pass.
func (m measure) wait(d time.Duration) { time.Sleep(d) }

// eventually looks at cond until it is true or patience ends.
func (m measure) eventually(cond func() bool) bool {
	for deadline := time.Now().Add(m.patience); ; m.wait(m.step) {
		if cond() {
			return true
		}
		if time.Now().After(deadline) {
			return false
		}
	}
}

// mayHaveEnded tells whether the machine was so slow that the lease of h, which
// should still run, may have ended.
func (m measure) mayHaveEnded(h hold) bool {
	return time.Since(h.sent) >= h.TTL-m.early
}

// span is when a call was sent and when its answer was in.
type span struct{ sent, answered time.Time }

// timed runs call and tells when.
func timed(call func()) span {
	sent := time.Now()
	call()
	return span{sent, time.Now()}
}
