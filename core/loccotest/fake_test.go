package loccotest_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/core/loccotest"
)

// plain is a backend without any optional ability.
type plain struct {
	mu    sync.Mutex
	rows  map[string]row
	fence int64
	err   error                        // answered by every call, if not nil
	wakes map[string][]chan<- struct{} // of full
	stops int
	looks int
}

type row struct {
	token string
	ends  time.Time
}

func (p *plain) has(key, token string) bool {
	r, ok := p.rows[key]
	return ok && r.token == token && time.Now().Before(r.ends)
}

func (p *plain) free(key string) bool {
	r, ok := p.rows[key]
	return !ok || !time.Now().Before(r.ends)
}

func (p *plain) put(l locco.Lease) locco.Grant {
	if p.rows == nil {
		p.rows = map[string]row{}
	}
	p.rows[l.Key] = row{l.Token, time.Now().Add(l.TTL)}
	p.fence++
	return locco.Grant{OK: true, Fence: p.fence}
}

func (p *plain) Acquire(_ context.Context, l locco.Lease) (locco.Grant, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil || !p.free(l.Key) && !(l.Again && p.has(l.Key, l.Token)) {
		return locco.Grant{}, p.err
	}
	return p.put(l), nil
}

func (p *plain) Extend(_ context.Context, l locco.Lease) (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil || !p.has(l.Key, l.Token) {
		return false, p.err
	}
	p.put(l)
	return true, nil
}

func (p *plain) Release(_ context.Context, key, token string) (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil || !p.has(key, token) {
		return false, p.err
	}
	delete(p.rows, key)
	for _, wake := range p.wakes[key] {
		select {
		case wake <- struct{}{}:
		default:
		}
	}
	return true, nil
}

func (p *plain) Holds(_ context.Context, key, token string) (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.looks++
	return p.err == nil && p.has(key, token), p.err
}

// full is a backend with every optional ability.
type full struct {
	plain
	atomicErr error // of Transfer and AcquireMany
	short     bool  // ExtendMany forgets a verdict
}

var (
	errDriver  = errors.New("driver: broken")
	errPassing = errors.New("driver: failing over")
	errSetUp   = errors.New("driver: no client")
)

func (*full) Fences() bool { return true }

func (*full) Immediate() bool { return true }

func (*full) Retryable(err error) bool { return errors.Is(err, errPassing) }

func (*full) Validate() error { return errSetUp }

func (f *full) Watch(_ context.Context, key string) (<-chan struct{}, func(), error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return nil, nil, f.err
	}
	wake := make(chan struct{}, 1)
	if f.wakes == nil {
		f.wakes = map[string][]chan<- struct{}{}
	}
	f.wakes[key] = append(f.wakes[key], wake)
	return wake, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.stops++
	}, nil
}

// stopped returns how many watches were stopped.
func (f *full) stopped() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stops
}

func (f *full) Transfer(_ context.Context, from string, to locco.Lease) (locco.Grant, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.atomicErr != nil || !f.has(to.Key, from) {
		return locco.Grant{}, f.atomicErr
	}
	return f.put(to), nil
}

func (f *full) AcquireMany(_ context.Context, ls []locco.Lease) ([]locco.Grant, int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.atomicErr != nil {
		return nil, -1, f.atomicErr
	}
	for i, l := range ls {
		if !f.free(l.Key) {
			return nil, i, nil
		}
	}
	grants := make([]locco.Grant, len(ls))
	for i, l := range ls {
		grants[i] = f.put(l)
	}
	return grants, -1, nil
}

func (f *full) ExtendMany(ctx context.Context, ls []locco.Lease) []locco.Verdict {
	verdicts := make([]locco.Verdict, len(ls))
	for i, l := range ls {
		verdicts[i].OK, verdicts[i].Err = f.Extend(ctx, l)
	}
	if f.short {
		return verdicts[1:]
	}
	return verdicts
}

// ttl is longer than any wait of these tests.
const ttl = time.Minute

func lease(key, token string) locco.Lease {
	return locco.Lease{Key: key, Token: token, TTL: ttl}
}

// bubble runs fn in fake time, with a context whose deadline is a second away.
func bubble(t *testing.T, fn func(t *testing.T, ctx context.Context)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		fn(t, ctx)
	})
}

// grant takes l directly from a backend, where nothing can go wrong.
func grant(t *testing.T, b locco.Backend, l locco.Lease) {
	t.Helper()
	if g, err := b.Acquire(t.Context(), l); !g.OK || err != nil {
		t.Fatalf("Acquire(%q, %q) = %+v, %v; want a grant", l.Key, l.Token, g, err)
	}
}

// wantHolds checks who has a key. An empty token stands for nobody.
func wantHolds(t *testing.T, p *plain, key, token string) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	got := ""
	if r, ok := p.rows[key]; ok && time.Now().Before(r.ends) {
		got = r.token
	}
	if got != token {
		t.Errorf("%q is held by %q; want %q", key, got, token)
	}
}

// wantTook checks how much time has passed since start.
func wantTook(t *testing.T, start time.Time, want time.Duration) {
	t.Helper()
	if got := time.Since(start); got != want {
		t.Errorf("it took %v; want %v", got, want)
	}
}

// wantNoAnswer checks for the error of a call that had no answer.
func wantNoAnswer(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error = %v; want one that matches %v", err, context.DeadlineExceeded)
	}
}

func inject(b *loccotest.Backend, op loccotest.Op, e loccotest.Effect) {
	b.Inject(loccotest.Fault{Op: op, Effect: e})
}
