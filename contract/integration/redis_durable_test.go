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

// spec 8.2: with a replica it is its disk too that is waited for.
func TestRedisDurableReplicated(t *testing.T) {
	t.Parallel()
	eachTopology(t, func(t *testing.T, r integration.Redis) {
		s := integration.StartReplicated(t, r, "--appendonly", "yes", "--appendfsync", "always")
		for _, d := range drivers() {
			both, three := at(s.Primary), at(s.Primary)
			both.durable, both.replicas, both.timeout = true, 1, 5*time.Second
			three.durable, three.replicas, three.timeout = true, 2, 5*time.Second // always waited out; a replica tells of its disk once a second
			lock := take(t, newLocker(t, d.open(t, both), locco.WithFencing(), locco.WithCallTimeout(patience)), d.name, time.Minute)
			if err := lock.Extend(t.Context(), time.Minute); err != nil {
				t.Errorf("Extend = %v", err)
			}
			if token := get(t, s.Replica.Client(t), d.name); token != lock.Token() {
				t.Errorf("the replica has the token %q; want that of the lock", token)
			}
			_, err := newLocker(t, d.open(t, three), locco.WithCallTimeout(patience)).TryAcquire(t.Context(), d.name+"b", time.Minute)
			wantReplication(t, "TryAcquire that wants 2", err, 2, 1)
		}
	})
}

// spec 1.9, 2.6, 8.2: who may not wait finds out before anything is stored. Where it
// turns out only when a key has been taken, the key is given back.
func TestRedisAcknowledgementsRefused(t *testing.T) {
	t.Parallel()
	withAOF(t, func(t *testing.T, d driver, r integration.Redis) {
		n := integration.StartRedis(t, r, "--appendonly", "yes")
		admin := n.Client(t)
		for command, change := range map[string]func(s *settings){
			"-wait":    func(s *settings) { s.replicas = 1 },
			"-waitaof": func(s *settings) { s.durable = true },
		} {
			s := user(t, at(n), []*integration.Node{n}, "app"+command, []string{"~*", "&*", "+@all", command})
			s.timeout = 100 * time.Millisecond
			change(&s)
			_, err := newLocker(t, d.open(t, s)).TryAcquire(t.Context(), command, time.Minute)
			if token := get(t, admin, command); !errors.Is(err, locco.ErrInvalid) || token != "" {
				t.Errorf("TryAcquire with %s = %v, and the key has %q; want ErrInvalid and nothing stored", command, err, token)
			}
		}

		s, j := at(n), &journal{}
		s.durable, s.timeout = true, 5*time.Second
		l := newLocker(t, d.open(t, s), j.option(), locco.WithCallTimeout(patience))
		release(t, take(t, l, "k", time.Minute))
		if err := do(t, admin, "CONFIG", "SET", "appendonly", "no").Error(); err != nil {
			t.Fatalf("CONFIG SET: %v", err)
		}
		_, err := l.TryAcquire(t.Context(), "k", time.Minute)
		if err == nil || errors.Is(err, locco.ErrInvalid) || errors.Is(err, locco.ErrHeld) {
			t.Errorf("TryAcquire when the file is gone = %v; want the server's error", err)
		}
		soon(t, "the key is given back", func() bool { return get(t, admin, "k") == "" })
		if _, err := l.TryAcquire(t.Context(), "k", time.Minute); !errors.Is(err, locco.ErrInvalid) {
			t.Errorf("TryAcquire, again = %v; want ErrInvalid", err)
		}
		if token := get(t, admin, "k"); token != "" {
			t.Errorf("the key has %q; want nothing", token)
		}
	})
}
