package contract

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"testing"

	locco "github.com/locco-go/locco/core"
)

var declaredCases = []testCase{
	{"Fencer/IsAsDeclared", 0, testDeclaredFencer},
	{"Left/IsAsDeclared", 0, testDeclaredLeft},
	{"Immediate/IsAsDeclared", 0, testDeclaredImmediate},
	{"Watcher/IsAsDeclared", 0, testDeclaredWatcher},
	{"Transferrer/IsAsDeclared", 0, testDeclaredTransferrer},
	{"ManyAcquirer/IsAsDeclared", 0, testDeclaredManyAcquirer},
	{"ManyExtender/IsAsDeclared", 0, testDeclaredManyExtender},
	{"Retryer/IsAsDeclared", 0, testDeclaredRetryer},
	{"Retryer/OddErrorsAreHarmless", retryer, testRetryer},
	{"Validator/IsAsDeclared", 0, testDeclaredValidator},
	{"Validator/AcceptsAGoodBackend", validator, testValidator},
}

// wantDeclared compares what was found with what the harness says.
func (s *subject) wantDeclared(field string, without, found bool, how string) {
	s.t.Helper()
	switch {
	case found && without:
		s.t.Errorf("Harness.%s is true, but %s; want it false (%s)", field, how, ruleDeclared)
	case !found && !without:
		s.t.Errorf("Harness.%s is false, but %s; want it true, or the ability (%s)", field, how, ruleDeclared)
	}
}

// implements tells whether the backend is an A, and how to say so. If it is not
// but has a method of that name, its signature is wrong, and the text shows both.
func implements[A any](c *client) (found bool, how string) {
	want := reflect.TypeFor[A]()
	if _, found = c.b.(A); found {
		return true, fmt.Sprintf("%T is a %v", c.b, want)
	}
	how = fmt.Sprintf("%T is not a %v", c.b, want)
	for m := range want.Methods() {
		if got, ok := reflect.TypeOf(c.b).MethodByName(m.Name); ok {
			how += fmt.Sprintf(": its method %s is a %v, not a %v", m.Name, reflect.ValueOf(c.b).Method(got.Index).Type(), m.Type)
		}
	}
	return false, how
}

func testDeclaredFencer(t *testing.T, s *subject) {
	found, how := implements[locco.Fencer](s.client)
	if found && !s.b.(locco.Fencer).Fences() {
		found, how = false, "Fences() = false"
	}
	s.wantDeclared("WithoutFencing", s.h.WithoutFencing, found, how)
}

func testDeclaredLeft(t *testing.T, s *subject) {
	h := s.take(s.key(), long)
	l := newLease(h.Key, long)
	l.WantLeft = true
	g := s.acquire(l)
	s.wantDeclared("WithoutLeft", s.h.WithoutLeft, g.Left != 0, fmt.Sprintf("Acquire(held key, WantLeft) = %+v", g))
}

func testDeclaredImmediate(t *testing.T, s *subject) {
	found, how := implements[locco.Immediate](s.client)
	if found && !s.b.(locco.Immediate).Immediate() {
		found, how = false, "Immediate() = false"
	}
	if found != s.h.Immediate {
		t.Errorf("Harness.Immediate is %v, but %s; want both to agree (%s)", s.h.Immediate, how, ruleDeclared)
	}
}

func testDeclaredWatcher(t *testing.T, s *subject) {
	found, how := implements[locco.Watcher](s.client)
	if found {
		ctx, cancel := s.context()
		defer cancel()
		_, stop, err := s.b.(locco.Watcher).Watch(ctx, s.key())
		if err == nil {
			defer stop()
		}
		found, how = supported("Watch", err)
	}
	s.wantDeclared("WithoutWatcher", s.h.WithoutWatcher, found, how)
}

// supported tells whether an ability that is there by its type also works.
func supported(method string, err error) (found bool, how string) {
	return !errors.Is(err, errors.ErrUnsupported), fmt.Sprintf("%s answers with the error %v", method, err)
}

func testDeclaredTransferrer(t *testing.T, s *subject) {
	found, how := implements[locco.Transferrer](s.client)
	if found {
		h := s.take(s.key(), long)
		to := newLease(h.Key, long)
		ctx, cancel := s.context()
		defer cancel()
		_, err := s.b.(locco.Transferrer).Transfer(ctx, h.Token, to)
		if found, how = supported("Transfer", err); !found {
			s.wantHolds("refused token", to.Key, to.Token, false, ruleNoTransfer)
			s.wantHeld(h.Lease, ruleNoTransfer)
		}
	}
	s.wantDeclared("WithoutTransfer", s.h.WithoutTransfer, found, how)
}

func testDeclaredManyAcquirer(t *testing.T, s *subject) {
	found, how := implements[locco.ManyAcquirer](s.client)
	if found {
		leases := newLeases(s.keys(2), long)
		ctx, cancel := s.context()
		defer cancel()
		_, _, err := s.b.(locco.ManyAcquirer).AcquireMany(ctx, leases)
		if found, how = supported("AcquireMany", err); !found {
			for _, l := range leases {
				s.wantFree(l.Key, ruleAllOrNone)
			}
		}
	}
	s.wantDeclared("WithoutManyAcquire", s.h.WithoutManyAcquire, found, how)
}

func testDeclaredManyExtender(t *testing.T, s *subject) {
	found, how := implements[locco.ManyExtender](s.client)
	if found {
		ctx, cancel := s.context()
		defer cancel()
		verdicts := s.b.(locco.ManyExtender).ExtendMany(ctx, []locco.Lease{s.take(s.key(), long).Lease})
		if len(verdicts) != 1 {
			t.Fatalf("ExtendMany(1 lease) = %v; want one verdict (%s)", verdicts, ruleVerdicts)
		}
		found, how = supported("ExtendMany", verdicts[0].Err)
	}
	s.wantDeclared("WithoutManyExtend", s.h.WithoutManyExtend, found, how)
}

func testDeclaredRetryer(t *testing.T, s *subject) {
	found, how := implements[locco.Retryer](s.client)
	s.wantDeclared("WithoutRetryer", s.h.WithoutRetryer, found, how)
}

func testDeclaredValidator(t *testing.T, s *subject) {
	found, how := implements[locco.Validator](s.client)
	s.wantDeclared("WithoutValidator", s.h.WithoutValidator, found, how)
}

// testRetryer asks about errors that are surely not the server's, and about some
// that may be: those only must not panic.
func testRetryer(t *testing.T, s *subject) {
	r := as[locco.Retryer](s.client)
	for _, err := range []error{
		nil,
		&locco.ValidationError{Field: "key", Rule: "must be another"},
		fmt.Errorf("wrapped: %w", errors.ErrUnsupported),
	} {
		if r.Retryable(err) {
			t.Errorf("Retryable(%v) = true; want false (spec 3.7: only what passes by itself is tried again)", err)
		}
	}
	for _, err := range []error{
		errors.New(""), io.EOF, context.Canceled, context.DeadlineExceeded, errors.Join(io.EOF, nil, io.ErrUnexpectedEOF),
		fmt.Errorf("%w and %w", io.EOF, context.Canceled), fmt.Errorf("wrapped: %w", fmt.Errorf("twice: %w", io.EOF)),
		&locco.LostError{}, &locco.HeldError{},
	} {
		r.Retryable(err)
	}
}

func testValidator(t *testing.T, s *subject) {
	if err := as[locco.Validator](s.client).Validate(); err != nil {
		t.Errorf("Validate() = %v; want nil for a backend that works", err)
	}
}
