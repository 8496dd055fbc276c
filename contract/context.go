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

// call is a method with its arguments. It is true when the method claims that
// the operation applied.
type call struct {
	name string
	do   func(ctx context.Context) (ok bool, err error)
}

// calls returns one call of every method of c that the harness does not declare
// missing, on the lease l.
func (s *subject) calls(c *client, l locco.Lease) []call {
	s.t.Helper()
	acquire := func(ctx context.Context, l locco.Lease) (bool, error) {
		g, err := c.b.Acquire(ctx, l)
		return g.OK, err
	}
	calls := []call{
		{"Acquire", func(ctx context.Context) (bool, error) { return acquire(ctx, l) }},
		{"Acquire(Again, WantLeft)", func(ctx context.Context) (bool, error) {
			again := l
			again.Again, again.WantLeft = true, true
			return acquire(ctx, again)
		}},
		{"Extend", func(ctx context.Context) (bool, error) { return c.b.Extend(ctx, l) }},
		{"Holds", func(ctx context.Context) (bool, error) { return c.b.Holds(ctx, l.Key, l.Token) }},
		{"Release", func(ctx context.Context) (bool, error) { return c.b.Release(ctx, l.Key, l.Token) }},
	}
	if !s.h.WithoutFencing {
		calls = append(calls, call{"Acquire(Fenced)", func(ctx context.Context) (bool, error) {
			fenced := l
			fenced.Fenced = true
			return acquire(ctx, fenced)
		}})
	}
	if !s.h.WithoutTransfer {
		b := as[locco.Transferrer](c)
		calls = append(calls, call{"Transfer", func(ctx context.Context) (bool, error) {
			g, err := b.Transfer(ctx, l.Token, newLease(l.Key, l.TTL))
			return g.OK, err
		}})
	}
	if !s.h.WithoutManyAcquire {
		b := as[locco.ManyAcquirer](c)
		calls = append(calls, call{"AcquireMany", func(ctx context.Context) (bool, error) {
			grants, refused, err := b.AcquireMany(ctx, []locco.Lease{l})
			return len(grants) == 1 && grants[0].OK || err == nil && refused == -1, err
		}})
	}
	if !s.h.WithoutManyExtend {
		b := as[locco.ManyExtender](c)
		calls = append(calls, call{"ExtendMany", func(ctx context.Context) (bool, error) {
			verdicts := b.ExtendMany(ctx, []locco.Lease{l})
			if len(verdicts) != 1 {
				return false, nil // the cases of ManyExtend say what is wrong
			}
			return verdicts[0].OK, verdicts[0].Err
		}})
	}
	return calls
}

func testContextEnded(t *testing.T, s *subject) {
	ctx, cancel := s.context()
	cancel()
	for _, call := range s.calls(s.client, newLease(s.key(), long)) {
		s.wantReturn(call.name+", with a context that has ended", s.patience, func() { _, _ = call.do(ctx) }, ruleContext)
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
		if i == 0 {
			cancel() // at least one set of calls surely meets the end
		}
		wg.Go(func() {
			for range i % 5 {
				s.wait(s.step / 10)
			}
			cancel()
		})
		for _, call := range s.calls(s.client, l) {
			_, _ = call.do(ctx)
		}
		wg.Wait()
		h := s.take(s.key(), long)
		s.wantHeld(h.Lease, ruleContext)
		s.wantRelease("holder's token", h.Key, h.Token, true, ruleContext)
	}
}
