package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// grant is one hold of a key that several workers want, on the clock that they
// share, in nanoseconds.
type grant struct {
	Granted  int64 // when the call that waited returned
	Released int64 // when the call that frees was made
}

// job is what a worker is to do.
type job struct {
	Key  string
	Hold time.Duration
	End  int64 // after this no worker tries again
}

// patience bounds how long after the end of a turn a worker may still wait: all
// that wait get the key once more, one after the other.
const patience = 30 * time.Second

// contend is a worker: it waits for the key, holds it for a moment and frees it,
// over and over.
func contend(ctx context.Context, s *subject, j job, clock func() int64) ([]grant, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(j.End-clock())+patience)
	defer cancel()
	var grants []grant
	for clock() < j.End {
		free, err := s.hold(ctx, j.Key)
		granted := clock()
		if err != nil {
			return nil, err
		}
		if j.Hold > 0 {
			time.Sleep(j.Hold) // the others come to wait
		}
		released := clock()
		if err := free(ctx); err != nil {
			return nil, err
		}
		grants = append(grants, grant{granted, released})
	}
	return grants, nil
}

// handovers returns how many seconds passed from each call that freed the key to
// the return of the next grant. A key has one holder, so the grants of all workers
// form one sequence; two that overlap are an error.
func handovers(workers [][]grant) ([]float64, error) {
	all := slices.Concat(workers...)
	slices.SortFunc(all, func(a, b grant) int { return int(a.Granted - b.Granted) })
	var gaps []float64
	for i := 1; i < len(all); i++ {
		gap := all[i].Granted - all[i-1].Released
		if gap < 0 {
			return nil, fmt.Errorf("two holders at once for %v", time.Duration(-gap))
		}
		gaps = append(gaps, time.Duration(gap).Seconds())
	}
	return gaps, nil
}

// crowdOf is what came of a subject whose workers want one key, in all turns.
type crowdOf struct {
	grants int
	shares []float64 // by worker
	used   usage
}

// fight lets workers of this process, or processes of their own, want one key, and
// returns the times of the hand-overs.
func (r *runner) fight(ctx context.Context, s *subject, workers int, apart bool, hold time.Duration, sum *crowdOf) ([]float64, error) {
	r.turns++
	j := job{Key: r.prefix + "hot:" + strconv.Itoa(r.turns), Hold: hold}
	if s.prepare != nil {
		if err := s.prepare(ctx, j.Key); err != nil {
			return nil, err
		}
	}
	grants := make([][]grant, workers)
	used, err := r.spent(ctx, func() (err error) {
		if apart {
			grants, err = r.spawn(ctx, s.name, workers, j, r.turn())
			return err
		}
		j.End = r.clock() + int64(r.turn())
		return parallel(workers, func(i int) (err error) {
			grants[i], err = contend(ctx, s, j, r.clock)
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	if sum.shares == nil {
		sum.shares = make([]float64, workers)
	}
	for i, g := range grants {
		sum.grants += len(g)
		sum.shares[i] += float64(len(g))
	}
	sum.used = sum.used.with(1, used)
	return handovers(grants)
}

func holds(s *subject) bool { return s.hold != nil }

// handoverCase measures the way of a key from one holder to the next.
func (r *runner) handoverCase(ctx context.Context) (*table, error) {
	const workers = 8
	subjects := r.able(holds)
	if len(subjects) == 0 {
		return &table{}, nil
	}
	base := subjects[0]
	t := &table{
		title: "Hand-over",
		note: fmt.Sprintf("%d waiters want one key, which each holds for 1 ms: from the call that frees it to the return of the next grant.",
			workers),
		head: []string{"subject", "processes", "median", "of " + base.name, "p99", "commands a grant", "Jain index", "grants/s"},
	}
	for _, apart := range []bool{false, true} {
		sums := map[*subject]*crowdOf{}
		for _, s := range subjects {
			sums[s] = &crowdOf{}
		}
		results, err := r.takeTurns(subjects, func(s *subject) ([]float64, error) {
			return r.fight(ctx, s, workers, apart, time.Millisecond, sums[s])
		})
		if err != nil {
			return nil, err
		}
		processes := 1
		if apart {
			processes = workers
		}
		for _, s := range subjects {
			gaps, sum := results[s].all(), sums[s]
			t.add(s.name, strconv.Itoa(processes), micros(median(gaps)), results[s].over(results[base]).String(),
				micros(quantile(gaps, 0.99)),
				number(per(sum.used.sum(s.commands).calls, float64(sum.grants)), "%.2f"),
				number(jain(sum.shares), "%.3f"),
				number(float64(sum.grants)/(r.duration+r.turn()).Seconds(), "%.0f"))
		}
	}
	return t, nil
}

// waitersCase counts what many waiters of one process cost the server.
func (r *runner) waitersCase(ctx context.Context) (*table, error) {
	t := &table{
		title: "Waiters",
		note:  "Many waiters of one process want one key, which each frees at once.",
		head:  []string{"subject", "waiters", "commands a grant", "hand-over, median", "grants/s"},
	}
	for _, s := range r.able(func(s *subject) bool { return s.hold != nil && s.crowds }) {
		for _, workers := range []int{10, 100, 1000} {
			sum := &crowdOf{}
			begin := time.Now()
			gaps, err := r.fight(ctx, s, workers, false, 0, sum)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", s.name, err)
			}
			t.add(s.name, strconv.Itoa(workers),
				number(per(sum.used.sum(s.commands).calls, float64(sum.grants)), "%.2f"),
				micros(median(gaps)),
				number(float64(sum.grants)/time.Since(begin).Seconds(), "%.0f"))
		}
	}
	return t, nil
}
