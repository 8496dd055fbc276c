package memory_test

import (
	"sync/atomic"
	"testing"
	"time"

	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/memory"
)

const ttl = 10 * time.Second

// handClock is a clock that only the test moves.
type handClock struct{ now atomic.Int64 }

func (c *handClock) read() time.Duration     { return time.Duration(c.now.Load()) }
func (c *handClock) advance(d time.Duration) { c.now.Add(int64(d)) }

// newBackend returns a Backend on a clock that only the test moves.
func newBackend(t *testing.T) (*memory.Backend, *handClock) {
	t.Helper()
	clock := &handClock{}
	b := memory.New(memory.WithClock(clock.read))
	if err := b.Validate(); err != nil {
		t.Fatalf("Validate = %v; want nil", err)
	}
	return b, clock
}

func acquire(t *testing.T, b *memory.Backend, l locco.Lease) locco.Grant {
	t.Helper()
	g, err := b.Acquire(t.Context(), l)
	if err != nil {
		t.Fatalf("Acquire(%q, %q) failed: %v", l.Key, l.Token, err)
	}
	return g
}

func wantAcquire(t *testing.T, b *memory.Backend, l locco.Lease, ok bool) {
	t.Helper()
	if g := acquire(t, b, l); g.OK != ok {
		t.Errorf("Acquire(%q, %q).OK = %v; want %v", l.Key, l.Token, g.OK, ok)
	}
}

func wantExtend(t *testing.T, b *memory.Backend, l locco.Lease, want bool) {
	t.Helper()
	if ok, err := b.Extend(t.Context(), l); ok != want || err != nil {
		t.Errorf("Extend(%q, %q) = %v, %v; want %v, nil", l.Key, l.Token, ok, err, want)
	}
}

func wantRelease(t *testing.T, b *memory.Backend, key, token string, want bool) {
	t.Helper()
	if ok, err := b.Release(t.Context(), key, token); ok != want || err != nil {
		t.Errorf("Release(%q, %q) = %v, %v; want %v, nil", key, token, ok, err, want)
	}
}

func wantHolds(t *testing.T, b *memory.Backend, key, token string, want bool) {
	t.Helper()
	if ok, err := b.Holds(t.Context(), key, token); ok != want || err != nil {
		t.Errorf("Holds(%q, %q) = %v, %v; want %v, nil", key, token, ok, err, want)
	}
}

func wantTransfer(t *testing.T, b *memory.Backend, from string, to locco.Lease, ok bool) locco.Grant {
	t.Helper()
	g, err := b.Transfer(t.Context(), from, to)
	if g.OK != ok || err != nil {
		t.Errorf("Transfer(%q, %q to %q) = %+v, %v; want OK %v, nil", to.Key, from, to.Token, g, err, ok)
	}
	return g
}

// watch is a watcher as a test sees it.
type watch struct {
	name string
	wake <-chan struct{}
	stop func()
}

func startWatch(t *testing.T, b *memory.Backend, key, name string) watch {
	t.Helper()
	wake, stop, err := b.Watch(t.Context(), key)
	if err != nil {
		t.Fatalf("Watch(%q) failed: %v", key, err)
	}
	return watch{name, wake, stop}
}

// woken takes w's wake-up, if it has one.
func (w watch) woken() bool {
	select {
	case <-w.wake:
		return true
	default:
		return false
	}
}

// wantWoken checks that of all watches exactly the named ones have a wake-up,
// and takes it.
func wantWoken(t *testing.T, all []watch, names ...string) {
	t.Helper()
	want := map[string]bool{}
	for _, name := range names {
		want[name] = true
	}
	for _, w := range all {
		if got := w.woken(); got != want[w.name] {
			t.Errorf("watcher %s woken = %v; want %v", w.name, got, want[w.name])
		}
	}
}
