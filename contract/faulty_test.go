package contract_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/locco-go/locco/contract"
	locco "github.com/locco-go/locco/core"
)

// faulty is a reference with methods replaced, to seed a defect.
type faulty struct {
	reference
	acquire     func(ctx context.Context, l locco.Lease) (locco.Grant, error)
	extend      func(ctx context.Context, l locco.Lease) (bool, error)
	release     func(ctx context.Context, key, token string) (bool, error)
	holds       func(ctx context.Context, key, token string) (bool, error)
	transfer    func(ctx context.Context, from string, to locco.Lease) (locco.Grant, error)
	acquireMany func(ctx context.Context, ls []locco.Lease) ([]locco.Grant, int, error)
	extendMany  func(ctx context.Context, ls []locco.Lease) []locco.Verdict
	watch       func(ctx context.Context, key string) (<-chan struct{}, func(), error)
	retryable   func(err error) bool
	validate    func() error
}

// newFaulty returns a reference on a store of its own, for seed to damage.
func newFaulty(seed func(r reference, f *faulty)) *faulty {
	r := newReference()
	f := &faulty{
		reference:   r,
		acquire:     r.Acquire,
		extend:      r.Extend,
		release:     r.Release,
		holds:       r.Holds,
		transfer:    r.Transfer,
		acquireMany: r.AcquireMany,
		watch:       r.Watch,
		retryable:   r.Retryable,
		validate:    r.Validate,
	}
	f.extendMany = func(ctx context.Context, ls []locco.Lease) []locco.Verdict {
		verdicts := make([]locco.Verdict, len(ls))
		for i, l := range ls {
			verdicts[i].OK, verdicts[i].Err = f.extend(ctx, l)
		}
		return verdicts
	}
	seed(r, f)
	return f
}

func (f *faulty) Acquire(ctx context.Context, l locco.Lease) (locco.Grant, error) {
	return f.acquire(ctx, l)
}

func (f *faulty) Extend(ctx context.Context, l locco.Lease) (bool, error) { return f.extend(ctx, l) }

func (f *faulty) Release(ctx context.Context, key, token string) (bool, error) {
	return f.release(ctx, key, token)
}

func (f *faulty) Holds(ctx context.Context, key, token string) (bool, error) {
	return f.holds(ctx, key, token)
}

func (f *faulty) Transfer(ctx context.Context, from string, to locco.Lease) (locco.Grant, error) {
	return f.transfer(ctx, from, to)
}

func (f *faulty) AcquireMany(ctx context.Context, ls []locco.Lease) ([]locco.Grant, int, error) {
	return f.acquireMany(ctx, ls)
}

func (f *faulty) ExtendMany(ctx context.Context, ls []locco.Lease) []locco.Verdict {
	return f.extendMany(ctx, ls)
}

func (f *faulty) Watch(ctx context.Context, key string) (<-chan struct{}, func(), error) {
	return f.watch(ctx, key)
}

func (f *faulty) Retryable(err error) bool { return f.retryable(err) }
func (f *faulty) Validate() error          { return f.validate() }

// rewrite changes what every method is asked for: the key, the token, the TTL.
func (f *faulty) rewrite(change func(l *locco.Lease)) {
	r := f.reference
	changed := func(l locco.Lease) locco.Lease {
		change(&l)
		return l
	}
	f.acquire = func(ctx context.Context, l locco.Lease) (locco.Grant, error) { return r.Acquire(ctx, changed(l)) }
	f.extend = func(ctx context.Context, l locco.Lease) (bool, error) { return r.Extend(ctx, changed(l)) }
	f.release = func(ctx context.Context, key, token string) (bool, error) {
		l := changed(locco.Lease{Key: key, Token: token})
		return r.Release(ctx, l.Key, l.Token)
	}
	f.holds = func(ctx context.Context, key, token string) (bool, error) {
		l := changed(locco.Lease{Key: key, Token: token})
		return r.Holds(ctx, l.Key, l.Token)
	}
	f.transfer = func(ctx context.Context, from string, to locco.Lease) (locco.Grant, error) {
		l := changed(locco.Lease{Key: to.Key, Token: from})
		return r.Transfer(ctx, l.Token, changed(to))
	}
	f.acquireMany = func(ctx context.Context, ls []locco.Lease) ([]locco.Grant, int, error) {
		ls = slices.Clone(ls)
		for i := range ls {
			change(&ls[i])
		}
		return r.AcquireMany(ctx, ls)
	}
	f.watch = func(ctx context.Context, key string) (<-chan struct{}, func(), error) {
		return r.Watch(ctx, changed(locco.Lease{Key: key}).Key)
	}
}

// pause lets everybody else go on: what is not atomic shows.
func pause() { time.Sleep(10 * time.Microsecond) }

// defect is a way to get a backend wrong, and the cases that must notice.
type defect struct {
	name     string
	caughtBy []string
	seed     func(r reference, f *faulty)

	// peer returns the other client of the store; nil: the faulty one.
	peer func(r reference, f *faulty) locco.Backend

	// wrap changes the whole backend, or the harness.
	wrap    func(f *faulty) locco.Backend
	harness func(h *contract.Harness)

	// alone has the defect run in a process of its own, because the case ends
	// the process: by a panic, or by a goroutine that never returns.
	alone bool
}

// run runs the cases that must notice d. They fail.
func (d defect) run(t *testing.T) {
	t.Helper()
	seed := d.seed
	if seed == nil {
		seed = func(reference, *faulty) {}
	}
	h := harness()
	h.New = func(*testing.T) locco.Backend {
		f := newFaulty(seed)
		if d.wrap != nil {
			return d.wrap(f)
		}
		return f
	}
	h.Peer = func(_ *testing.T, b locco.Backend) locco.Backend {
		if f, ok := b.(*faulty); ok && d.peer != nil {
			return d.peer(f.reference, f)
		}
		return b
	}
	if d.harness != nil {
		d.harness(&h)
	}
	contract.RunOnly(t, h, d.caughtBy...)
}
