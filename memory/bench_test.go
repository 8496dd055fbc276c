package memory_test

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/memory"
)

// pair takes and releases l, which nobody else wants.
func pair(b *testing.B, backend *memory.Backend, l locco.Lease) {
	ctx := context.Background() // and no b.Helper: it costs as much as a pair
	if g, err := backend.Acquire(ctx, l); !g.OK {
		b.Fatalf("Acquire = %+v, %v; want a grant", g, err)
	}
	if ok, err := backend.Release(ctx, l.Key, l.Token); !ok {
		b.Fatalf("Release = %v, %v; want true", ok, err)
	}
}

// keysOf returns n distinct keys, made before the clock runs.
func keysOf(prefix string, n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = prefix + strconv.Itoa(i)
	}
	return keys
}

func BenchmarkAcquireRelease(b *testing.B) {
	ctx := context.Background()
	for _, bc := range []struct {
		name   string
		keys   int // taken in turn
		others int // held all the time
		fenced bool
	}{
		{"keys=1", 1, 0, false},
		{"keys=1/fenced", 1, 0, true},
		{"keys=1000", 1000, 0, false},
		{"keys=1000/held=100000", 1000, 100_000, false},
	} {
		b.Run(bc.name, func(b *testing.B) {
			backend := memory.New()
			for _, key := range keysOf("held", bc.others) {
				if g, err := backend.Acquire(ctx, locco.Lease{Key: key, Token: "t", TTL: time.Hour}); !g.OK {
					b.Fatalf("Acquire = %+v, %v; want a grant", g, err)
				}
			}
			keys := keysOf("key", bc.keys)
			for _, key := range keys { // warms the maps
				pair(b, backend, locco.Lease{Key: key, Token: "t", TTL: time.Minute})
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				pair(b, backend, locco.Lease{Key: keys[i], Token: "t", TTL: time.Minute, Fenced: bc.fenced})
				if i++; i == len(keys) {
					i = 0
				}
			}
		})
	}
}

func BenchmarkAcquireReleaseParallel(b *testing.B) {
	backend := memory.New()
	var callers atomic.Int64
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		ctx := context.Background()
		l := locco.Lease{Key: "key" + strconv.FormatInt(callers.Add(1), 10), Token: "t", TTL: time.Minute}
		for pb.Next() {
			if g, err := backend.Acquire(ctx, l); !g.OK {
				b.Errorf("Acquire = %+v, %v; want a grant", g, err)
				return
			}
			if ok, err := backend.Release(ctx, l.Key, l.Token); !ok {
				b.Errorf("Release = %v, %v; want true", ok, err)
				return
			}
		}
	})
}

func BenchmarkHandover(b *testing.B) {
	ctx := context.Background()
	backend := memory.New()
	tokens := [...]string{"t0", "t1"}
	if g, err := backend.Acquire(ctx, locco.Lease{Key: "k", Token: tokens[0], TTL: time.Hour}); !g.OK {
		b.Fatalf("Acquire = %+v, %v; want a grant", g, err)
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		g, err := backend.Transfer(ctx, tokens[i], locco.Lease{Key: "k", Token: tokens[1-i], TTL: time.Hour})
		if !g.OK {
			b.Fatalf("Transfer = %+v, %v; want a grant", g, err)
		}
		i = 1 - i
	}
}

// BenchmarkWake is a release that wakes a watcher, and the next one's grant.
func BenchmarkWake(b *testing.B) {
	ctx := context.Background()
	backend := memory.New()
	l := locco.Lease{Key: "k", Token: "t", TTL: time.Hour}
	wake, stop, err := backend.Watch(ctx, l.Key)
	if err != nil {
		b.Fatalf("Watch failed: %v", err)
	}
	defer stop()
	b.ReportAllocs()
	for b.Loop() {
		pair(b, backend, l)
		<-wake
	}
}

// BenchmarkFillAndEmpty takes as many keys as it says and releases them: the
// cost of a pair in it has that of growing and shrinking the maps in it, which
// stays the same whatever the number.
func BenchmarkFillAndEmpty(b *testing.B) {
	ctx := context.Background()
	for _, n := range []int{1_000, 10_000, 100_000} {
		b.Run("keys="+strconv.Itoa(n), func(b *testing.B) {
			backend := memory.New()
			keys := keysOf("key", n)
			b.ReportAllocs()
			for b.Loop() {
				for _, key := range keys {
					if g, err := backend.Acquire(ctx, locco.Lease{Key: key, Token: "t", TTL: time.Hour}); !g.OK {
						b.Fatalf("Acquire = %+v, %v; want a grant", g, err)
					}
				}
				for _, key := range keys {
					if ok, err := backend.Release(ctx, key, "t"); !ok {
						b.Fatalf("Release = %v, %v; want true", ok, err)
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/pair")
		})
	}
}
