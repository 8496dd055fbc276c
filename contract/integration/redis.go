package integration

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/moby/moby/client"
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

// kind is what differs between them.
type kind struct {
	env    string // LOCCO_TEST_env_IMAGE, LOCCO_TEST_env_URL
	image  string // the public one
	server string // the command
}

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

func (r Redis) image() string {
	k := r.kind()
	if image := os.Getenv("LOCCO_TEST_" + k.env + "_IMAGE"); image != "" {
		return image
	}
	return k.image
}

// Node is one server.
type Node struct {
	// Addr is where it listens, as host:port.
	Addr string

	// Name is for messages.
	Name string

	option rueidis.ClientOption // for a client of this node
	port   int
	id     string // of its container; "" if it was given as a URL
	shared bool
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
		n := &Node{Addr: option.InitAddress[0], Name: url, option: option, shared: true}
		if err := n.wait(t.Context()); err != nil {
			t.Fatalf("LOCCO_TEST_%s_URL: %v", r.kind().env, err)
		}
		return n
	}
	if err := run.begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	run.mu.Lock()
	s := run.shared[r]
	if s == nil {
		s = &sharedNode{}
		run.shared[r] = s
	}
	run.mu.Unlock()
	s.once.Do(func() {
		// The test's context is not for a server that outlives the test.
		s.node, s.err = startRedis(context.Background(), r, nil)
		if s.err == nil {
			s.node.shared = true
			s.err = s.node.wait(context.Background())
		}
	})
	if s.err != nil {
		t.Fatal(s.err)
	}
	return s.node
}

type sharedNode struct {
	once sync.Once
	node *Node
	err  error
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
			image:   r.image(),
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
		r.kind().server, "--port", strconv.Itoa(port),
		"--save", "", "--appendonly", "no",
	}, args...)
}

func newNode(name string, port int) *Node {
	addr := net.JoinHostPort(host, strconv.Itoa(port))
	return &Node{
		Addr: addr,
		Name: name + " at " + addr,
		port: port,
		option: rueidis.ClientOption{
			InitAddress: []string{addr},
		},
	}
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

// wait waits until the server answers.
func (n *Node) wait(ctx context.Context) error {
	return eventually(ctx, n.Name+" answers", func(ctx context.Context) error {
		_, err := n.Do(ctx, "PING")
		return err
	})
}

// eventually tries until check has no complaint.
func eventually(ctx context.Context, what string, check func(context.Context) error) error {
	const limit = 30 * time.Second
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

// own fails the test if the server is not its own.
func (n *Node) own(t testing.TB) {
	t.Helper()
	if n.shared || n.id == "" {
		t.Fatalf("%s is shared; start a server for this test to do it harm", n.Name)
	}
}

// docker does something to the container.
func (n *Node) docker(t testing.TB, what string, do func(context.Context, *client.Client) error) {
	t.Helper()
	n.own(t)
	ctx, cancel := context.WithTimeout(t.Context(), dockerTimeout)
	defer cancel()
	if err := do(ctx, run.docker.Client); err != nil {
		t.Fatalf("%s %s: %v", what, n.Name, err)
	}
}

// Pause stops the server's process where it stands: connections stay open, and
// nothing is answered.
func (n *Node) Pause(t testing.TB) {
	t.Helper()
	n.docker(t, "pause", func(ctx context.Context, c *client.Client) error {
		_, err := c.ContainerPause(ctx, n.id, client.ContainerPauseOptions{})
		return err
	})
}

// Unpause lets the process go on.
func (n *Node) Unpause(t testing.TB) {
	t.Helper()
	n.docker(t, "unpause", func(ctx context.Context, c *client.Client) error {
		_, err := c.ContainerUnpause(ctx, n.id, client.ContainerUnpauseOptions{})
		return err
	})
}

// Stop kills the server. Its data is lost.
func (n *Node) Stop(t testing.TB) {
	t.Helper()
	n.docker(t, "stop", func(ctx context.Context, c *client.Client) error {
		_, err := c.ContainerStop(ctx, n.id, client.ContainerStopOptions{Timeout: new(int)})
		return err
	})
}

// Start starts a stopped server, empty, at the same address, and waits until it
// answers.
func (n *Node) Start(t testing.TB) {
	t.Helper()
	n.docker(t, "start", func(ctx context.Context, c *client.Client) error {
		_, err := c.ContainerStart(ctx, n.id, client.ContainerStartOptions{})
		return err
	})
	if err := n.wait(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Restart is Stop and Start.
func (n *Node) Restart(t testing.TB) {
	t.Helper()
	n.Stop(t)
	n.Start(t)
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
