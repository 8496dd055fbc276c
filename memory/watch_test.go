package memory_test

import (
	"strconv"
	"sync"
	"testing"
	"time"

	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/memory"
)

// held returns a backend on which "holder" holds "k", and watchers w0, w1, …
// of it in this order.
func held(t *testing.T, watchers int) (*memory.Backend, *handClock, []watch) {
	t.Helper()
	b, clock := newBackend(t)
	wantAcquire(t, b, locco.Lease{Key: "k", Token: "holder", TTL: ttl}, true)
	ws := make([]watch, watchers)
	for i := range ws {
		ws[i] = startWatch(t, b, "k", "w"+string(rune('0'+i)))
	}
	return b, clock, ws
}

// spec 8.1: watchers are woken one at a time, in the order of arrival.
func TestWatchOrder(t *testing.T) {
	t.Parallel()
	b, _, ws := held(t, 4)
	wantWoken(t, ws)
	holder := "holder"
	for i, w := range ws {
		wantRelease(t, b, "k", holder, true)
		wantWoken(t, ws[i:], w.name)
		holder = w.name
		wantAcquire(t, b, locco.Lease{Key: "k", Token: holder, TTL: ttl}, true)
		w.stop()
		wantWoken(t, ws) // the key is held: nobody is to look
	}
	wantRelease(t, b, "k", holder, true)
	wantWoken(t, ws)
}

// spec 8.1: a watcher in the middle or at the end may leave, and others come.
func TestWatchOrderAfterLeaving(t *testing.T) {
	t.Parallel()
	b, _, ws := held(t, 4)
	ws[1].stop()
	ws[3].stop()
	ws[1].stop() // more than once is fine
	ws = append(ws, startWatch(t, b, "k", "w4"))
	wantWoken(t, ws)
	wantRelease(t, b, "k", "holder", true)
	for i, next := range []int{0, 2, 4} {
		wantWoken(t, ws, ws[next].name)
		ws[next].stop()
		if i == 2 {
			wantWoken(t, ws)
		}
	}
}

// Watcher: what wakes the first watcher of a key, and what wakes nobody.
func TestWhatWakes(t *testing.T) {
	t.Parallel()
	other := locco.Lease{Key: "k", Token: "other", TTL: ttl, WantLeft: true}
	holder := locco.Lease{Key: "k", Token: "holder", TTL: ttl}
	cases := []struct {
		name  string
		do    func(t *testing.T, b *memory.Backend, clock *handClock)
		wakes bool
	}{
		{"Release", func(t *testing.T, b *memory.Backend, _ *handClock) {
			wantRelease(t, b, "k", "holder", true)
		}, true},
		{"Clear", func(_ *testing.T, b *memory.Backend, _ *handClock) { b.Clear() }, true},
		{"EndFoundByRelease", func(t *testing.T, b *memory.Backend, clock *handClock) {
			clock.advance(ttl)
			wantRelease(t, b, "k", "holder", false)
		}, true},
		{"EndFoundByExtend", func(t *testing.T, b *memory.Backend, clock *handClock) {
			clock.advance(ttl)
			wantExtend(t, b, holder, false)
		}, true},
		{"EndFoundBySweep", func(t *testing.T, b *memory.Backend, clock *handClock) {
			clock.advance(ttl)
			for i := range 1000 { // some of these keys are in k's shard
				wantHolds(t, b, "k"+strconv.Itoa(i), "holder", false)
			}
		}, true},
		{"ShorterThanTold", func(t *testing.T, b *memory.Backend, _ *handClock) {
			wantAcquire(t, b, other, false) // tells: 10 s
			wantExtend(t, b, locco.Lease{Key: "k", Token: "holder", TTL: time.Second}, true)
		}, true},
		{"HandedOverForLessThanTold", func(t *testing.T, b *memory.Backend, _ *handClock) {
			wantAcquire(t, b, other, false)
			wantTransfer(t, b, "holder", locco.Lease{Key: "k", Token: "b", TTL: time.Second}, true)
		}, true},

		{"Refusal", func(t *testing.T, b *memory.Backend, _ *handClock) { wantAcquire(t, b, other, false) }, false},
		{"ForeignRelease", func(t *testing.T, b *memory.Backend, _ *handClock) {
			wantRelease(t, b, "k", "other", false)
		}, false},
		{"OtherKey", func(t *testing.T, b *memory.Backend, _ *handClock) {
			wantAcquire(t, b, locco.Lease{Key: "k2", Token: "a", TTL: ttl}, true)
			wantRelease(t, b, "k2", "a", true)
		}, false},
		{"Extend", func(t *testing.T, b *memory.Backend, _ *handClock) {
			wantAcquire(t, b, other, false)
			wantExtend(t, b, holder, true)
		}, false},
		{"ShorterButNotTold", func(t *testing.T, b *memory.Backend, _ *handClock) {
			wantExtend(t, b, locco.Lease{Key: "k", Token: "holder", TTL: time.Second}, true)
		}, false},
		{"HandOver", func(t *testing.T, b *memory.Backend, _ *handClock) {
			wantAcquire(t, b, other, false)
			wantTransfer(t, b, "holder", locco.Lease{Key: "k", Token: "b", TTL: ttl}, true)
		}, false},
		{"TakenOverAtTheEnd", func(t *testing.T, b *memory.Backend, clock *handClock) {
			wantAcquire(t, b, other, false)
			clock.advance(ttl)
			wantAcquire(t, b, other, true)
		}, false},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			b, clock, ws := held(t, 2)
			tc.do(t, b, clock)
			if tc.wakes {
				wantWoken(t, ws, "w0")
			} else {
				wantWoken(t, ws)
			}
		})
	}
}

// Watcher: each is woken once before one is woken twice, so that one who stays,
// as a locker does for all its waiters, does not keep the wake-ups from others.
func TestWatchersTakeTurns(t *testing.T) {
	t.Parallel()
	b, _, ws := held(t, 3)
	holder := "holder"
	for i := range 7 {
		wantRelease(t, b, "k", holder, true)
		holder = "holder" + strconv.Itoa(i)
		wantAcquire(t, b, locco.Lease{Key: "k", Token: holder, TTL: ttl}, true)
		wantWoken(t, ws, ws[i%3].name)
	}
	wantRelease(t, b, "k", holder, true) // wakes w1
	ws[2].stop()                         // not up to it to look
	wantWoken(t, ws, "w1")
	ws[1].stop()
	wantWoken(t, ws, "w0")
}

// Watcher, spec 3.5: a watcher that leaves never takes a wake-up with it.
func TestStopPassesTheWakeUpOn(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name string
		do   func(t *testing.T, b *memory.Backend, clock *handClock, first watch)
		next bool
	}{
		{"Unreceived", func(t *testing.T, b *memory.Backend, _ *handClock, _ watch) {
			wantRelease(t, b, "k", "holder", true)
		}, true},
		{"Received", func(t *testing.T, b *memory.Backend, _ *handClock, first watch) {
			wantRelease(t, b, "k", "holder", true)
			wantWoken(t, []watch{first}, "w0")
		}, true},
		{"LeaseEndedUnnoticed", func(t *testing.T, b *memory.Backend, clock *handClock, _ watch) {
			for i := range 1000 { // more for the sweep to look at than stop does
				wantAcquire(t, b, locco.Lease{Key: "k" + strconv.Itoa(i), Token: "t", TTL: 2 * ttl}, true)
			}
			clock.advance(ttl)
		}, true},
		{"ShorterThanTold", func(t *testing.T, b *memory.Backend, _ *handClock, _ watch) {
			wantAcquire(t, b, locco.Lease{Key: "k", Token: "w1", TTL: ttl, WantLeft: true}, false)
			wantExtend(t, b, locco.Lease{Key: "k", Token: "holder", TTL: time.Second}, true)
		}, true},
		{"Taken", func(t *testing.T, b *memory.Backend, _ *handClock, _ watch) {
			wantRelease(t, b, "k", "holder", true)
			wantAcquire(t, b, locco.Lease{Key: "k", Token: "w0", TTL: ttl}, true)
		}, false},
		{"Held", func(*testing.T, *memory.Backend, *handClock, watch) {}, false},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			b, clock, ws := held(t, 3)
			tc.do(t, b, clock, ws[0])
			wantWoken(t, ws[1:])
			ws[0].stop()
			if tc.next {
				wantWoken(t, ws[1:], "w1")
			} else {
				wantWoken(t, ws[1:])
			}
			ws[2].stop() // not the first: nothing to pass on
			wantWoken(t, ws[1:])
		})
	}
}

// Watcher: Watch itself wakes nobody; its caller looks once more.
func TestWatchOfAFreeKey(t *testing.T) {
	t.Parallel()
	b, _ := newBackend(t)
	w := startWatch(t, b, "k", "w")
	wantWoken(t, []watch{w})
	w.stop()
	w.stop()
	wantAcquire(t, b, locco.Lease{Key: "k", Token: "a", TTL: ttl}, true)
	wantRelease(t, b, "k", "a", true)
	wantWoken(t, []watch{w}) // stopped
}

// Watcher: watches may start and stop while the key changes hands, and nobody
// who stays is forgotten.
func TestWatchConcurrentSafe(t *testing.T) {
	t.Parallel()
	b := memory.New()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 300 {
				_, stop, err := b.Watch(t.Context(), "k")
				if err != nil {
					t.Errorf("Watch failed: %v", err)
					return
				}
				ok, err := b.Acquire(t.Context(), locco.Lease{Key: "k", Token: "t", TTL: time.Hour, Again: true})
				if err != nil || !ok.OK {
					t.Errorf("Acquire = %+v, %v; want a grant", ok, err)
				}
				wg.Go(stop)
				if _, err := b.Release(t.Context(), "k", "t"); err != nil {
					t.Errorf("Release failed: %v", err)
				}
				stop()
			}
		})
	}
	wg.Wait()
	w := startWatch(t, b, "k", "w")
	wantAcquire(t, b, locco.Lease{Key: "k", Token: "a", TTL: ttl}, true)
	wantRelease(t, b, "k", "a", true)
	wantWoken(t, []watch{w}, "w")
	w.stop()
}
