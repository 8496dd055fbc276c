package memory

import (
	"context"
	"hash/maphash"
	"sync/atomic"
	"time"

	locco "github.com/locco-go/locco/core"
)

var (
	_ locco.Backend      = (*Backend)(nil)
	_ locco.Fencer       = (*Backend)(nil)
	_ locco.Immediate    = (*Backend)(nil)
	_ locco.Watcher      = (*Backend)(nil)
	_ locco.Transferrer  = (*Backend)(nil)
	_ locco.ManyAcquirer = (*Backend)(nil)
	_ locco.ManyExtender = (*Backend)(nil)
	_ locco.Validator    = (*Backend)(nil)
)

// maxFenceStart bounds where the fence counter starts, so that a wall clock far
// in the future leaves room below 2^53. In microseconds it is the year 2112.
const maxFenceStart = 1 << 52

// Backend keeps leases in the memory of the process. Create it with [New]. It is
// safe for concurrent use, needs no closing, and is not copied.
type Backend struct {
	clock    func() time.Duration // nil only in a Backend that New did not make
	nilClock bool                 // WithClock was given nil; clock is then the default
	seed     maphash.Seed
	fence    atomic.Int64 // the last fencing token
	shards   [shardCount]shard
}

// New returns an empty Backend. It starts nothing. A bad option is reported by
// [Backend.Validate], which [locco.New] asks, so that locco.New(memory.New(…))
// stays one line; nil options are none.
func New(opts ...Option) *Backend {
	began := time.Now()
	monotonic := func() time.Duration { return time.Since(began) }
	cfg := config{clock: monotonic}
	for _, o := range opts {
		if o != nil {
			o.apply(&cfg)
		}
	}
	b := &Backend{clock: cfg.clock, seed: maphash.MakeSeed()}
	if b.clock == nil {
		b.clock, b.nilClock = monotonic, true
	}
	b.fence.Store(min(max(began.UnixMicro(), 0), maxFenceStart))
	return b
}

// Validate implements [locco.Validator]. It may be called on a nil Backend.
func (b *Backend) Validate() error {
	switch {
	case b == nil:
		return &locco.ValidationError{Field: "backend", Rule: "must come from memory.New, not be nil"}
	case b.clock == nil:
		return &locco.ValidationError{Field: "backend", Value: "zero memory.Backend", Rule: "must come from memory.New"}
	case b.nilClock:
		return &locco.ValidationError{Field: "memory.WithClock", Rule: "must not be nil"}
	}
	return nil
}

// Fences implements [locco.Fencer]: always true.
func (*Backend) Fences() bool { return true }

// Immediate implements [locco.Immediate]: always true. An operation waits for
// nothing but a mutex that is held for a few look-ups in a map. Longer, in
// proportion to what they touch, hold it only [Backend.AcquireMany],
// [Backend.Clear] and, rarely, an operation that copies a map to a smaller one.
func (*Backend) Immediate() bool { return true }

// Acquire implements [locco.Backend].
func (b *Backend) Acquire(ctx context.Context, l locco.Lease) (locco.Grant, error) {
	if err := ctx.Err(); err != nil {
		return locco.Grant{}, err
	}
	s := b.shardOf(l.Key)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := b.clock() // under mu, so that the operations on a key see time go on
	defer b.sweep(s, now)
	at := s.leases.find(l.Key)
	if s.refuses(at, &l, now) {
		return s.refusal(at, &l, now), nil
	}
	s.store(at, &l, now)
	return b.granted(&l), nil
}

// Extend implements [locco.Backend].
func (b *Backend) Extend(ctx context.Context, l locco.Lease) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	s := b.shardOf(l.Key)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := b.clock()
	defer b.sweep(s, now)
	at := s.heldBy(l.Key, l.Token, now)
	if at < 0 {
		return false, nil
	}
	s.store(at, &l, now)
	return true, nil
}

// Release implements [locco.Backend]. It wakes the key's first watcher.
func (b *Backend) Release(ctx context.Context, key, token string) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	s := b.shardOf(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := b.clock()
	defer b.sweep(s, now)
	at := s.heldBy(key, token, now)
	if at < 0 {
		return false, nil
	}
	s.free(at)
	return true, nil
}

// Holds implements [locco.Backend].
func (b *Backend) Holds(ctx context.Context, key, token string) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	s := b.shardOf(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := b.clock()
	defer b.sweep(s, now)
	return s.heldBy(key, token, now) >= 0, nil
}

// Transfer implements [locco.Transferrer]. With to.Again, a live lease of to's
// own token is a grant too.
func (b *Backend) Transfer(ctx context.Context, from string, to locco.Lease) (locco.Grant, error) {
	if err := ctx.Err(); err != nil {
		return locco.Grant{}, err
	}
	s := b.shardOf(to.Key)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := b.clock()
	defer b.sweep(s, now)
	at := s.heldBy(to.Key, from, now)
	if at < 0 && to.Again {
		at = s.heldBy(to.Key, to.Token, now)
	}
	if at < 0 {
		return s.refusal(s.leases.find(to.Key), &to, now), nil
	}
	s.store(at, &to, now)
	return b.granted(&to), nil
}

// granted is the answer to a lease that was just stored. It is called before the
// shard is unlocked, so that the fences of a key grow in the order of its grants.
func (b *Backend) granted(l *locco.Lease) locco.Grant {
	g := locco.Grant{OK: true}
	if l.Fenced {
		g.Fence = b.fence.Add(1)
	}
	return g
}
