package locco

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// White-box: no test can suspend the machine, so the two clocks that the
// holder's clock reads are replaced.

// twoClocks are the readings of both clocks since the base.
type twoClocks struct{ mono, wall time.Duration }

// fakeClocks is a machine whose clocks the test moves.
type fakeClocks struct{ at atomic.Pointer[twoClocks] }

func newFakeClocks() (*fakeClocks, *holderClock) {
	f := new(fakeClocks)
	f.at.Store(new(twoClocks))
	return f, &holderClock{read: f.read}
}

func (f *fakeClocks) read() (mono, wall time.Duration) {
	at := f.at.Load()
	return at.mono, at.wall
}

func (f *fakeClocks) move(mono, wall time.Duration) {
	at := f.at.Load()
	f.at.Store(&twoClocks{at.mono + mono, at.wall + wall})
}

// spec 1.5
func TestClockPauses(t *testing.T) {
	t.Parallel()
	type move struct{ mono, wall time.Duration } // by how much each clock moves
	for _, tc := range []struct {
		name  string
		moves []move
		want  []time.Duration // after each move
	}{
		{"Together", []move{{s1, s1}, {s1, s1}}, []time.Duration{s1, 2 * s1}},
		{"Suspended", []move{{s1, s1}, {0, time.Hour}, {s1, s1}}, []time.Duration{s1, time.Hour + s1, time.Hour + 2*s1}},
		{"SuspendedTwice", []move{{s1, time.Minute}, {s1, time.Minute}}, []time.Duration{time.Minute, 2 * time.Minute}},
		{"JumpWhileRunning", []move{{10 * s1, 15 * s1}}, []time.Duration{15 * s1}},
		{"Noise", []move{{s1, s1 + 20*ms - 1}, {s1, s1}}, []time.Duration{s1, 2 * s1}},
		{"NoiseThatComesAndGoes", []move{{s1, s1 + 15*ms}, {s1, s1 - 15*ms}, {s1, s1 + 15*ms}}, []time.Duration{s1, 2 * s1, 3 * s1}},
		{"Smallest", []move{{s1, s1 + 20*ms}}, []time.Duration{s1 + 20*ms}},
		{"ManySmallOnes", []move{{s1, s1 + 15*ms}, {s1, s1 + 15*ms}}, []time.Duration{s1, 2*s1 + 30*ms}},
		{"StepBack", []move{{s1, s1}, {s1, -time.Hour}, {s1, s1}}, []time.Duration{s1, 2 * s1, 3 * s1}},
		{"SmallStepBack", []move{{s1, s1 - 1}, {s1, s1 + 20*ms}}, []time.Duration{s1, 2*s1 + 20*ms}},
		// The clock was set back, and then the machine was suspended.
		{"PauseAfterStepBack", []move{{s1, s1 - time.Hour}, {0, time.Minute}}, []time.Duration{s1, s1 + time.Minute}},
		{"NoiseAfterStepBack", []move{{s1, s1 - time.Hour}, {s1, s1 + 10*ms}}, []time.Duration{s1, 2 * s1}},
		{"StepBackAfterPause", []move{{0, time.Hour}, {s1, s1 - time.Hour}, {s1, s1}}, []time.Duration{time.Hour, time.Hour + s1, time.Hour + 2*s1}},
		{"StandingStill", []move{{0, 0}, {0, 0}}, []time.Duration{0, 0}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			f, c := newFakeClocks()
			for i, mv := range tc.moves {
				f.move(mv.mono, mv.wall)
				for range 2 { // a second look finds nothing new
					if got := c.now(); got != tc.want[i] {
						t.Fatalf("now after move %d = %v; want %v", i, got, tc.want[i])
					}
				}
			}
		})
	}
}

// A reading from before another goroutine took in the pause neither counts it
// again nor undoes it.
//
// spec 1.5
func TestClockStaleReading(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name          string
		before, after twoClocks // how the clocks move: then A reads; then B takes it all in; then A goes on
		want          time.Duration
	}{
		{"PauseBehindTheReading", twoClocks{s1, s1}, twoClocks{s1, time.Hour}, time.Hour + s1},
		{"PauseInTheReading", twoClocks{s1, time.Hour}, twoClocks{s1, s1}, time.Hour + s1},
		{"PausesInBoth", twoClocks{s1, time.Hour}, twoClocks{s1, time.Hour}, 2 * time.Hour},
		{"StepBackBehindTheReading", twoClocks{s1, s1}, twoClocks{s1, -time.Hour}, 2 * s1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			f, c := newFakeClocks()
			f.move(tc.before.mono, tc.before.wall)
			first := true
			c.read = func() (mono, wall time.Duration) {
				mono, wall = f.read()
				if first {
					first = false
					f.move(tc.after.mono, tc.after.wall)
					c.now()
				}
				return mono, wall
			}
			a := c.now()
			f.move(s1, s1)
			if got := c.now(); got < a || got > a+2*s1 || got < tc.want {
				t.Errorf("now = %v, a second after a stale reading gave %v; want about %v", got, a, tc.want+s1)
			}
		})
	}
}

// Whoever reads while the machine pauses again and again, each pause is counted
// once, and time never goes back.
//
// spec 1.5
func TestClockConcurrentSafe(t *testing.T) {
	t.Parallel()
	f, c := newFakeClocks()
	const readers, pauses = 8, 500
	var stop atomic.Bool
	var group sync.WaitGroup
	for range readers {
		group.Go(func() {
			last := time.Duration(0)
			for !stop.Load() {
				now := c.now()
				if now < last {
					t.Errorf("now = %v after %v; want time not to go back", now, last)
					return
				}
				last = now
			}
		})
	}
	back := time.Duration(0)
	for i := range pauses {
		switch i % 5 {
		case 4:
			f.move(ms, ms-s1) // stepped back: not a pause
			back += s1
		default:
			f.move(ms, ms+s1)
		}
		c.now() // so that no pause and step back meet between two looks
	}
	stop.Store(true)
	group.Wait()
	want := pauses*ms + pauses/5*4*s1
	if got := c.now(); got != want {
		t.Errorf("now = %v; want %v: %v of run time and every pause once", got, want, pauses*ms)
	}
	if mono, wall := f.read(); wall-mono != pauses/5*4*s1-back {
		t.Errorf("the clocks are %v apart; want %v", wall-mono, pauses/5*4*s1-back)
	}
}

// The default clock is that of the machine, and a time that was read before
// serves as well as one read now.
//
// spec 1.5
func TestClockOfTheMachine(t *testing.T) {
	t.Parallel()
	c := newHolderClock()
	before := c.now()
	now := time.Now()
	at := c.at(now)
	after := c.now()
	if before < 0 || at < before || after < at {
		t.Errorf("now, at, now = %v, %v, %v; want them in order", before, at, after)
	}
	if got, want := at-before, now.Sub(c.base)-before; got < want || got > want+s1 {
		t.Errorf("at is %v after now; want %v", got, want)
	}
	c.wallBase -= int64(time.Hour) // as if the wall clock had jumped
	if got := c.at(time.Now()); got < after+time.Hour {
		t.Errorf("at after a jump of an hour = %v; want %v or later", got, after+time.Hour)
	}
	if got := c.now(); got > after+time.Hour+time.Minute {
		t.Errorf("now after a jump of an hour = %v; want about %v", got, after+time.Hour)
	}
}

// spec 1.5
func TestClockIsCheap(t *testing.T) {
	// Not parallel: it counts allocations.
	c := newHolderClock()
	if got := testing.AllocsPerRun(100, func() { c.now() }); got != 0 {
		t.Errorf("now allocates %v times; want 0", got)
	}
}

// yes is a backend that agrees to everything.
type yes struct{}

func (yes) Acquire(context.Context, Lease) (Grant, error)         { return Grant{OK: true}, nil }
func (yes) Extend(context.Context, Lease) (bool, error)           { return true, nil }
func (yes) Release(context.Context, string, string) (bool, error) { return true, nil }
func (yes) Holds(context.Context, string, string) (bool, error)   { return true, nil }
func (yes) Immediate() bool                                       { return true }

// A lock of a locker with the default clock reads lost as soon as the wall clock
// says that its lease is over, though no timer fired.
//
// spec 1.5, 5.3
func TestClockOfALock(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		jump time.Duration
		want State
	}{
		{"Pause", time.Hour, StateLost},
		{"ShortPause", 9900 * ms, StateLost},
		{"ShorterPause", 9900*ms - 1, StateHeld},
		{"StepBack", -time.Hour, StateHeld},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				lr, err := New(yes{})
				if err != nil {
					t.Fatalf("New: %v", err)
				}
				lock, err := lr.Acquire(context.Background(), "k", 10*s1)
				if err != nil {
					t.Fatalf("Acquire: %v", err)
				}
				lr.e.holder.wallBase -= int64(tc.jump)
				if got := lock.State(); got != tc.want {
					t.Errorf("State after a jump of %v = %v; want %v", tc.jump, got, tc.want)
				}
				if got := lock.Remaining(); (got > 0) != (tc.want == StateHeld) {
					t.Errorf("Remaining after a jump of %v = %v", tc.jump, got)
				}
				lock.Release(context.Background())
				lr.Close(context.Background())
			})
		})
	}
}
