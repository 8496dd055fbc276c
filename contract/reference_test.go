package contract_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/locco-go/locco/contract"
	locco "github.com/locco-go/locco/core"
)

// reference is a correct backend with every ability, as simple as can be: a map
// and a mutex. Several of them may be clients of one store.
type reference struct {
	*store
}

var _ interface {
	locco.Backend
	locco.Fencer
	locco.Immediate
	locco.Retryer
	locco.Watcher
	locco.Transferrer
	locco.ManyAcquirer
	locco.ManyExtender
	locco.Validator
} = reference{}

// store is what the clients share. Its methods without a context are steps of
// the operations and need mu.
type store struct {
	mu      sync.Mutex
	leases  map[string]*stored
	fences  map[string]int64
	waiting map[string][]*watching
}

type stored struct {
	token string
	ends  time.Time
}

// watching is one watch. Only the first of a key is woken; when it stops while
// the key is free, the next is.
type watching struct {
	wake chan struct{} // room for one
}

func newReference() reference {
	return reference{&store{
		leases:  map[string]*stored{},
		fences:  map[string]int64{},
		waiting: map[string][]*watching{},
	}}
}

// harness is that of a reference in fake time.
func harness() contract.Harness {
	return contract.Harness{
		New:         func(*testing.T) locco.Backend { return newReference() },
		Peer:        func(_ *testing.T, b locco.Backend) locco.Backend { return reference{b.(reference).store} },
		Broken:      func(*testing.T) locco.Backend { return unreachable{} },
		BrokenCause: errUnreachable,
		Bubble:      synctest.Test,
		Immediate:   true,
	}
}

// live returns the lease of key, nil when there is none or it has ended.
func (s *store) live(key string) *stored {
	l := s.leases[key]
	if l == nil || !time.Now().Before(l.ends) {
		return nil
	}
	return l
}

// heldBy returns the lease of key if token holds it.
func (s *store) heldBy(key, token string) *stored {
	if l := s.live(key); l != nil && l.token == token {
		return l
	}
	return nil
}

func (s *store) refuses(l locco.Lease) bool {
	present := s.live(l.Key)
	return present != nil && (present.token != l.Token || !l.Again)
}

func (s *store) refusal(l locco.Lease) locco.Grant {
	var g locco.Grant
	if present := s.live(l.Key); present != nil && l.WantLeft {
		g.Left = time.Until(present.ends)
	}
	return g
}

// put stores l. Whoever waits for the end of the lease before it may have to
// look earlier.
func (s *store) put(l locco.Lease) locco.Grant {
	ends := time.Now().Add(l.TTL)
	if before := s.leases[l.Key]; before == nil || ends.Before(before.ends) {
		s.signal(l.Key)
	}
	s.leases[l.Key] = &stored{token: l.Token, ends: ends}
	g := locco.Grant{OK: true}
	if l.Fenced {
		s.fences[l.Key]++
		g.Fence = s.fences[l.Key]
	}
	return g
}

// free removes the lease and wakes the first watch.
func (s *store) free(key string) {
	delete(s.leases, key)
	s.signal(key)
}

func (s *store) signal(key string) {
	if queue := s.waiting[key]; len(queue) > 0 {
		queue[0].signal()
	}
}

func (w *watching) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// do runs one operation.
func do[T any](ctx context.Context, s *store, operation func() T) (answer T, err error) {
	if err := ctx.Err(); err != nil {
		return answer, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return operation(), nil
}

func (s *store) Acquire(ctx context.Context, l locco.Lease) (locco.Grant, error) {
	return do(ctx, s, func() locco.Grant {
		if s.refuses(l) {
			return s.refusal(l)
		}
		return s.put(l)
	})
}

func (s *store) Extend(ctx context.Context, l locco.Lease) (bool, error) {
	return do(ctx, s, func() bool {
		if s.heldBy(l.Key, l.Token) == nil {
			return false
		}
		l.Fenced = false
		return s.put(l).OK
	})
}

func (s *store) Release(ctx context.Context, key, token string) (bool, error) {
	return do(ctx, s, func() bool {
		if s.heldBy(key, token) == nil {
			return false
		}
		s.free(key)
		return true
	})
}

func (s *store) Holds(ctx context.Context, key, token string) (bool, error) {
	return do(ctx, s, func() bool { return s.heldBy(key, token) != nil })
}

func (s *store) Transfer(ctx context.Context, from string, to locco.Lease) (locco.Grant, error) {
	return do(ctx, s, func() locco.Grant {
		if s.heldBy(to.Key, from) == nil {
			return s.refusal(to)
		}
		return s.put(to)
	})
}

func (s *store) AcquireMany(ctx context.Context, ls []locco.Lease) (grants []locco.Grant, refused int, err error) {
	refused, err = do(ctx, s, func() int {
		if i := slices.IndexFunc(ls, s.refuses); i >= 0 {
			return i
		}
		for _, l := range ls {
			grants = append(grants, s.put(l))
		}
		return -1
	})
	return grants, refused, err
}

func (s *store) ExtendMany(ctx context.Context, ls []locco.Lease) []locco.Verdict {
	verdicts := make([]locco.Verdict, len(ls))
	for i, l := range ls {
		verdicts[i].OK, verdicts[i].Err = s.Extend(ctx, l)
	}
	return verdicts
}

func (s *store) Watch(ctx context.Context, key string) (wake <-chan struct{}, stop func(), err error) {
	w, err := do(ctx, s, func() *watching {
		w := &watching{wake: make(chan struct{}, 1)}
		s.waiting[key] = append(s.waiting[key], w)
		return w
	})
	if err != nil {
		return nil, nil, err
	}
	return w.wake, func() { s.unwatch(key, w) }, nil
}

func (s *store) unwatch(key string, w *watching) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := slices.Index(s.waiting[key], w)
	if at < 0 {
		return
	}
	s.waiting[key] = slices.Delete(s.waiting[key], at, at+1)
	if at == 0 && s.live(key) == nil {
		s.signal(key)
	}
}

func (*store) Fences() bool         { return true }
func (*store) Immediate() bool      { return true }
func (*store) Validate() error      { return nil }
func (*store) Retryable(error) bool { return false }

// bare hides every ability of a backend.
type bare struct{ b locco.Backend }

func (b bare) Acquire(ctx context.Context, l locco.Lease) (locco.Grant, error) {
	g, err := b.b.Acquire(ctx, l)
	g.Left = 0
	return g, err
}

func (b bare) Extend(ctx context.Context, l locco.Lease) (bool, error) { return b.b.Extend(ctx, l) }

func (b bare) Release(ctx context.Context, key, token string) (bool, error) {
	return b.b.Release(ctx, key, token)
}

func (b bare) Holds(ctx context.Context, key, token string) (bool, error) {
	return b.b.Holds(ctx, key, token)
}

// refusing has every ability by its type and none in fact, as a wrapper of
// another backend may.
type refusing struct{ bare }

func (refusing) Fences() bool    { return false }
func (refusing) Immediate() bool { return false }

func (refusing) Transfer(context.Context, string, locco.Lease) (locco.Grant, error) {
	return locco.Grant{}, fmt.Errorf("refusing: %w", errors.ErrUnsupported)
}

func (refusing) AcquireMany(context.Context, []locco.Lease) ([]locco.Grant, int, error) {
	return nil, -1, fmt.Errorf("refusing: %w", errors.ErrUnsupported)
}

func (refusing) ExtendMany(_ context.Context, ls []locco.Lease) []locco.Verdict {
	verdicts := make([]locco.Verdict, len(ls))
	for i := range verdicts {
		verdicts[i].Err = fmt.Errorf("refusing: %w", errors.ErrUnsupported)
	}
	return verdicts
}

func (refusing) Watch(context.Context, string) (<-chan struct{}, func(), error) {
	return nil, nil, fmt.Errorf("refusing: %w", errors.ErrUnsupported)
}

// without returns h with everything declared missing.
func without(h contract.Harness) contract.Harness {
	h.Immediate = false
	h.WithoutFencing = true
	h.WithoutLeft = true
	h.WithoutWatcher = true
	h.WithoutTransfer = true
	h.WithoutManyAcquire = true
	h.WithoutManyExtend = true
	h.WithoutRetryer = true
	h.WithoutValidator = true
	return h
}

var errUnreachable = errors.New("reference: server out of reach")

// unreachable is a backend whose server does not answer. It has no answer but
// the end of the context.
type unreachable struct{}

func (unreachable) Fences() bool { return true }

func (unreachable) wait(ctx context.Context) error {
	<-ctx.Done()
	return fmt.Errorf("%w: %w", errUnreachable, ctx.Err())
}

func (u unreachable) Acquire(ctx context.Context, _ locco.Lease) (locco.Grant, error) {
	return locco.Grant{}, u.wait(ctx)
}

func (u unreachable) Extend(ctx context.Context, _ locco.Lease) (bool, error) {
	return false, u.wait(ctx)
}

func (u unreachable) Release(ctx context.Context, _, _ string) (bool, error) {
	return false, u.wait(ctx)
}

func (u unreachable) Holds(ctx context.Context, _, _ string) (bool, error) {
	return false, u.wait(ctx)
}

func (u unreachable) Transfer(ctx context.Context, _ string, _ locco.Lease) (locco.Grant, error) {
	return locco.Grant{}, u.wait(ctx)
}

func (u unreachable) AcquireMany(ctx context.Context, _ []locco.Lease) ([]locco.Grant, int, error) {
	return nil, -1, u.wait(ctx)
}

func (u unreachable) ExtendMany(ctx context.Context, ls []locco.Lease) []locco.Verdict {
	err := u.wait(ctx)
	verdicts := make([]locco.Verdict, len(ls))
	for i := range verdicts {
		verdicts[i].Err = err
	}
	return verdicts
}

func (u unreachable) Watch(ctx context.Context, _ string) (<-chan struct{}, func(), error) {
	return nil, nil, u.wait(ctx)
}
