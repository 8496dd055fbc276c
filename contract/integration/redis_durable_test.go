package integration_test

import (
	"errors"
	"testing"
	"time"

	"github.com/locco-go/locco/contract/integration"
	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/redis"
)

// withAOF are the kinds of server that know WAITAOF.
func withAOF(t *testing.T, test func(t *testing.T, d driver, r integration.Redis)) {
	t.Helper()
	eachTopology(t, func(t *testing.T, r integration.Redis) {
		for _, d := range drivers() {
			t.Run(d.name, func(t *testing.T) { test(t, d, r) })
		}
	})
}

// spec 8.2: a grant that waits for the disk is there after a restart of the server, even
// if that was killed.
func TestRedisDurable(t *testing.T) {
	t.Parallel()
	withAOF(t, func(t *testing.T, d driver, r integration.Redis) {
		n := integration.StartRedis(t, r, "--appendonly", "yes", "--appendfsync", "always")
		s := at(n)
		s.durable, s.timeout = true, 2*time.Second
		l := newLocker(t, d.open(t, s), locco.WithFencing())
		lock := take(t, l, "k", time.Minute)
		set, err := l.AcquireMany(t.Context(), []string{"a", "b"}, time.Minute)
		if err != nil {
			t.Fatalf("AcquireMany = %v", err)
		}
		if err := errors.Join(lock.Extend(t.Context(), time.Minute), set.Extend(t.Context(), time.Minute)); err != nil {
			t.Errorf("Extend = %v", err)
		}
		waiter := await(t, l, "k", time.Minute)
		time.Sleep(100 * time.Millisecond) // else nothing is handed over, which is tested too
		release(t, lock)
		lock = got(t, waiter)
		n.Restart(t)
		for _, lock := range append(set.Locks(), lock) {
			soon(t, "the server has "+lock.Key(), func() bool { return lock.Check(t.Context()) == nil })
		}
	})
}

// spec 8.2: fewer copies on disk than asked for are a replication error; an acquire then
// gives the key back, and an extension leaves the lock held.
func TestRedisDurableNotConfirmed(t *testing.T) {
	t.Parallel()
	withAOF(t, func(t *testing.T, d driver, r integration.Redis) {
		n := integration.StartRedis(t, r, "--appendonly", "yes")
		s := at(n)
		s.durable, s.replicas, s.timeout = true, 1, 100*time.Millisecond // there is no replica
		l := newLocker(t, d.open(t, s))
		plain := newLocker(t, d.open(t, at(n)))
		_, err := l.TryAcquire(t.Context(), "k", time.Minute)
		wantReplication(t, "TryAcquire", err, 1, 0)
		soon(t, "the key is given back", func() bool { return get(t, n.Client(t), "k") == "" })
		lock := take(t, plain, "k", time.Minute)
		b := d.open(t, s)
		ok, err := b.Extend(t.Context(), locco.Lease{Key: "k", Token: lock.Token(), TTL: time.Minute})
		if ok {
			t.Error("Extend = true; want a replication error")
		}
		wantReplication(t, "Extend", err, 1, 0)
		wantHeld(t, lock)
	})
}

// spec 1.9, 8.2: a server that cannot confirm it says so at the first use, and nothing is
// stored.
func TestRedisDurableImpossible(t *testing.T) {
	t.Parallel()
	eachDriver(t, func(t *testing.T, d driver, r integration.Redis) {
		n := integration.SharedRedis(t, r) // without an append-only file, and one too old for the command
		s := at(n)
		s.durable, s.timeout = true, time.Second
		l := newLocker(t, d.open(t, s), locco.WithFencing())
		var v *locco.ValidationError
		if _, err := l.Acquire(t.Context(), t.Name(), time.Minute); !errors.As(err, &v) || v.Err == nil {
			t.Errorf("Acquire = %v; want a ValidationError with the server's error", err)
		}
		if _, err := l.AcquireMany(t.Context(), []string{t.Name() + "a", t.Name() + "b"}, time.Minute); !errors.Is(err, locco.ErrInvalid) {
			t.Errorf("AcquireMany = %v; want ErrInvalid", err)
		}
		if v := get(t, n.Client(t), t.Name()); v != "" {
			t.Errorf("the key has %q; want nothing", v)
		}
	})
}

// spec 8.2: what cannot be meant is found before any I/O.
func TestRedisDurableOptions(t *testing.T) {
	t.Parallel()
	client := integration.SharedRedis(t, integration.Redis8).Client(t)
	for name, opts := range map[string][]redis.Option{
		"NegativeReplicas": {redis.WithDurability(-1, time.Second)},
		"NoTimeout":        {redis.WithDurability(0, 0)},
		"Both":             {redis.WithDurability(0, time.Second), redis.WithReplication(1, time.Second)},
	} {
		if _, err := locco.New(redis.New(client, opts...)); !errors.Is(err, locco.ErrInvalid) {
			t.Errorf("%s: New = %v; want ErrInvalid", name, err)
		}
	}
}
