package locco_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	locco "github.com/locco-go/locco/core"
)

// store is the backend of these tests: a map with every optional ability, on the
// time of the bubble. Core's tests may not import a real backend. Faults come
// from package loccotest.
type store struct {
	immediate bool
	noLeft    bool // never tells how long a lease still runs

	mu       sync.Mutex
	rows     map[string]row
	fence    int64
	watchers map[string][]chan struct{}
	calls    int // of all operations that would cost a round trip
	onGrant  func(key, token string)
}

type row struct {
	token string
	ends  time.Time
}

// plainStore is a store without any optional ability.
type plainStore struct{ locco.Backend }

func newStore() *store {
	return &store{rows: map[string]row{}, watchers: map[string][]chan struct{}{}}
}

func (s *store) live(key string) (row, bool) {
	r, ok := s.rows[key]
	if ok && !time.Now().Before(r.ends) {
		delete(s.rows, key)
		return row{}, false
	}
	return r, ok
}

func (s *store) put(l locco.Lease) locco.Grant {
	s.rows[l.Key] = row{l.Token, time.Now().Add(l.TTL)}
	g := locco.Grant{OK: true}
	if l.Fenced {
		s.fence++
		g.Fence = s.fence
	}
	if s.onGrant != nil {
		s.onGrant(l.Key, l.Token)
	}
	return g
}

func (s *store) refusal(l locco.Lease, r row) locco.Grant {
	if !l.WantLeft || s.noLeft {
		return locco.Grant{}
	}
	return locco.Grant{Left: time.Until(r.ends)}
}

func (s *store) Acquire(ctx context.Context, l locco.Lease) (locco.Grant, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	if err := ctx.Err(); err != nil {
		return locco.Grant{}, err
	}
	if r, held := s.live(l.Key); held && !(l.Again && r.token == l.Token) {
		return s.refusal(l, r), nil
	}
	return s.put(l), nil
}

func (s *store) Extend(ctx context.Context, l locco.Lease) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	return s.extend(ctx, l)
}

func (s *store) extend(ctx context.Context, l locco.Lease) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	if r, held := s.live(l.Key); !held || r.token != l.Token {
		return false, nil
	}
	s.rows[l.Key] = row{l.Token, time.Now().Add(l.TTL)}
	return true, nil
}

func (s *store) Release(ctx context.Context, key, token string) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	if err := ctx.Err(); err != nil {
		return false, err
	}
	if r, held := s.live(key); !held || r.token != token {
		return false, nil
	}
	delete(s.rows, key)
	for _, wake := range s.watchers[key] {
		select {
		case wake <- struct{}{}:
		default:
		}
	}
	return true, nil
}

func (s *store) Holds(ctx context.Context, key, token string) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	r, held := s.live(key)
	return held && r.token == token, ctx.Err()
}

func (s *store) Fences() bool           { return true }
func (s *store) Immediate() bool        { return s.immediate }
func (s *store) Retryable(e error) bool { return errors.Is(e, errPassing) }

// errPassing is a driver error that passes by itself; errBroken is one that
// stays.
var (
	errPassing = errors.New("driver: failing over")
	errBroken  = errors.New("driver: broken")
)

func (s *store) Watch(ctx context.Context, key string) (<-chan struct{}, func(), error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	wake := make(chan struct{}, 1)
	s.watchers[key] = append(s.watchers[key], wake)
	return wake, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for i, w := range s.watchers[key] {
			if w == wake {
				s.watchers[key] = append(s.watchers[key][:i:i], s.watchers[key][i+1:]...)
				break
			}
		}
		if _, held := s.live(key); !held && len(s.watchers[key]) > 0 {
			select {
			case s.watchers[key][0] <- struct{}{}:
			default:
			}
		}
		if len(s.watchers[key]) == 0 {
			delete(s.watchers, key)
		}
	}, nil
}

func (s *store) Transfer(ctx context.Context, from string, to locco.Lease) (locco.Grant, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	if err := ctx.Err(); err != nil {
		return locco.Grant{}, err
	}
	if r, held := s.live(to.Key); !held || r.token != from {
		return locco.Grant{}, nil
	}
	return s.put(to), nil
}

func (s *store) AcquireMany(ctx context.Context, ls []locco.Lease) ([]locco.Grant, int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	if err := ctx.Err(); err != nil {
		return nil, -1, err
	}
	for i, l := range ls {
		if _, held := s.live(l.Key); held {
			return nil, i, nil
		}
	}
	grants := make([]locco.Grant, len(ls))
	for i, l := range ls {
		grants[i] = s.put(l)
	}
	return grants, -1, nil
}

func (s *store) ExtendMany(ctx context.Context, ls []locco.Lease) []locco.Verdict {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	verdicts := make([]locco.Verdict, len(ls))
	for i, l := range ls {
		verdicts[i].OK, verdicts[i].Err = s.extend(ctx, l)
	}
	return verdicts
}

// holder returns the token that has key now, or "".
func (s *store) holder(key string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, _ := s.live(key)
	return r.token
}

// take gives key to a holder outside of every locker.
func (s *store) take(key string, ttl time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rows[key] = row{"somebody else", time.Now().Add(ttl)}
}

// free drops key without a wake-up, as a flushed server does.
func (s *store) free(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.rows, key)
}

func (s *store) callCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

// newLocker makes a locker that is closed at the end of the test, in the bubble.
func newLocker(t *testing.T, b locco.Backend, opts ...locco.Option) *locco.Locker {
	t.Helper()
	locker, err := locco.New(b, opts...)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	t.Cleanup(func() { _ = locker.Close(context.Background()) })
	return locker
}
