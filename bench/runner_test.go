package main

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// fakeStore is a server that counts what its subjects tell it.
type fakeStore struct {
	list []*subject

	mu   sync.Mutex // guards what follows
	used usage
}

func (f *fakeStore) version(context.Context) (string, error) { return "Fake 1", nil }
func (f *fakeStore) subjects() []*subject                    { return f.list }
func (f *fakeStore) close()                                  {}

func (f *fakeStore) usage(context.Context) (usage, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.used = f.used.with(1, usage{map[string]command{"info": {1, time.Microsecond}}, 1, time.Millisecond})
	return f.used, nil
}

func (f *fakeStore) ran(name string, calls, reads int64, took time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.used = f.used.with(1, usage{map[string]command{name: {calls, took}}, reads, took})
}

// sleeper is a subject whose cycle takes d, in the time of a bubble.
func (f *fakeStore) sleeper(name string, d time.Duration) *subject {
	return &subject{
		name: name, commands: []string{name},
		cycle: func(context.Context, string) error {
			time.Sleep(d)
			f.ran(name, 3, 2, 10*time.Microsecond)
			return nil
		},
	}
}

func newRunner(f *fakeStore) *runner {
	return &runner{
		locks: fakeLocks,
		store: f, subjects: f.list, only: regexp.MustCompile(""), rounds: 4, duration: 400 * time.Millisecond,
		prefix: "test:", say: func(string, ...any) {},
		clock: func() int64 { return time.Now().UnixNano() },
	}
}

// row returns the cells of a subject.
func row(t *testing.T, tab *table, name string) map[string]string {
	t.Helper()
	for _, r := range tab.rows {
		if r[0] == name {
			cells := map[string]string{}
			for i, head := range tab.head {
				cells[head] = r[i]
			}
			return cells
		}
	}
	t.Fatalf("no row %q in %v", name, tab.rows)
	return nil
}

func want(t *testing.T, cells, wanted map[string]string) {
	t.Helper()
	for head, cell := range wanted {
		if got, ok := cells[head]; !ok || got != cell {
			t.Errorf("%s of %s = %q; want %q", head, cells["subject"], got, cell)
		}
	}
}

func TestLatency(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fakeStore{}
		f.list = []*subject{{name: "no cycles"}, f.sleeper("raw", time.Millisecond), f.sleeper("slow", 1500*time.Microsecond)}
		tab, err := newRunner(f).latencyCase(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(tab.rows) != 2 {
			t.Errorf("rows = %v; want those of raw and slow", tab.rows)
		}
		want(t, row(t, tab, "slow"), map[string]string{
			"median": "1500.0 µs", "of raw": "1.50 (1.50–1.50)", "p99": "1500.0 µs",
			"commands": "3.00", "round trips": "2.00", "in server": "10.0 µs",
		})
	})
}

func TestThroughput(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fakeStore{}
		f.list = []*subject{f.sleeper("raw", time.Millisecond), f.sleeper("slow", 2*time.Millisecond)}
		tab, err := newRunner(f).throughputCase(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		want(t, row(t, tab, "raw"), map[string]string{"cycles/s": "64000"})
		want(t, row(t, tab, "slow"), map[string]string{"cycles/s": "32000", "of raw": "0.50 (0.50–0.50)"})
	})
}

// TestTakeTurns holds that no subject always comes after the same one, that the
// first round does not count, and that the base is there whatever was asked for.
func TestTakeTurns(t *testing.T) {
	t.Parallel()
	f := &fakeStore{}
	f.list = []*subject{{name: "a"}, {name: "b"}, {name: "c"}}
	r := newRunner(f)
	r.rounds = 2
	var order []string
	results, err := r.takeTurns(f.list, func(s *subject) ([]float64, error) {
		order = append(order, s.name)
		return []float64{float64(len(order))}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(order, ""), "abcbcacab"; got != want {
		t.Errorf("order = %s; want %s", got, want)
	}
	if got, want := results[f.list[0]].all(), []float64{6, 8}; !slices.Equal(got, want) {
		t.Errorf("values of a = %v; want %v", got, want)
	}
	broken := errors.New("broken")
	if _, err := r.takeTurns(f.list, func(*subject) ([]float64, error) { return nil, broken }); !errors.Is(err, broken) {
		t.Errorf("error = %v; want %v", err, broken)
	}
	r.only = regexp.MustCompile("^c$")
	if got := r.able(func(*subject) bool { return true }); len(got) != 2 || got[0].name != "a" || got[1].name != "c" {
		t.Errorf("able = %v; want a, the base, and c", got)
	}
}

// chain is a subject whose key goes from hand to hand in the time way.
func (f *fakeStore) chain(name string, way time.Duration) *subject {
	key := make(chan struct{}, 1)
	return &subject{
		name: name, commands: []string{name}, crowds: true,
		prepare: func(context.Context, string) error {
			select {
			case key <- struct{}{}:
			default:
			}
			return nil
		},
		hold: func(ctx context.Context, _ string) (func(context.Context) error, error) {
			select {
			case <-key:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			f.ran(name, 2, 0, 0)
			return func(context.Context) error { time.Sleep(way); key <- struct{}{}; return nil }, nil
		},
	}
}

func TestHandover(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fakeStore{}
		f.list = []*subject{f.chain("raw", time.Millisecond), f.chain("slow", 3*time.Millisecond)}
		r := newRunner(f)
		spawned := 0
		r.spawn = func(ctx context.Context, name string, workers int, j job, turn time.Duration) ([][]grant, error) {
			spawned++
			s, err := named(f.list, name)
			if err != nil {
				return nil, err
			}
			j.End = r.clock() + int64(turn)
			grants := make([][]grant, workers)
			return grants, parallel(workers, func(i int) (err error) {
				grants[i], err = contend(ctx, s, j, r.clock)
				return err
			})
		}
		tab, err := r.handoverCase(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if want := 2 * (r.rounds + 1); spawned != want {
			t.Errorf("processes were asked for in %d turns; want %d", spawned, want)
		}
		for _, cells := range tab.rows {
			if cells[0] == "slow" && (cells[2] != "3000.0 µs" || cells[3] != "3.00 (3.00–3.00)" || cells[5] != "2.00") {
				t.Errorf("row of slow = %q; want 3000.0 µs, 3.00 of raw, 2.00 commands", cells)
			}
		}
	})
}

func TestHandovers(t *testing.T) {
	t.Parallel()
	ms := int64(time.Millisecond)
	gaps, err := handovers([][]grant{{{0, 5 * ms}, {9 * ms, 10 * ms}}, {{7 * ms, 8 * ms}}})
	if want := []float64{0.002, 0.001}; err != nil || !slices.Equal(gaps, want) {
		t.Errorf("handovers = %v, %v; want %v", gaps, err, want)
	}
	if _, err := handovers([][]grant{{{0, 5 * ms}}, {{4 * ms, 6 * ms}}}); err == nil {
		t.Error("handovers of two holders at once gave no error")
	}
}

// fakeLocks is how many locks the case renewal keeps.
const fakeLocks = 10_000

func TestRenewal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fakeStore{}
		var renewed atomic.Int64
		ended := false
		f.list = []*subject{{name: "kept", commands: []string{"renew"}, keeper: func() (keeper, error) {
			stop := make(chan struct{})
			go func() {
				time.Sleep(50 * time.Millisecond) // not in the same instant as the readings
				tick := time.NewTicker(100 * time.Millisecond)
				defer tick.Stop()
				for {
					select {
					case <-tick.C:
						renewed.Add(fakeLocks / 20)
						f.ran("renew", fakeLocks/100, 0, 0)
					case <-stop:
						return
					}
				}
			}()
			return keeper{
				keep:    func(context.Context, string, time.Duration) error { return nil },
				renewed: renewed.Load,
				end:     func(context.Context) error { ended = true; close(stop); return nil },
			}, nil
		}}}
		tab, err := newRunner(f).renewalCase(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		want(t, row(t, tab, "kept"), map[string]string{"renewals/s": "5000", "commands a renewal": "0.200"})
		if !ended {
			t.Error("what was kept was not freed")
		}
	})
}

// TestInterrupted holds that the end of the context ends a case, with an error.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fakeStore{}
		f.list = []*subject{f.sleeper("raw", time.Millisecond)}
		ctx, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
		defer cancel()
		if err := newRunner(f).run(ctx, []string{"latency"}, &strings.Builder{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("run = %v; want %v", err, context.DeadlineExceeded)
		}
	})
}
