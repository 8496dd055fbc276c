package contract

import (
	"context"
	"errors"
	"testing"

	locco "github.com/locco-go/locco/core"
)

var brokenCases = []testCase{
	{"Broken/FailsWithAnError", broken, testBrokenError},
	{"Broken/KeepsTheCause", broken, testBrokenCause},
	{"Broken/ReturnsByTheDeadline", broken, testBrokenDeadline},
	{"Broken/WatchReturns", broken | watcher, testBrokenWatch},
}

// broken returns a client of a server that is out of reach.
func (s *subject) broken() *client {
	s.t.Helper()
	b := s.h.Broken(s.t)
	if b == nil {
		s.t.Fatal("contract: Harness.Broken returned nil; want a backend")
	}
	return &client{t: s.t, b: b, measure: s.measure}
}

// soon returns a context with a deadline after which broken calls are given up.
func (s *subject) soon() (context.Context, context.CancelFunc) {
	return context.WithTimeout(s.t.Context(), 10*s.unit)
}

// testBrokenError also looks for errors that core takes for something else than
// a failure of the driver.
func testBrokenError(t *testing.T, s *subject) {
	c := s.broken()
	for _, call := range s.calls(c, newLease(s.key(), long)) {
		ctx, cancel := s.soon()
		ok, err := call.do(ctx)
		cancel()
		if ok || err == nil {
			t.Errorf("%s, server out of reach = %v, %v; want false and an error (%s)", call.name, ok, err, ruleError)
		}
		for _, other := range []error{
			locco.ErrHeld, locco.ErrLate, locco.ErrLost, locco.ErrReleased, locco.ErrClosed, locco.ErrInvalid, errors.ErrUnsupported,
		} {
			if errors.Is(err, other) {
				t.Errorf("%s, server out of reach: error %v matches %q; want the driver's (%s)", call.name, err, other, ruleError)
			}
		}
	}
}

func testBrokenCause(t *testing.T, s *subject) {
	if s.h.BrokenCause == nil {
		t.Skip("Harness.BrokenCause is nil")
	}
	c := s.broken()
	for _, call := range s.calls(c, newLease(s.key(), long)) {
		ctx, cancel := s.soon()
		_, err := call.do(ctx)
		cancel()
		if !errors.Is(err, s.h.BrokenCause) {
			t.Errorf("%s, server out of reach: error = %v; want one that matches %v (%s)", call.name, err, s.h.BrokenCause, ruleDriver)
		}
	}
}

func testBrokenDeadline(t *testing.T, s *subject) {
	c := s.broken()
	for _, call := range s.calls(c, newLease(s.key(), long)) {
		ctx, cancel := s.soon()
		c.wantReturn(call.name+", server out of reach, with a deadline", 10*s.unit+s.patience/5, func() {
			_, _ = call.do(ctx)
		}, ruleContext)
		cancel()
	}
}

// testBrokenWatch accepts an error as well as a watch that will be set up in the
// background.
func testBrokenWatch(t *testing.T, s *subject) {
	c := s.broken()
	ctx, cancel := s.soon()
	defer cancel()
	var stop func()
	c.wantReturn("Watch, server out of reach, with a deadline", 10*s.unit+s.patience/5, func() {
		var err error
		if _, stop, err = as[locco.Watcher](c).Watch(ctx, s.key()); err != nil {
			stop = func() {}
		}
	}, ruleContext)
	c.wantReturn("stop, server out of reach", s.patience/5, stop, ruleStop)
}
