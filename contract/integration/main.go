package integration

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/log"
)

// The labels of a container say which run it belongs to, and which process on
// which machine that is.
const (
	labelRun  = "locco.test.run"
	labelHost = "locco.test.host"
	labelPID  = "locco.test.pid"
)

// reaperEnv makes a test binary wait for its parent's end instead of testing.
const reaperEnv = "LOCCO_TEST_REAPER"

// leftoverAge is how old a container of another machine has to be to be taken for
// a leftover. Of this machine we know which processes live.
const leftoverAge = 6 * time.Hour

// Main runs the tests and cleans up after them. It is to be called as
//
//	func TestMain(m *testing.M) { os.Exit(integration.Main(m)) }
func Main(m *testing.M) int {
	if id := os.Getenv(reaperEnv); id != "" {
		return reap(id)
	}
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM)
	go func() {
		if s, ok := <-interrupted; ok {
			fmt.Fprintf(os.Stderr, "integration: %v: removing the servers\n", s)
			_ = run.end(false) // tests are at work, so the reaper looks again
			os.Exit(1)
		}
	}()
	code := m.Run()
	signal.Stop(interrupted)
	close(interrupted)
	if err := run.end(true); err != nil {
		fmt.Fprintln(os.Stderr, "integration: cleaning up:", err)
		if code == 0 {
			code = 1
		}
	}
	return code
}

// run is this process's use of Docker. It is shared by all tests, as the servers
// of SharedRedis are.
var run session

type session struct {
	once   sync.Once
	err    error // why there is no Docker
	docker *testcontainers.DockerClient
	id     string
	reaper io.WriteCloser // its end is our end
	reaped chan struct{}  // closed when the reaper is gone

	mu     sync.Mutex            // guards what follows
	shared map[any]*sharedServer // by kind
	ports  map[int]bool          // given to somebody
}

// begin connects to Docker, once.
func (s *session) begin(ctx context.Context) error {
	s.once.Do(func() {
		if s.err = s.connect(ctx); s.err != nil {
			s.err = fmt.Errorf("there is no Docker to start servers with: %w\n"+
				"Run scripts/backends (make backends), which starts one, or start one yourself", s.err)
		}
	})
	return s.err
}

func (s *session) connect(ctx context.Context) (err error) {
	defer func() {
		if p := recover(); p != nil { // testcontainers does so when it finds no socket
			err = fmt.Errorf("%v", p)
		}
	}()
	// The same on every machine: no reaper of testcontainers, whose image is not
	// to be had everywhere, and no guess at the address of published ports.
	for name, value := range map[string]string{
		"TESTCONTAINERS_RYUK_DISABLED": "true",
		"TESTCONTAINERS_HOST_OVERRIDE": host,
	} {
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	log.SetDefault(quiet{})
	if s.docker, err = testcontainers.NewDockerClientWithOpts(ctx); err != nil {
		return err
	}
	if _, err = s.docker.Ping(ctx, client.PingOptions{}); err != nil {
		return err
	}
	s.id = rand.Text()
	s.shared = map[any]*sharedServer{}
	s.ports = map[int]bool{}
	if err := s.sweep(ctx); err != nil {
		return fmt.Errorf("removing what earlier runs have left: %w", err)
	}
	return s.startReaper()
}

// end removes all containers of this run. If it is over, nothing is left for the
// reaper to do.
func (s *session) end(over bool) error {
	if s.docker == nil || s.err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, err := remove(ctx, s.docker.Client, labelRun+"="+s.id)
	if err == nil && over {
		_, err = s.reaper.Write([]byte{1})
	}
	err = errors.Join(err, s.reaper.Close())
	if over {
		select {
		case <-s.reaped:
		case <-ctx.Done():
		}
	}
	return err
}

func (s *session) labels() map[string]string {
	hostname, _ := os.Hostname()
	return map[string]string{
		labelRun:  s.id,
		labelHost: hostname,
		labelPID:  strconv.Itoa(os.Getpid()),
	}
}

// sweep removes the containers of runs that are over.
func (s *session) sweep(ctx context.Context) error {
	hostname, _ := os.Hostname()
	list, err := s.docker.ContainerList(ctx, client.ContainerListOptions{
		All:     true,
		Filters: make(client.Filters).Add("label", labelRun),
	})
	if err != nil {
		return err
	}
	over := map[string]bool{}
	for _, c := range list.Items {
		pid, _ := strconv.Atoi(c.Labels[labelPID])
		old := time.Since(time.Unix(c.Created, 0)) > leftoverAge
		if old || c.Labels[labelHost] == hostname && !alive(pid) {
			over[c.Labels[labelRun]] = true
		}
	}
	for id := range over {
		if _, err := remove(ctx, s.docker.Client, labelRun+"="+id); err != nil {
			return err
		}
	}
	return nil
}

// alive tells whether there is a process pid on this machine.
func alive(pid int) bool {
	p, err := os.FindProcess(pid)
	if err != nil {
		return false
	}
	defer func() { _ = p.Release() }()
	err = p.Signal(syscall.Signal(0))
	return err == nil || errors.Is(err, syscall.EPERM)
}

// startReaper starts this program once more, to clean up after us when we cannot:
// after a panic, a test's time limit, a kill.
func (s *session) startReaper() error {
	path, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(path)
	cmd.Env = append(os.Environ(), reaperEnv+"="+s.id)
	if s.reaper, err = cmd.StdinPipe(); err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	s.reaped = make(chan struct{})
	go func() {
		defer close(s.reaped)
		_ = cmd.Wait()
	}()
	return nil
}

// reap waits until the end of the process at the other end of stdin, and removes
// the containers of run id.
func reap(id string) int {
	signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	if n, _ := os.Stdin.Read(make([]byte, 1)); n > 0 {
		return 0 // it has cleaned up
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	log.SetDefault(quiet{})
	docker, err := testcontainers.NewDockerClientWithOpts(ctx)
	if err != nil {
		return 1
	}
	// Twice: Docker may be about to make one that was asked for at the end.
	for range 2 {
		if _, err := remove(ctx, docker.Client, labelRun+"="+id); err != nil {
			return 1
		}
		time.Sleep(2 * time.Second)
	}
	_, err = remove(ctx, docker.Client, labelRun+"="+id)
	if err != nil {
		return 1
	}
	return 0
}

// quiet is a logger for testcontainers, which tells of every step.
type quiet struct{}

func (quiet) Printf(string, ...any) {}
