package integration

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"

	"github.com/moby/moby/client"
	"github.com/redis/rueidis"
)

// Reaping is for programs that call [Launch]. If it reports true, this process was
// started to clean up after another one; it has done so, and main returns code.
func Reaping() (code int, reaping bool) {
	id := os.Getenv(reaperEnv)
	if id == "" {
		return 0, false
	}
	return reap(id), true
}

// Launch starts a server for a program that is no test, such as the benchmarks. It
// returns the container's own address: a published port goes through one more
// process or hop, which costs as much as the round trip itself. The address can be
// reached where Docker runs on the same Linux. End is to be called once, and ends
// all servers that the program has launched.
func Launch(ctx context.Context, r Redis) (addr string, end func() error, err error) {
	if err := run.begin(ctx); err != nil {
		return "", nil, err
	}
	end = func() error { return run.end(true) }
	if addr, err = launch(ctx, r); err != nil {
		return "", nil, errors.Join(err, end())
	}
	return addr, end, nil
}

func launch(ctx context.Context, r Redis) (addr string, err error) {
	const port = 6379
	id, err := run.start(ctx, spec{image: image(r.kind()), cmd: r.command(port)})
	if err != nil {
		return "", err
	}
	info, err := run.docker.ContainerInspect(ctx, id, client.ContainerInspectOptions{})
	if err != nil {
		return "", err
	}
	for _, n := range info.Container.NetworkSettings.Networks {
		if n.IPAddress.IsValid() {
			addr = net.JoinHostPort(n.IPAddress.String(), strconv.Itoa(port))
		}
	}
	if addr == "" {
		return "", fmt.Errorf("the container of %s has no address of its own", r)
	}
	n := (&Node{
		server: server{Addr: addr, Name: string(r) + " at " + addr},
		option: rueidis.ClientOption{InitAddress: []string{addr}},
	}).withPing()
	return addr, n.wait(ctx)
}
