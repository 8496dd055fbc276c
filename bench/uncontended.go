package main

import (
	"context"
	"fmt"
	"runtime"
	"time"
)

func cycles(s *subject) bool { return s.cycle != nil }

// counted is how many cycles the counts are taken from.
const counted = 1000

// latencyCase measures one goroutine that takes and frees keys that nobody else wants.
func (r *runner) latencyCase(ctx context.Context) (*table, error) {
	subjects := r.able(cycles)
	if len(subjects) == 0 {
		return &table{}, nil
	}
	names := r.keys("latency", keys)
	results, err := r.takeTurns(subjects, func(s *subject) ([]float64, error) { return r.laps(ctx, s, names) })
	if err != nil {
		return nil, err
	}
	base := subjects[0]
	t := &table{
		title: "Latency",
		note:  "A cycle takes a free key and frees it; one goroutine.",
		head: []string{
			"subject", "median", "of " + base.name, "p99", "allocs", "bytes", "commands", "round trips", "in server",
		},
	}
	for _, s := range subjects {
		var before, after runtime.MemStats
		used, err := r.spent(ctx, func() error {
			runtime.ReadMemStats(&before)
			for i := range counted {
				if err := s.cycle(context.Background(), names[i%keys]); err != nil {
					return fmt.Errorf("%s: %w", s.name, err)
				}
			}
			runtime.ReadMemStats(&after)
			return nil
		})
		if err != nil {
			return nil, err
		}
		laps := results[s].all()
		t.add(s.name, micros(median(laps)), results[s].over(results[base]).String(), micros(quantile(laps, 0.99)),
			number(per(after.Mallocs-before.Mallocs, counted), "%.1f"),
			number(per(after.TotalAlloc-before.TotalAlloc, counted), "%.0f"),
			number(per(used.sum(s.commands).calls, counted), "%.2f"),
			number(per(used.reads, counted), "%.2f"),
			micros(used.sum(s.commands).took.Seconds()/counted))
	}
	return t, nil
}

// crowd is how many goroutines take keys at the same time, each its own.
const crowd = 64

// throughputCase measures many goroutines, each with keys of its own.
func (r *runner) throughputCase(ctx context.Context) (*table, error) {
	subjects := r.able(cycles)
	if len(subjects) == 0 {
		return &table{}, nil
	}
	names := r.keys("throughput", crowd)
	done, busy := map[*subject]int64{}, map[*subject]time.Duration{}
	results, err := r.takeTurns(subjects, func(s *subject) ([]float64, error) {
		n := make([]int, crowd)
		begin, used := time.Now(), processTime()
		if err := parallel(crowd, func(i int) error {
			laps, err := r.laps(ctx, s, names[i:i+1])
			n[i] = len(laps)
			return err
		}); err != nil {
			return nil, err
		}
		took := time.Since(begin).Seconds()
		busy[s] += processTime() - used
		sum := 0
		for _, n := range n {
			sum += n
		}
		done[s] += int64(sum)
		return []float64{float64(sum) / took}, nil
	})
	if err != nil {
		return nil, err
	}
	base := subjects[0]
	t := &table{
		title: "Throughput",
		note:  fmt.Sprintf("%d goroutines, each with a key of its own.", crowd),
		head:  []string{"subject", "cycles/s", "of " + base.name, "client CPU a cycle"},
	}
	for _, s := range subjects {
		t.add(s.name, number(median(results[s].all()), "%.0f"), results[s].over(results[base]).String(), micros(busy[s].Seconds()/float64(done[s])))
	}
	return t, nil
}
