package locco_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	locco "github.com/locco-go/locco/core"
)

var (
	simSeeds = flag.Int("sim.seeds", 400, "how many seeds TestSimulation runs")
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
	processes []*process
	keys      []string
	began     time.Time
	until     time.Time // actors begin nothing new after it
	fenced    bool
	robbery   bool // keys are taken by force

	mu       sync.Mutex // guards what follows; taken under the store's, and never held when a locker is called
	active   map[string][]*holding
	all      []*holding
	gone     map[string]bool // tokens that were released or handed over
	robbed   map[string]bool // tokens that were taken by force: nothing is promised to them
	fences   map[string][]int64
	lastOf   map[string]int64 // the fence of a key's last grant
	resource map[string]int64 // the largest fence that has written
	used     map[int64]bool   // fences of locks that were returned
	pending  time.Time        // when the last request that is under way arrives
	handles  []locco.Handle   // detached and not yet attached
	trace    []line
	failed   bool
}

// line is an entry of the log that a failure prints.
type line struct {
	at     time.Duration
	key    string
	format string
	args   []any
}

// holding is a lock that a locker has returned.
type holding struct {
	*locco.Lock
	process *process
	bound   context.Context // ends with the lock; may be nil
	maxHold time.Duration
}

// process is a locker with its clock and network.
type process struct {
	sim         *simulation
	name        string
	link        *link
	clock       *clock // nil: the locker's own
	locker      *locco.Locker
	callTimeout time.Duration

	mu     sync.Mutex // guards what follows
	events map[string]*tallies
}

// tallies counts the events of one key.
type tallies struct {
	acquired, ended, closed int
	lost                    map[locco.Reason]int
}

func newSimulation(t *testing.T, seed uint64) *simulation {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 1))
	s := &simulation{
		t: t, rng: r, store: newStore(), began: time.Now(),
		fenced: r.IntN(4) > 0, robbery: r.IntN(4) == 0,
		active: map[string][]*holding{}, gone: map[string]bool{}, robbed: map[string]bool{},
		fences: map[string][]int64{}, lastOf: map[string]int64{},
		resource: map[string]int64{}, used: map[int64]bool{},
	}
	storm := between(r, 5*time.Second, 45*time.Second)
	s.until = s.began.Add(storm)
	s.store.noLeft = r.IntN(4) == 0
	s.store.onGrant = s.granted
	for i := range 1 + r.IntN(4) {
		s.keys = append(s.keys, fmt.Sprintf("k%d", i))
	}
	immediate := r.IntN(10) == 0
	if immediate {
		s.store.immediate, s.robbery = true, false // of which nobody is told
	}
	plain := !immediate && r.IntN(8) == 0
	if plain {
		s.fenced = false
	}
	for i := range 2 + r.IntN(2) {
		p := &process{sim: s, name: fmt.Sprintf("p%d", i), events: map[string]*tallies{}}
		p.link = &link{
			sim: s, name: p.name, immediate: immediate, transfers: r.IntN(4) > 0, many: r.IntN(3) > 0,
			rng: rand.New(rand.NewPCG(seed, uint64(100+i))), weather: weathers[r.IntN(len(weathers))],
			silences: windows(r, 2, storm, 20*time.Second),
		}
		p.callTimeout = between(r, 50*time.Millisecond, 4*time.Second)
		opts := []locco.Option{locco.WithCallTimeout(p.callTimeout), locco.WithEvents(p.hook)}
		if s.fenced {
			opts = append(opts, locco.WithFencing())
		}
		if r.IntN(2) == 0 {
			opts = append(opts, locco.WithHandoverLimit(r.IntN(4)))
		}
		if r.IntN(3) > 0 {
			p.clock = newClock(r, seed+uint64(i), storm)
			opts = append(opts, locco.WithClock(p.clock.now))
		}
		var backend locco.Backend = p.link
		if plain {
			backend = plainStore{p.link}
		}
		p.locker, _ = locco.New(backend, opts...)
		s.pending = latest(s.pending, p.link.silences)
		if p.clock != nil {
			s.pending = latest(s.pending, p.clock.pauses)
		}
		s.processes = append(s.processes, p)
	}
	return s
}

func newClock(r *rand.Rand, seed uint64, span time.Duration) *clock {
	c := &clock{born: time.Now(), rng: rand.New(rand.NewPCG(seed, 2))}
	switch r.IntN(3) {
	case 0:
		c.ppm = -9900 + r.Int64N(30000) // as slow as the margin of a lease allows, or fast
	case 1:
		c.ppm = -9900
	}
	for range r.IntN(3) {
		c.jumps = append(c.jumps, jump{time.Now().Add(upTo(r, span)), upTo(r, 20*time.Second)})
	}
	if r.IntN(2) == 0 {
		c.pauses = windows(r, 4, span, 15*time.Second)
	}
	return c
}

// run is a storm, and then fair weather, in which everybody must get what they
// want.
func (s *simulation) run() {
	// Else the bubble would end with stacks and no log.
	defer time.AfterFunc(time.Hour, func() { s.failf("", "some goroutines are stuck") }).Stop()
	var actors sync.WaitGroup
	for _, p := range s.processes {
		for range 2 + s.rng.IntN(4) {
			a := &actor{process: p, rng: rand.New(rand.NewPCG(s.rng.Uint64(), 3))}
			actors.Go(a.run)
		}
	}
	if s.rng.IntN(4) == 0 { // one of them ends early
		at, patience := upTo(s.rng, time.Until(s.until)), s.patience()
		actors.Go(func() {
			time.Sleep(at)
			s.close(s.processes[0], patience)
		})
	}
	stop := make(chan struct{})
	actors.Go(func() { s.watch(s.rng.Uint64(), stop) })
	time.Sleep(time.Until(s.until))
	close(stop)
	for _, p := range s.processes {
		p.link.calm()
	}
	actors.Wait()
	s.settle()
	s.fairWeather()
	for _, p := range s.processes {
		s.close(p, s.patience())
		p.link.over.Store(true) // nobody is left to ask for anything
	}
	s.settle()
	time.Sleep(simTTL) // a lock that was handed over without an answer still ends
	s.finally()
}

// patience is how long somebody waits for Close.
func (s *simulation) patience() time.Duration { return upTo(s.rng, 10*time.Second) }

// watch looks at all keys every now and then, and robs some.
func (s *simulation) watch(seed uint64, stop <-chan struct{}) {
	r := rand.New(rand.NewPCG(seed, 4))
	for {
		select {
		case <-stop:
			return
		case <-time.After(upTo(r, 300*time.Millisecond)):
		}
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
	most := time.Duration(len(s.processes)*each*len(s.keys)) * (hold + delay + 100*time.Millisecond)
	for _, p := range s.processes {
		for _, key := range s.keys {
			for range each {
				group.Go(func() {
					err := p.locker.WithLock(context.Background(), key, 10*time.Second,
						func(_ context.Context, lock *locco.Lock) error {
							s.returned(p, lock, nil, 0)
							time.Sleep(hold)
							return nil
						}, locco.RetryForever(), locco.RetryDelay(delay))
					if err != nil && !errors.Is(err, locco.ErrClosed) {
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
func (s *simulation) close(p *process, patience time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	began := time.Now()
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

// finally checks what is left.
func (s *simulation) finally() {
	s.mu.Lock()
	all := s.all
	s.mu.Unlock()
	lost := map[*tallies]map[locco.Reason]int{}
	for _, h := range all {
		if h.State() == locco.StateHeld {
			s.failf(h.Key(), "%s: %s is held after the end", h.process.name, h.Token())
		}
		if held := h.HeldFor(); h.maxHold > 0 && held > h.maxHold {
			s.failf(h.Key(), "%s: %s was held for %v; want at most %v (spec 4.3)", h.process.name, h.Token(), held, h.maxHold)
		}
		if h.bound != nil && h.bound.Err() == nil {
			s.failf(h.Key(), "%s: a context bound to %s has not ended", h.process.name, h.Token())
		}
		if reason := h.Reason(); reason != "" {
			c := h.process.of(h.Key())
			if lost[c] == nil {
				lost[c] = map[locco.Reason]int{}
			}
			lost[c][reason]++
		}
	}
	for _, p := range s.processes {
		for key, c := range p.events {
			if over := c.acquired - c.ended; over < 0 || over > c.closed {
				s.failf(key, "%s: %d locks were acquired and %d ended; want one ending each (spec 7.1)", p.name, c.acquired, c.ended)
			}
			for reason, n := range lost[c] {
				if n > c.lost[reason] {
					s.failf(key, "%s: %d locks were lost (%s), %d events say so", p.name, n, reason, c.lost[reason])
				}
			}
		}
	}
	if n := len(s.store.watchers); n > 0 {
		s.failf("", "%d keys are watched after Close; want none", n)
	}
}

// granted is called by the store at every grant, under its mutex.
func (s *simulation) granted(key, token string) {
	fence := s.store.fence
	s.mu.Lock()
	if s.fenced {
		if fence <= s.lastOf[key] {
			s.t.Errorf("fence %d after %d of %q; want it to grow (spec 6.1)", fence, s.lastOf[key], key)
		}
		s.lastOf[key] = fence
		s.fences[token] = append(s.fences[token], fence)
	}
	s.mu.Unlock()
	s.logf(key, "granted to %s, fence %d", token, fence)
	s.check(key, token)
}

// checkKey compares what holders believe with what the store has.
func (s *simulation) checkKey(key string) {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	row, _ := s.store.live(key)
	s.check(key, row.token)
}

// check is called under the store's mutex: nobody but token may believe to hold
// key, and it not for longer than the store.
func (s *simulation) check(key, token string) {
	s.mu.Lock()
	active := slices.Clone(s.active[key])
	s.mu.Unlock()
	over := map[*holding]bool{}
	for _, h := range active {
		bound := h.bound != nil && h.bound.Err() == nil
		h.process.observe(func() {
			left, state := h.Remaining(), h.State()
			over[h] = state != locco.StateHeld
			switch {
			case s.isRobbed(h.Token()):
			case h.Token() != token && state == locco.StateHeld:
				s.failf(key, "%q has the key, and %s still believes to hold it as %q (spec 5.3)", token, h.process.name, h.Token())
			case h.Token() != token && bound && h.process.steady():
				s.failf(key, "%q has the key, and a context bound to %q of %s has not ended (spec 5.3)", token, h.Token(), h.process.name)
			case h.Token() == token && left > 0:
				stored := time.Until(s.store.rows[key].ends)
				if left = h.process.inStoreTime(left); left > stored {
					s.failf(key, "%s believes that the lease of %q runs for %v; the store has %v (spec 1.4)", h.process.name, token, left, stored)
				}
			}
		})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.active[key] = slices.DeleteFunc(s.active[key], func(h *holding) bool { return over[h] })
}

func (s *simulation) isRobbed(token string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.robbed[token]
}

// freed notes that the store has freed key by its token, which nobody may hold.
func (s *simulation) freed(key, token string) {
	s.mu.Lock()
	s.gone[token] = true
	active := slices.Clone(s.active[key])
	s.mu.Unlock()
	for _, h := range active {
		if h.Token() == token {
			h.process.observe(func() {
				if h.State() == locco.StateHeld {
					s.failf(key, "%s: %s was freed while it was held (spec 4.6)", h.process.name, token)
				}
			})
		}
	}
}

// returned takes in a lock that a locker has returned.
func (s *simulation) returned(p *process, lock *locco.Lock, r *rand.Rand, maxHold time.Duration) *holding {
	key, token, fence := lock.Key(), lock.Token(), lock.Fence()
	h := &holding{Lock: lock, process: p, maxHold: maxHold}
	if r != nil && r.IntN(2) == 0 {
		h.bound = lock.Bind(context.Background())
	}
	s.logf(key, "%s: got %s, fence %d, waited %v, attempts %d", p.name, token, fence, lock.Waited(), lock.Attempts())
	if lock.Waited() == 0 && lock.Attempts() != 1 {
		s.failf(key, "%s: got %s without a wait in %d attempts", p.name, token, lock.Attempts())
	}
	s.mu.Lock()
	gone, known, used := s.gone[token], s.fences[token], s.used[fence]
	s.used[fence] = true
	s.active[key] = append(s.active[key], h)
	s.all = append(s.all, h)
	s.mu.Unlock()
	switch {
	case s.fenced && !slices.Contains(known, fence):
		s.failf(key, "%s: got %s with fence %d; the store drew %v", p.name, token, fence, known)
	case s.fenced && used && lock.Attempts() > 0 && !s.isAttached(token):
		s.failf(key, "%s: fence %d was given to two locks (spec 6.1)", p.name, fence)
	case gone && lock.State() == locco.StateHeld:
		s.failf(key, "%s: got %s, which was given back already (spec 1.7)", p.name, token)
	}
	s.checkKey(key)
	return h
}

// isAttached tells whether several locks had token: it was handed on by Detach.
func (s *simulation) isAttached(token string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, h := range s.all {
		if h.Token() == token {
			n++
		}
	}
	return n > 1
}

// write has the holder write to the resource that key guards.
func (s *simulation) write(h *holding) {
	if !s.fenced || h.State() != locco.StateHeld {
		return
	}
	s.mu.Lock()
	largest, robbed := s.resource[h.Key()], s.robbed[h.Token()]
	if h.Fence() > largest {
		s.resource[h.Key()] = h.Fence()
	}
	s.mu.Unlock()
	if h.Fence() < largest && !robbed && h.State() == locco.StateHeld {
		s.failf(h.Key(), "%s holds %s with fence %d, and fence %d has written already (spec 6.1)", h.process.name, h.Token(), h.Fence(), largest)
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

func (s *simulation) logf(key, format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trace = append(s.trace, line{time.Since(s.began), key, format, args})
}

// failf reports the first failure of a run, and what happened to its key.
func (s *simulation) failf(key, format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed {
		return
	}
	s.failed = true
	var text strings.Builder
	fmt.Fprintf(&text, format, args...)
	fmt.Fprintf(&text, "\nat %v; before that:\n", time.Since(s.began))
	lines := slices.DeleteFunc(slices.Clone(s.trace), func(l line) bool { return key != "" && l.key != "" && l.key != key })
	for _, l := range lines[max(0, len(lines)-*simLines):] {
		fmt.Fprintf(&text, "%v %s\n", l.at, fmt.Sprintf(l.format, l.args...))
	}
	s.t.Error(text.String())
}

// observe looks at the locks of p from outside: what they would say if somebody
// in p asked now.
func (p *process) observe(f func()) {
	if p.clock != nil {
		p.clock.observing.Add(1)
		defer p.clock.observing.Add(-1)
	}
	f()
}

// slack is how much longer anything may take because p stands still at times.
func (p *process) slack() time.Duration {
	if p.clock == nil {
		return 0
	}
	return p.clock.slack()
}

// steady tells whether the timers of p go with its clock. Else the signal of a
// loss may follow a second later.
func (p *process) steady() bool {
	return p.clock == nil || len(p.clock.jumps) == 0 && len(p.clock.pauses) == 0
}

func (p *process) inStoreTime(d time.Duration) time.Duration {
	if p.clock == nil {
		return d
	}
	return p.clock.inStoreTime(d)
}

func (p *process) of(key string) *tallies {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.events[key]
	if c == nil {
		c = &tallies{lost: map[locco.Reason]int{}}
		p.events[key] = c
	}
	return c
}

// hook counts events. It panics at times, which must do no harm (spec 7.1).
func (p *process) hook(ev locco.Event) {
	c := p.of(ev.Key)
	p.mu.Lock()
	switch ev.Kind {
	case locco.EventAcquired:
		c.acquired++
	case locco.EventReleased:
		c.ended++
	case locco.EventLost:
		c.ended++
		c.lost[ev.Reason]++
	case locco.EventAcquireFailed:
		if errors.Is(ev.Err, locco.ErrClosed) {
			c.closed++
		}
	}
	early := c.ended > c.acquired
	p.mu.Unlock()
	p.sim.logf(ev.Key, "%s: event %v: held %v %s%s %v", p.name, ev.Kind, ev.Held, ev.Reason, ev.Outcome, ev.Err)
	if early {
		p.sim.failf(ev.Key, "%s: %v before it was acquired (spec 7.1)", p.name, ev.Kind)
	}
	if ev.Attempts%3 == 2 {
		panic("a hook that fails")
	}
}
