package contract

import (
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	locco "github.com/locco-go/locco/core"
)

// Harness tells [Run] how to make the backend under test, and what it does
// without. Only New is required. It is a struct so that a field can be added
// without breaking anybody's tests.
type Harness struct {
	// New returns a working backend. It is called once a case; the backends of
	// a run may share one server. Clean up with t.Cleanup. With Bubble set it
	// is called inside the bubble.
	New func(t *testing.T) locco.Backend

	// Peer returns another client of the store that b, which New made, uses.
	// The default is b itself.
	Peer func(t *testing.T, b locco.Backend) locco.Backend

	// Broken returns a backend whose server is out of reach: its calls must
	// fail, within their deadline. Nil skips the cases of the group Broken.
	Broken func(t *testing.T) locco.Backend

	// BrokenCause is an error that every failure of Broken must match
	// ([errors.Is]), which shows that it is passed on or wrapped with %w. Nil
	// means that it is not checked.
	BrokenCause error

	// Bubble runs a case. A backend that waits for nothing but timers and
	// channels sets it to synctest.Test; time is then exact and costs nothing.
	// The default calls fn directly, in real time.
	Bubble func(t *testing.T, fn func(t *testing.T))

	// Keys returns n distinct keys, each with unique in it, that the backend
	// can take in one atomic step (on a Redis Cluster: keys with a common hash
	// tag). The default appends a number to unique.
	Keys func(unique string, n int) []string

	// InvalidKey tells which keys the backend refuses although they follow
	// spec 1.9. The suite checks that they are refused with
	// [locco.ErrInvalid]. Nil means none.
	InvalidKey func(key string, fenced bool) bool

	// Unit is the grain of real time: the shortest leases are a few units
	// long. Longer units make the run slower and less sensitive to a busy
	// machine. The default is 50 ms.
	Unit time.Duration

	// Immediate declares that the backend is a [locco.Immediate] that answers
	// true. If it is a Watcher too, wake-ups must not get lost.
	Immediate bool

	// The abilities that the backend does without. WithoutLeft says that a
	// refusal never tells how long the present lease still runs.
	WithoutFencing     bool
	WithoutLeft        bool
	WithoutWatcher     bool
	WithoutTransfer    bool
	WithoutManyAcquire bool
	WithoutManyExtend  bool
	WithoutRetryer     bool
	WithoutValidator   bool

	exact bool // Bubble was set: time passes only when the case waits
}

// Run runs every case against the backends of h, each as a parallel subtest.
func Run(t *testing.T, h Harness) {
	t.Helper()
	run(t, h, Cases()...)
}

func run(t *testing.T, h Harness, names ...string) {
	t.Helper()
	if h.New == nil {
		t.Fatal("contract: Harness.New is nil; want a function that returns a backend")
	}
	h = h.withDefaults()
	for _, tc := range cases() {
		if !slices.Contains(names, tc.name) {
			continue
		}
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if missing := tc.needs & h.lacks(); missing != 0 {
				t.Skipf("needs what the harness declares missing: %v", missing)
			}
			h.Bubble(t, func(t *testing.T) {
				t.Helper()
				defer func() { // a panic fails this case only: the others still have something to say
					if p := recover(); p != nil {
						t.Errorf("panic: %v\n\n%s", p, debug.Stack())
					}
				}()
				tc.fn(t, newSubject(t, h))
			})
		})
	}
}

// Cases returns the names of all cases, in the order in which Run starts them.
func Cases() []string {
	var names []string
	for _, tc := range cases() {
		names = append(names, tc.name)
	}
	return names
}

// testCase is one case of the suite. Its name is Group/Case and never changes
// its meaning: people exclude and select by it.
type testCase struct {
	name  string
	needs ability // skipped when the harness lacks one of these
	fn    func(t *testing.T, s *subject)
}

// ability is a set of things that a backend or a harness may lack.
type ability uint

const (
	fencing ability = 1 << iota
	left
	watcher
	transfer
	manyAcquire
	manyExtend
	retryer
	validator
	immediate
	broken
)

var abilityNames = []string{
	"fencing", "left", "watcher", "transfer", "many-acquire", "many-extend",
	"retryer", "validator", "immediate", "broken",
}

func (a ability) String() string {
	var names []string
	for i, name := range abilityNames {
		if a&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

func (h Harness) lacks() ability {
	var a ability
	for _, f := range []struct {
		missing bool
		what    ability
	}{
		{h.WithoutFencing, fencing},
		{h.WithoutLeft, left},
		{h.WithoutWatcher, watcher},
		{h.WithoutTransfer, transfer},
		{h.WithoutManyAcquire, manyAcquire},
		{h.WithoutManyExtend, manyExtend},
		{h.WithoutRetryer, retryer},
		{h.WithoutValidator, validator},
		{!h.Immediate, immediate},
		{h.Broken == nil, broken},
	} {
		if f.missing {
			a |= f.what
		}
	}
	return a
}

func (h Harness) withDefaults() Harness {
	if h.Peer == nil {
		h.Peer = func(_ *testing.T, b locco.Backend) locco.Backend { return b }
	}
	if h.Keys == nil {
		h.Keys = func(unique string, n int) []string {
			keys := make([]string, n)
			for i := range keys {
				keys[i] = fmt.Sprintf("%s:%d", unique, i)
			}
			return keys
		}
	}
	if h.InvalidKey == nil {
		h.InvalidKey = func(string, bool) bool { return false }
	}
	if h.Unit == 0 {
		h.Unit = 50 * time.Millisecond
	}
	h.exact = h.Bubble != nil
	if !h.exact {
		h.Bubble = func(t *testing.T, fn func(t *testing.T)) { fn(t) }
	}
	return h
}
