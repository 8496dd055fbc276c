package contract

import (
	"context"
	"sync"
	"testing"

	locco "github.com/locco-go/locco/core"
)

var contextCases = []testCase{
	{"Context/EndedContextDoesNotBlock", 0, testContextEnded},
	{"Context/EndedContextTellsTheTruth", 0, testContextTruth},
	{"Context/CanceledCallsDoNoHarm", 0, testContextCanceled},
}

// call is a method with its arguments, and what it answered: ok is true if it
// claims that the operation applied.
type call struct {
	name  string
	needs ability
	do    func(ctx context.Context, c *client) (ok bool, err error)
}

// callsOn returns one call of every method, on the lease l.
func callsOn(l locco.Lease) []call {
	fenced, again := l, l
	fenced.Fenced, again.Again, again.WantLeft = true, true, true
	acquire := func(l locco.Lease) func(ctx context.Context, c *client) (bool, error) {
		return func(ctx context.Context, c *client) (bool, error) {
			g, err := c.b.Acquire(ctx, l)
			return g.OK, err
		}
	}
	return []call{
		{"Acquire", 0, acquire(l)},
		{"Acquire(Again, WantLeft)", 0, acquire(again)},
		{"Acquire(Fenced)", fencing, acquire(fenced)},
		{"Extend", 0, func(ctx context.Context, c *client) (bool, error) { return c.b.Extend(ctx, l) }},
		{"Holds", 0, func(ctx context.Context, c *client) (bool, error) { return c.b.Holds(ctx, l.Key, l.Token) }},
		{"Release", 0, func(ctx context.Context, c *client) (bool, error) { return c.b.Release(ctx, l.Key, l.Token) }},
		{"Transfer", transfer, func(ctx context.Context, c *client) (bool, error) {
			g, err := as[locco.Transferrer](c).Transfer(ctx, l.Token, newLease(l.Key, l.TTL))
			return g.OK, err
		}},
		{"AcquireMany", manyAcquire, func(ctx context.Context, c *client) (bool, error) {
			grants, refused, err := as[locco.ManyAcquirer](c).AcquireMany(ctx, []locco.Lease{l})
			return len(grants) == 1 && grants[0].OK || err == nil && refused == -1, err
		}},
		{"ExtendMany", manyExtend, func(ctx context.Context, c *client) (bool, error) {
			verdicts := as[locco.ManyExtender](c).ExtendMany(ctx, []locco.Lease{l})
			if len(verdicts) != 1 {
				c.t.Fatalf("ExtendMany(1 lease) = %v; want one verdict (%s)", verdicts, ruleVerdicts)
			}
			return verdicts[0].OK, verdicts[0].Err
		}},
	}
}

// calls returns one call of every method that the harness does not declare
// missing.
func (s *subject) calls(l locco.Lease) (calls []call) {
	for _, c := range callsOn(l) {
		if c.needs&s.h.lacks() == 0 {
			calls = append(calls, c)
		}
	}
	return calls
}

func testContextEnded(t *testing.T, s *subject) {
	ctx, cancel := s.context()
	cancel()
	for _, call := range s.calls(newLease(s.key(), long)) {
		s.wantReturn(call.name+", with a context that has ended", s.patience, func() { _, _ = call.do(ctx, s.client) }, ruleContext)
	}
	s.wantFree(s.key(), ruleContext)
}

// testContextTruth accepts an error as well as an answer, but the answer must be
// true.
func testContextTruth(t *testing.T, s *subject) {
	ctx, cancel := s.context()
	cancel()
	l := newLease(s.key(), long)
	if g, err := s.b.Acquire(ctx, l); err == nil {
		s.wantHolds("token of an attempt whose context had ended", l.Key, l.Token, g.OK, ruleError)
	}
	h := s.take(s.key(), long)
	if ours, err := s.b.Holds(ctx, h.Key, h.Token); err == nil && !ours {
		t.Errorf("Holds(holder's token, context that has ended) = false, <nil>; want true or an error (%s)", ruleError)
	}
	if ours, err := s.b.Extend(ctx, h.Lease); err == nil && !ours {
		t.Errorf("Extend(holder's token, context that has ended) = false, <nil>; want true or an error (%s)", ruleError)
	}
	if g, err := s.b.Acquire(ctx, newLease(h.Key, long)); g.OK {
		t.Errorf("Acquire(held key, context that has ended) = %+v, %v; want a refusal or an error (%s)", g, err, ruleError)
	}
	ours, err := s.b.Release(ctx, h.Key, h.Token)
	if err == nil {
		s.wantHolds("token that was released", h.Key, h.Token, false, ruleError)
		if !ours {
			t.Errorf("Release(holder's token, context that has ended) = false, <nil>; want true or an error (%s)", ruleError)
		}
	}
}

// testContextCanceled ends contexts while calls run: what the calls did may be
// unknown, but the backend must go on working for everybody else.
func testContextCanceled(t *testing.T, s *subject) {
	var wg sync.WaitGroup
	for i := range rounds(20) {
		l := newLease(s.key(), long)
		ctx, cancel := s.context()
		wg.Go(func() {
			for range i % 5 {
				s.wait(s.step / 10)
			}
			cancel()
		})
		for _, call := range s.calls(l) {
			_, _ = call.do(ctx, s.client)
		}
		wg.Wait()
		h := s.take(s.key(), long)
		s.wantHeld(h.Lease, ruleContext)
		s.wantRelease("holder's token", h.Key, h.Token, true, ruleContext)
	}
}
