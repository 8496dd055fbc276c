package locco_test

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	locco "github.com/locco-go/locco/core"
)

// process is a locker with its clock and network.
type process struct {
	sim         *simulation
	name        string
	link        *link
	clock       *clock // nil: the locker's own
	locker      *locco.Locker
	callTimeout time.Duration
	closing     atomic.Bool // Close was called
	closed      atomic.Bool // nobody uses it any more

	mu     sync.Mutex // guards what follows
	events map[string]*tallies
}

// tallies counts the events of one key.
type tallies struct {
	acquired, ended int
	lost            map[locco.Reason]int
}

// newProcess starts a process in the storm.
func (s *simulation) newProcess(name string, r *rand.Rand) *process {
	span := time.Until(s.until)
	p := &process{sim: s, name: name, events: map[string]*tallies{}}
	p.link = &link{
		sim: s, name: name, immediate: s.immediate, transfers: r.IntN(4) > 0, many: r.IntN(3) > 0,
		rng: fork(r), unsure: map[string]bool{}, weather: weathers[r.IntN(len(weathers))], silences: windows(r, 2, span, 20*time.Second),
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
		p.clock = newClock(r, span)
		opts = append(opts, locco.WithClock(p.clock.now))
	}
	var backend locco.Backend = p.link
	if s.plain {
		backend = plainStore{p.link}
	}
	locker, err := locco.New(backend, opts...)
	if err != nil {
		s.failf("", "New: %v", err)
	}
	p.locker = locker
	s.mu.Lock()
	defer s.mu.Unlock()
	s.processes = append(s.processes, p)
	s.pending = latest(s.pending, p.link.silences)
	if p.clock != nil {
		s.pending = latest(s.pending, p.clock.pauses)
	}
	return p
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

// clock is that of a process: it may run slow or fast, jump ahead, and make
// whoever looks at it stand still, as a process does that is not scheduled.
type clock struct {
	born   time.Time
	ppm    int64 // faster than the store's
	jumps  []jump
	pauses []window

	observing atomic.Int32 // somebody looks at the process from outside of it

	mu  sync.Mutex // guards rng
	rng *rand.Rand
}

func newClock(r *rand.Rand, span time.Duration) *clock {
	c := &clock{born: time.Now(), rng: fork(r)}
	switch r.IntN(3) {
	case 0:
		c.ppm = -9900 + r.Int64N(30000)
	case 1:
		c.ppm = -9900 // as slow as the margin of a lease allows
	}
	for range r.IntN(3) {
		c.jumps = append(c.jumps, jump{time.Now().Add(upTo(r, span)), upTo(r, 20*time.Second)})
	}
	if r.IntN(2) == 0 {
		c.pauses = windows(r, 4, span, 15*time.Second)
	}
	return c
}

type jump struct {
	at time.Time
	by time.Duration
}

func (c *clock) read() time.Duration {
	now := time.Now()
	t := now.Sub(c.born)
	t += time.Duration(int64(t) * c.ppm / 1e6)
	for _, j := range c.jumps {
		if !now.Before(j.at) {
			t += j.by
		}
	}
	return t
}

// now is what [locco.WithClock] gets. A process that stands still may have read
// its clock just before.
func (c *clock) now() time.Duration {
	t := c.read()
	pause := in(c.pauses, time.Now())
	if pause == 0 || c.observing.Load() > 0 {
		return t
	}
	c.mu.Lock()
	stale := c.rng.IntN(2) == 0
	c.mu.Unlock()
	time.Sleep(pause)
	if stale {
		return t
	}
	return c.read()
}

// slack is how much longer anything may take because of pauses.
func (c *clock) slack() (sum time.Duration) {
	for _, p := range c.pauses {
		sum += p.to.Sub(p.from)
	}
	return sum
}

// inStoreTime turns a span of this clock into the longest one of the store's
// that it can be.
func (c *clock) inStoreTime(d time.Duration) time.Duration {
	return time.Duration(float64(d) / (1 + float64(c.ppm)/1e6))
}
