package main

import (
	"context"
	"fmt"
	"runtime"
	"time"
)

// keptLease is the lease of the locks of the case renewal, which are renewed after a
// third of it.
const keptLease = 6 * time.Second

// renewalCase measures what many locks cost that are only kept.
func (r *runner) renewalCase(ctx context.Context) (*table, error) {
	t := &table{
		title: "Renewal",
		note: fmt.Sprintf("%d locks with a lease of %v are kept by auto-extension. CPU is in percent of one core.",
			r.locks, keptLease),
		head: []string{
			"subject", "goroutines more", "heap a lock", "renewals/s", "commands a renewal", "server CPU", "client CPU",
		},
	}
	for _, s := range r.able(func(s *subject) bool { return s.keeper != nil }) {
		if err := r.renew(ctx, s, t); err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return t, nil
}

func (r *runner) renew(ctx context.Context, s *subject, t *table) (err error) {
	names := r.keys("kept", r.locks)
	before, goroutines := heap(), runtime.NumGoroutine()
	k, err := s.keeper()
	if err != nil {
		return err
	}
	defer func() {
		// What is kept is freed also after an interruption.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		if e := k.end(ctx); err == nil {
			err = e
		}
	}()
	if err := parallel(crowd, func(i int) error {
		for ; i < len(names); i += crowd {
			if err := k.keep(ctx, names[i], keptLease); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return err
	}
	r.say("%s: %d locks are held", s.name, r.locks)
	if err := pause(ctx, keptLease/3); err != nil { // the first renewals are over
		return err
	}
	// Whole intervals, so that each lock has been renewed equally often.
	const interval = keptLease / 3
	window := interval
	for window+interval <= r.duration {
		window += interval
	}
	begin, busy, renewed := time.Now(), processTime(), k.renewed()
	used, err := r.spent(ctx, func() error { return pause(ctx, window) })
	if err != nil {
		return err
	}
	took := time.Since(begin)
	busy, renewed = processTime()-busy, k.renewed()-renewed
	more := runtime.NumGoroutine() - goroutines
	bytes := float64(heap()-before) / float64(r.locks)
	t.add(s.name, fmt.Sprint(more), number(bytes, "%.0f B"),
		number(float64(renewed)/took.Seconds(), "%.0f"),
		number(per(used.sum(s.commands).calls, float64(renewed)), "%.3f"),
		number(100*used.cpu.Seconds()/took.Seconds(), "%.1f %%"),
		number(100*busy.Seconds()/took.Seconds(), "%.1f %%"))
	return nil
}

// heap returns the bytes in use after a collection.
func heap() int64 {
	runtime.GC()
	runtime.GC() // what finalizers and pools have let go
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
