package main

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"time"
)

// runner has what all cases need.
type runner struct {
	store    store
	subjects []*subject
	only     *regexp.Regexp // the subjects to measure, besides the bases
	rounds   int
	duration time.Duration // for each subject of each case, all rounds together
	locks    int           // of the case renewal
	prefix   string        // of all keys, new for each run
	turns    int           // that had a key of their own
	say      func(format string, args ...any)

	// clock is read for what several workers do. It must be the same in all of
	// their processes.
	clock func() int64

	// spawn starts the workers of [contend] as processes of their own.
	spawn func(ctx context.Context, subject string, workers int, j job, turn time.Duration) ([][]grant, error)
}

// cases are what -case can name, in their order.
var cases = []struct {
	name string
	run  func(*runner, context.Context) (*table, error)
}{
	{"latency", (*runner).latencyCase},
	{"throughput", (*runner).throughputCase},
	{"handover", (*runner).handoverCase},
	{"waiters", (*runner).waitersCase},
	{"renewal", (*runner).renewalCase},
}

// run runs the cases that names has, and writes their tables.
func (r *runner) run(ctx context.Context, names []string, w io.Writer) error {
	for _, c := range cases {
		if !slices.Contains(names, c.name) {
			continue
		}
		r.say("%s", c.name)
		t, err := c.run(r, ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		if len(t.rows) > 0 {
			t.write(w)
		}
	}
	return nil
}

// able returns the subjects of a case: those that can do what it needs. The first
// is the base, and is there whatever was asked for.
func (r *runner) able(can func(*subject) bool) []*subject {
	var list []*subject
	for _, s := range r.subjects {
		if can(s) && (len(list) == 0 || r.only.MatchString(s.name)) {
			list = append(list, s)
		}
	}
	return list
}

func (r *runner) turn() time.Duration { return r.duration / time.Duration(r.rounds) }

// takeTurns calls measure for each subject in every round. Each round begins with
// another one, so that none always comes after the same. The first round is for
// warming up: its results are dropped.
func (r *runner) takeTurns(subjects []*subject, measure func(s *subject) ([]float64, error)) (map[*subject]*series, error) {
	results := map[*subject]*series{}
	for _, s := range subjects {
		results[s] = &series{}
	}
	for round := range r.rounds + 1 {
		for i := range subjects {
			s := subjects[(i+round)%len(subjects)]
			values, err := measure(s)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", s.name, err)
			}
			if round > 0 {
				results[s].rounds = append(results[s].rounds, values)
			}
		}
	}
	return results, nil
}

// keys is how many keys one goroutine uses in turn.
const keys = 50

// laps calls cycle with free keys until the time is over, and returns how many
// seconds each call took. Keys are made before, so that they cost nothing.
func (r *runner) laps(ctx context.Context, s *subject, names []string) ([]float64, error) {
	var laps []float64
	begin := time.Now()
	for end := begin.Add(r.turn()); begin.Before(end); {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		// The context of the run is not for the calls: see the traps in docs/benchmarks.md.
		if err := s.cycle(context.Background(), names[len(laps)%len(names)]); err != nil {
			return nil, err
		}
		now := time.Now()
		laps = append(laps, now.Sub(begin).Seconds())
		begin = now
	}
	return laps, nil
}

func (r *runner) keys(what string, n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = r.prefix + what + ":" + strconv.Itoa(i)
	}
	return names
}

// parallel runs n goroutines and returns the first error.
func parallel(n int, f func(i int) error) error {
	var wg sync.WaitGroup
	errs := make(chan error, n)
	for i := range n {
		wg.Go(func() {
			if err := f(i); err != nil {
				errs <- err
			}
		})
	}
	wg.Wait()
	close(errs)
	return <-errs
}

// spent runs f and returns what the server did meanwhile. Reading the counters is
// not counted.
func (r *runner) spent(ctx context.Context, f func() error) (usage, error) {
	first, err := r.store.usage(ctx)
	if err != nil {
		return usage{}, err
	}
	before, err := r.store.usage(ctx)
	if err != nil {
		return usage{}, err
	}
	if err := f(); err != nil {
		return usage{}, err
	}
	after, err := r.store.usage(ctx)
	if err != nil {
		return usage{}, err
	}
	// What lies between the first two readings is what one of them costs.
	return after.with(-1, before).with(-1, before.with(-1, first)), nil
}
