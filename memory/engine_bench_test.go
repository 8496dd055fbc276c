package memory_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/memory"
)

// newBenchLocker returns a locker with all that costs: fencing, a hook and
// automatic extension.
func newBenchLocker(tb testing.TB, opts ...locco.Option) *locco.Locker {
	tb.Helper()
	opts = append([]locco.Option{
		locco.WithFencing(),
		locco.WithEvents(func(locco.Event) {}),
		locco.WithDefaults(locco.AutoExtend(time.Hour)),
	}, opts...)
	locker, err := locco.New(memory.New(), opts...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := locker.Close(context.Background()); err != nil {
			tb.Error(err)
		}
	})
	return locker
}

func BenchmarkEngineAcquireRelease(b *testing.B) {
	locker := newBenchLocker(b)
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		lock, err := locker.Acquire(ctx, "key", 30*time.Second)
		if err != nil {
			b.Fatal(err)
		}
		if err := lock.Release(ctx); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEngineWithLock(b *testing.B) {
	locker := newBenchLocker(b)
	ctx := context.Background()
	fn := func(context.Context, *locco.Lock) error { return nil }
	b.ReportAllocs()
	for b.Loop() {
		if err := locker.WithLock(ctx, "key", 30*time.Second, fn); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkEngineHandover measures from the release by one goroutine to the
// grant in another that waits.
func BenchmarkEngineHandover(b *testing.B) {
	backend := &countingBackend{Backend: memory.New()}
	locker, err := locco.New(backend, locco.WithFencing(), locco.WithHandoverLimit(1<<30))
	if err != nil {
		b.Fatal(err)
	}
	ctx := context.Background()
	var released atomic.Int64
	var stop atomic.Bool
	var group sync.WaitGroup
	var mu sync.Mutex
	var gaps []time.Duration
	base := time.Now()
	before := backend.calls.Load()
	b.ResetTimer()
	for range 2 {
		group.Go(func() {
			for !stop.Load() {
				lock, err := locker.Acquire(ctx, "key", 30*time.Second, locco.RetryForever())
				if err != nil {
					b.Error(err)
					return
				}
				now := time.Since(base)
				if lock.Waited() > 0 {
					mu.Lock()
					gaps = append(gaps, now-time.Duration(released.Load()))
					if len(gaps) >= b.N {
						stop.Store(true)
					}
					mu.Unlock()
				}
				runtime.Gosched() // let the other one queue
				released.Store(int64(time.Since(base)))
				if err := lock.Release(ctx); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	b.StopTimer()
	slices.Sort(gaps)
	b.ReportMetric(float64(gaps[len(gaps)/2].Nanoseconds()), "median-ns/handover")
	b.ReportMetric(float64(backend.calls.Load()-before)/float64(len(gaps)), "calls/handover")
}

// BenchmarkEngineHeld reports what a held, extended lock with one bound context
// costs at rest.
func BenchmarkEngineHeld(b *testing.B) {
	const locks = 100_000
	for _, bound := range []bool{false, true} {
		b.Run(fmt.Sprintf("bound=%t", bound), func(b *testing.B) {
			for b.Loop() {
				locker := newBenchLocker(b)
				ctx := context.Background()
				keys := make([]string, locks)
				for i := range keys {
					keys[i] = fmt.Sprintf("key-%d", i)
				}
				held := make([]*locco.Lock, locks)
				ctxs := make([]context.Context, locks)
				before, goroutines := heapInUse(), runtime.NumGoroutine()
				for i, key := range keys {
					lock, err := locker.Acquire(ctx, key, time.Minute)
					if err != nil {
						b.Fatal(err)
					}
					held[i] = lock
					if bound {
						ctxs[i] = lock.Bind(ctx)
					}
				}
				b.ReportMetric(float64(heapInUse()-before)/locks, "B/lock")
				b.ReportMetric(float64(runtime.NumGoroutine()-goroutines), "goroutines")
				for _, lock := range held {
					if err := lock.Release(ctx); err != nil {
						b.Fatal(err)
					}
				}
				runtime.KeepAlive(ctxs)
			}
		})
	}
}

func heapInUse() uint64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// BenchmarkEngineWaiters reports the calls of the backend for each grant while
// 10,000 goroutines wait for one key.
func BenchmarkEngineWaiters(b *testing.B) {
	const waiters = 10_000
	for b.Loop() {
		backend := &countingBackend{Backend: memory.New()}
		locker, err := locco.New(backend, locco.WithFencing())
		if err != nil {
			b.Fatal(err)
		}
		ctx := context.Background()
		first, err := locker.Acquire(ctx, "key", time.Minute)
		if err != nil {
			b.Fatal(err)
		}
		var group sync.WaitGroup
		var queued sync.WaitGroup
		queued.Add(waiters)
		for range waiters {
			group.Go(func() {
				queued.Done()
				lock, err := locker.Acquire(ctx, "key", time.Minute, locco.RetryForever())
				if err != nil {
					b.Error(err)
					return
				}
				if err := lock.Release(ctx); err != nil {
					b.Error(err)
				}
			})
		}
		queued.Wait()
		if err := first.Release(ctx); err != nil {
			b.Fatal(err)
		}
		group.Wait()
		b.ReportMetric(float64(backend.calls.Load())/(waiters+1), "calls/grant")
	}
}

// countingBackend counts the calls that reach the backend.
type countingBackend struct {
	*memory.Backend

	calls atomic.Int64
}

func (c *countingBackend) Acquire(ctx context.Context, l locco.Lease) (locco.Grant, error) {
	c.calls.Add(1)
	return c.Backend.Acquire(ctx, l)
}

func (c *countingBackend) Release(ctx context.Context, key, token string) (bool, error) {
	c.calls.Add(1)
	return c.Backend.Release(ctx, key, token)
}

func (c *countingBackend) Transfer(ctx context.Context, from string, to locco.Lease) (locco.Grant, error) {
	c.calls.Add(1)
	return c.Backend.Transfer(ctx, from, to)
}
