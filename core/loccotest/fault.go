package loccotest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	locco "github.com/locco-go/locco/core"
)

// Op names the methods of a backend that send a request. Join several with |.
type Op uint16

// The methods of a backend.
const (
	Acquire Op = 1 << iota
	Extend
	Release
	Holds
	Transfer
	AcquireMany
	ExtendMany
	Watch
)

// The methods that do the same to one key and to several. A Locker extends
// locks that fall due together in one call, so a fault that is to hit every
// extension of a lock wants AnyExtend and not [Extend].
const (
	AnyAcquire = Acquire | AcquireMany
	AnyExtend  = Extend | ExtendMany
)

var opNames = [...]string{"Acquire", "Extend", "Release", "Holds", "Transfer", "AcquireMany", "ExtendMany", "Watch"}

// String returns the names of the methods, such as "Extend|ExtendMany".
func (o Op) String() string {
	var names []string
	for i, name := range opNames {
		if o&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, "|")
}

// Call is one call of a wrapped backend.
type Call struct {
	Op Op

	// Leases are what the call is about: one, or several for [AcquireMany] and
	// [ExtendMany]. Only Key is set for [Watch], only Key and Token for
	// [Release] and [Holds].
	Leases []locco.Lease

	// From is the token that hands its key over, for [Transfer].
	From string
}

// about tells whether one of the call's keys is key.
func (c Call) about(key string) bool {
	return slices.ContainsFunc(c.Leases, func(l locco.Lease) bool { return l.Key == key })
}

// String returns the method and its key, such as `Extend of "order:42"`, or its
// first key and how many there are.
func (c Call) String() string {
	switch len(c.Leases) {
	case 0:
		return c.Op.String()
	case 1:
		return fmt.Sprintf("%v of %q", c.Op, c.Leases[0].Key)
	default:
		return fmt.Sprintf("%v of %q and %d more", c.Op, c.Leases[0].Key, len(c.Leases)-1)
	}
}

// Fault says which calls go wrong, and how. A call meets one fault at most: the
// oldest that matches it and has not hit often enough yet. So faults injected
// one after the other are a script.
type Fault struct {
	// Op are the methods concerned. The default is all of them.
	Op Op

	// Key is the key concerned, with the locker's prefix. The default is every
	// key. A call for several keys matches when one of them is Key.
	Key string

	// Skip is the number of matching calls that pass unharmed first.
	Skip int

	// Times is the number of calls that are hit. The default is all of them,
	// until [Backend.Clear].
	Times int

	// Effect is what happens to the call. The zero Effect lets it pass.
	Effect Effect
}

// Effect is what a [Fault] does to a call. See [DropRequest], [DropAnswer],
// [DelayRequest], [DelayAnswer], [LateAnswer], [FailRequest] and [FailAnswer].
type Effect struct {
	kind effectKind
	d    time.Duration
	err  error
}

type effectKind uint8

const (
	pass effectKind = iota
	dropRequest
	dropAnswer
	delayRequest
	delayAnswer
	lateAnswer
	failRequest
	failAnswer
)

// DropRequest loses the request: nothing is done, and the call hangs until its
// context ends. Its error wraps the context's.
func DropRequest() Effect { return Effect{kind: dropRequest} }

// DropAnswer loses the answer: what was asked for is done, but the call hangs
// until its context ends. Its error wraps the context's.
func DropAnswer() Effect { return Effect{kind: dropAnswer} }

// DelayRequest sends the request d later. If the context ends by then it is as
// with [DropRequest].
func DelayRequest(d time.Duration) Effect { return Effect{kind: delayRequest, d: d} }

// DelayAnswer delivers the answer d later. If the context ends by then it is as
// with [DropAnswer].
func DelayAnswer(d time.Duration) Effect { return Effect{kind: delayAnswer, d: d} }

// LateAnswer delivers the answer d later, whether or not the context has ended
// by then: a driver that hands out what it has rather than an error. Longer than
// the lease that was asked for, it is a grant that may be over already.
func LateAnswer(d time.Duration) Effect { return Effect{kind: lateAnswer, d: d} }

// FailRequest answers err at once, and nothing is done: a connection that could
// not be had. The err is returned as it is; nil stands for [ErrInjected]. Of an
// [ExtendMany], a fault with a Key hits the verdict of that key alone.
func FailRequest(err error) Effect { return Effect{kind: failRequest, err: orInjected(err)} }

// FailAnswer does what was asked for and then answers err: a connection that
// broke after the request. Otherwise it is like [FailRequest].
func FailAnswer(err error) Effect { return Effect{kind: failAnswer, err: orInjected(err)} }

// ErrInjected is the error of [FailRequest] and [FailAnswer] when none is given.
var ErrInjected = errors.New("loccotest: injected failure")

func orInjected(err error) error {
	if err == nil {
		return ErrInjected
	}
	return err
}

// Transient marks err, or [ErrInjected] for nil, as one that passes by itself: [Backend.Retryable] says so
// for it, and Acquire tries again within its retry budget. The result wraps err.
func Transient(err error) error { return &transientError{orInjected(err)} }

type transientError struct{ err error }

func (e *transientError) Error() string { return e.err.Error() }

func (e *transientError) Unwrap() error { return e.err }

// faults are those of a backend that may still hit, oldest first.
type faults []*Fault

// hit returns the effect of the oldest fault that matches and does not skip this
// call, and counts the hit.
func (fs *faults) hit(match func(*Fault) bool) Effect {
	for i, f := range *fs {
		if !match(f) {
			continue
		}
		if f.Skip > 0 {
			f.Skip--
			continue
		}
		if f.Times == 1 {
			*fs = slices.Delete(*fs, i, i+1)
		}
		f.Times--
		return f.Effect
	}
	return Effect{}
}

// matches tells whether f concerns c.
func (f *Fault) matches(c Call) bool {
	return (f.Op == 0 || f.Op&c.Op != 0) && (f.Key == "" || c.about(f.Key))
}

// singlesOut tells whether f hits one verdict of an ExtendMany and not the
// exchange as a whole.
func (f *Fault) singlesOut() bool {
	return f.Key != "" && (f.Effect.kind == failRequest || f.Effect.kind == failAnswer)
}

// request is what happens before the request reaches the backend; an error
// means that it does not.
func (e Effect) request(ctx context.Context, c Call) error {
	switch e.kind {
	case dropRequest:
		return silence(ctx, c)
	case delayRequest:
		return delay(ctx, c, e.d)
	case failRequest:
		return e.err
	default:
		return nil
	}
}

// answer is what happens once the backend has answered; an error takes the
// place of the answer.
func (e Effect) answer(ctx context.Context, c Call) error {
	switch e.kind {
	case dropAnswer:
		return silence(ctx, c)
	case delayAnswer:
		return delay(ctx, c, e.d)
	case lateAnswer:
		time.Sleep(e.d)
		return nil
	case failAnswer:
		return e.err
	default:
		return nil
	}
}

// silence waits for the end of ctx, as for a server that does not answer.
func silence(ctx context.Context, c Call) error {
	<-ctx.Done()
	return noAnswer(ctx, c)
}

// delay waits for d, or for the end of ctx if that is not later.
func delay(ctx context.Context, c Call, d time.Duration) error {
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Add(d).Before(deadline) {
		return silence(ctx, c) // not left to a race of two timers
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return noAnswer(ctx, c)
	}
}

func noAnswer(ctx context.Context, c Call) error {
	return fmt.Errorf("loccotest: no answer to %v: %w", c, ctx.Err())
}
