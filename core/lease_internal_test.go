package locco

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// White-box: the state machine of a lock has no other face, and here its times
// are plain numbers. The clock of these tests starts at t0.
const (
	t0 = time.Hour
	ms = time.Millisecond
	s1 = time.Second
)

var errDriver = errors.New("driver: broken")

// lock10s is a lease of 10 s asked for at t0 and answered 10 ms later, so it
// ends at t0+9.9s.
func lock10s(s settings) lease { return newLease(t0, t0+10*ms, 10*s1, &s) }

// spec 1.4
func TestLeaseTrusted(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name      string
		ttl, want time.Duration
	}{
		{"Shortest", ms, 990 * time.Microsecond},
		{"HundredMillis", 100 * ms, 99 * ms},
		{"HalfMinute", 30 * s1, 29700 * ms},
		{"OddNanosecond", 10*s1 + 1, 9900*ms + 1},
		{"Longest", MaxDuration, MaxDuration / 100 * 99},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if got := trusted(tc.ttl); got != tc.want {
				t.Errorf("trusted(%v) = %v; want %v", tc.ttl, got, tc.want)
			}
		})
	}
}

// spec 1.4, 4.2, 4.3, 5.5
func TestLeaseNew(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name                        string
		settings                    settings
		end, holdEnd, keepEnd, next time.Duration // after t0; 0: none
	}{
		{name: "Plain", end: 9900 * ms},
		{
			name: "AutoExtend", settings: settings{autoExtend: true, maxHold: time.Minute},
			end: 9900 * ms, holdEnd: time.Minute, next: 10 * s1 / 3,
		},
		{
			name: "ExtendEvery", settings: settings{autoExtend: true, maxHold: time.Minute, every: 2 * s1},
			end: 9900 * ms, holdEnd: time.Minute, next: 2 * s1,
		},
		{ // the margin leaves a hundredth to gain
			name: "MaxHoldIsTTL", settings: settings{autoExtend: true, maxHold: 10 * s1},
			end: 9900 * ms, holdEnd: 10 * s1, next: 10 * s1 / 3,
		},
		{ // counted from the answer: the backend granted no later
			name: "HoldAtLeast", settings: settings{atLeast: 5 * s1},
			end: 9900 * ms, keepEnd: 5010 * ms,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			le := lock10s(tc.settings)
			want := lease{
				granted: t0, sent: t0, end: t0 + tc.end, ttl: 10 * s1,
				renew: tc.settings.autoExtend, every: tc.settings.every,
			}
			for _, p := range []struct {
				to    *time.Duration
				after time.Duration
			}{{&want.holdEnd, tc.holdEnd}, {&want.keepEnd, tc.keepEnd}, {&want.next, tc.next}} {
				if p.after != 0 {
					*p.to = t0 + p.after
				}
			}
			if le != want {
				t.Errorf("newLease = %+v; want %+v", le, want)
			}
		})
	}
}

// A hold limit below the trusted part of the TTL cannot be asked for, but an
// attached lock may come with one.
//
// spec 4.3, 5.7
func TestLeaseLimit(t *testing.T) {
	t.Parallel()
	auto := settings{autoExtend: true, maxHold: time.Minute}
	for _, tc := range []struct {
		name               string
		settings           settings
		ask, hold          time.Duration
		end, holdEnd, next time.Duration // after t0; 0: none
	}{
		{"NoDeadline", settings{}, 10 * s1, 0, 9900 * ms, 0, 0},
		{"LaterDeadline", settings{}, 10 * s1, time.Minute, 9900 * ms, time.Minute, 0},
		{"DeadlineReached", settings{}, 10 * s1, 5 * s1, 5 * s1, 5 * s1, 0},
		{"AskedForLess", settings{}, 5 * s1, 5 * s1, 4950 * ms, 5 * s1, 0},
		{"KeepsOwnEarlierDeadline", auto, 10 * s1, time.Hour, 9900 * ms, time.Minute, 10 * s1 / 3},
		{"KeepsOwnDeadline", auto, 10 * s1, 0, 9900 * ms, time.Minute, 10 * s1 / 3},
		{"BringsOwnDeadlineForward", auto, 10 * s1, 30 * s1, 9900 * ms, 30 * s1, 10 * s1 / 3},
		{"NothingToRenew", auto, 10 * s1, 5 * s1, 5 * s1, 5 * s1, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			le := lock10s(tc.settings)
			le.limit(tc.ask, tc.hold)
			holdEnd, next := tc.holdEnd, tc.next
			if holdEnd != 0 {
				holdEnd += t0
			}
			if next != 0 {
				next += t0
			}
			if le.end != t0+tc.end || le.holdEnd != holdEnd || le.next != next {
				t.Errorf("limit(%v, %v): end, holdEnd, next = %v, %v, %v; want %v, %v, %v",
					tc.ask, tc.hold, le.end, le.holdEnd, le.next, t0+tc.end, holdEnd, next)
			}
		})
	}
}

// The phases that a lock can be in, each reached by the way that leads there.
// now is t0+1s in all of them, and the lease ends at t0+9.9s.
var phases = []struct {
	name  string
	build func(le *lease)
}{
	{"Held", func(*lease) {}},
	{"Extending", func(le *lease) { le.extendStart(t0+500*ms, 10*s1) }},
	{"ExtendFailed", func(le *lease) {
		le.extendStart(t0+500*ms, 10*s1)
		le.extendDone(t0+600*ms, t0+500*ms, 10*s1, false, errDriver)
	}},
	{"Releasing", func(le *lease) { le.releaseStart(t0 + 500*ms) }},
	{"ReleasingLost", func(le *lease) {
		le.checkDone(t0+400*ms, false)
		le.releaseStart(t0 + 500*ms)
	}},
	{"Unreleased", func(le *lease) {
		le.releaseStart(t0 + 500*ms)
		le.releaseDone(t0+600*ms, false, false, errDriver)
	}},
	{"ReleasingAgain", func(le *lease) {
		le.releaseStart(t0 + 500*ms)
		le.releaseDone(t0+600*ms, false, false, errDriver)
		le.releaseStart(t0 + 700*ms)
	}},
	{"Released", func(le *lease) {
		le.releaseStart(t0 + 500*ms)
		le.releaseDone(t0+600*ms, true, false, nil)
	}},
	{"Lost", func(le *lease) { le.checkDone(t0+400*ms, false) }},
	{"LostUnreleased", func(le *lease) {
		le.checkDone(t0+400*ms, false)
		le.releaseStart(t0 + 500*ms)
		le.releaseDone(t0+600*ms, false, false, errDriver)
	}},
	{"LostReleased", func(le *lease) {
		le.checkDone(t0+400*ms, false)
		le.releaseStart(t0 + 500*ms)
		le.releaseDone(t0+600*ms, false, false, nil)
	}},
	{"Detached", func(le *lease) { le.detach(t0 + 500*ms) }},
}

// What can happen to a lock. Each returns whether it reported the loss, and
// what else it said.
var operations = []struct {
	name string
	do   func(le *lease, now time.Duration) (lost bool, said string)
}{
	{"Observe", func(le *lease, now time.Duration) (bool, string) { return le.observe(now), "" }},
	{"ObserveEnd", func(le *lease, _ time.Duration) (bool, string) { return le.observe(t0 + 9900*ms), "" }},
	{"ExtendStart", func(le *lease, now time.Duration) (bool, string) {
		_, step, lost := le.extendStart(now, 10*s1)
		return lost, [...]string{"send", "none", "lost", "over"}[step]
	}},
	{"ExtendOurs", extendAnswer(true, nil)},
	{"ExtendNotOurs", extendAnswer(false, nil)},
	{"ExtendError", extendAnswer(false, errDriver)},
	{"CheckOurs", func(le *lease, now time.Duration) (bool, string) { return le.checkDone(now, true), "" }},
	{"CheckNotOurs", func(le *lease, now time.Duration) (bool, string) { return le.checkDone(now, false), "" }},
	{"CheckAtTheEnd", func(le *lease, _ time.Duration) (bool, string) { return le.checkDone(t0+9900*ms, true), "" }},
	{"ReleaseStart", func(le *lease, now time.Duration) (bool, string) {
		step, _, lost := le.releaseStart(now)
		return lost, [...]string{"send", "keep", "shared", "over"}[step]
	}},
	{"ReleaseStartAtTheEnd", func(le *lease, _ time.Duration) (bool, string) {
		step, _, lost := le.releaseStart(t0 + 9900*ms)
		return lost, [...]string{"send", "keep", "shared", "over"}[step]
	}},
	{"ReleaseOurs", releaseAnswer(0, true, nil)},
	{"ReleaseNotOurs", releaseAnswer(0, false, nil)},
	{"ReleaseError", releaseAnswer(0, false, errDriver)},
	{"ReleaseErrorAtTheEnd", releaseAnswer(9900*ms, false, errDriver)},
	{"ReleaseOursAfterTheEnd", releaseAnswer(20*s1, true, nil)},
	{"Detach", func(le *lease, now time.Duration) (bool, string) {
		ok, lost := le.detach(now)
		return lost, fmt.Sprint(ok)
	}},
	{"DetachAtTheEnd", func(le *lease, _ time.Duration) (bool, string) {
		ok, lost := le.detach(t0 + 9900*ms)
		return lost, fmt.Sprint(ok)
	}},
}

// extendAnswer is the answer to an extension that was under way before the lock
// came into its phase.
func extendAnswer(ours bool, err error) func(*lease, time.Duration) (bool, string) {
	return func(le *lease, now time.Duration) (bool, string) {
		le.extending = true
		extended, lost := le.extendDone(now, t0+400*ms, 10*s1, ours, err)
		return lost, fmt.Sprint(extended)
	}
}

// releaseAnswer is the answer to a release that is under way; it says "-" where
// none can be.
func releaseAnswer(after time.Duration, ours bool, err error) func(*lease, time.Duration) (bool, string) {
	return func(le *lease, now time.Duration) (bool, string) {
		if le.phase != phaseReleasing {
			return false, "-"
		}
		if after != 0 {
			now = t0 + after
		}
		again := le.cause != nil
		return le.releaseDone(now, ours, again, err), ""
	}
}

// transitions is the whole state machine: what each operation makes of each
// phase, as "state reason, what it said"; "!" marks the operation that reports
// the loss. An empty cell means that it changes nothing and says nothing.
var transitions = map[string]map[string]string{
	"Held": {
		"ObserveEnd": "lost expired!", "ExtendStart": "held, send",
		"ExtendOurs": "held, true", "ExtendNotOurs": "lost extend!, false", "ExtendError": "held, false",
		"CheckNotOurs": "lost observed!", "CheckAtTheEnd": "lost expired!",
		"ReleaseStart": "released, send", "ReleaseStartAtTheEnd": "lost expired!, send",
		"Detach": "released, true", "DetachAtTheEnd": "lost expired!, false",
	},
	"Extending": {
		"ObserveEnd": "lost late-extend!", "ExtendStart": "held, send",
		"ExtendOurs": "held, true", "ExtendNotOurs": "lost extend!, false", "ExtendError": "held, false",
		"CheckNotOurs": "lost observed!", "CheckAtTheEnd": "lost late-extend!",
		"ReleaseStart": "released, send", "ReleaseStartAtTheEnd": "lost late-extend!, send",
		"Detach": "released, true", "DetachAtTheEnd": "lost late-extend!, false",
	},
	"ExtendFailed": {
		"ObserveEnd": "lost extend-failed!", "ExtendStart": "held, send",
		"ExtendOurs": "held, true", "ExtendNotOurs": "lost extend!, false", "ExtendError": "held, false",
		"CheckNotOurs": "lost observed!", "CheckAtTheEnd": "lost extend-failed!",
		"ReleaseStart": "released, send", "ReleaseStartAtTheEnd": "lost extend-failed!, send",
		"Detach": "released, true", "DetachAtTheEnd": "lost extend-failed!, false",
	},
	"Releasing": {
		"ExtendStart": "released, over",
		"ExtendOurs":  "released, false", "ExtendNotOurs": "released, false", "ExtendError": "released, false",
		"ReleaseStart": "released, shared", "ReleaseStartAtTheEnd": "released, shared",
		"ReleaseOurs": "released", "ReleaseNotOurs": "lost release!", "ReleaseError": "released",
		"ReleaseErrorAtTheEnd": "lost release!", "ReleaseOursAfterTheEnd": "released",
		"Detach": "released, false", "DetachAtTheEnd": "released, false",
	},
	"ReleasingLost": {
		"ExtendStart": "lost observed, lost",
		"ExtendOurs":  "lost observed, false", "ExtendNotOurs": "lost observed, false", "ExtendError": "lost observed, false",
		"ReleaseStart": "lost observed, shared", "ReleaseStartAtTheEnd": "lost observed, shared",
		"ReleaseOurs": "released observed", "ReleaseNotOurs": "released observed", "ReleaseError": "lost observed",
		"ReleaseErrorAtTheEnd": "lost observed", "ReleaseOursAfterTheEnd": "released observed",
		"Detach": "lost observed, false", "DetachAtTheEnd": "lost observed, false",
	},
	"Unreleased": {
		"ObserveEnd": "lost release!", "ExtendStart": "released, over",
		"ExtendOurs": "released, false", "ExtendNotOurs": "released, false", "ExtendError": "released, false",
		"CheckAtTheEnd": "lost release!",
		"ReleaseStart":  "released, send", "ReleaseStartAtTheEnd": "lost release!, send",
		"Detach": "released, false", "DetachAtTheEnd": "lost release!, false",
	},
	"ReleasingAgain": {
		"ExtendStart": "released, over",
		"ExtendOurs":  "released, false", "ExtendNotOurs": "released, false", "ExtendError": "released, false",
		"ReleaseStart": "released, shared", "ReleaseStartAtTheEnd": "released, shared",
		"ReleaseOurs": "released", "ReleaseNotOurs": "released", "ReleaseError": "released",
		"ReleaseErrorAtTheEnd": "lost release!", "ReleaseOursAfterTheEnd": "released",
		"Detach": "released, false", "DetachAtTheEnd": "released, false",
	},
	"Released": {
		"ExtendStart": "released, over",
		"ExtendOurs":  "released, false", "ExtendNotOurs": "released, false", "ExtendError": "released, false",
		"ReleaseStart": "released, over", "ReleaseStartAtTheEnd": "released, over",
		"Detach": "released, false", "DetachAtTheEnd": "released, false",
	},
	"Lost": {
		"ExtendStart": "lost observed, lost",
		"ExtendOurs":  "lost observed, false", "ExtendNotOurs": "lost observed, false", "ExtendError": "lost observed, false",
		"ReleaseStart": "lost observed, send", "ReleaseStartAtTheEnd": "lost observed, send",
		"Detach": "lost observed, false", "DetachAtTheEnd": "lost observed, false",
	},
	"LostReleased": {
		"ExtendStart": "released observed, over",
		"ExtendOurs":  "released observed, false", "ExtendNotOurs": "released observed, false", "ExtendError": "released observed, false",
		"ReleaseStart": "released observed, over", "ReleaseStartAtTheEnd": "released observed, over",
		"Detach": "released observed, false", "DetachAtTheEnd": "released observed, false",
	},
	"LostUnreleased": {
		"ExtendStart": "lost observed, lost",
		"ExtendOurs":  "lost observed, false", "ExtendNotOurs": "lost observed, false", "ExtendError": "lost observed, false",
		"ReleaseStart": "lost observed, send", "ReleaseStartAtTheEnd": "lost observed, send",
		"Detach": "lost observed, false", "DetachAtTheEnd": "lost observed, false",
	},
	"Detached": {
		"ExtendStart": "released, over",
		"ExtendOurs":  "released, false", "ExtendNotOurs": "released, false", "ExtendError": "released, false",
		"ReleaseStart": "released, over", "ReleaseStartAtTheEnd": "released, over",
		"Detach": "released, false", "DetachAtTheEnd": "released, false",
	},
}

// spec 1.7, 4.1, 4.4, 4.5, 4.6, 5.2, 5.4, 5.8
func TestLeaseTransitions(t *testing.T) {
	t.Parallel()
	for _, from := range phases {
		for _, op := range operations {
			t.Run(from.name+"/"+op.name, func(t *testing.T) {
				t.Parallel()
				le := lock10s(settings{})
				from.build(&le)
				before := le.describe()
				lost, said := op.do(&le, t0+s1)
				got := le.describe()
				if lost {
					got += "!"
				}
				if said != "" {
					got += ", " + said
				}
				want := transitions[from.name][op.name]
				if want == "" && said == "-" {
					return // no release is under way
				}
				if want == "" {
					want = before
				}
				if got != want {
					t.Errorf("%s of a lock that is %s = %q; want %q", op.name, from.name, got, want)
				}
			})
		}
	}
}

func (le *lease) describe() string {
	text := le.state().String()
	if le.reason != "" {
		text += " " + string(le.reason)
	}
	return text
}

// The reason of a lease that ran out says what was going on, and the hold
// deadline comes before all.
//
// spec 4.3, 4.5
func TestLeaseReasons(t *testing.T) {
	t.Parallel()
	auto := settings{autoExtend: true, maxHold: time.Minute}
	for _, tc := range []struct {
		name     string
		settings settings
		do       func(le *lease)
		at       time.Duration // after t0
		want     Reason
	}{
		{"Expired", settings{}, func(*lease) {}, 9900 * ms, ReasonExpired},
		{"NeverTicked", auto, func(*lease) {}, 9900 * ms, ReasonExpired},
		{"LateExtend", auto, func(le *lease) { le.extendStart(t0+3*s1, 10*s1) }, 9900 * ms, ReasonLateExtend},
		{"ExtendFailed", auto, func(le *lease) {
			le.extendStart(t0+3*s1, 10*s1)
			le.extendDone(t0+4*s1, t0+3*s1, 10*s1, false, errDriver)
		}, 9900 * ms, ReasonExtendFailed},
		{"LateExtendAfterFailure", auto, func(le *lease) {
			le.extendStart(t0+3*s1, 10*s1)
			le.extendDone(t0+4*s1, t0+3*s1, 10*s1, false, errDriver)
			le.extendStart(t0+5*s1, 10*s1)
		}, 9900 * ms, ReasonLateExtend},
		{"ExpiredAfterRecovery", auto, func(le *lease) {
			le.extendStart(t0+3*s1, 10*s1)
			le.extendDone(t0+4*s1, t0+3*s1, 10*s1, false, errDriver)
			le.extendStart(t0+5*s1, 10*s1)
			le.extendDone(t0+5*s1, t0+5*s1, 10*s1, true, nil)
		}, 14900 * ms, ReasonExpired},
		{"MaxHold", auto, func(le *lease) {
			le.extendStart(t0+5*s1, time.Hour)
			le.extendDone(t0+5*s1, t0+5*s1, time.Hour, true, nil)
		}, time.Minute, ReasonMaxHold},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			le := lock10s(tc.settings)
			tc.do(&le)
			if at := t0 + tc.at - 1; le.observe(at) || le.state() != StateHeld || le.remaining(at) != 1 {
				t.Fatalf("a nanosecond before the end: state, remaining = %v (%v), %v; want held, 1ns", le.state(), le.reason, le.remaining(at))
			}
			if !le.observe(t0 + tc.at) {
				t.Fatal("observe at the end = false; want true, for the loss")
			}
			if le.state() != StateLost || le.reason != tc.want {
				t.Errorf("state, reason = %v, %q; want lost, %q", le.state(), le.reason, tc.want)
			}
			if le.observe(t0 + 2*time.Hour) {
				t.Error("observe reported the loss twice")
			}
		})
	}
}

// Every extension, a manual one too, is clamped so that the local lease ends at
// the hold deadline at the latest.
//
// spec 4.1, 4.3
func TestLeaseClamp(t *testing.T) {
	t.Parallel()
	// A hold of 100 s whose lease ends at t0+49.5s; or half a millisecond before
	// the deadline; or, by an extension, at the deadline.
	near := func() lease {
		return newLease(t0, t0, 50*s1, &settings{autoExtend: true, maxHold: 100 * s1})
	}
	late := func() lease {
		le := near()
		le.end = le.holdEnd - ms/2
		return le
	}
	far := func() lease {
		le := near()
		le.extendStart(t0, 200*s1)
		le.extendDone(t0, t0, 102*s1, true, nil)
		return le
	}
	for _, tc := range []struct {
		name    string
		lease   func() lease
		at, ttl time.Duration
		step    extendStep
		ask     time.Duration
	}{
		{"FarFromDeadline", near, 10 * s1, 50 * s1, extendSend, 50 * s1},
		{"UpToDeadline", near, 40 * s1, 60 * s1, extendSend, 60 * s1},
		// A hundredth more than the 60 s that are left, so that the part that
		// can be trusted of it reaches the deadline.
		{"BeyondDeadline", near, 40 * s1, time.Hour, extendSend, 60*s1 + 60*s1/99 + 1},
		{"WithinMargin", near, 40 * s1, 60500 * ms, extendSend, 60500 * ms},
		{"OneMillisecondLeft", late, 99999 * ms, 2 * ms, extendSend, ms + ms/99 + 1},
		{"OneMillisecondNothingToGain", far, 99999 * ms, 2 * ms, extendNone, 0},
		{"ReachesDeadlineAgain", far, 100*s1 - 99*ms, 100 * ms, extendNone, 0},
		{"ReachesDeadline", late, 100*s1 - 99*ms, 100 * ms, extendSend, 100 * ms},
		{"LessThanOneMillisecond", far, 99999*ms + 1, ms, extendLost, 0},
		{"AtDeadline", far, 100 * s1, ms, extendLost, 0},
		{"NothingToGain", far, 40 * s1, time.Hour, extendNone, 0},
		{"ShorterOnPurpose", far, 40 * s1, 5 * s1, extendSend, 5 * s1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			le := tc.lease()
			now := t0 + tc.at
			ask, step, lost := le.extendStart(now, tc.ttl)
			if ask != tc.ask || step != tc.step || lost != (step == extendLost) {
				t.Fatalf("extendStart(%v, %v) = %v, %v, %v; want %v, %v", tc.at, tc.ttl, ask, step, lost, tc.ask, tc.step)
			}
			switch step {
			case extendLost:
				if le.state() != StateLost || le.reason != ReasonMaxHold {
					t.Errorf("state, reason = %v, %q; want lost, max-hold", le.state(), le.reason)
				}
			case extendNone:
				if le.extending || le.ttl != tc.ttl || le.end != t0+100*s1 {
					t.Errorf("extending, ttl, end = %v, %v, %v; want false, %v, the deadline", le.extending, le.ttl, le.end, tc.ttl)
				}
				if at, ok := le.due(); !ok || at != le.end {
					t.Errorf("due = %v, %v; want the end", at, ok)
				}
			case extendSend:
				if extended, lost := le.extendDone(now, now, ask, true, nil); !extended || lost {
					t.Fatalf("extendDone = %v, %v; want true, false", extended, lost)
				}
				if want := min(now+trusted(ask), t0+100*s1); le.end != want || le.end > le.holdEnd {
					t.Errorf("end = %v; want %v", le.end-t0, want-t0)
				}
				if tc.ttl > ask && le.end != le.holdEnd {
					t.Errorf("end = %v; want the deadline, %v: one clamped extension reaches it", le.end-t0, le.holdEnd-t0)
				}
			}
		})
	}
}

// A lease that runs to the hold deadline needs no heartbeat; one that was cut
// short on purpose needs it again, up to the deadline.
//
// spec 4.2, 4.3
func TestLeaseHeartbeatAtTheDeadline(t *testing.T) {
	t.Parallel()
	le := newLease(t0, t0, 10*s1, &settings{autoExtend: true, maxHold: 99 * s1})
	now := t0 + s1
	ask, _, _ := le.extendStart(now, time.Hour)
	le.extendDone(now, now, ask, true, nil)
	if at, ok := le.due(); !ok || at != t0+99*s1 || le.next != 0 {
		t.Fatalf("due, ok, next = %v, %v, %v; want the deadline, no heartbeat", at, ok, le.next)
	}
	now = t0 + 50*s1
	le.extendStart(now, 9*s1)
	le.extendDone(now, now, 9*s1, true, nil)
	if at, ok := le.due(); !ok || at != now+3*s1 {
		t.Fatalf("due, ok = %v, %v; want a third of 9s later", at-now, ok)
	}
	for range 100 {
		at, _ := le.due()
		if at == le.holdEnd {
			break
		}
		ask, step, _ := le.extendStart(at, le.ttl)
		if step != extendSend {
			t.Fatalf("tick at %v = %v; want send", at-t0, step)
		}
		le.extendDone(at, at, ask, true, nil)
	}
	if le.end != t0+99*s1 {
		t.Errorf("end = %v; want the deadline", le.end-t0)
	}
}

// While an extension to a shorter lease is under way, the backend may have taken
// it in already: the holder does not believe in the longer one any more.
//
// spec 1.4, 1.6, 5.3
func TestLeaseShorterOneUnderWay(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name     string
		ttl, end time.Duration
	}{
		{"Shorter", 2 * s1, s1 + 1980*ms},
		{"Longer", 20 * s1, 9900 * ms},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			le := lock10s(settings{})
			le.extendStart(t0+s1, tc.ttl)
			if le.end != t0+tc.end || le.remaining(t0+s1) != tc.end-s1 {
				t.Errorf("end, remaining = %v, %v; want %v, %v", le.end-t0, le.remaining(t0+s1), tc.end, tc.end-s1)
			}
			if at, ok := le.due(); !ok || at != le.end {
				t.Errorf("due = %v, %v; want the end", at-t0, ok)
			}
			if !le.observe(t0+tc.end) || le.reason != ReasonLateExtend {
				t.Errorf("reason at the end = %q; want late-extend", le.reason)
			}
		})
	}
}

// The interval follows the latest TTL and is at most half of it when it was
// set; a tick is counted from the request, a retry from the answer.
//
// spec 4.2, 4.4
func TestLeaseHeartbeat(t *testing.T) {
	t.Parallel()
	auto := settings{autoExtend: true, maxHold: time.Hour}
	every := settings{autoExtend: true, maxHold: time.Hour, every: 4 * s1}
	extend := func(ttl time.Duration) func(*lease) {
		return func(le *lease) {
			le.extendStart(t0+s1, ttl)
			le.extendDone(t0+2*s1, t0+s1, ttl, true, nil)
		}
	}
	fail := func(ttl time.Duration) func(*lease) {
		return func(le *lease) {
			le.extendStart(t0+s1, ttl)
			le.extendDone(t0+2*s1, t0+s1, ttl, false, errDriver)
		}
	}
	both := func(a, b func(*lease)) func(*lease) { return func(le *lease) { a(le); b(le) } }
	for _, tc := range []struct {
		name     string
		settings settings
		do       func(*lease)
		next     time.Duration // after t0; 0: none
	}{
		{"ThirdOfTTL", auto, extend(10 * s1), s1 + 10*s1/3},
		{"ThirdOfNewTTL", auto, extend(60 * s1), s1 + 20*s1},
		{"Explicit", every, extend(10 * s1), s1 + 4*s1},
		{"ExplicitKept", every, extend(60 * s1), s1 + 4*s1},
		{"ExplicitCutToHalf", every, extend(6 * s1), s1 + 3*s1},
		{"RetryAfterThird", auto, fail(10 * s1), 2*s1 + 10*s1/9},
		{"RetryAfterThirdOfExplicit", every, fail(10 * s1), 2*s1 + 4*s1/3},
		{"AfterFailureOfShorter", auto, both(fail(3*s1), extend(10*s1)), s1 + s1},
		{"AfterFailureOfLonger", auto, both(fail(30*s1), extend(10*s1)), s1 + 10*s1/3},
		{"Off", settings{}, extend(10 * s1), 0},
		{"OffAndFailed", settings{}, fail(10 * s1), 0},
		{"TurnedOff", auto, func(le *lease) { le.setRenew(false) }, 0},
		{"TurnedOn", settings{}, func(le *lease) { le.setRenew(true) }, 10 * s1 / 3},
		{"TurnedOffBeforeFailure", auto, both(func(le *lease) { le.setRenew(false) }, fail(10*s1)), 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			le := lock10s(tc.settings)
			tc.do(&le)
			want := time.Duration(0)
			if tc.next != 0 {
				want = t0 + tc.next
			}
			if le.next != want {
				t.Errorf("next = %v; want %v", le.next-t0, tc.next)
			}
			at, ok := le.due()
			if want == 0 {
				want = le.end
			}
			if !ok || at != want {
				t.Errorf("due = %v, %v; want %v", at-t0, ok, want-t0)
			}
		})
	}
}

// An extension may go a little early to share a call, but only a little.
//
// spec 4.2, 8.5
func TestLeaseEarly(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name      string
		ttl, want time.Duration
	}{
		{"Twentieth", 3 * s1, 50 * ms},
		{"AtMostHundredMillis", time.Hour, 100 * ms},
		{"Shortest", ms, ms / 3 / 20},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			le := newLease(t0, t0, tc.ttl, &settings{autoExtend: true, maxHold: 2 * time.Hour})
			if got := le.early(); got != tc.want {
				t.Errorf("early = %v; want %v", got, tc.want)
			}
		})
	}
}

// When the keeper has to look at a lock.
//
// spec 4.2, 5.3, 5.4
func TestLeaseDue(t *testing.T) {
	t.Parallel()
	end := t0 + 9900*ms
	tick := t0 + 10*s1/3
	want := map[string]time.Duration{ // 0: never
		"Held": tick, "Extending": end, "ExtendFailed": t0 + 600*ms + 10*s1/9, "Unreleased": end,
		"Releasing": end, "ReleasingAgain": end, // so that those who wait can look by then
	}
	for _, from := range phases {
		t.Run(from.name, func(t *testing.T) {
			t.Parallel()
			le := lock10s(settings{autoExtend: true, maxHold: time.Hour})
			from.build(&le)
			at, ok := le.due()
			if at != want[from.name] || ok != (at != 0) {
				t.Errorf("due = %v, %v; want %v", at, ok, want[from.name])
			}
		})
	}
	t.Run("TickAfterTheEnd", func(t *testing.T) { // a failure close to the end
		t.Parallel()
		le := lock10s(settings{autoExtend: true, maxHold: time.Hour})
		le.extendStart(t0+9*s1, 10*s1)
		le.extendDone(t0+9800*ms, t0+9*s1, 10*s1, false, errDriver)
		if at, ok := le.due(); !ok || at != end {
			t.Errorf("due = %v, %v; want the end", at-t0, ok)
		}
	})
}

// A new lease counts from its request. A request without an answer may be served
// at any time from then on, and the lease that it sets must not end earlier than
// the holder believes.
//
// spec 1.4, 1.6, 4.1, 4.4
func TestLeaseExtended(t *testing.T) {
	t.Parallel()
	type step struct {
		sent, answered, ask time.Duration // after t0
		ours                bool
		err                 error
	}
	for _, tc := range []struct {
		name     string
		settings settings
		steps    []step
		end      time.Duration // after t0
		extended bool          // by the last step
		reason   Reason
	}{
		{
			name:  "FromRequest",
			steps: []step{{s1, 3 * s1, 20 * s1, true, nil}},
			end:   s1 + 19800*ms, extended: true,
		},
		{
			name:  "Shorter",
			steps: []step{{s1, s1, 2 * s1, true, nil}},
			end:   s1 + 1980*ms, extended: true,
		},
		{
			name:  "FailureKeepsPresent",
			steps: []step{{s1, 2 * s1, 10 * s1, false, errDriver}},
			end:   9900 * ms,
		},
		{ // it may have been applied all the same
			name:  "FailureOfShorterShortens",
			steps: []step{{s1, 2 * s1, 5 * s1, false, errDriver}},
			end:   s1 + 4950*ms,
		},
		{ // and may be applied after any later one
			name: "CeilingAfterFailureOfShorter",
			steps: []step{
				{s1, s1, 5 * s1, false, errDriver},
				{2 * s1, 2 * s1, 20 * s1, true, nil},
			},
			end: 2*s1 + 4950*ms, extended: true,
		},
		{
			name: "LowestCeilingStays",
			steps: []step{
				{s1, s1, 5 * s1, false, errDriver},
				{s1, s1, 6 * s1, false, errDriver},
				{2 * s1, 2 * s1, 20 * s1, true, nil},
				{3 * s1, 3 * s1, 20 * s1, true, nil},
			},
			end: 3*s1 + 4950*ms, extended: true,
		},
		{
			name: "LowerCeilingWins",
			steps: []step{
				{s1, s1, 6 * s1, false, errDriver},
				{s1, s1, 5 * s1, false, errDriver},
				{2 * s1, 2 * s1, 20 * s1, true, nil},
			},
			end: 2*s1 + 4950*ms, extended: true,
		},
		{
			name: "CeilingAboveAsk",
			steps: []step{
				{s1, s1, 10 * s1, false, errDriver},
				{2 * s1, 2 * s1, 3 * s1, true, nil},
			},
			end: 2*s1 + 2970*ms, extended: true,
		},
		{ // the present lease ended first
			name:  "LateAnswer",
			steps: []step{{s1, 9900 * ms, 10 * s1, true, nil}},
			end:   9900 * ms, reason: ReasonLateExtend,
		},
		{
			name:  "LateRefusal",
			steps: []step{{s1, 9900 * ms, 10 * s1, false, nil}},
			end:   9900 * ms, reason: ReasonLateExtend,
		},
		{
			name:  "LateError",
			steps: []step{{s1, 9900 * ms, 10 * s1, false, errDriver}},
			end:   9900 * ms, reason: ReasonLateExtend,
		},
		{ // the new one, shorter than the present one, ended first
			name:  "ShorterThanItsAnswerTook",
			steps: []step{{s1, 3 * s1, s1, true, nil}},
			end:   s1 + 990*ms, reason: ReasonLateExtend,
		},
		{ // and perhaps did
			name:  "FailureOfOneThatIsOver",
			steps: []step{{s1, 3 * s1, s1, false, errDriver}},
			end:   s1 + 990*ms, reason: ReasonExtendFailed,
		},
		{
			name:  "NotOurs",
			steps: []step{{s1, s1, 10 * s1, false, nil}},
			end:   9900 * ms, reason: ReasonExtend,
		},
		{
			name: "UpToTheDeadline", settings: settings{autoExtend: true, maxHold: 15 * s1},
			steps: []step{{10 * ms, 10 * ms, 20 * s1, true, nil}},
			end:   15 * s1, extended: true,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			le := lock10s(tc.settings)
			var extended, lost bool
			for _, st := range tc.steps {
				le.extending = true // as extendStart does, without its clamp
				extended, lost = le.extendDone(t0+st.answered, t0+st.sent, st.ask, st.ours, st.err)
			}
			if extended != tc.extended || lost != (tc.reason != "") {
				t.Errorf("extendDone = %v, %v; want %v, %v", extended, lost, tc.extended, tc.reason != "")
			}
			if le.end != t0+tc.end || le.reason != tc.reason || le.extending {
				t.Errorf("end, reason, extending = %v, %q, %v; want %v, %q, false", le.end-t0, le.reason, le.extending, tc.end, tc.reason)
			}
		})
	}
}

// Once Release was called no extension is sent, and the answer of one under way
// changes nothing: neither the lease nor the reason.
//
// spec 4.6
func TestLeaseReleaseBeatsExtension(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		ours bool
		err  error
	}{{"Ours", true, nil}, {"NotOurs", false, nil}, {"Error", false, errDriver}} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			le := lock10s(settings{autoExtend: true, maxHold: time.Hour})
			le.extendStart(t0+s1, 60*s1)
			le.releaseStart(t0 + 2*s1)
			before := le
			before.extending = false
			if extended, lost := le.extendDone(t0+3*s1, t0+s1, 60*s1, tc.ours, tc.err); extended || lost {
				t.Errorf("extendDone = %v, %v; want false, false", extended, lost)
			}
			if le != before {
				t.Errorf("the answer changed %+v to %+v", before, le)
			}
			if _, step, _ := le.extendStart(t0+4*s1, 60*s1); step != extendOver {
				t.Errorf("extendStart while releasing = %v; want over", step)
			}
			le.releaseDone(t0+5*s1, false, false, errDriver)
			if _, step, _ := le.extendStart(t0+6*s1, 60*s1); step != extendOver {
				t.Errorf("extendStart after a failed release = %v; want over", step)
			}
		})
	}
}

// spec 5.4, 2.4
func TestLeaseFailedRelease(t *testing.T) {
	t.Parallel()
	t.Run("NotOursThenCountsAsReleased", func(t *testing.T) {
		t.Parallel()
		le := lock10s(settings{})
		le.releaseStart(t0 + s1)
		le.releaseDone(t0+2*s1, false, false, errDriver)
		if step, _, _ := le.releaseStart(t0 + 3*s1); step != releaseSend {
			t.Fatalf("second release = %v; want send", step)
		}
		if lost := le.releaseDone(t0+4*s1, false, true, nil); lost || le.state() != StateReleased || le.reason != "" {
			t.Errorf("lost, state, reason = %v, %v, %q; want false, released, none", lost, le.state(), le.reason)
		}
		if step, _, lost := le.releaseStart(t0 + time.Hour); step != releaseOver || lost {
			t.Errorf("third release = %v, %v; want over, false", step, lost)
		}
	})
	t.Run("LeaseEndsFirst", func(t *testing.T) {
		t.Parallel()
		le := lock10s(settings{autoExtend: true, maxHold: time.Hour})
		le.releaseStart(t0 + s1)
		le.releaseDone(t0+2*s1, false, false, errDriver)
		if at, ok := le.due(); !ok || at != le.end {
			t.Errorf("due = %v, %v; want the end of the lease, no heartbeat", at, ok)
		}
		if !le.observe(t0+9900*ms) || le.reason != ReasonRelease || !errors.Is(le.cause, errDriver) {
			t.Errorf("reason, cause = %q, %v; want release, the driver's", le.reason, le.cause)
		}
		if step, _, lost := le.releaseStart(t0 + 10*s1); step != releaseSend || lost {
			t.Errorf("release of the lost lock = %v, %v; want send, false", step, lost)
		}
		if lost := le.releaseDone(t0+11*s1, true, true, nil); lost || le.reason != ReasonRelease {
			t.Errorf("lost, reason = %v, %q; want false, release", lost, le.reason)
		}
		if step, _, _ := le.releaseStart(t0 + 12*s1); step != releaseOver {
			t.Errorf("release after an answer = %v; want over", step)
		}
	})
	t.Run("LostLockIsTriedUntilAnswered", func(t *testing.T) {
		t.Parallel()
		le := lock10s(settings{})
		le.observe(t0 + 9900*ms)
		for range 3 {
			if step, _, lost := le.releaseStart(t0 + 10*s1); step != releaseSend || lost {
				t.Fatalf("release = %v, %v; want send, false", step, lost)
			}
			if lost := le.releaseDone(t0+11*s1, false, false, errDriver); lost || le.reason != ReasonExpired || le.state() != StateLost {
				t.Fatalf("lost, reason, state = %v, %q, %v; want false, expired, lost", lost, le.reason, le.state())
			}
		}
	})
}

// spec 5.5
func TestLeaseKeep(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		at   time.Duration // after t0; the lock was granted by t0+10ms
		step releaseStep
		keep time.Duration
		lost bool
	}{
		{"Early", s1, releaseKeep, 4010 * ms, false},
		{"OneNanosecondEarly", 5010*ms - 1, releaseKeep, 1, false},
		{"Reached", 5010 * ms, releaseSend, 0, false},
		{"Past", 6 * s1, releaseSend, 0, false},
		{"Lost", 9900 * ms, releaseSend, 0, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			le := lock10s(settings{atLeast: 5 * s1})
			step, keep, lost := le.releaseStart(t0 + tc.at)
			if step != tc.step || max(keep, 0) != tc.keep || lost != tc.lost {
				t.Errorf("releaseStart(%v) = %v, %v, %v; want %v, %v, %v", tc.at, step, keep, lost, tc.step, tc.keep, tc.lost)
			}
		})
	}
	t.Run("AfterFailure", func(t *testing.T) { // what is left is kept
		t.Parallel()
		le := lock10s(settings{atLeast: 5 * s1})
		le.releaseStart(t0 + s1)
		le.releaseDone(t0+2*s1, false, false, errDriver)
		if step, keep, _ := le.releaseStart(t0 + 3*s1); step != releaseKeep || keep != 2010*ms {
			t.Errorf("releaseStart = %v, %v; want keep, 2.01s", step, keep)
		}
	})
	t.Run("LostBefore", func(t *testing.T) {
		t.Parallel()
		le := lock10s(settings{atLeast: 10 * s1})
		if step, keep, lost := le.releaseStart(t0 + 9900*ms); step != releaseKeep || keep != 110*ms || !lost {
			t.Errorf("releaseStart = %v, %v, %v; want keep, 110ms, true", step, keep, lost)
		}
	})
}

// Time held stops with the hold, however it ends, and Remaining is what is
// surely left.
//
// spec 5.1, 5.7
func TestLeaseHeldFor(t *testing.T) {
	t.Parallel()
	held := map[string]time.Duration{ // 0: still running
		"Releasing": 500 * ms, "ReleasingLost": 400 * ms, "Unreleased": 500 * ms, "ReleasingAgain": 500 * ms,
		"Released": 500 * ms, "Lost": 400 * ms, "LostUnreleased": 400 * ms, "LostReleased": 400 * ms, "Detached": 500 * ms,
	}
	for _, from := range phases {
		t.Run(from.name, func(t *testing.T) {
			t.Parallel()
			le := lock10s(settings{})
			from.build(&le)
			now, left := t0+2*s1, 7900*ms
			want := held[from.name]
			if want == 0 {
				want = 2 * s1
			} else {
				left = 0
			}
			if got := le.heldFor(now); got != want {
				t.Errorf("heldFor = %v; want %v", got, want)
			}
			if got := le.remaining(now); got != left {
				t.Errorf("remaining = %v; want %v", got, left)
			}
		})
	}
	t.Run("LostByTime", func(t *testing.T) { // at its end, whenever that was noticed
		t.Parallel()
		le := lock10s(settings{})
		le.observe(t0 + time.Hour)
		if got := le.heldFor(t0 + 2*time.Hour); got != 9900*ms {
			t.Errorf("heldFor = %v; want 9.9s", got)
		}
	})
	t.Run("UnreleasedThenLost", func(t *testing.T) {
		t.Parallel()
		le := lock10s(settings{})
		le.releaseStart(t0 + s1)
		le.releaseDone(t0+2*s1, false, false, errDriver)
		le.observe(t0 + time.Hour)
		if got := le.heldFor(t0 + 2*time.Hour); got != s1 {
			t.Errorf("heldFor = %v; want 1s", got)
		}
	})
	t.Run("ClockBehindTheGrant", func(t *testing.T) {
		t.Parallel()
		le := lock10s(settings{})
		if got := le.heldFor(t0 - s1); got != 0 {
			t.Errorf("heldFor = %v; want 0", got)
		}
		if got := le.remaining(t0 + time.Hour); got != 0 {
			t.Errorf("remaining = %v; want 0", got)
		}
	})
}

// spec 5.2
func TestLeaseStateString(t *testing.T) {
	t.Parallel()
	for state, want := range map[State]string{
		StateHeld: "held", StateLost: "lost", StateReleased: "released", 0: "unknown", 4: "unknown",
	} {
		if got := state.String(); got != want {
			t.Errorf("State(%d).String() = %q; want %q", state, got, want)
		}
	}
}
