package integration_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/locco-go/locco/contract/integration"
	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/redis/protocol"
)

// The tests of this file hold the wire format of spec 8.2 against libraries that
// others wrote: all of them store SET key value PX ttl NX, compare before they
// delete or extend, and so exclude each other on a key.
//
// What does not carry over, from any of them to locco or back:
//
//   - Fences. Theirs have none, and draw none: what they hold cannot be told apart
//     at the resource. A fenced grant of locco after theirs is still larger than
//     every fence before.
//   - Wake-ups. Their releases publish nothing and their waiters do not listen, so
//     a waiter of locco looks once in its retry delay, and when the lease ends.
//   - The holder's own view. Only redsync knows by itself when its lease is over;
//     the Node library and redislock go by what the server says when asked.
//   - Tokens. Each has a format of its own; nobody looks into another's.

const interopTTL = 30 * time.Second

// interop is what a test of two parties works with.
type interop struct {
	t      *testing.T
	driver driver
	node   *integration.Node
	admin  rueidis.Client
	peer   peer
	fenced bool
	locker *locco.Locker
}

// TestRedisInterop runs every case with locco fenced and unfenced.
//
// spec 8.2: another library that uses the same protocol is one more locker.
func TestRedisInterop(t *testing.T) {
	t.Parallel()
	cases := map[string]func(*interop){
		"Exclusion":    interopExclusion,
		"Foreign":      interopForeign,
		"Adopted":      interopAdopted,
		"LoccoWaits":   interopLoccoWaits,
		"PeerWaits":    interopPeerWaits,
		"LoccoExpires": interopLoccoExpires,
		"PeerExpires":  interopPeerExpires,
		"Stored":       interopStored,
		"AcquireMany":  interopAcquireMany,
	}
	eachParty(t, func(t *testing.T, d driver, n *integration.Node, p peer) {
		for _, name := range slices.Sorted(maps.Keys(cases)) {
			for _, fenced := range []bool{false, true} {
				t.Run(name+map[bool]string{false: "Unfenced", true: "Fenced"}[fenced], func(t *testing.T) {
					t.Parallel()
					i := &interop{t: t, driver: d, node: n, admin: n.Client(t), peer: p, fenced: fenced}
					i.locker = i.newLocker()
					cases[name](i)
				})
			}
		}
	})
}

func eachParty(t *testing.T, test func(t *testing.T, d driver, n *integration.Node, p peer)) {
	t.Helper()
	eachDriver(t, func(t *testing.T, d driver, r integration.Redis) {
		n := integration.SharedRedis(t, r)
		for _, p := range parties() {
			t.Run(p.name, func(t *testing.T) {
				t.Parallel()
				test(t, d, n, p.join(t, n))
			})
		}
	})
}

func (i *interop) newLocker(opts ...locco.Option) *locco.Locker {
	i.t.Helper()
	if i.fenced {
		opts = append(opts, locco.WithFencing())
	}
	return newLocker(i.t, i.driver.open(i.t, at(i.node)), opts...)
}

// keys are such as applications have. Names of tests make them unique.
func (i *interop) keys() []string {
	return []string{
		i.t.Name(),
		i.t.Name() + ":with space, \"quotes\" and \\",
		i.t.Name() + ":{tag}:rest",
		i.t.Name() + ":ключ:鍵",
		strings.Repeat("k", 1024-len(i.t.Name())) + i.t.Name(),
	}
}

// acquire takes a key that is free.
func (i *interop) acquire(key string, ttl time.Duration) *locco.Lock {
	i.t.Helper()
	lock, err := i.locker.TryAcquire(i.t.Context(), key, ttl)
	if err != nil {
		i.t.Fatalf("TryAcquire of a free key %.80q: %v", key, err)
	}
	if (lock.Fence() > 0) != i.fenced {
		i.t.Errorf("Fence = %d; want one: %v", lock.Fence(), i.fenced)
	}
	return lock
}

func (i *interop) refused(key string) {
	i.t.Helper()
	if lock, err := i.locker.TryAcquire(i.t.Context(), key, interopTTL); !errors.Is(err, locco.ErrHeld) {
		i.t.Errorf("TryAcquire of the peer's key %.80q = %v, %v; want ErrHeld", key, lock, err)
	}
}

func (i *interop) release(lock *locco.Lock) {
	i.t.Helper()
	if err := lock.Release(i.t.Context()); err != nil {
		i.t.Errorf("Release: %v", err)
	}
}

func (i *interop) peerAcquire(key string, ttl time.Duration) hold {
	i.t.Helper()
	h, err := i.peer.try(i.t.Context(), key, ttl)
	if err != nil || h == nil {
		i.t.Fatalf("the peer cannot take a free key %.80q: %v, %v", key, h, err)
	}
	return h
}

func (i *interop) peerRefused(key string) {
	i.t.Helper()
	if h, err := i.peer.try(i.t.Context(), key, interopTTL); err != nil || h != nil {
		i.t.Errorf("the peer takes locco's key %.80q: %v, %v; want a refusal", key, h, err)
	}
}

// is checks the peer's answer.
func (i *interop) is(want bool, what string, call func(context.Context) (bool, error)) {
	i.t.Helper()
	if got, err := call(i.t.Context()); got != want || err != nil {
		i.t.Errorf("%s by the peer = %v, %v; want %v", what, got, err, want)
	}
}

func (i *interop) exists(key string) bool {
	i.t.Helper()
	n, err := do(i.t, i.admin, "EXISTS", key).AsInt64()
	if err != nil {
		i.t.Fatalf("EXISTS: %v", err)
	}
	return n == 1
}

// left returns what PTTL says, and fails the test unless it is in (above, most].
func (i *interop) left(key string, above, most time.Duration) {
	i.t.Helper()
	ms, err := do(i.t, i.admin, "PTTL", key).AsInt64()
	if left := time.Duration(ms) * time.Millisecond; err != nil || left <= above || left > most {
		i.t.Errorf("PTTL of %.80q = %v, %v; want more than %v, at most %v", key, left, err, above, most)
	}
}

// takeAway frees a key behind its holder's back.
func (i *interop) takeAway(key string) {
	i.t.Helper()
	if n, err := do(i.t, i.admin, "DEL", key).AsInt64(); n != 1 || err != nil {
		i.t.Fatalf("DEL = %d, %v; want 1", n, err)
	}
}

// shorten leaves a lease little to run.
func (i *interop) shorten(key string, to time.Duration) {
	i.t.Helper()
	if n, err := do(i.t, i.admin, "PEXPIRE", key, strconv.FormatInt(to.Milliseconds(), 10)).AsInt64(); n != 1 || err != nil {
		i.t.Fatalf("PEXPIRE = %d, %v; want 1", n, err)
	}
}

// Each one's holder excludes the other, until it releases; then there is a grant,
// whose fence has grown although the peer knows nothing of fences (spec 6.1, 6.2).
func interopExclusion(i *interop) {
	for _, key := range i.keys() {
		var last int64
		for range 2 {
			lock := i.acquire(key, interopTTL)
			if i.fenced && lock.Fence() <= last {
				i.t.Errorf("spec 6.1: fence %d after %d, with the peer's hold between", lock.Fence(), last)
			}
			last = lock.Fence()
			i.peerRefused(key)
			i.refused(key)
			if err := lock.Check(i.t.Context()); err != nil {
				i.t.Errorf("Check after the peer's attempt: %v", err)
			}
			i.release(lock)

			h := i.peerAcquire(key, interopTTL)
			i.refused(key)
			i.peerRefused(key)
			i.is(true, "held", h.held)
			i.is(true, "release", h.release)
			if i.exists(key) {
				i.t.Errorf("%.80q is there after the peer's release", key)
			}
		}
	}
}

// Who lost the key to the other can neither extend nor release it, and does no harm
// by trying.
func interopForeign(i *interop) {
	key := i.t.Name()
	h := i.peerAcquire(key, interopTTL)
	i.takeAway(key)
	lock := i.acquire(key, interopTTL)
	i.shorten(key, 20*time.Second)
	i.is(false, "held", h.held)
	i.is(false, "extend of locco's lock", h.extend)
	i.left(key, 0, 20*time.Second)
	i.is(false, "release of locco's lock", h.release)
	if err := lock.Check(i.t.Context()); err != nil {
		i.t.Errorf("Check after the peer's late release: %v", err)
	}

	i.takeAway(key)
	h = i.peerAcquire(key, interopTTL)
	i.shorten(key, 20*time.Second)
	if err := lock.Extend(i.t.Context(), interopTTL); !errors.Is(err, locco.ErrLost) {
		i.t.Errorf("Extend of the peer's lock: %v; want ErrLost", err)
	}
	if err := lock.Release(i.t.Context()); !errors.Is(err, locco.ErrLost) {
		i.t.Errorf("Release of the peer's lock: %v; want ErrLost", err)
	}
	i.left(key, 0, 20*time.Second)
	i.is(true, "held", h.held)

	// Nor does a second release do anything.
	i.is(true, "release", h.release)
	i.is(false, "release of a free key", func(ctx context.Context) (bool, error) { return refusedTwice(h.release(ctx)) })
	if i.exists(key) {
		i.t.Error("the key is there after its release")
	}

	// A token that nobody was granted.
	lock = i.acquire(key, interopTTL)
	stranger, err := i.peer.adopt(i.t.Context(), key, strings.Repeat("0", 32), interopTTL)
	if err != nil {
		i.t.Fatalf("adopt: %v", err)
	}
	if stranger != nil {
		i.is(false, "extend by a token of nobody", stranger.extend)
		i.is(false, "release by a token of nobody", stranger.release)
	}
	b := i.driver.open(i.t, at(i.node))
	if err := lock.Check(i.t.Context()); err != nil {
		i.t.Errorf("Check after a stranger's attempts: %v", err)
	}
	i.release(lock)
	h = i.peerAcquire(key, interopTTL)
	ctx, cancel := context.WithTimeout(i.t.Context(), 10*time.Second)
	defer cancel()
	if ours, err := b.Extend(ctx, locco.Lease{Key: key, Token: strings.Repeat("0", 32), TTL: interopTTL}); ours || err != nil {
		i.t.Errorf("Extend by a token of nobody = %v, %v; want false", ours, err)
	}
	if ours, err := b.Release(ctx, key, strings.Repeat("0", 32)); ours || err != nil {
		i.t.Errorf("Release by a token of nobody = %v, %v; want false", ours, err)
	}
	i.is(true, "held", h.held)
}

// refusedTwice takes the error of a library that minds a second release for the
// refusal that it is.
func refusedTwice(ours bool, err error) (bool, error) {
	if err != nil && strings.Contains(err.Error(), "Can't release resource twice") {
		return false, nil
	}
	return ours, err
}

// A token is all that makes a holder: each takes over the other's lock by it, which
// works only if both store the same.
func interopAdopted(i *interop) {
	key := i.t.Name()
	lock := i.acquire(key, interopTTL)
	detached, err := lock.Detach()
	if err != nil {
		i.t.Fatalf("Detach: %v", err)
	}
	h, err := i.peer.adopt(i.t.Context(), key, detached.Token, interopTTL)
	if err != nil || h == nil {
		i.t.Fatalf("adopt = %v, %v; want locco's lock", h, err)
	}
	i.shorten(key, 20*time.Second)
	i.is(true, "held", h.held)
	i.is(true, "extend of what was locco's", h.extend)
	i.left(key, 20*time.Second, interopTTL)
	if v := get(i.t, i.admin, key); v != detached.Token {
		i.t.Errorf("value after the peer's extension = %q; want %q", v, detached.Token)
	}
	i.refused(key)
	i.is(true, "release of what was locco's", h.release)

	h = i.peerAcquire(key, interopTTL)
	i.shorten(key, 20*time.Second)
	lock, err = i.locker.Attach(i.t.Context(), locco.Handle{Key: key, Token: h.token()}, interopTTL)
	if err != nil {
		i.t.Fatalf("Attach of the peer's lock: %v", err)
	}
	i.left(key, 20*time.Second, interopTTL)
	i.is(true, "held after locco's extension", h.held)
	i.release(lock)
	i.is(false, "held after locco's release", h.held)
}

// limit is for what happens at once.
func (i *interop) limit() (context.Context, context.CancelFunc) {
	return context.WithTimeout(i.t.Context(), 30*time.Second)
}

// A lock that the peer releases goes to a waiter of locco: by polling, because the
// peer publishes nothing.
func interopLoccoWaits(i *interop) {
	key := i.t.Name()
	h := i.peerAcquire(key, interopTTL)
	contended := make(chan struct{}, 1)
	i.locker = i.newLocker(locco.WithEvents(func(e locco.Event) {
		if e.Kind == locco.EventContended {
			select {
			case contended <- struct{}{}:
			default:
			}
		}
	}))
	ctx, cancel := i.limit()
	defer cancel()
	var released atomic.Bool
	ended := make(chan error, 1)
	go func() {
		lock, err := i.locker.Acquire(ctx, key, interopTTL, locco.RetryForever(), locco.RetryDelay(pollDelay))
		if err == nil && !released.Load() {
			err = errors.New("granted before the peer released")
		}
		if err == nil && lock.Attempts() < 2 {
			err = fmt.Errorf("granted by attempt %d; want a later one", lock.Attempts())
		}
		ended <- err
	}()
	select {
	case <-contended:
	case err := <-ended:
		i.t.Fatalf("Acquire ended before it was refused: %v", err)
	}
	released.Store(true)
	i.is(true, "release", h.release)
	if err := <-ended; err != nil {
		i.t.Errorf("Acquire: %v", err)
	}
	i.peerRefused(key)
}

// A lock that locco releases goes to a waiter of the peer.
func interopPeerWaits(i *interop) {
	key := i.t.Name()
	lock := i.acquire(key, interopTTL)
	ctx, cancel := i.limit()
	defer cancel()
	refused := make(chan struct{})
	ended := make(chan error, 1)
	var h hold
	var released atomic.Bool
	go func() {
		var err error
		h, err = i.peer.wait(ctx, key, interopTTL, func() { close(refused) })
		if err == nil && !released.Load() {
			err = errors.New("granted before locco released")
		}
		ended <- err
	}()
	select {
	case <-refused:
	case err := <-ended:
		i.t.Fatalf("the peer's wait ended before it was refused: %v", err)
	}
	released.Store(true)
	i.release(lock)
	if err := <-ended; err != nil {
		i.t.Fatalf("the peer's wait: %v", err)
	}
	i.refused(key)
	i.is(true, "release", h.release)
}

const shortTTL = 400 * time.Millisecond

// A lease of locco that nobody ends goes to a waiter of the peer once it is over,
// and not before locco knows (spec 5.3).
func interopLoccoExpires(i *interop) {
	key := i.t.Name()
	ctx, cancel := i.limit()
	defer cancel()
	lock := i.acquire(key, shortTTL)
	h, err := i.peer.wait(ctx, key, interopTTL, func() {})
	if s := lock.State(); err != nil || s != locco.StateLost {
		i.t.Fatalf("the peer's wait: %v, with locco's lock %v; want it lost", err, s)
	}
	i.is(true, "held", h.held)
	i.refused(key)
	if err := lock.Release(i.t.Context()); !errors.Is(err, locco.ErrLost) {
		i.t.Errorf("Release: %v; want ErrLost", err)
	}
	i.is(true, "held after locco's late release", h.held)
}

// A lease of the peer that nobody ends goes to a waiter of locco when it is over: by
// what the server says is left of it, long before the next retry (spec 3.4).
func interopPeerExpires(i *interop) {
	key := i.t.Name()
	ctx, cancel := i.limit()
	defer cancel()
	sent := time.Now()
	h := i.peerAcquire(key, shortTTL)
	lock, err := i.locker.Acquire(ctx, key, interopTTL, locco.RetryDelay(time.Hour))
	if err != nil {
		i.t.Fatalf("Acquire: %v", err)
	}
	// The server's clock has whole milliseconds.
	if d := time.Since(sent); d < shortTTL-2*time.Millisecond {
		i.t.Errorf("granted %v after the peer asked for %v", d, shortTTL)
	}
	i.is(false, "held", h.held)
	i.is(false, "extend", h.extend)
	i.is(false, "release", h.release)
	if err := lock.Check(i.t.Context()); err != nil {
		i.t.Errorf("Check after the peer's late release: %v", err)
	}
}

// What is stored is a string, the token as its value and the lease as its expiry,
// whoever stored it; beside it the counter of locco, which the peer leaves alone.
func interopStored(i *interop) {
	for _, key := range i.keys() {
		counter := protocol.FenceKey(key)
		if want := "{" + key + "}:locco-fence"; !strings.Contains(key, "{tag}") && counter != want {
			i.t.Errorf("counter of %.80q = %.80q; want %.80q", key, counter, want)
		}
		stored := func(token string, shape int) {
			i.t.Helper()
			if kind, err := do(i.t, i.admin, "TYPE", key).ToString(); kind != "string" || err != nil {
				i.t.Errorf("TYPE = %q, %v; want string", kind, err)
			}
			if v := get(i.t, i.admin, key); v != token || len(v) < shape {
				i.t.Errorf("value = %q; want the token %q", v, token)
			}
			i.left(key, 0, interopTTL)
		}

		h := i.peerAcquire(key, interopTTL)
		stored(h.token(), 22)
		if i.exists(counter) {
			i.t.Errorf("%.80q is there before a fenced grant", counter)
		}
		i.shorten(key, 20*time.Second)
		i.is(true, "extend", h.extend)
		i.left(key, 20*time.Second, interopTTL)
		i.is(true, "release", h.release)

		lock := i.acquire(key, interopTTL)
		stored(lock.Token(), 32)
		i.shorten(key, 20*time.Second)
		if err := lock.Extend(i.t.Context(), interopTTL); err != nil {
			i.t.Errorf("Extend: %v", err)
		}
		stored(lock.Token(), 32)
		i.left(key, 20*time.Second, interopTTL)
		i.release(lock)
		if i.exists(counter) != i.fenced {
			i.t.Errorf("EXISTS %.80q is not %v", counter, i.fenced)
		}
		if !i.fenced {
			continue
		}
		digits := get(i.t, i.admin, counter)
		if want := strconv.FormatInt(lock.Fence(), 10); digits != want {
			i.t.Errorf("counter = %q; want %q", digits, want)
		}
		i.left(counter, 23*time.Hour, 24*time.Hour)
		h = i.peerAcquire(key, interopTTL)
		i.is(true, "release", h.release)
		if v := get(i.t, i.admin, counter); v != digits {
			i.t.Errorf("counter after the peer's hold = %q; want %q", v, digits)
		}
	}
}

// A set of locco excludes the peer from every key of it, and is not had while the
// peer has one of them: then nothing of it is left (spec 2.5).
func interopAcquireMany(i *interop) {
	keys := []string{i.t.Name() + ":a", i.t.Name() + ":b", i.t.Name() + ":c"}
	for _, theirs := range keys {
		h := i.peerAcquire(theirs, interopTTL)
		_, err := i.locker.AcquireMany(i.t.Context(), keys, interopTTL, locco.Retries(0))
		var held *locco.HeldError
		if !errors.As(err, &held) || held.Key != theirs {
			i.t.Errorf("AcquireMany with the peer on %q: %v; want a HeldError of that", theirs, err)
		}
		for _, key := range keys {
			if i.exists(key) != (key == theirs) {
				i.t.Errorf("EXISTS %q after the refusal is %v", key, key != theirs)
			}
		}
		i.is(true, "held", h.held)
		i.is(true, "release", h.release)
	}
	set, err := i.locker.AcquireMany(i.t.Context(), keys, interopTTL, locco.Retries(0))
	if err != nil {
		i.t.Fatalf("AcquireMany: %v", err)
	}
	for _, key := range keys {
		i.peerRefused(key)
		if v := get(i.t, i.admin, key); v != set.Get(key).Token() {
			i.t.Errorf("value of %q = %q; want the token %q", key, v, set.Get(key).Token())
		}
	}
	if err := set.Release(i.t.Context()); err != nil {
		i.t.Errorf("Release: %v", err)
	}
	for _, key := range keys {
		i.is(true, "release", i.peerAcquire(key, interopTTL).release)
	}
}

// TestRedisInteropHammer has two lockers, one of them fenced, and two workers of
// each other library at once on one key, over a counter that is no counter without
// a lock.
//
// spec 8.2, 6.2: a fleet in the middle of a migration stays exclusive.
func TestRedisInteropHammer(t *testing.T) {
	t.Parallel()
	eachParty(t, func(t *testing.T, d driver, n *integration.Node, p peer) {
		t.Helper()
		h := hammering{
			key: t.Name(), counter: t.Name() + ":counter", log: t.Name() + ":log",
			ttl: interopTTL, long: 3 * time.Second, rounds: 3, workers: 2,
			client: goredisClient(t, n),
		}
		lockers := []*locco.Locker{
			newLocker(t, d.open(t, at(n)), locco.WithFencing()),
			newLocker(t, d.open(t, at(n))),
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		type result struct {
			name   string
			rounds []int
			err    error
		}
		results := make(chan result, len(lockers)+1)
		var w witness
		var waited atomic.Int64
		done := make(chan struct{}) // by the peer, so that it never has the key to itself
		for _, l := range lockers {
			go func() {
				h := h
				h.name, h.until = "locco", done
				rounds, err := h.run(ctx, func(ctx context.Context) (func(context.Context) error, error) {
					lock, err := l.Acquire(ctx, h.key, h.ttl, locco.RetryForever(), locco.RetryDelay(pollDelay))
					if err != nil {
						return nil, err
					}
					w.granted(t, lock)
					if lock.Waited() > 0 {
						waited.Add(1)
					}
					return lock.Release, nil
				})
				results <- result{h.name, rounds, err}
			}()
		}
		go func() {
			defer close(done)
			h := h
			h.name = "peer"
			rounds, err := p.hammer(ctx, h)
			results <- result{h.name, rounds, err}
		}()
		sum, by := 0, map[string]int{}
		for range len(lockers) + 1 {
			r := <-results
			if r.err != nil {
				t.Errorf("%s: %v", r.name, r.err)
			}
			for _, n := range r.rounds {
				if n < h.rounds {
					t.Errorf("%s had the key %d times in a worker; want %d at least", r.name, n, h.rounds)
				}
				sum += n
				by[r.name] += n
			}
		}
		admin := n.Client(t)
		if counter := get(t, admin, h.counter); counter != strconv.Itoa(sum) {
			t.Errorf("the counter is %s after %d rounds: two had the key at once", counter, sum)
		}
		holders, err := do(t, admin, "LRANGE", h.log, "0", "-1").AsStrSlice()
		if err != nil || len(holders) != sum {
			t.Errorf("the list has %d entries, %v; want %d", len(holders), err, sum)
		}
		changes := 0
		for k := 1; k < len(holders); k++ {
			if holders[k] != holders[k-1] {
				changes++
			}
		}
		if changes == 0 || waited.Load() == 0 {
			t.Errorf("the key went from one library to the other %d times, and locco waited for it %d times: that was no contest", changes, waited.Load())
		}
		t.Logf("rounds %v, %d changes of library, locco waited %d times", by, changes, waited.Load())
	})
}
