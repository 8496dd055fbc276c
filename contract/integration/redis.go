package integration

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/redis/rueidis"
)

// Redis is a kind of server that speaks the protocol of Redis.
type Redis string

// The servers that the tests run on.
const (
	Redis7  Redis = "Redis7"
	Redis8  Redis = "Redis8"
	Valkey8 Redis = "Valkey8"
)

// Redises returns all of them.
func Redises() []Redis { return []Redis{Redis7, Redis8, Valkey8} }

func (r Redis) kind() kind {
	switch r {
	case Redis7:
		return kind{"REDIS7", "redis:7", "redis-server"}
	case Redis8:
		return kind{"REDIS", "redis:8", "redis-server"}
	case Valkey8:
		return kind{"VALKEY", "valkey/valkey:8", "valkey-server"}
	default:
		panic("integration: no such server: " + string(r))
	}
}

// Node is one server of Redis.
type Node struct {
	server

	option rueidis.ClientOption // for a client of this node
}

// SharedRedis returns a server that all tests of the run may use at the same time.
// It ends with the run. LOCCO_TEST_REDIS_URL, LOCCO_TEST_REDIS7_URL and
// LOCCO_TEST_VALKEY_URL name one that runs already.
func SharedRedis(t testing.TB, r Redis) *Node {
	t.Helper()
	if url := os.Getenv("LOCCO_TEST_" + r.kind().env + "_URL"); url != "" {
		option, err := rueidis.ParseURL(url)
		if err != nil {
			t.Fatalf("LOCCO_TEST_%s_URL: %v", r.kind().env, err)
		}
		n := (&Node{server: server{Addr: option.InitAddress[0], Name: url, shared: true}, option: option}).withPing()
		if err := n.wait(t.Context()); err != nil {
			t.Fatalf("LOCCO_TEST_%s_URL: %v", r.kind().env, err)
		}
		return n
	}
	n, err := shared(t, r, func() (*Node, error) {
		// The test's context is not for a server that outlives the test.
		n, err := startRedis(context.Background(), r, nil)
		if err != nil {
			return nil, err
		}
		n.shared = true
		err = n.wait(context.Background())
		return n, err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// StartRedis starts a server for this test. Args are added to its command, such as
// "--maxmemory", "10mb".
func StartRedis(t testing.TB, r Redis, args ...string) *Node {
	t.Helper()
	n, err := startRedis(t.Context(), r, args)
	if err != nil {
		t.Fatal(err)
	}
	cleanUp(t, n.Name, n.id)
	if err := n.wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	return n
}

func startRedis(ctx context.Context, r Redis, args []string) (n *Node, err error) {
	if err := run.begin(ctx); err != nil {
		return nil, err
	}
	err = run.withPorts(1, func(ports []int) error {
		n = newNode(string(r), ports[0])
		n.id, err = run.start(ctx, spec{
			image:   image(r.kind()),
			cmd:     r.command(ports[0], args...),
			publish: ports,
		})
		return err
	})
	return n, err
}

// command returns the command of a server that keeps its data in memory.
func (r Redis) command(port int, args ...string) []string {
	return append([]string{
		r.kind().command, "--port", strconv.Itoa(port),
		"--save", "", "--appendonly", "no",
	}, args...)
}

func newNode(name string, port int) *Node {
	addr := net.JoinHostPort(host, strconv.Itoa(port))
	return (&Node{
		server: server{Addr: addr, Name: name + " at " + addr, port: port},
		option: rueidis.ClientOption{InitAddress: []string{addr}},
	}).withPing()
}

func (n *Node) withPing() *Node {
	n.ping = func(ctx context.Context) error {
		_, err := n.Do(ctx, "PING")
		return err
	}
	return n
}

// Client returns a client of this server alone, which is closed with the test.
func (n *Node) Client(t testing.TB, options ...func(*rueidis.ClientOption)) rueidis.Client {
	t.Helper()
	option := n.option
	option.ForceSingleClient = true
	option.DisableCache = true
	for _, o := range options {
		o(&option)
	}
	c, err := rueidis.NewClient(option)
	if err != nil {
		t.Fatalf("connect to %s: %v", n.Name, err)
	}
	t.Cleanup(c.Close)
	return c
}

// Do runs a command on a connection of its own.
func (n *Node) Do(ctx context.Context, args ...string) (rueidis.RedisMessage, error) {
	option := n.option
	option.ForceSingleClient = true
	option.DisableCache = true
	option.DisableRetry = true
	option.AlwaysRESP2 = true // plain text stays plain
	option.Dialer.Timeout = 5 * time.Second
	option.ConnWriteTimeout = 5 * time.Second
	c, err := rueidis.NewClient(option)
	if err != nil {
		return rueidis.RedisMessage{}, fmt.Errorf("connect to %s: %w", n.Name, err)
	}
	defer c.Close()
	m, err := c.Do(ctx, c.B().Arbitrary(args...).Build()).ToMessage()
	if err != nil && !rueidis.IsRedisNil(err) {
		err = fmt.Errorf("%s on %s: %w", args, n.Name, err)
	}
	return m, err
}

func (n *Node) must(t testing.TB, args ...string) rueidis.RedisMessage {
	t.Helper()
	m, err := n.Do(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// info returns a field of INFO, or of another command that answers in its form.
func (n *Node) info(ctx context.Context, field string, command ...string) (string, error) {
	m, err := n.Do(ctx, command...)
	if err != nil {
		return "", err
	}
	text, err := m.ToString()
	if err != nil {
		return "", err
	}
	return infoField(text, field), nil
}

// eventually tries until check has no complaint.
func eventually(ctx context.Context, what string, check func(context.Context) error) error {
	const limit = time.Minute
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var last error
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil { // else it only says that time is over
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited for: %s: %w (%w)", what, last, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// KillClients closes every client's connection and returns how many there were.
func (n *Node) KillClients(t testing.TB) int {
	t.Helper()
	n.own(t)
	var killed int64
	for _, kind := range []string{"normal", "pubsub"} {
		m := n.must(t, "CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")
		k, err := m.AsInt64()
		if err != nil {
			t.Fatalf("CLIENT KILL on %s: %v", n.Name, err)
		}
		killed += k
	}
	return int(killed)
}

// FlushScripts makes the server forget its scripts.
func (n *Node) FlushScripts(t testing.TB) {
	t.Helper()
	n.own(t)
	n.must(t, "SCRIPT", "FLUSH", "SYNC")
}

// errNotYet is for conditions that are waited for.
var errNotYet = errors.New("not yet")
