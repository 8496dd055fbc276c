package memory_test

import (
	"context"
	"errors"
	"runtime"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/memory"
)

// spec 1.1: a lease is over at its last instant, by the backend's clock, and is
// nobody's from then on.
func TestExpiry(t *testing.T) {
	t.Parallel()
	mine := locco.Lease{Key: "k", Token: "a", TTL: ttl}
	cases := []struct {
		name string
		at   time.Duration
		live bool
	}{
		{"JustBefore", ttl - 1, true},
		{"AtTheEnd", ttl, false},
		{"After", ttl + time.Hour, false},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			for name, check := range map[string]func(*testing.T, *memory.Backend){
				"Holds":   func(t *testing.T, b *memory.Backend) { t.Helper(); wantHolds(t, b, "k", "a", tc.live) },
				"Extend":  func(t *testing.T, b *memory.Backend) { t.Helper(); wantExtend(t, b, mine, tc.live) },
				"Release": func(t *testing.T, b *memory.Backend) { t.Helper(); wantRelease(t, b, "k", "a", tc.live) },
				"Acquire": func(t *testing.T, b *memory.Backend) {
					t.Helper()
					wantAcquire(t, b, locco.Lease{Key: "k", Token: "b", TTL: ttl}, !tc.live)
				},
				"Transfer": func(t *testing.T, b *memory.Backend) {
					t.Helper()
					wantTransfer(t, b, "a", locco.Lease{Key: "k", Token: "b", TTL: ttl}, tc.live)
				},
			} {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					b, clock := newBackend(t)
					wantAcquire(t, b, mine, true)
					clock.advance(tc.at)
					check(t, b)
				})
			}
		})
	}
}

// spec 8.1: the default clock is the monotonic one, in a bubble the bubble's.
func TestDefaultClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		wantAcquire(t, b, locco.Lease{Key: "k", Token: "a", TTL: ttl}, true)
		time.Sleep(ttl - time.Millisecond)
		wantHolds(t, b, "k", "a", true)
		time.Sleep(time.Millisecond)
		wantHolds(t, b, "k", "a", false)
	})
}

// spec 1.1: only the holder's token extends and releases.
func TestForeignToken(t *testing.T) {
	t.Parallel()
	b, _ := newBackend(t)
	wantAcquire(t, b, locco.Lease{Key: "k", Token: "a", TTL: ttl}, true)
	for _, token := range []string{"b", "", "aa"} {
		wantExtend(t, b, locco.Lease{Key: "k", Token: token, TTL: ttl}, false)
		wantRelease(t, b, "k", token, false)
		wantHolds(t, b, "k", token, false)
		wantTransfer(t, b, token, locco.Lease{Key: "k", Token: "c", TTL: ttl}, false)
	}
	wantHolds(t, b, "k", "a", true)
	wantRelease(t, b, "k", "a", true)
	wantRelease(t, b, "k", "a", false)
}

// spec 1.7: an extension never re-creates, and may shorten the lease.
func TestExtend(t *testing.T) {
	t.Parallel()
	b, clock := newBackend(t)
	l := locco.Lease{Key: "k", Token: "a", TTL: ttl}
	wantExtend(t, b, l, false)
	wantHolds(t, b, "k", "a", false)
	wantAcquire(t, b, l, true)
	clock.advance(ttl / 2)
	wantExtend(t, b, l, true)
	clock.advance(ttl - 1)
	wantHolds(t, b, "k", "a", true)
	wantExtend(t, b, locco.Lease{Key: "k", Token: "a", TTL: time.Second}, true)
	clock.advance(time.Second)
	wantExtend(t, b, l, false)
	wantAcquire(t, b, locco.Lease{Key: "k", Token: "b", TTL: ttl}, true)
}

// Lease.Again: the token's own live lease is a grant, set anew with a new fence;
// without Again it is a refusal like any other.
func TestAgain(t *testing.T) {
	t.Parallel()
	b, clock := newBackend(t)
	l := locco.Lease{Key: "k", Token: "a", TTL: ttl, Fenced: true}
	first := acquire(t, b, l)
	wantAcquire(t, b, l, false)
	clock.advance(ttl - 1)
	l.Again = true
	second := acquire(t, b, l)
	if !second.OK || second.Fence <= first.Fence {
		t.Errorf("Acquire(Again) = %+v; want OK and a fence above %d", second, first.Fence)
	}
	clock.advance(ttl - 1)
	wantHolds(t, b, "k", "a", true)
	wantAcquire(t, b, locco.Lease{Key: "k", Token: "b", TTL: ttl, Again: true}, false)
}

// Grant.Left: how long the present lease runs, on a refusal that asked for it.
func TestLeft(t *testing.T) {
	t.Parallel()
	b, clock := newBackend(t)
	wantAcquire(t, b, locco.Lease{Key: "k", Token: "a", TTL: ttl, WantLeft: true}, true)
	clock.advance(ttl - 1)
	other := locco.Lease{Key: "k", Token: "b", TTL: ttl, WantLeft: true}
	if g := acquire(t, b, other); g != (locco.Grant{Left: 1}) {
		t.Errorf("Acquire = %+v; want a refusal with 1ns left", g)
	}
	if g := wantTransfer(t, b, "c", other, false); g.Left != 1 {
		t.Errorf("Transfer: Left = %v; want 1ns", g.Left)
	}
	other.WantLeft = false
	if g := acquire(t, b, other); g != (locco.Grant{}) {
		t.Errorf("Acquire without WantLeft = %+v; want an empty Grant", g)
	}
}

// spec 3.6: a hand-over replaces token, lease and fence in one step.
func TestTransfer(t *testing.T) {
	t.Parallel()
	b, clock := newBackend(t)
	to := locco.Lease{Key: "k", Token: "b", TTL: ttl, Fenced: true, WantLeft: true}
	if g := wantTransfer(t, b, "a", to, false); g.Left != 0 {
		t.Errorf("Transfer of a free key: Left = %v; want 0", g.Left)
	}
	wantHolds(t, b, "k", "b", false)

	first := acquire(t, b, locco.Lease{Key: "k", Token: "a", TTL: ttl, Fenced: true})
	clock.advance(ttl - 1)
	g := wantTransfer(t, b, "a", to, true)
	if g.Fence <= first.Fence {
		t.Errorf("Transfer: fence = %d; want above %d", g.Fence, first.Fence)
	}
	wantHolds(t, b, "k", "a", false)
	clock.advance(ttl - 1)
	wantHolds(t, b, "k", "b", true)

	wantTransfer(t, b, "a", to, false)
	to.Again = true
	if again := wantTransfer(t, b, "a", to, true); again.Fence <= g.Fence {
		t.Errorf("Transfer(Again): fence = %d; want above %d", again.Fence, g.Fence)
	}
	clock.advance(ttl - 1)
	wantHolds(t, b, "k", "b", true)
}

// spec 2.6: a context that is already over stores nothing.
func TestContextOver(t *testing.T) {
	t.Parallel()
	b, _ := newBackend(t)
	wantAcquire(t, b, locco.Lease{Key: "k", Token: "a", TTL: ttl}, true)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	held, free := locco.Lease{Key: "k", Token: "a", TTL: 1}, locco.Lease{Key: "free", Token: "a", TTL: ttl}
	check := func(method string, err error) {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s = %v; want context.Canceled", method, err)
		}
	}
	_, err := b.Acquire(ctx, free)
	check("Acquire", err)
	_, err = b.Extend(ctx, held)
	check("Extend", err)
	_, err = b.Release(ctx, "k", "a")
	check("Release", err)
	_, err = b.Holds(ctx, "k", "a")
	check("Holds", err)
	_, err = b.Transfer(ctx, "a", locco.Lease{Key: "k", Token: "b", TTL: ttl})
	check("Transfer", err)
	_, _, err = b.AcquireMany(ctx, []locco.Lease{free})
	check("AcquireMany", err)
	check("ExtendMany", b.ExtendMany(ctx, []locco.Lease{held})[0].Err)
	_, _, err = b.Watch(ctx, "k")
	check("Watch", err)
	wantHolds(t, b, "k", "a", true)
	wantHolds(t, b, "free", "a", false)
}

// spec 8.1: Clear forgets every lock, ended ones and those of a set included.
func TestClear(t *testing.T) {
	t.Parallel()
	b, _ := newBackend(t)
	for _, key := range []string{"k1", "k2", "k3"} {
		wantAcquire(t, b, locco.Lease{Key: key, Token: "a", TTL: ttl}, true)
	}
	b.Clear()
	for _, key := range []string{"k1", "k2", "k3"} {
		wantHolds(t, b, key, "a", false)
		wantRelease(t, b, key, "a", false)
		wantAcquire(t, b, locco.Lease{Key: key, Token: "b", TTL: ttl}, true)
	}
}

// style.md: a bad option is an ErrInvalid of Validate, never a panic.
func TestValidate(t *testing.T) {
	t.Parallel()
	clock := func() time.Duration { return 0 }
	cases := []struct {
		name string
		b    *memory.Backend
		ok   bool
	}{
		{"Default", memory.New(), true},
		{"NilOptions", memory.New(nil, nil), true},
		{"Clock", memory.New(memory.WithClock(clock)), true},
		{"NilClock", memory.New(memory.WithClock(nil)), false},
		{"LastClockWins", memory.New(memory.WithClock(nil), memory.WithClock(clock)), true},
		{"LastClockIsNil", memory.New(memory.WithClock(clock), memory.WithClock(nil)), false},
		{"NilBackend", nil, false},
		{"ZeroBackend", new(memory.Backend), false},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			err := tc.b.Validate()
			_, newErr := locco.New(tc.b)
			if tc.ok {
				if err != nil || newErr != nil {
					t.Errorf("Validate = %v, New error = %v; want nil, nil", err, newErr)
				}
				return
			}
			var invalid *locco.ValidationError
			if !errors.As(err, &invalid) || !errors.Is(newErr, locco.ErrInvalid) {
				t.Errorf("Validate = %v, New error = %v; want a *ValidationError from both", err, newErr)
			}
			if !tc.b.Fences() || !tc.b.Immediate() {
				t.Errorf("Fences, Immediate = %v, %v; want true, true", tc.b.Fences(), tc.b.Immediate())
			}
		})
	}
}

// spec 8.1: there is no goroutine, whatever is held and watched. Not parallel
// because it counts the goroutines of the process.
func TestNoGoroutines(t *testing.T) { //nolint:paralleltest // counts the goroutines of the process
	before := runtime.NumGoroutine()
	b := memory.New()
	for i := range 1000 {
		key := strconv.Itoa(i)
		wantAcquire(t, b, locco.Lease{Key: key, Token: "t", TTL: ttl}, true)
		t.Cleanup(startWatch(t, b, key, "w").stop)
	}
	if after := runtime.NumGoroutine(); after > before {
		t.Errorf("%d goroutines with 1000 locks and watches; want %d as before", after, before)
	}
}
