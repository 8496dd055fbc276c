package locco

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// LockSet is the locks of one AcquireMany, sorted by key. Its methods are safe
// for concurrent use. On a nil LockSet they do what those of a nil [Lock] do.
type LockSet struct {
	locks []*Lock

	mu       sync.Mutex // guards the rest
	first    *LostError // the first loss that was seen
	lostChan chan struct{}
}

func newLockSet(locks []*Lock) *LockSet {
	s := &LockSet{locks: locks}
	for _, l := range locks {
		l.whenLost(func() { s.noteLoss(l) }) // at once: the first loss is the one to tell of
	}
	return s
}

// Locks returns the locks, sorted by key, one for each distinct key.
func (s *LockSet) Locks() []*Lock {
	if s == nil {
		return nil
	}
	return slices.Clone(s.locks)
}

// Get returns the lock of key, as it was given to AcquireMany; nil if the set
// has none.
func (s *LockSet) Get(key string) *Lock {
	if s == nil {
		return nil
	}
	for _, l := range s.locks {
		if l.key == l.e.prefix+key {
			return l
		}
	}
	return nil
}

// String names the locks and their states, for logs.
func (s *LockSet) String() string {
	if s == nil {
		return "locco.LockSet(nil)"
	}
	return fmt.Sprintf("locco.LockSet%v", s.locks)
}

// Err returns nil while every lock is held, the [*LostError] of the first lock
// that was lost, and [ErrReleased] when one was released and none was lost.
func (s *LockSet) Err() error {
	if s == nil {
		return ErrReleased
	}
	var released error
	for _, l := range s.locks {
		switch err := l.Err(); {
		case errors.Is(err, ErrLost):
			s.noteLoss(l)
		case err != nil:
			released = err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.first != nil {
		return s.first
	}
	return released
}

// noteLoss keeps the first loss and closes the channel of Lost.
func (s *LockSet) noteLoss(l *Lock) {
	lost := l.lost()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.first != nil {
		return
	}
	s.first = lost
	if s.lostChan != nil {
		close(s.lostChan)
	}
}

// Lost returns a channel that is closed when any of the locks is lost.
func (s *LockSet) Lost() <-chan struct{} {
	if s == nil {
		return (*Lock)(nil).Lost()
	}
	_ = s.Err() // looks at the clock
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lostChan == nil {
		s.lostChan = make(chan struct{})
		if s.first != nil {
			close(s.lostChan)
		}
	}
	return s.lostChan
}

// Bind returns a context that ends with ctx, with the first loss of any of the
// locks, and when any of them is released; see [Lock.Bind].
func (s *LockSet) Bind(ctx context.Context) context.Context {
	if err := checkContext(ctx); err != nil {
		return endedContext(context.Background(), err)
	}
	if s == nil {
		return endedContext(ctx, ErrReleased)
	}
	bound, _ := bindAll(ctx, s.locks)
	return bound
}

// bindAll returns a context that ends with ctx, with the first end of one of the
// locks, and by cancel.
func bindAll(ctx context.Context, locks []*Lock) (bound context.Context, cancel context.CancelCauseFunc) {
	bound, cancel = context.WithCancelCause(ctx)
	bindings := make([]*binding, len(locks))
	for i, l := range locks {
		bindings[i] = l.onEnd(cancel)
	}
	context.AfterFunc(bound, func() { // leaves nothing behind in the others
		for _, b := range bindings {
			b.remove()
		}
	})
	return bound, cancel
}

// Extend is [Lock.Extend] for every lock of the set, in as few exchanges as the
// backend can. It tries every key and joins the errors.
func (s *LockSet) Extend(ctx context.Context, ttl time.Duration) error {
	if err := checkContext(ctx); err != nil {
		return err
	}
	if err := checkTTL(ttl); err != nil {
		return err
	}
	if s == nil {
		return ErrReleased
	}
	if ctx.Err() != nil {
		return newWaitError(ctx, s.locks[0].key, nil)
	}
	return s.locks[0].e.extendAll(ctx, s.locks, ttl)
}

// extendAll extends locks together and joins the errors. Where an extension is
// under way already, the next one follows by itself and holds up no other.
func (e *engine) extendAll(ctx context.Context, locks []*Lock, ttl time.Duration) error {
	var (
		errs       []error
		extensions []extension
		later      []*Lock
	)
	for _, l := range locks {
		x, busy, err := l.reserve(ttl)
		switch {
		case busy != nil:
			later = append(later, l)
		case x.lock != nil:
			extensions = append(extensions, x)
		case err != nil:
			errs = append(errs, nameKey(l.key, err))
		}
	}
	if len(extensions)+len(later) > 0 {
		errs = append(errs, e.await(ctx, locks[0].key, func() error { return e.extendBoth(ctx, extensions, later, ttl) }))
	}
	for _, l := range locks {
		l.deliver()
	}
	return errors.Join(errs...)
}

func (e *engine) extendBoth(ctx context.Context, extensions []extension, later []*Lock, ttl time.Duration) error {
	errs := make([]error, len(later))
	var group sync.WaitGroup
	for i, l := range later {
		group.Go(func() {
			x, err := l.startExtend(ctx, ttl)
			if x.lock != nil {
				err = e.extendOne(ctx, x)
				l.deliver()
			}
			errs[i] = nameKey(l.key, err)
		})
	}
	now := e.extendNow(ctx, extensions)
	group.Wait()
	return errors.Join(append(now, errs...)...)
}

// Release is [Lock.Release] for every lock of the set, several at a time. It
// tries every key and joins the errors.
func (s *LockSet) Release(ctx context.Context) error {
	if err := checkContext(ctx); err != nil {
		return err
	}
	if s == nil {
		return nil
	}
	return releaseAll(ctx, s.locks)
}

func releaseAll(ctx context.Context, locks []*Lock) error {
	if len(locks) == 0 {
		return nil
	}
	errs := make([]error, len(locks))
	eachAtOnce(locks[0].e, locks, func(i int, l *Lock) { errs[i] = nameKey(l.key, l.Release(ctx)) })
	return errors.Join(errs...)
}

// eachAtOnce calls f for every item, several at a time where f may block.
func eachAtOnce[T any](e *engine, items []T, f func(i int, item T)) {
	if len(items) < 2 || e.able.immediate {
		for i, item := range items {
			f(i, item)
		}
		return
	}
	slots := make(chan struct{}, atOnce)
	var group sync.WaitGroup
	for i, item := range items {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			f(i, item)
		})
	}
	group.Wait()
}

// spoiled is that of a Lock: for the first loss if that counts, else for any that
// does.
func (s *LockSet) spoiled() *LostError {
	var first, spoiled *LostError
	errors.As(s.Err(), &first)
	for _, l := range s.locks {
		if lost := l.spoiled(); lost != nil && (spoiled == nil || lost == first) {
			spoiled = lost
		}
	}
	return spoiled
}
