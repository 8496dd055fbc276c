package integration_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/locco-go/locco/contract/integration"
	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/redis"
)

// A driver is a client library for Redis with the backend that stands on it. The
// tests of this folder are the same for each.
type driver struct {
	name string

	// open makes a backend on a client of its own, which ends with the test.
	open func(t testing.TB, s settings) locco.Backend
}

// settings say where a client connects to, and what the backend is to do.
type settings struct {
	addrs    []string
	sentinel string // the name of the primary, if addrs are those of Sentinels
	cluster  bool
	reads    bool // what only reads may go to a replica
	user     string
	password string

	silent   bool // no wake-ups
	replicas int  // that have to acknowledge
	timeout  time.Duration
	durable  bool // on disk, there and here
}

func at(n *integration.Node) settings { return settings{addrs: []string{n.Addr}} }

func drivers() []driver {
	return []driver{{name: "rueidis", open: openRueidis}}
}

// eachDriver runs the test with every driver on every server.
func eachDriver(t *testing.T, test func(t *testing.T, d driver, r integration.Redis)) {
	t.Helper()
	each(t, func(t *testing.T, r integration.Redis) {
		for _, d := range drivers() {
			t.Run(d.name, func(t *testing.T) {
				t.Parallel()
				test(t, d, r)
			})
		}
	})
}

func openRueidis(t testing.TB, s settings) locco.Backend {
	t.Helper()
	option := rueidis.ClientOption{
		InitAddress:  s.addrs,
		Username:     s.user,
		Password:     s.password,
		DisableCache: true,
	}
	switch {
	case s.sentinel != "":
		option.Sentinel.MasterSet = s.sentinel
	case !s.cluster:
		option.ForceSingleClient = true
	}
	if s.reads {
		option.SendToReplicas = func(cmd rueidis.Completed) bool { return cmd.IsReadOnly() }
	}
	client, err := rueidis.NewClient(option)
	if err != nil {
		t.Fatalf("connect to %v: %v", s.addrs, err)
	}
	t.Cleanup(client.Close)
	var opts []redis.Option
	if s.silent {
		opts = append(opts, redis.WithoutWakeUps())
	}
	switch {
	case s.durable:
		opts = append(opts, redis.WithDurability(s.replicas, s.timeout))
	case s.replicas > 0:
		opts = append(opts, redis.WithReplication(s.replicas, s.timeout))
	}
	return redis.New(client, opts...)
}

// newLocker returns a locker that ends with the test.
func newLocker(t testing.TB, b locco.Backend, opts ...locco.Option) *locco.Locker {
	t.Helper()
	l, err := locco.New(b, opts...)
	if err != nil {
		t.Fatalf("locco.New: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = l.Close(ctx) // the server may be gone
	})
	return l
}

// witness is told of every grant of one key, whoever got it, and fails the test if
// an earlier holder still believes in its lock by then, or if the fences do not
// grow.
type witness struct {
	mu    sync.Mutex
	locks []*locco.Lock
}

// granted is called by a new holder, first of all.
func (w *witness) granted(t testing.TB, lock *locco.Lock) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, earlier := range w.locks {
		if earlier.State() == locco.StateHeld {
			t.Errorf("spec 5.3: a lock of %q is granted while that with token %s still reads held", lock.Key(), earlier.Token())
		}
		if lock.Fence() != 0 && lock.Fence() <= earlier.Fence() {
			t.Errorf("spec 6.1: %q has fence %d after %d", lock.Key(), lock.Fence(), earlier.Fence())
		}
	}
	w.locks = append(w.locks, lock)
}
