package locco

import (
	"context"
	"errors"
	"time"
)

var (
	errPanicked  = errors.New("locco: the backend panicked")
	errNoVerdict = errors.New("locco: the backend gave no verdict for this key")
)

// Extend asks for a new lease of ttl from now, at least 1 ms, clamped so that it
// does not pass the hold deadline. With auto-extension, later extensions ask
// for ttl too.
//
// The error matches [ErrLost] when the key was not ours or the hold deadline has
// passed, [ErrReleased] after Release was called, [ErrClosed] after a Close that
// gave up, and [ErrInvalid] for a bad ttl; else it is the driver's, and the lock stays held until its lease runs
// out. When ctx ends first the call returns its error; the answer is still taken
// in.
func (l *Lock) Extend(ctx context.Context, ttl time.Duration) error {
	if err := checkContext(ctx); err != nil {
		return err
	}
	if err := checkTTL(ttl); err != nil {
		return err
	}
	if l == nil {
		return ErrReleased
	}
	if ctx.Err() != nil {
		if err := l.Err(); err != nil {
			return err
		}
		return newWaitError(ctx, l.key, nil)
	}
	x, err := l.startExtend(ctx, ttl)
	if x.lock == nil {
		return err
	}
	return l.await(ctx, func() error {
		err := l.e.extendOne(ctx, x)
		l.deliver()
		return err
	})
}

// startExtend reserves the next extension, after the one under way: the server
// might see two requests in another order than they were made. It does not wait
// longer than the hold lasts. A zero extension means that there is nothing to
// send, and err is the result.
func (l *Lock) startExtend(ctx context.Context, ttl time.Duration) (x extension, err error) {
	for {
		x, busy, err := l.reserve(ttl)
		if busy == nil {
			if x.lock == nil { // else its own answer first: a hook may extend, too
				l.deliver()
			}
			return x, err
		}
		select {
		case <-busy:
		case <-ctx.Done():
			return extension{}, newWaitError(ctx, l.key, nil)
		}
	}
}

// reserve is startExtend without the wait: if an extension is under way, busy is
// closed when its answer was taken in or the hold is over. deliver is to follow.
func (l *Lock) reserve(ttl time.Duration) (x extension, busy <-chan struct{}, err error) {
	now := l.e.now()
	l.mu.Lock()
	if l.lease.extending && l.lease.phase == phaseHeld {
		if l.extendWait == nil {
			l.extendWait = make(chan struct{})
		}
		busy = l.extendWait
		l.mu.Unlock()
		return extension{}, busy, nil
	}
	ask, step, lost := l.lease.extendStart(now, ttl)
	var end signals
	if lost {
		end = l.loseNow(now)
	}
	l.e.keeper.reset(l, now)
	err = l.errNow()
	l.mu.Unlock()
	end.fire()
	if step == extendSend {
		return extension{l, ask}, nil, nil
	}
	return extension{}, nil, err
}

// leaving is asked just before an extension is sent: what startExtend allowed
// must not follow a Release that was called meanwhile (spec 4.6). The error says
// why it is not sent.
func (l *Lock) leaving() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	closed := l.e.gaveUp.Load() // what is left then expires (spec 5.6)
	if l.lease.phase == phaseHeld && !closed {
		return nil
	}
	l.lease.extending = false
	l.endExtendWait()
	if err := l.errNow(); err != nil {
		return err
	}
	return ErrClosed
}

// endExtendWait lets those go on who wait for the extension under way: it has
// its answer, or the hold is over. It is called with the mutex.
func (l *Lock) endExtendWait() {
	if l.extendWait != nil {
		close(l.extendWait)
		l.extendWait = nil
	}
}

// extended takes in the answer to an extension. deliver is to follow.
func (l *Lock) extended(sent, ask time.Duration, ours bool, err error) error {
	now := l.e.now()
	var end signals
	l.mu.Lock()
	extended, lost := l.lease.extendDone(now, sent, ask, ours, err)
	switch {
	case lost:
		end = l.loseNow(now)
	case extended:
		l.note(Event{
			Kind: EventExtended, Key: l.key, TTL: l.lease.ttl,
			Held: l.lease.heldFor(now), Left: l.lease.remaining(now),
		})
	case l.lease.phase == phaseHeld:
		l.note(Event{Kind: EventExtendFailed, Key: l.key, TTL: l.lease.ttl, Held: l.lease.heldFor(now), Err: err})
	}
	l.endExtendWait()
	l.e.keeper.reset(l, now)
	result := l.errNow()
	l.mu.Unlock()
	end.fire()
	if result == nil && !extended {
		result = err
	}
	return result
}
