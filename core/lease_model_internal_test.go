package locco

import (
	"encoding/hex"
	"math/rand/v2"
	"testing"
	"time"
)

// White-box: the model plays the holder's side of a lock against a server that
// does its worst, and compares what the state machine believes with what is so.
// The server's clock runs a hundredth fast, requests without an answer are
// served at any later time or never, and operations come in any order.

// leaseModel is one lock and the server that keeps it.
type leaseModel struct {
	t     *testing.T
	bytes []byte // what happens next; the end of it ends the run
	log   []string

	le    lease
	now   time.Duration
	delay time.Duration // lock delay

	// The server.
	stored  bool          // the key has our token
	expires time.Duration // by the holder's clock, at the earliest
	flushed bool          // the key was taken away, which no holder can know
	stray   []request     // had no answer, and may be served yet

	extension *request // under way
	release   *request

	// What was seen so far.
	goodSent, goodAsk time.Duration // of the latest lease that was confirmed
	losses            int           // times that a loss was reported
	ended             bool          // was lost or released once
	reason            Reason
	held              time.Duration // when it ended
	releaseSent       bool
	releaseFailed     bool
	answered          bool // a release was answered
}

// request is one call of the backend.
type request struct {
	kind   string // "extend", "keep" or "release"
	sent   time.Duration
	ttl    time.Duration // what is stored
	ask    time.Duration // what the holder asked for
	served bool
	ours   bool
}

func newLeaseModel(t *testing.T, ttl, hold time.Duration, bytes []byte) *leaseModel {
	t.Helper()
	m := &leaseModel{t: t, bytes: bytes}
	ttl = fold(ttl, minDuration, MaxDuration)
	hold = fold(hold, ttl, MaxDuration)
	var s settings
	flags := m.next()
	if flags&1 != 0 {
		s.autoExtend, s.maxHold = true, hold
		if flags&2 != 0 && ttl/2 >= minDuration {
			s.every = fold(hold, minDuration, ttl/2)
		}
	}
	if flags&4 != 0 {
		s.atLeast = fold(hold/2, 1, ttl)
	}
	if flags&8 != 0 {
		m.delay = ttl / 3
	}
	// The grant: sent, served, answered.
	sent := t0
	served := sent + m.span(trusted(ttl)-1)
	m.now = served + m.span(sent+trusted(ttl)-1-served)
	m.stored, m.expires = true, served+trusted(wholeMillis(ttl+m.delay))
	m.goodSent, m.goodAsk = sent, ttl
	m.le = newLease(sent, m.now, ttl, &s)
	if m.le.end <= m.now {
		t.Fatalf("new lease ends at %v; want later than its answer, %v", m.le.end, m.now)
	}
	return m
}

// fold brings d into the bounds.
func fold(d, least, most time.Duration) time.Duration {
	if d < 0 {
		d = -(d + 1)
	}
	return least + d%(most-least+1)
}

func (m *leaseModel) next() int {
	if len(m.bytes) == 0 {
		return 0
	}
	b := m.bytes[0]
	m.bytes = m.bytes[1:]
	return int(b)
}

// span is a part of most, the ends included.
func (m *leaseModel) span(most time.Duration) time.Duration {
	if most <= 0 {
		return 0
	}
	switch b := m.next(); b {
	case 0:
		return 0
	case 255:
		return most
	default:
		return most / 255 * time.Duration(b)
	}
}

func (m *leaseModel) run() {
	m.check("grant")
	for len(m.bytes) > 0 && !m.t.Failed() {
		m.check(m.step())
	}
	if m.t.Failed() {
		m.t.Logf("steps: %q", m.log)
	}
}

// step does the next thing, and says which.
func (m *leaseModel) step() string {
	switch op := m.next() % 20; op {
	case 0, 1, 2: // time passes
		m.now += m.span(m.le.ttl)
		return "time"
	case 3: // up to the next interesting moment, or a nanosecond to either side
		at := []time.Duration{m.le.end, m.le.next, m.le.holdEnd, m.le.keepEnd}[m.next()%4]
		m.now = max(m.now, at+time.Duration(m.next()%3)-1)
		return "jump"
	case 4, 5:
		m.tick()
		return "tick"
	case 6:
		if m.extension == nil {
			ttl := fold(m.le.ttl/4*time.Duration(1+m.next()%12), minDuration, MaxDuration)
			m.extend(ttl)
		}
		return "extend"
	case 7, 8:
		m.serve(m.extension)
		return "extension served"
	case 9, 10:
		m.serve(m.extension)
		m.extended(nil)
		return "extension answered"
	case 11:
		if m.extension != nil {
			m.stray = append(m.stray, *m.extension)
			m.extended(errDriver)
		}
		return "extension failed"
	case 12:
		if len(m.stray) > 0 {
			m.serve(&m.stray[m.next()%len(m.stray)])
		}
		return "stray request served"
	case 13:
		m.startRelease()
		return "release"
	case 14, 15:
		m.serve(m.release)
		m.released(nil)
		return "release answered"
	case 16:
		if m.release != nil {
			m.stray = append(m.stray, *m.release)
			m.released(errDriver)
		}
		return "release failed"
	case 17:
		m.see(m.le.checkDone(m.now, m.ours()))
		return "check"
	case 18:
		if m.next() > 16 {
			return "nothing"
		}
		m.stored, m.flushed = false, true
		return "flush"
	default:
		if m.next() > 32 {
			return "nothing"
		}
		ok, lost := m.le.detach(m.now)
		m.see(lost)
		m.answered = m.answered || ok
		return "detach"
	}
}

func (m *leaseModel) ours() bool { return m.stored && m.now < m.expires }

// serve makes the server do what it was asked to.
func (m *leaseModel) serve(r *request) {
	if r == nil || r.served {
		return
	}
	r.served, r.ours = true, m.ours()
	switch {
	case !r.ours:
	case r.kind == "release":
		m.stored = false
	default:
		m.expires = m.now + trusted(r.ttl)
	}
}

// see counts reported losses.
func (m *leaseModel) see(lost bool) {
	if lost {
		m.losses++
	}
}

func (m *leaseModel) extend(ttl time.Duration) {
	end := m.le.end
	ask, step, lost := m.le.extendStart(m.now, ttl)
	m.see(lost)
	if lost && step != extendLost {
		m.t.Errorf("extendStart lost the lock, but says %v", step)
	}
	if step != extendSend {
		if step == extendNone && end < m.le.holdEnd {
			m.t.Errorf("no extension although the lease ends %v before the deadline (spec 4.3)", m.le.holdEnd-end)
		}
		return
	}
	switch {
	case m.releaseSent:
		m.t.Error("an extension is sent after Release (spec 4.6)")
	case m.le.state() != StateHeld:
		m.t.Errorf("an extension is sent for a lock that is %v", m.le.state())
	case ask < minDuration, ask > ttl:
		m.t.Errorf("an extension asks for %v; want 1ms to %v (spec 1.3, 4.3)", ask, ttl)
	case m.le.holdEnd != 0 && ask < ttl && min(m.now+trusted(ask), m.le.holdEnd) <= end:
		m.t.Errorf("a clamped extension by %v could not end later than %v (spec 4.3)", ask, end)
	}
	m.extension = &request{kind: "extend", sent: m.now, ask: ask, ttl: wholeMillis(ask + m.delay)}
}

// extended brings the answer to the extension under way.
func (m *leaseModel) extended(err error) {
	r := m.extension
	if r == nil {
		return
	}
	m.extension = nil
	before := m.le
	extended, lost := m.le.extendDone(m.now, r.sent, r.ask, r.ours && err == nil, err)
	m.see(lost)
	before.extending = false
	switch {
	case extended && lost:
		m.t.Error("extendDone = true, true; want one of them at most")
	case extended && (!r.ours || err != nil):
		m.t.Errorf("extended without a grant, error %v", err)
	case m.releaseSent && before.phase != phaseUnreleased && m.le != before:
		m.t.Errorf("an answer after Release changed %+v to %+v (spec 4.6)", before, m.le)
	}
	if extended {
		m.goodSent, m.goodAsk = r.sent, r.ask
	}
	if r.ours && err == nil && !extended && !lost && before.state() == StateHeld {
		m.t.Error("a granted extension neither extended the lock nor lost it")
	}
}

// tick does what the keeper does when its timer fires.
func (m *leaseModel) tick() {
	at, ok := m.le.due()
	if !ok {
		return
	}
	m.now = max(m.now, at)
	lost := m.le.observe(m.now)
	m.see(lost)
	if next := m.le.next; !lost && m.le.phase == phaseHeld && !m.le.extending && next != 0 && next <= m.now {
		m.extend(m.le.ttl)
	}
	m.le.expireRelease(m.now)
	if at, ok := m.le.due(); ok && at <= m.now {
		m.t.Errorf("due again at once, %v after the tick: the keeper would spin", at-m.now)
	}
}

func (m *leaseModel) startRelease() {
	step, keep, lost := m.le.releaseStart(m.now)
	m.see(lost)
	switch step {
	case releaseShared:
		if m.release == nil {
			m.t.Error("releaseStart = shared, but no request is under way")
		}
		return
	case releaseOver:
		if !m.answered {
			m.t.Error("releaseStart = over, but no release was answered (spec 5.4)")
		}
		return
	}
	if m.answered {
		m.t.Error("a release is sent after one was answered (spec 5.4)")
	}
	m.releaseSent = true
	m.release = &request{kind: "release", sent: m.now}
	if step == releaseKeep {
		m.release = &request{kind: "keep", sent: m.now, ttl: wholeMillis(keep)}
		if m.now+keep != m.le.keepEnd {
			m.t.Errorf("the key is kept until %v; want %v (spec 5.5)", m.now+keep, m.le.keepEnd)
		}
	}
}

func (m *leaseModel) released(err error) {
	r := m.release
	if r == nil {
		return
	}
	m.release = nil
	reason := m.le.reason
	lost := m.le.releaseDone(m.now, r.ours && err == nil, m.releaseFailed, err)
	m.see(lost)
	switch {
	case lost && err == nil && (r.ours || m.releaseFailed):
		m.t.Error("lost by a release that worked, or may have worked (spec 5.4)")
	case lost && m.le.reason != ReasonRelease:
		m.t.Errorf("lost by a release with reason %q; want release", m.le.reason)
	case reason != "" && m.le.reason != reason:
		m.t.Errorf("a release changed the reason %q to %q (spec 5.4)", reason, m.le.reason)
	case err == nil && !lost && reason == "" && m.le.state() != StateReleased:
		m.t.Errorf("state after a release = %v; want released", m.le.state())
	}
	m.answered = m.answered || err == nil
	m.releaseFailed = m.releaseFailed || err != nil
}

// check holds what must be true at all times. It reads the lock as
// [Lock.State] does.
func (m *leaseModel) check(after string) {
	m.log = append(m.log, after)
	m.see(m.le.observe(m.now))
	le, fail := &m.le, func(format string, args ...any) {
		m.t.Helper()
		m.t.Errorf("after "+after+": "+format, args...)
	}
	state := le.state()
	switch {
	case state == StateHeld && m.ended:
		fail("held again after it was lost or released (spec 5.2)")
	case state == StateHeld && m.now >= le.end:
		fail("held %v after its end (spec 1.5)", m.now-le.end)
	case state == StateHeld && !m.flushed && !m.ours():
		fail("held, but the server gave it up at %v, %v ago (spec 1.4)", m.expires, m.now-m.expires)
	case state == StateHeld && m.releaseSent:
		fail("held after Release (spec 5.4)")
	case le.holdEnd != 0 && le.end > le.holdEnd:
		fail("ends %v after the hold deadline (spec 4.3)", le.end-le.holdEnd)
	case le.end > m.goodSent+trusted(m.goodAsk):
		fail("ends %v later than the latest lease that was confirmed (spec 1.4)", le.end-m.goodSent-trusted(m.goodAsk))
	case state == StateLost && le.reason == "":
		fail("lost without a reason (spec 4.5)")
	case m.reason != "" && le.reason != m.reason:
		fail("reason = %q; was %q (spec 5.2)", le.reason, m.reason)
	case m.losses > 1, (m.losses == 1) != (le.reason != ""):
		fail("the loss was reported %d times, reason %q (spec 7.1)", m.losses, le.reason)
	case (le.remaining(m.now) > 0) != (state == StateHeld):
		fail("remaining = %v while %v (spec 5.7)", le.remaining(m.now), state)
	case le.heldFor(m.now) > le.end-le.granted && state == StateHeld, le.heldFor(m.now) < 0:
		fail("held for %v, of %v (spec 5.1)", le.heldFor(m.now), le.end-le.granted)
	case m.ended && le.heldFor(m.now) != m.held:
		fail("held for %v, after it ended with %v (spec 5.1)", le.heldFor(m.now), m.held)
	}
	at, ok := le.due()
	switch {
	case state == StateHeld && (!ok || at > le.end):
		fail("due = %v, %v; want by the end of the lease, %v (spec 5.3)", at, ok, le.end)
	case state == StateHeld && le.renew && !le.extending && le.next == 0 && le.end != le.holdEnd:
		fail("the heartbeat stopped, %v before the deadline (spec 4.2)", le.holdEnd-le.end)
	case le.next != 0 && le.holdEnd == 0:
		fail("a heartbeat without a deadline (spec 4.3)")
	case state != StateHeld && ok && le.phase != phaseUnreleased && le.phase != phaseReleasing:
		fail("due = %v for a lock that is %v", at, state)
	}
	m.reason = le.reason
	if state != StateHeld && !m.ended {
		m.ended, m.held = true, le.heldFor(m.now)
	}
}

// spec 1.4, 1.5, 1.6, 1.7, 4.1, 4.3, 4.4, 4.5, 4.6, 5.1, 5.2, 5.3, 5.4, 5.7
func TestLeaseModel(t *testing.T) {
	t.Parallel()
	runs := 4_000
	if testing.Short() {
		runs = 500
	}
	for seed := range runs {
		r := rand.New(rand.NewPCG(uint64(seed), 0))
		bytes := make([]byte, 160)
		for i := range bytes {
			bytes[i] = byte(r.Uint32())
		}
		ttls := []time.Duration{ms, ms + 1, 99 * ms, 100 * ms, 101*ms - 1, s1, 30 * s1, time.Hour, MaxDuration}
		ttl := ttls[r.IntN(len(ttls))]
		newLeaseModel(t, ttl, time.Duration(r.Int64N(int64(6*ttl))), bytes).run()
		if t.Failed() {
			t.Fatalf("seed %d, ttl %v, bytes %s", seed, ttl, hex.EncodeToString(bytes))
		}
	}
}

// spec 1.3, 1.4, 4.3 and the rules of TestLeaseModel
func FuzzLease(f *testing.F) {
	f.Add(int64(10*s1), int64(time.Minute), []byte{1, 0, 0, 4, 9, 4, 11, 4, 12})
	f.Add(int64(ms), int64(0), []byte{7, 9, 200, 3, 0, 1, 13, 16, 13, 14})
	f.Add(int64(100*ms), int64(99*s1), []byte{1, 0, 0, 6, 255, 9, 3, 1, 2, 6, 1, 11, 4, 4})
	f.Add(int64(MaxDuration), int64(MaxDuration), []byte{15, 255, 255, 6, 11, 9, 2, 255, 4, 9})
	f.Add(int64(s1), int64(5*s1), []byte{3, 10, 10, 6, 1, 11, 6, 8, 9, 12, 3, 0, 2, 17})
	f.Add(int64(-1), int64(-1<<63), []byte{0, 1, 1, 19, 1, 6, 13, 15})
	f.Fuzz(func(t *testing.T, ttl, hold int64, bytes []byte) {
		newLeaseModel(t, time.Duration(ttl), time.Duration(hold), bytes).run()
	})
}
