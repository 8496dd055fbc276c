package memory_test

import (
	"runtime"
	"strconv"
	"testing"
	"time"

	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/memory"
)

// heap returns how many bytes are reachable now.
func heap() int64 {
	runtime.GC()
	runtime.GC() // the first finishes a sweep that was under way
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc) //nolint:gosec // far below 2^63
}

// spec 8.1: a million keys taken and released, or many left to run out, or
// cleared, leave nothing behind. Not parallel because it measures the heap of
// the process.
func TestMillionKeys(t *testing.T) { //nolint:paralleltest // measures the heap of the process
	const after = 1 << 20 // bytes; full, the backend has many times that
	ctx := t.Context()
	now := time.Duration(0)
	take := func(b *memory.Backend, i int, ttl time.Duration) {
		g, err := b.Acquire(ctx, locco.Lease{Key: "key:" + strconv.Itoa(i), Token: "t", TTL: ttl})
		if !g.OK || err != nil {
			t.Fatalf("Acquire(%d) = %+v, %v; want a grant", i, g, err)
		}
	}
	for _, tc := range []struct {
		name  string
		n     int
		empty func(b *memory.Backend, n int)
	}{
		{"Released", 1_000_000, func(b *memory.Backend, n int) {
			for i := range n {
				if ok, err := b.Release(ctx, "key:"+strconv.Itoa(i), "t"); !ok {
					t.Fatalf("Release(%d) = %v, %v; want true", i, ok, err)
				}
			}
		}},
		{"RunOut", 200_000, func(b *memory.Backend, n int) {
			now += time.Hour
			for i := range 2 * n { // work on a hundred keys
				take(b, n+i%100, 1)
				now++
			}
		}},
		{"Cleared", 200_000, func(b *memory.Backend, _ int) { b.Clear() }},
	} {
		t.Run(tc.name, func(t *testing.T) { //nolint:paralleltest // as its parent
			n := tc.n
			if testing.Short() {
				n /= 10
			}
			b := memory.New(memory.WithClock(func() time.Duration { return now }))
			before := heap()
			for i := range n {
				take(b, i, time.Hour)
			}
			full := heap() - before
			tc.empty(b, n)
			left := heap() - before
			t.Logf("%d bytes a lease held; %d kB left of %d kB", full/int64(n), left>>10, full>>10)
			if left > after {
				t.Errorf("%d bytes left after %d keys; want at most %d", left, n, after)
			}
			if most := int64(300); full > most*int64(n) {
				t.Errorf("%d bytes for %d leases; want at most %d each", full, n, most)
			}
			runtime.KeepAlive(b)
		})
	}
}
