package integration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
)

// host is the address of all servers, for the tests and for each other.
const host = "127.0.0.1"

// startTimeout bounds the start of a container, with the download of its image.
const startTimeout = 5 * time.Minute

// dockerTimeout bounds everything else that Docker is asked for.
const dockerTimeout = 30 * time.Second

// spec describes a container.
type spec struct {
	image      string
	entrypoint []string // the image's, if nil
	cmd        []string
	env        map[string]string
	publish    []int  // ports on 127.0.0.1, the same inside and outside
	network    string // id of the container whose network this one uses
}

// start starts a container of this run and returns its id.
func (s *session) start(ctx context.Context, sp spec) (string, error) {
	if err := s.begin(ctx); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	bindings := network.PortMap{}
	var exposed []string
	for _, p := range sp.publish {
		port := network.MustParsePort(strconv.Itoa(p) + "/tcp")
		exposed = append(exposed, port.String())
		bindings[port] = []network.PortBinding{{HostIP: netip.MustParseAddr(host), HostPort: strconv.Itoa(p)}}
	}
	ctr, err := testcontainers.Run(ctx, sp.image,
		testcontainers.WithEntrypoint(sp.entrypoint...),
		testcontainers.WithCmd(sp.cmd...),
		testcontainers.WithEnv(sp.env),
		testcontainers.WithExposedPorts(exposed...),
		testcontainers.WithLabels(s.labels()),
		testcontainers.WithHostConfigModifier(func(c *container.HostConfig) {
			c.PortBindings = bindings
			if sp.network != "" {
				c.NetworkMode = container.NetworkMode("container:" + sp.network)
			}
		}),
	)
	if err != nil {
		if ctr != nil {
			err = errors.Join(err, s.remove(ctr.GetContainerID()))
		}
		return "", fmt.Errorf("start a container of image %s: %w\n"+
			"eval \"$(scripts/backends)\" makes the images and names them in the environment", sp.image, err)
	}
	return ctr.GetContainerID(), nil
}

// remove removes one container, with its volumes.
func (s *session) remove(id string) error {
	ctx, cancel := context.WithTimeout(context.Background(), dockerTimeout)
	defer cancel()
	return removeOne(ctx, s.docker.Client, id)
}

func removeOne(ctx context.Context, docker *client.Client, id string) error {
	_, err := docker.ContainerRemove(ctx, id, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
	if errdefs.IsNotFound(err) || errdefs.IsConflict(err) { // gone, or going
		return nil
	}
	return err
}

// remove removes all containers with a label, and tells how many.
func remove(ctx context.Context, docker *client.Client, label string) (int, error) {
	list, err := docker.ContainerList(ctx, client.ContainerListOptions{
		All:     true,
		Filters: make(client.Filters).Add("label", label),
	})
	if err != nil {
		return 0, err
	}
	errs := make([]error, len(list.Items))
	var wg sync.WaitGroup
	for i, c := range list.Items {
		wg.Go(func() { errs[i] = removeOne(ctx, docker, c.ID) })
	}
	wg.Wait()
	return len(list.Items), errors.Join(errs...)
}

// logs returns the last lines that a container has written.
func (s *session) logs(id string) string {
	ctx, cancel := context.WithTimeout(context.Background(), dockerTimeout)
	defer cancel()
	r, err := s.docker.ContainerLogs(ctx, id, client.ContainerLogsOptions{ShowStdout: true, ShowStderr: true, Tail: "20"})
	if err != nil {
		return err.Error()
	}
	defer func() { _ = r.Close() }()
	var out bytes.Buffer
	_, _ = stdcopy.StdCopy(&out, &out, r)
	return out.String()
}

// withPorts calls start with n free ports, and with others as long as it fails
// because somebody else took one of them.
func (s *session) withPorts(n int, start func(ports []int) error) error {
	var err error
	for range 10 {
		var ports []int
		if ports, err = s.freePorts(n); err != nil {
			return err
		}
		if err = start(ports); err == nil || !portTaken(err) {
			return err
		}
	}
	return err
}

func portTaken(err error) bool {
	text := err.Error() // Docker has no code for it
	return strings.Contains(text, "port is already allocated") || strings.Contains(text, "address already in use")
}

// freePorts returns ports that nobody listens on. They are below those that the
// system gives to outgoing connections, so that a port stays free while its server
// is down.
func (s *session) freePorts(n int) ([]int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ports []int
	for range 1000 {
		if len(ports) == n {
			return ports, nil
		}
		p := 18000 + rand.IntN(12000)
		if s.ports[p] {
			continue
		}
		l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(p)))
		if err != nil {
			continue
		}
		_ = l.Close()
		s.ports[p] = true
		ports = append(ports, p)
	}
	return nil, fmt.Errorf("no %d free ports on %s", n, host)
}

// cleanUp removes a container at the end of the test, and shows what it wrote if
// the test has failed.
func cleanUp(t testing.TB, name, id string) {
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the last lines of %s:\n%s", name, run.logs(id))
		}
		if err := run.remove(id); err != nil {
			t.Errorf("remove %s: %v", name, err)
		}
	})
}
