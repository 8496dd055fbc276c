package integration

import (
	"context"
	"os"
	"sync"
	"testing"

	"github.com/moby/moby/client"
)

// kind is what differs between the kinds of server.
type kind struct {
	env     string // LOCCO_TEST_env_IMAGE, LOCCO_TEST_env_URL
	image   string // the public one
	command string
}

func image(k kind) string {
	if image := os.Getenv("LOCCO_TEST_" + k.env + "_IMAGE"); image != "" {
		return image
	}
	return k.image
}

// sharedServer is one that all tests of the run use.
type sharedServer struct {
	once   sync.Once
	server any
	err    error
}

// shared returns the run's server of a kind, which the first call starts.
func shared[N any](t testing.TB, kind any, start func() (*N, error)) (*N, error) {
	t.Helper()
	if err := run.begin(t.Context()); err != nil {
		return nil, err
	}
	run.mu.Lock()
	s := run.shared[kind]
	if s == nil {
		s = &sharedServer{}
		run.shared[kind] = s
	}
	run.mu.Unlock()
	s.once.Do(func() { s.server, s.err = start() })
	if s.err != nil {
		return nil, s.err
	}
	return s.server.(*N), nil
}

// server is one server of any kind.
type server struct {
	// Addr is where it listens, as host:port.
	Addr string

	// Name is for messages.
	Name string

	port   int
	id     string // of its container; "" if it was given as a URL
	shared bool
	ping   func(ctx context.Context) error // whether it answers
}

// wait waits until the server answers.
func (n *server) wait(ctx context.Context) error { return eventually(ctx, n.Name+" answers", n.ping) }

// own fails the test if the server is not its own.
func (n *server) own(t testing.TB) {
	t.Helper()
	if n.shared || n.id == "" {
		t.Fatalf("%s is shared; start a server for this test to do it harm", n.Name)
	}
}

// docker does something to the container.
func (n *server) docker(t testing.TB, what string, do func(context.Context, *client.Client) error) {
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
func (n *server) Pause(t testing.TB) {
	t.Helper()
	n.docker(t, "pause", func(ctx context.Context, c *client.Client) error {
		_, err := c.ContainerPause(ctx, n.id, client.ContainerPauseOptions{})
		return err
	})
}

// Unpause lets the process go on.
func (n *server) Unpause(t testing.TB) {
	t.Helper()
	n.docker(t, "unpause", func(ctx context.Context, c *client.Client) error {
		_, err := c.ContainerUnpause(ctx, n.id, client.ContainerUnpauseOptions{})
		return err
	})
}

// Stop kills the server. What it keeps in memory alone is lost.
func (n *server) Stop(t testing.TB) {
	t.Helper()
	n.docker(t, "stop", func(ctx context.Context, c *client.Client) error {
		_, err := c.ContainerStop(ctx, n.id, client.ContainerStopOptions{Timeout: new(int)})
		return err
	})
}

// Start starts a stopped server at the same address, and waits until it
// answers.
func (n *server) Start(t testing.TB) {
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
func (n *server) Restart(t testing.TB) {
	t.Helper()
	n.Stop(t)
	n.Start(t)
}
