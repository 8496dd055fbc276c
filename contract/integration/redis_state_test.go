package integration_test

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/locco-go/locco/contract/integration"
	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/redis"
	"github.com/locco-go/locco/redis/protocol"
)

// spec 6.1, 6.4, 8.2: the counter of the fences, and what is wrong with it, which leaves
// no lease behind.
func TestRedisCounterOfFences(t *testing.T) {
	t.Parallel()
	eachDriver(t, func(t *testing.T, d driver, r integration.Redis) {
		n := integration.SharedRedis(t, r)
		admin := n.Client(t)
		b := d.open(t, at(n))
		key := t.Name()
		counter := protocol.FenceKey(key)
		acquire := func(ttl time.Duration) (locco.Grant, error) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			return b.Acquire(ctx, locco.Lease{Key: key, Token: "t", TTL: ttl, Fenced: true})
		}
		wipe := func() { do(t, admin, "DEL", key, counter) }
		left := func() time.Duration {
			ms, err := do(t, admin, "PTTL", counter).AsInt64()
			if err != nil {
				t.Fatalf("PTTL: %v", err)
			}
			return time.Duration(ms) * time.Millisecond
		}
		const day = 24 * time.Hour
		for _, ttl := range []time.Duration{time.Second, 2 * day} {
			wipe()
			if _, err := acquire(ttl); err != nil {
				t.Fatalf("Acquire = %v", err)
			}
			if got, want := left(), max(ttl, day); got > want || got < want-time.Minute {
				t.Errorf("a lease of %v: the counter stays for %v; want %v", ttl, got, want)
			}
		}
		const limit = protocol.MaxFence
		wipe()
		set(t, admin, counter, strconv.FormatInt(limit-1, 10))
		if g, err := acquire(time.Minute); err != nil || g.Fence != limit {
			t.Errorf("Acquire below the limit = %+v, %v; want fence %d", g, err, int64(limit))
		}
		if v := get(t, admin, counter); v != strconv.FormatInt(limit, 10) {
			t.Errorf("the counter has %q; want all digits of %d", v, int64(limit))
		}
		for what, bad := range map[string][]string{
			"limit":      {"SET", counter, strconv.FormatInt(limit, 10)},
			"no number":  {"SET", counter, "soon"},
			"wrong type": {"LPUSH", counter, "x"},
		} {
			wipe()
			if err := do(t, admin, bad...).Error(); err != nil {
				t.Fatalf("%v: %v", bad, err)
			}
			g, err := acquire(time.Minute)
			if err == nil || errors.Is(err, locco.ErrInvalid) {
				t.Errorf("%s: Acquire = %+v, %v; want the server's error", what, g, err)
			}
			if n, err := do(t, admin, "EXISTS", key).AsInt64(); err != nil || n != 0 {
				t.Errorf("%s: the key is stored though the grant failed (%v)", what, err)
			}
			if what != "wrong type" {
				if v := get(t, admin, counter); v != bad[2] {
					t.Errorf("%s: the counter has %q; want it as it was, %q", what, v, bad[2])
				}
			}
		}
	})
}

// spec 2.2, 1.1: a value of another type under the key is like a key that another has.
func TestRedisForeignValue(t *testing.T) {
	t.Parallel()
	eachDriver(t, func(t *testing.T, d driver, r integration.Redis) {
		n := integration.SharedRedis(t, r)
		admin := n.Client(t)
		key := t.Name()
		if err := do(t, admin, "LPUSH", key, "x").Error(); err != nil {
			t.Fatal(err)
		}
		for _, opts := range [][]locco.Option{nil, {locco.WithFencing()}} {
			l := newLocker(t, d.open(t, at(n)), opts...)
			if _, err := l.TryAcquire(t.Context(), key, time.Minute); !errors.Is(err, locco.ErrHeld) {
				t.Errorf("TryAcquire = %v; want ErrHeld", err)
			}
		}
		b := d.open(t, at(n))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if ok, err := b.Extend(ctx, locco.Lease{Key: key, Token: "x", TTL: time.Minute}); ok || err == nil {
			t.Errorf("Extend = %v, %v; want the server's error", ok, err)
		}
		if ok, err := b.Release(ctx, key, "x"); ok || err == nil {
			t.Errorf("Release = %v, %v; want the server's error", ok, err)
		}
		if text, err := do(t, admin, "TYPE", key).ToString(); err != nil || text != "list" {
			t.Errorf("TYPE = %q, %v; want the list untouched", text, err)
		}
	})
}

// spec 2.2, 3.7: a server that is out of memory takes no lock, says so, and goes on to
// serve those that it has.
func TestRedisOutOfMemory(t *testing.T) {
	t.Parallel()
	eachDriver(t, func(t *testing.T, d driver, r integration.Redis) {
		n := integration.StartRedis(t, r, "--maxmemory-policy", "noeviction")
		l := newLocker(t, d.open(t, at(n)), locco.WithFencing())
		plain := newLocker(t, d.open(t, at(n)))
		held, released := take(t, l, "held", time.Minute), take(t, plain, "released", time.Minute)
		n.Client(t) // what the test needs is there before
		limit := func(bytes string) {
			t.Helper()
			if _, err := n.Do(t.Context(), "CONFIG", "SET", "maxmemory", bytes); err != nil {
				t.Fatal(err)
			}
		}
		limit("1000")
		for _, l := range []*locco.Locker{l, plain} {
			_, err := l.TryAcquire(t.Context(), "k", time.Minute)
			if err == nil || errors.Is(err, locco.ErrHeld) || errors.Is(err, locco.ErrLate) || !strings.Contains(err.Error(), "OOM") {
				t.Errorf("TryAcquire = %v; want the server's OOM", err)
			}
			if _, err := l.Acquire(t.Context(), "k", time.Minute); err == nil || errors.Is(err, locco.ErrHeld) {
				t.Errorf("spec 3.7: Acquire = %v; want the server's error", err)
			}
		}
		// What stores nothing new is served.
		wantHeld(t, held)
		if err := held.Extend(t.Context(), time.Minute); err != nil {
			t.Errorf("Extend = %v; want nil", err)
		}
		release(t, released)
		limit("0")
		if v := get(t, n.Client(t), "k"); v != "" {
			t.Errorf("the key has %q; want nothing stored", v)
		}
		release(t, take(t, l, "k", time.Minute))
		release(t, held)
	})
}

// spec 3.7: a server that has become a replica passes by itself: the waiter is granted
// the key once it is a primary again, and until then nobody is said to have it.
func TestRedisReadOnly(t *testing.T) {
	t.Parallel()
	eachDriver(t, func(t *testing.T, d driver, r integration.Redis) {
		n := integration.StartRedis(t, r)
		l := newLocker(t, d.open(t, at(n)), locco.WithFencing())
		held := take(t, l, "held", time.Minute)
		if _, err := n.Do(t.Context(), "REPLICAOF", "127.0.0.1", "1"); err != nil {
			t.Fatal(err)
		}
		// It has the lease still, but the one that it follows decides.
		if err := held.Check(t.Context()); err == nil || errors.Is(err, locco.ErrLost) || !strings.Contains(err.Error(), "READONLY") {
			t.Errorf("spec 8.2: Check = %v; want the server's READONLY", err)
		}
		_, err := l.TryAcquire(t.Context(), "k", time.Minute)
		wantFailure(t, "TryAcquire", err)
		_, err = l.Acquire(t.Context(), "k", time.Minute, locco.Retries(2), locco.RetryDelay(20*time.Millisecond))
		wantFailure(t, "Acquire", err)
		if !strings.Contains(err.Error(), "READONLY") {
			t.Errorf("Acquire = %v; want the server's READONLY", err)
		}
		waiter := await(t, l, "k", time.Minute)
		time.Sleep(200 * time.Millisecond)
		if _, err := n.Do(t.Context(), "REPLICAOF", "NO", "ONE"); err != nil {
			t.Fatal(err)
		}
		release(t, got(t, waiter))
		if err := held.Check(t.Context()); err != nil {
			t.Errorf("Check on the primary = %v; want nil", err)
		}
		release(t, held)
	})
}

// spec 3.7: a server that is busy with a script passes by itself.
func TestRedisBusy(t *testing.T) {
	t.Parallel()
	eachDriver(t, func(t *testing.T, d driver, r integration.Redis) {
		n := integration.StartRedis(t, r, "--lua-time-limit", "50")
		l := newLocker(t, d.open(t, at(n)))
		release(t, take(t, l, "warm", time.Minute))
		client := n.Client(t, func(o *rueidis.ClientOption) { o.DisableRetry = true; o.ConnWriteTimeout = patience })
		loop := make(chan error, 1)
		go func() {
			loop <- client.Do(context.Background(), client.B().Arbitrary("EVAL", "while true do end", "0").Build()).Error()
		}()
		var busy error
		soon(t, "the server is busy", func() bool {
			lock, err := l.TryAcquire(t.Context(), "k", time.Second)
			if err == nil {
				_ = lock.Release(t.Context())
			}
			busy = err
			return err != nil && strings.Contains(err.Error(), "BUSY")
		})
		wantFailure(t, "TryAcquire", busy)
		waiter := await(t, l, "k", time.Minute)
		time.Sleep(200 * time.Millisecond)
		killer := n.Client(t, func(o *rueidis.ClientOption) { o.AlwaysRESP2 = true; o.ClientSetInfo = rueidis.DisableClientSetInfo })
		if err := do(t, killer, "SCRIPT", "KILL").Error(); err != nil {
			t.Fatalf("SCRIPT KILL: %v", err)
		}
		<-loop
		release(t, got(t, waiter))
	})
}

// spec 8.5: of many extensions one that is bad harms no other.
func TestRedisExtendManyOneBad(t *testing.T) {
	t.Parallel()
	eachDriver(t, func(t *testing.T, d driver, r integration.Redis) {
		n := integration.StartRedis(t, r)
		admin := n.Client(t)
		b := d.open(t, at(n))
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		const wrong, gone = 17, 40
		leases := make([]locco.Lease, 100)
		for i := range leases {
			leases[i] = locco.Lease{Key: "k" + strconv.Itoa(i), Token: "t" + strconv.Itoa(i), TTL: time.Minute}
			switch i {
			case wrong:
				do(t, admin, "LPUSH", leases[i].Key, "x")
			case gone:
			default:
				if g, err := b.Acquire(ctx, leases[i]); err != nil || !g.OK {
					t.Fatalf("Acquire = %+v, %v", g, err)
				}
			}
			leases[i].TTL = time.Hour
		}
		n.FlushScripts(t)
		for i, v := range b.(locco.ManyExtender).ExtendMany(ctx, leases) {
			if v.OK == (i == wrong || i == gone) || (v.Err != nil) != (i == wrong) {
				t.Errorf("verdict %d = %+v", i, v)
			}
			ms, _ := do(t, admin, "PTTL", leases[i].Key).AsInt64()
			if v.OK && ms < (50*time.Minute).Milliseconds() {
				t.Errorf("key %d has %d ms left; want an hour", i, ms)
			}
		}
	})
}

// spec 6.5: data in Redis refuses what comes from an earlier holder.
func TestRedisResource(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r integration.Redis) {
		n := integration.SharedRedis(t, r)
		client := n.Client(t)
		resource(t, client, "{"+t.Name()+"}")

		// Two holders: the one that slept past its lease is refused.
		l := newLocker(t, openRueidis(t, at(n)), locco.WithFencing())
		account := redis.NewResource(client, "{"+t.Name()+"}:account")
		balance := "{" + t.Name() + "}:balance"
		late := take(t, l, t.Name(), 100*time.Millisecond)
		<-late.Lost()
		next := take(t, l, t.Name(), time.Minute)
		if err := account.Raise(t.Context(), next.Fence()); err != nil {
			t.Errorf("Raise = %v", err)
		}
		if _, err := account.Guard(t.Context(), late.Fence(), []string{balance}, "SET", balance, "0"); !errors.Is(err, redis.ErrStale) {
			t.Errorf("the write of the late holder = %v; want ErrStale", err)
		}
		if _, err := account.Guard(t.Context(), next.Fence(), []string{balance}, "SET", balance, "17"); err != nil {
			t.Errorf("the write of the holder = %v", err)
		}
		if v := get(t, client, balance); v != "17" {
			t.Errorf("the balance is %q; want 17", v)
		}
		release(t, next)
	})
}

// spec 6.5: a resource of a Cluster is in one slot.
func TestRedisResourceOnCluster(t *testing.T) {
	t.Parallel()
	c := integration.StartCluster(t, integration.Valkey8)
	client := connect(t, c.Option())
	resource(t, client, "{account}")
	resourceSlots(t, c, client)
}

func resource(t *testing.T, client rueidis.Client, name string) {
	t.Helper()
	res := redis.NewResource(client, name)
	key, other := name+":v", name+":list"
	const fence = protocol.MaxFence - 1
	stale := func(what string, err error, seen int64) {
		t.Helper()
		var e *redis.StaleError
		if !errors.Is(err, redis.ErrStale) || !errors.As(err, &e) || e.Seen != seen || e.Resource != name {
			t.Errorf("%s = %v; want a StaleError that has seen %d", what, err, seen)
		}
	}
	fine := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s = %v; want nil", what, err)
		}
	}
	guard := func(fence int64, command ...string) error {
		_, err := res.Guard(t.Context(), fence, command[1:2], command...)
		return err
	}
	fine("Raise", res.Raise(t.Context(), fence))
	fine("Raise of the same fence", res.Raise(t.Context(), fence))
	stale("Raise of a smaller fence", res.Raise(t.Context(), fence-1), fence)
	stale("Guard with a smaller fence", guard(fence-1, "SET", key, "old"), fence)
	if v := get(t, client, key); v != "" {
		t.Errorf("a write that was refused stored %q", v)
	}
	fine("Guard with the same fence", guard(fence, "SET", key, "new"))
	fine("Guard with a larger fence", guard(fence+1, "SET", key, "newer"))
	stale("Guard with the fence before", guard(fence, "SET", key, "old"), fence+1)
	if v := get(t, client, key); v != "newer" {
		t.Errorf("the data is %q; want what the last holder wrote", v)
	}
	if v := get(t, client, protocol.MarkKey(name)); v != strconv.FormatInt(fence+1, 10) {
		t.Errorf("the mark is %q; want all digits of %d", v, int64(fence+1))
	}

	second := redis.NewResource(client, name+":second")
	if err := do(t, client, "LPUSH", other, "x").Error(); err != nil {
		t.Fatal(err)
	}
	if _, err := second.Guard(t.Context(), 7, []string{other}, "INCR", other); err == nil || errors.Is(err, redis.ErrStale) {
		t.Errorf("Guard of a command that fails = %v; want the server's error", err)
	}
	if err := second.Raise(t.Context(), 6); !errors.Is(err, redis.ErrStale) {
		t.Errorf("Raise below the claim of a command that failed = %v; want ErrStale", err)
	}
	do(t, client, "DEL", protocol.MarkKey(name+":third"))
	do(t, client, "LPUSH", protocol.MarkKey(name+":third"), "x")
	if err := redis.NewResource(client, name+":third").Raise(t.Context(), 1); err == nil || errors.Is(err, redis.ErrStale) {
		t.Errorf("Raise over a mark of the wrong type = %v; want the server's error", err)
	}
}

// spec 6.1, 1.1: a counter that is no good fails a set and a hand-over as a whole: no key
// of the set is stored, and the holder keeps its own.
func TestRedisCounterOfOneOfMany(t *testing.T) {
	t.Parallel()
	eachDriver(t, func(t *testing.T, d driver, r integration.Redis) {
		n := integration.SharedRedis(t, r)
		admin := n.Client(t)
		b := d.open(t, at(n))
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		const limit = protocol.MaxFence
		var leases []locco.Lease
		for _, name := range []string{"a", "b", "c"} {
			leases = append(leases, locco.Lease{Key: t.Name() + name, Token: "t" + name, TTL: time.Minute, Fenced: true})
		}
		key := leases[1].Key
		counter := protocol.FenceKey(key)
		wipe := func() {
			for _, l := range leases {
				do(t, admin, "DEL", l.Key, protocol.FenceKey(l.Key))
			}
		}
		next := locco.Lease{Key: key, Token: "next", TTL: time.Hour, Fenced: true}
		for what, bad := range map[string][]string{
			"limit":      {"SET", counter, strconv.FormatInt(limit, 10)},
			"beyond":     {"SET", counter, "9223372036854775807"},
			"no number":  {"SET", counter, "soon"},
			"empty":      {"SET", counter, ""},
			"wrong type": {"LPUSH", counter, "x"},
		} {
			wipe()
			if err := do(t, admin, bad...).Error(); err != nil {
				t.Fatalf("%v: %v", bad, err)
			}
			before, err := do(t, admin, "DUMP", counter).ToString()
			if err != nil {
				t.Fatalf("DUMP: %v", err)
			}
			asBefore := func(step string) {
				t.Helper()
				if after, err := do(t, admin, "DUMP", counter).ToString(); err != nil || after != before {
					t.Errorf("%s: %s changed the counter (%v); want it as it was", what, step, err)
				}
			}
			grants, refused, err := b.(locco.ManyAcquirer).AcquireMany(ctx, leases)
			if err == nil || errors.Is(err, locco.ErrInvalid) {
				t.Errorf("%s: AcquireMany = %+v, %d, %v; want the server's error", what, grants, refused, err)
			}
			for _, l := range leases {
				if v := get(t, admin, l.Key); v != "" {
					t.Errorf("%s: %s has %q after the set failed; want nothing", what, l.Key, v)
				}
			}
			asBefore("AcquireMany")

			if err := do(t, admin, "SET", key, "t", "PX", "60000").Error(); err != nil {
				t.Fatalf("SET: %v", err)
			}
			g, err := b.(locco.Transferrer).Transfer(ctx, "t", next)
			if err == nil || errors.Is(err, locco.ErrInvalid) {
				t.Errorf("%s: Transfer = %+v, %v; want the server's error", what, g, err)
			}
			if v := get(t, admin, key); v != "t" {
				t.Errorf("%s: the key has %q after the hand-over failed; want its holder's token", what, v)
			}
			if ms, err := do(t, admin, "PTTL", key).AsInt64(); err != nil || ms <= 0 || ms > 60000 {
				t.Errorf("%s: the holder's lease has %d ms, %v; want what it had", what, ms, err)
			}
			asBefore("Transfer")
		}

		// The last two fences that there are.
		wipe()
		set(t, admin, counter, strconv.FormatInt(limit-2, 10))
		grants, refused, err := b.(locco.ManyAcquirer).AcquireMany(ctx, leases)
		if err != nil || refused >= 0 || grants[1].Fence != limit-1 {
			t.Fatalf("AcquireMany = %+v, %d, %v; want fence %d for %s", grants, refused, err, int64(limit-1), key)
		}
		g, err := b.(locco.Transferrer).Transfer(ctx, leases[1].Token, next)
		if err != nil || g.Fence != limit {
			t.Errorf("Transfer = %+v, %v; want fence %d", g, err, int64(limit))
		}
		if v := get(t, admin, counter); v != strconv.FormatInt(limit, 10) {
			t.Errorf("the counter has %q; want all digits of %d", v, int64(limit))
		}
		wipe()
	})
}

// spec 4.1, 5.4: a value of another type in the place of a lock: every operation answers
// the server's error, the lock is not taken for lost, and the value stays.
func TestRedisForeignValueUnderLock(t *testing.T) {
	t.Parallel()
	eachDriver(t, func(t *testing.T, d driver, r integration.Redis) {
		n := integration.SharedRedis(t, r)
		admin := n.Client(t)
		b := d.open(t, at(n))
		l := newLocker(t, b, locco.WithFencing())
		key := t.Name()
		lock := take(t, l, key, time.Minute)
		do(t, admin, "DEL", key)
		if err := do(t, admin, "LPUSH", key, "x").Error(); err != nil {
			t.Fatalf("LPUSH: %v", err)
		}
		serverError := func(what string, err error) {
			t.Helper()
			if err == nil || errors.Is(err, locco.ErrLost) || errors.Is(err, locco.ErrHeld) || !strings.Contains(err.Error(), "WRONGTYPE") {
				t.Errorf("%s = %v; want the server's WRONGTYPE", what, err)
			}
		}
		serverError("Lock.Extend", lock.Extend(t.Context(), time.Minute))
		serverError("Lock.Check", lock.Check(t.Context()))
		if s := lock.State(); s != locco.StateHeld {
			t.Errorf("spec 4.1: the state is %s; want held until the lease runs out", s)
		}
		serverError("Lock.Release", lock.Release(t.Context()))

		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		lease := locco.Lease{Key: key, Token: "x", TTL: time.Minute, Fenced: true}
		if g, err := b.(locco.Transferrer).Transfer(ctx, "x", lease); g.OK {
			t.Errorf("Transfer = %+v, %v; want no grant", g, err)
		} else {
			serverError("Transfer", err)
		}
		if ours, err := b.Holds(ctx, key, "x"); ours {
			t.Errorf("Holds = true, %v; want false", err)
		} else {
			serverError("Holds", err)
		}
		free := locco.Lease{Key: key + "free", Token: "x", TTL: time.Minute}
		for _, fenced := range []bool{false, true} {
			lease, free := lease, free
			lease.Fenced, free.Fenced = fenced, fenced
			if _, refused, err := b.(locco.ManyAcquirer).AcquireMany(ctx, []locco.Lease{free, lease}); refused != 1 || err != nil {
				t.Errorf("AcquireMany = refused %d, %v; want the second key refused", refused, err)
			}
			// A repeated attempt looks at the value, which is an error; never a grant.
			lease.Again = true
			if g, err := b.Acquire(ctx, lease); g.OK {
				t.Errorf("Acquire again = %+v, %v; want no grant", g, err)
			}
		}
		if v := get(t, admin, free.Key); v != "" {
			t.Errorf("the other key of a set that was refused has %q; want nothing", v)
		}
		if v, err := do(t, admin, "LRANGE", key, "0", "-1").AsStrSlice(); err != nil || len(v) != 1 || v[0] != "x" {
			t.Errorf("LRANGE = %q, %v; want the value untouched", v, err)
		}

		do(t, admin, "DEL", key)
		if err := lock.Release(t.Context()); err != nil { // the first one may have worked
			t.Errorf("spec 5.4: a second Release = %v; want nil", err)
		}
	})
}

// spec 2.2, 2.5, 3.6: what needs memory is refused as a whole by a server that has none,
// and what it holds stays with its holders; the rest works, scripts that it has forgotten
// too.
func TestRedisOutOfMemoryManyAndHandOver(t *testing.T) {
	t.Parallel()
	eachDriver(t, func(t *testing.T, d driver, r integration.Redis) {
		n := integration.StartRedis(t, r, "--maxmemory-policy", "noeviction")
		admin := n.Client(t)
		b := d.open(t, at(n))
		l := newLocker(t, b, locco.WithFencing())
		lock := take(t, l, "held", time.Minute)
		memory := func(bytes string) {
			t.Helper()
			if err := do(t, admin, "CONFIG", "SET", "maxmemory", bytes).Error(); err != nil {
				t.Fatalf("CONFIG SET: %v", err)
			}
		}
		oom := func(what string, err error) {
			t.Helper()
			if err == nil || errors.Is(err, locco.ErrHeld) || errors.Is(err, locco.ErrInvalid) || errors.Is(err, locco.ErrLost) ||
				!strings.Contains(err.Error(), "OOM") {
				t.Errorf("%s = %v; want the server's OOM", what, err)
			}
		}
		memory("1000")
		n.FlushScripts(t)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		_, err := l.AcquireMany(t.Context(), []string{"a", "b"}, time.Minute)
		oom("AcquireMany", err)
		_, err = b.(locco.Transferrer).Transfer(ctx, lock.Token(), locco.Lease{Key: "held", Token: "next", TTL: time.Minute, Fenced: true})
		oom("Transfer", err)
		for i, v := range b.(locco.ManyExtender).ExtendMany(ctx, []locco.Lease{
			{Key: "held", Token: lock.Token(), TTL: time.Hour}, {Key: "held", Token: "other", TTL: time.Hour},
		}) {
			if v.OK != (i == 0) || v.Err != nil {
				t.Errorf("verdict %d = %+v; want extensions served", i, v)
			}
		}
		wantHeld(t, lock)
		for _, key := range []string{"a", "b", protocol.FenceKey("a"), protocol.FenceKey("b")} {
			if v := get(t, admin, key); v != "" {
				t.Errorf("%s has %q; want nothing stored", key, v)
			}
		}
		memory("0")
		locks, err := l.AcquireMany(t.Context(), []string{"a", "b"}, time.Minute)
		if err != nil {
			t.Fatalf("AcquireMany with memory = %v", err)
		}
		if err := locks.Release(t.Context()); err != nil {
			t.Errorf("Release of the set = %v", err)
		}
		waiter := await(t, l, "held", time.Minute)
		release(t, lock)
		release(t, got(t, waiter))
	})
}

// spec 3.7: a server that follows another one passes by itself, as soon as it follows
// nobody. What it held is gone with the other's data, and its holder finds out.
func TestRedisReadOnlyOfRealPrimary(t *testing.T) {
	t.Parallel()
	eachDriver(t, func(t *testing.T, d driver, r integration.Redis) {
		pair := integration.StartReplicated(t, r)
		host, port, err := net.SplitHostPort(pair.Primary.Addr)
		if err != nil {
			t.Fatal(err)
		}
		n := pair.Replica
		follow := func(args ...string) {
			t.Helper()
			if _, err := n.Do(t.Context(), append([]string{"REPLICAOF"}, args...)...); err != nil {
				t.Fatal(err)
			}
		}
		follow("NO", "ONE")
		l := newLocker(t, d.open(t, at(n)), locco.WithFencing())
		lost := take(t, l, "lost", time.Minute)
		// The other side goes on by itself, else the two would only compare notes.
		set(t, pair.Primary.Client(t), "unrelated", "x")
		follow(host, port)
		pair.WaitLinked(t)
		for _, l := range []*locco.Locker{l, newLocker(t, d.open(t, at(n)))} {
			_, err := l.TryAcquire(t.Context(), "k", time.Minute)
			wantFailure(t, "TryAcquire", err)
			_, err = l.Acquire(t.Context(), "k", time.Minute, locco.RetryTimeout(200*time.Millisecond), locco.RetryDelay(20*time.Millisecond))
			wantFailure(t, "Acquire", err)
			if err != nil && !strings.Contains(err.Error(), "READONLY") {
				t.Errorf("spec 3.7: Acquire = %v; want the server's READONLY", err)
			}
		}
		j := &journal{}
		waiting := newLocker(t, d.open(t, at(n)), locco.WithFencing(), j.option())
		waiter := await(t, waiting, "k", time.Minute)
		select {
		case r := <-waiter:
			t.Fatalf("spec 3.7: the waiter came back from a replica with %v, %v", r.lock, r.err)
		case <-time.After(300 * time.Millisecond): // several looks
		}
		follow("NO", "ONE")
		lock := got(t, waiter)
		if lock.Attempts() < 2 {
			t.Errorf("the waiter was granted the key by look %d; want a later one than the first", lock.Attempts())
		}
		release(t, lock)
		if err := lost.Check(t.Context()); !errors.Is(err, locco.ErrLost) {
			t.Errorf("Check of a lock that the other data has not = %v; want ErrLost", err)
		}
	})
}

// spec 3.7: a server that loads its data passes by itself, and what it held is there
// afterwards.
func TestRedisLoading(t *testing.T) {
	t.Parallel()
	eachDriver(t, func(t *testing.T, d driver, r integration.Redis) {
		n := integration.StartRedis(t, r, "--enable-debug-command", "yes", "--dir", "/tmp")
		admin := n.Client(t, noRetry)
		l := newLocker(t, d.open(t, at(n)), locco.WithFencing())
		lock := take(t, l, "held", 10*time.Minute)
		for _, command := range [][]string{
			{"DEBUG", "POPULATE", "2000", "filler"},
			{"CONFIG", "SET", "key-load-delay", "1000", "loading-process-events-interval-bytes", "1024"},
		} {
			if err := do(t, admin, command...).Error(); err != nil {
				t.Fatalf("%v: %v", command, err)
			}
		}
		loaded := make(chan error, 1)
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			loaded <- admin.Do(ctx, admin.B().Arbitrary("DEBUG", "RELOAD").Build()).Error()
		}()
		var err error
		soon(t, "the server loads", func() bool {
			// On a key of its own: the release of a grant may meet a server that loads.
			var probe *locco.Lock
			if probe, err = l.TryAcquire(t.Context(), "probe", time.Minute); err == nil {
				_ = probe.Release(t.Context())
				return false
			}
			return strings.Contains(err.Error(), "LOADING")
		})
		wantFailure(t, "TryAcquire", err)
		waiter := await(t, l, "k", time.Minute)
		release(t, got(t, waiter))
		if err := <-loaded; err != nil {
			t.Errorf("DEBUG RELOAD: %v", err)
		}
		wantHeld(t, lock)
		release(t, lock)
	})
}
