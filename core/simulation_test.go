package locco_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	locco "github.com/locco-go/locco/core"
)

var (
	simSeeds = flag.Int("sim.seeds", 300, "how many seeds TestSimulation runs")
	simFirst = flag.Uint64("sim.first", 1, "the first seed of TestSimulation")
	simLines = flag.Int("sim.lines", 60, "how many lines of its log a seed prints that failed")
)

// TestSimulation runs a few processes against one store over a bad network, with
// clocks that are wrong, and checks what no schedule and no fault may break: a
// key is granted only when every earlier holder of it already reads lost or
// released (spec 1.4, 1.6, 4.6, 5.3); what a holder believes of its lease is
// never more than what the store has (1.3, 1.4); fences grow in the order of the
// grants (6.1); only our own is freed (1.1); nobody is stuck (2.6, 3.1, 3.5);
// every lock ends once (7.1); nothing is left after Close (5.6).
//
// A seed determines what everybody wants to do and what the network does to the
// calls, in the order of the calls. It does not determine the order in which the
// scheduler runs goroutines that are ready at the same moment, so a seed that
// failed may need some runs to fail again:
//
//	go test -run 'TestSimulation/seed=123$' -count=100
//
// The checks do not depend on that order.
func TestSimulation(t *testing.T) {
	t.Parallel()
	for _, seed := range seeds() {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { newSimulation(t, seed).run() })
		})
	}
}

// seeds are those that the flags ask for, and any that -run names.
func seeds() []uint64 {
	n := *simSeeds
	if testing.Short() {
		n = min(n, 50)
	}
	var all []uint64
	for i := range n {
		all = append(all, *simFirst+uint64(i))
	}
	run := flag.Lookup("test.run").Value.String()
	for _, m := range regexp.MustCompile(`seed=(\d+)`).FindAllStringSubmatch(run, -1) {
		if seed, err := strconv.ParseUint(m[1], 10, 64); err == nil && !slices.Contains(all, seed) {
			all = append(all, seed)
		}
	}
	return all
}

// simulation is one run.
type simulation struct {
	t         *testing.T
	rng       *rand.Rand // of the goroutine of the test
	store     *store
	keys      []string
	acts      []func(*actor) error
	ends      []func(*actor, context.Context, *holding)
	began     time.Time
	until     time.Time // actors begin nothing new after it
	fenced    bool
	robbery   bool // keys are taken by force
	immediate bool // there is no network
	plain     bool // the backend has no optional ability

	mu        sync.Mutex // guards what follows; taken under the store's, and never held when a locker is called
	processes []*process
	active    map[string][]*holding
	all       []*holding
	gone      map[string]bool // tokens that were released or handed over
	robbed    map[string]bool // tokens that were taken by force: nothing is promised to them
	fences    map[string][]int64
	lastOf    map[string]int64 // the fence of a key's last grant
	resource  map[string]int64 // the largest fence that has written
	used      map[int64]bool   // fences of locks that were returned
	pending   time.Time        // when the last request that is under way arrives
	handles   []locco.Handle   // detached and not yet attached
	trace     []line
	failed    bool
}

func newSimulation(t *testing.T, seed uint64) *simulation {
	t.Helper()
	r := newRand(seed)
	s := &simulation{
		t: t, rng: r, store: newStore(), began: time.Now(),
		fenced: r.IntN(4) > 0, robbery: r.IntN(4) == 0, immediate: r.IntN(10) == 0, plain: r.IntN(8) == 0,
		active: map[string][]*holding{}, gone: map[string]bool{}, robbed: map[string]bool{},
		fences: map[string][]int64{}, lastOf: map[string]int64{},
		resource: map[string]int64{}, used: map[int64]bool{},
		acts: some(r, acts), ends: some(r, ends),
	}
	s.until = s.began.Add(between(r, 5*time.Second, 45*time.Second))
	s.store.onGrant = s.granted
	s.store.noLeft = r.IntN(4) == 0
	if s.immediate {
		s.store.immediate, s.plain = true, false
		s.robbery = false // a wake-up would be missing, and waiters rely on them
	}
	if s.plain {
		s.fenced = false
	}
	for i := range 1 + r.IntN(4) {
		s.keys = append(s.keys, fmt.Sprintf("k%d", i))
	}
	return s
}

func newRand(seed uint64) *rand.Rand {
	return rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a run is to be repeated
}

// fork returns a source of its own, for another goroutine.
func fork(r *rand.Rand) *rand.Rand { return newRand(r.Uint64()) }

// run is a storm, and then fair weather, in which everybody must get what they
// want.
func (s *simulation) run() {
	// Else the bubble would end with stacks and no log.
	defer time.AfterFunc(time.Hour, func() { s.failf("", "some goroutines are stuck") }).Stop()
	var storm sync.WaitGroup
	for slot := range 2 + s.rng.IntN(2) {
		r := fork(s.rng)
		storm.Go(func() { s.lives(slot, r) })
	}
	r := fork(s.rng)
	storm.Go(func() { s.watch(r) })
	time.Sleep(time.Until(s.until))
	for _, p := range s.running() {
		p.link.calm()
	}
	storm.Wait()
	s.settle()
	s.fairWeather()
	for _, p := range s.running() {
		s.close(p, s.rng)
		p.link.over.Store(true)
	}
	s.settle()
	time.Sleep(simTTL) // a lock that was handed over without an answer still ends
	s.finally()
}

// lives runs processes one after the other, each until it is closed or the storm
// is over.
func (s *simulation) lives(slot int, r *rand.Rand) {
	for life := 0; time.Now().Before(s.until); life++ {
		p := s.newProcess(fmt.Sprintf("p%d.%d", slot, life), r)
		var actors sync.WaitGroup
		for range 2 + r.IntN(4) {
			a := &actor{process: p, rng: fork(r)}
			actors.Go(a.run)
		}
		if left := time.Until(s.until); r.IntN(2) == 0 {
			time.Sleep(upTo(r, left))
			s.close(p, r)
			actors.Wait()
			p.link.over.Store(true) // nobody is left to ask for anything
			p.closed.Store(true)
			continue
		}
		actors.Wait()
	}
}

// running returns the processes that were not closed.
func (s *simulation) running() []*process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.processes), func(p *process) bool { return p.closed.Load() })
}

// watch looks at all keys every now and then, and robs some.
func (s *simulation) watch(r *rand.Rand) {
	for time.Now().Before(s.until) {
		time.Sleep(upTo(r, 300*time.Millisecond))
		for _, key := range s.keys {
			s.checkKey(key)
		}
		if s.robbery && r.IntN(40) == 0 {
			s.rob(s.keys[r.IntN(len(s.keys))])
		}
	}
}

func (s *simulation) rob(key string) {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	row, held := s.store.live(key)
	if !held {
		return
	}
	s.mu.Lock()
	s.robbed[row.token] = true
	s.mu.Unlock()
	s.logf(key, "robbed of %s", row.token)
	delete(s.store.rows, key)
}

// settle waits until all windows are over, every request has arrived and every
// lease has ended.
func (s *simulation) settle() {
	for {
		s.mu.Lock()
		wait := time.Until(s.pending)
		s.mu.Unlock()
		s.store.mu.Lock()
		for _, row := range s.store.rows {
			wait = max(wait, time.Until(row.ends))
		}
		s.store.mu.Unlock()
		if wait < 0 {
			return
		}
		time.Sleep(wait + 1)
	}
}

// fairWeather has everybody wait for everything, without an end. Who is stuck
// because of what happened before is found out here.
func (s *simulation) fairWeather() {
	const (
		each  = 2
		hold  = 20 * time.Millisecond
		delay = 100 * time.Millisecond
	)
	var group sync.WaitGroup
	began := time.Now()
	processes := s.running()
	most := time.Duration(len(processes)*each*len(s.keys)) * (hold + delay + 100*time.Millisecond)
	for _, p := range processes {
		for _, key := range s.keys {
			for range each {
				group.Go(func() {
					err := p.locker.WithLock(context.Background(), key, simTTL,
						func(_ context.Context, lock *locco.Lock) error {
							s.returned(p, lock, nil, 0)
							time.Sleep(hold)
							return nil
						}, locco.RetryForever(), locco.RetryDelay(delay))
					if err != nil {
						s.failf(key, "%s: WithLock = %v in fair weather; want nil", p.name, err)
					}
					if took := time.Since(began); took > most+p.slack() {
						s.failf(key, "%s: WithLock took %v in fair weather; want at most %v (spec 3.4, 3.5)", p.name, took, most)
					}
				})
			}
		}
	}
	group.Wait()
}

// close closes a locker, which then sends nothing any more.
func (s *simulation) close(p *process, r *rand.Rand) {
	patience := upTo(r, 10*time.Second)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	began := time.Now()
	p.closing.Store(true)
	err := p.locker.Close(ctx)
	s.logf("", "%s: Close = %v", p.name, err)
	if took := time.Since(began); took > patience+p.slack() {
		s.failf("", "%s: Close took %v; want no more than %v, the time of its context (spec 5.6)", p.name, took, patience)
	}
	_ = p.locker.Close(context.Background())
	if held := p.locker.Held(); len(held) > 0 {
		s.failf(held[0].Key(), "%s: %d locks are held after Close; want none (spec 5.6)", p.name, len(held))
	}
}

// later runs f, the arrival of something, after d.
func (s *simulation) later(d time.Duration, f func()) {
	if d == 0 {
		f()
		return
	}
	s.mu.Lock()
	if at := time.Now().Add(d); at.After(s.pending) {
		s.pending = at
	}
	s.mu.Unlock()
	time.AfterFunc(d, f)
}
