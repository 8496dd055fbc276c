package integration_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncgoredis "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredis "github.com/redis/go-redis/v9"

	"github.com/locco-go/locco/contract/integration"
)

// A party is another library that locks keys on Redis, and that locco shares keys
// with: for good, or in the middle of a migration.
type party struct {
	name string

	// join returns the party as it works on n. It ends with the test.
	join func(t *testing.T, n *integration.Node) peer
}

func parties() []party {
	return []party{
		{"Node", joinNode},
		{"redislock", joinRedislock},
		{"redsync", joinRedsync},
	}
}

// peer takes locks as its library does. A refusal is a nil hold and no error.
type peer interface {
	// try makes one attempt.
	try(ctx context.Context, key string, ttl time.Duration) (hold, error)

	// wait tries until it has the key, and calls refused at the first refusal.
	wait(ctx context.Context, key string, ttl time.Duration, refused func()) (hold, error)

	// adopt returns the hold of key that token makes, if the library knows before
	// its first use that there is none: a refusal.
	adopt(ctx context.Context, key, token string, ttl time.Duration) (hold, error)

	// hammer does what hammering says, with several workers, and returns the
	// rounds of each.
	hammer(ctx context.Context, h hammering) ([]int, error)
}

// hold is a lock of another library. Its methods answer false when the key is
// another's or nobody's.
type hold interface {
	token() string
	extend(ctx context.Context) (bool, error) // to the TTL of the acquisition
	release(ctx context.Context) (bool, error)
	held(ctx context.Context) (bool, error) // as the server has it
}

// goredisClient returns a client of the driver of redislock and redsync.
func goredisClient(t *testing.T, n *integration.Node) *goredis.Client {
	t.Helper()
	c := goredis.NewClient(&goredis.Options{Addr: n.Addr})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// redislockPeer is bsm/redislock. Its value is 16 random bytes in unpadded base64,
// and what the caller adds as metadata; Refresh is PEXPIRE behind a comparison.
type redislockPeer struct{ client *redislock.Client }

func joinRedislock(t *testing.T, n *integration.Node) peer {
	t.Helper()
	return redislockPeer{redislock.New(goredisClient(t, n))}
}

func (p redislockPeer) obtain(ctx context.Context, key string, ttl time.Duration, o *redislock.Options) (hold, error) {
	lock, err := p.client.Obtain(ctx, key, ttl, o)
	if errors.Is(err, redislock.ErrNotObtained) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return redislockHold{lock, ttl}, nil
}

func (p redislockPeer) try(ctx context.Context, key string, ttl time.Duration) (hold, error) {
	return p.obtain(ctx, key, ttl, &redislock.Options{Metadata: "of the test"})
}

func (p redislockPeer) wait(ctx context.Context, key string, ttl time.Duration, refused func()) (hold, error) {
	return p.obtain(ctx, key, ttl, &redislock.Options{RetryStrategy: &notify{refused: refused}})
}

// adopt obtains the key again: redislock takes a value that starts with its own
// token for its own.
func (p redislockPeer) adopt(ctx context.Context, key, token string, ttl time.Duration) (hold, error) {
	return p.obtain(ctx, key, ttl, &redislock.Options{Token: token})
}

func (p redislockPeer) hammer(ctx context.Context, h hammering) ([]int, error) {
	return h.run(ctx, func(ctx context.Context) (func(context.Context) error, error) {
		return h.waited(p.wait(ctx, h.key, h.ttl, func() {}))
	})
}

// notify is a strategy that tells of the first refusal.
type notify struct{ refused func() }

func (n *notify) NextBackoff() time.Duration {
	if n.refused != nil {
		n.refused()
		n.refused = nil
	}
	return pollDelay
}

type redislockHold struct {
	lock *redislock.Lock
	ttl  time.Duration
}

func (h redislockHold) token() string { return h.lock.Token() + h.lock.Metadata() }

func (h redislockHold) extend(ctx context.Context) (bool, error) {
	return answered(h.lock.Refresh(ctx, h.ttl, nil), redislock.ErrNotObtained)
}

func (h redislockHold) release(ctx context.Context) (bool, error) {
	return answered(h.lock.Release(ctx), redislock.ErrLockNotHeld)
}

func (h redislockHold) held(ctx context.Context) (bool, error) {
	left, err := h.lock.TTL(ctx)
	return left > 0, err
}

// answered turns the error that stands for a refusal into an answer.
func answered(err, refusal error) (bool, error) {
	if errors.Is(err, refusal) {
		return false, nil
	}
	return err == nil, err
}

// redsyncPeer is go-redsync/redsync with one pool. Its value is 16 random bytes in
// padded base64. Every request may take a share of the expiry, here all of it
// instead of a twentieth, which a short expiry on a busy machine runs into; Until
// ends 1 % early, as a lease of locco does. Extend always asks for the expiry of the
// mutex.
type redsyncPeer struct{ sync *redsync.Redsync }

func joinRedsync(t *testing.T, n *integration.Node) peer {
	t.Helper()
	return redsyncPeer{redsync.New(redsyncgoredis.NewPool(goredisClient(t, n)))}
}

func (p redsyncPeer) mutex(key string, ttl time.Duration, opts ...redsync.Option) *redsync.Mutex {
	opts = append(opts, redsync.WithExpiry(ttl), redsync.WithTimeoutFactor(1))
	return p.sync.NewMutex(key, opts...)
}

func (p redsyncPeer) try(ctx context.Context, key string, ttl time.Duration) (hold, error) {
	m := p.mutex(key, ttl)
	if ok, err := redsyncAnswer(true, m.TryLockContext(ctx)); !ok {
		return nil, err
	}
	return redsyncHold{m}, nil
}

func (p redsyncPeer) wait(ctx context.Context, key string, ttl time.Duration, refused func()) (hold, error) {
	m := p.mutex(key, ttl, redsync.WithTries(1<<30), redsync.WithRetryDelayFunc(func(try int) time.Duration {
		if try == 1 {
			refused()
		}
		return pollDelay
	}))
	if err := m.LockContext(ctx); err != nil {
		return nil, err
	}
	return redsyncHold{m}, nil
}

// adopt has a mutex that sets its key in Extend when nobody has it, which is as
// exclusive as Lock.
func (p redsyncPeer) adopt(_ context.Context, key, token string, ttl time.Duration) (hold, error) {
	return redsyncHold{p.mutex(key, ttl, redsync.WithValue(token), redsync.WithSetNXOnExtend())}, nil
}

func (p redsyncPeer) hammer(ctx context.Context, h hammering) ([]int, error) {
	return h.run(ctx, func(ctx context.Context) (func(context.Context) error, error) {
		return h.waited(p.wait(ctx, h.key, h.ttl, func() {}))
	})
}

type redsyncHold struct{ mutex *redsync.Mutex }

func (h redsyncHold) token() string { return h.mutex.Value() }

func (h redsyncHold) extend(ctx context.Context) (bool, error) {
	return redsyncAnswer(h.mutex.ExtendContext(ctx))
}

func (h redsyncHold) release(ctx context.Context) (bool, error) {
	return redsyncAnswer(h.mutex.UnlockContext(ctx))
}

func (h redsyncHold) held(ctx context.Context) (bool, error) {
	//nolint:staticcheck // deprecated because it asks the server, which is what is wanted
	return redsyncAnswer(h.mutex.ValidContext(ctx))
}

func redsyncAnswer(ok bool, err error) (bool, error) {
	var taken *redsync.ErrTaken
	if errors.As(err, &taken) || errors.Is(err, redsync.ErrLockAlreadyExpired) {
		return false, nil
	}
	return ok && err == nil, err
}

// pollDelay is between two attempts of a waiter that nobody wakes up.
const pollDelay = 5 * time.Millisecond

// hammering is a counter that is no counter without a lock: it is read, and written
// a moment later. Beside it is a list of who had the key.
type hammering struct {
	key, counter, log string
	name              string // for the list
	ttl               time.Duration
	workers           int
	long              time.Duration // how long it goes on
	rounds            int           // that each worker has to have by the end, at least
	until             chan struct{} // if there is one, it goes on until this is closed
	client            *goredis.Client
}

// run lets the workers count. Take takes the key and returns what frees it.
func (h hammering) run(ctx context.Context, take func(context.Context) (func(context.Context) error, error)) ([]int, error) {
	end := time.Now().Add(h.long)
	rounds := make([]int, h.workers)
	failures := make(chan error, h.workers)
	for w := range h.workers {
		go func() {
			for time.Now().Before(end) || rounds[w] < h.rounds || h.open() {
				if err := h.round(ctx, take); err != nil {
					failures <- fmt.Errorf("%s, worker %d, round %d: %w", h.name, w, rounds[w], err)
					return
				}
				rounds[w]++
				time.Sleep(rand.N(8 * time.Millisecond))
			}
			failures <- nil
		}()
	}
	var err error
	for range h.workers {
		err = errors.Join(err, <-failures)
	}
	return rounds, err
}

func (h hammering) open() bool {
	select {
	case <-h.until:
		return false
	default:
		return h.until != nil
	}
}

func (h hammering) round(ctx context.Context, take func(context.Context) (func(context.Context) error, error)) error {
	free, err := take(ctx)
	if err != nil {
		return err
	}
	value, err := h.client.Get(ctx, h.counter).Int()
	if err != nil && !errors.Is(err, goredis.Nil) {
		return err
	}
	if err := h.client.RPush(ctx, h.log, h.name).Err(); err != nil {
		return err
	}
	time.Sleep(time.Millisecond)
	if err := h.client.Set(ctx, h.counter, strconv.Itoa(value+1), 0).Err(); err != nil {
		return err
	}
	return free(ctx)
}

// waited makes a hold that a peer has waited for what run wants.
func (hammering) waited(held hold, err error) (func(context.Context) error, error) {
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		if ours, err := held.release(ctx); err != nil || !ours {
			return fmt.Errorf("release of our own lock: %v, %w", ours, err)
		}
		return nil
	}, nil
}
