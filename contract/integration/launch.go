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
	const port = 6379
	return launched(ctx, func() (string, error) {
		addr, err := launch(ctx, spec{image: image(r.kind()), cmd: r.command(port)}, port)
		if err != nil {
			return "", err
		}
		n := (&Node{
			server: server{Addr: addr, Name: string(r) + " at " + addr},
			option: rueidis.ClientOption{InitAddress: []string{addr}},
		}).withPing()
		return addr, n.wait(ctx)
	})
}

// LaunchPostgres is [Launch] for Postgres: with pg_stat_statements, and as durable as it
// is by default. It returns the URL of its superuser.
func LaunchPostgres(ctx context.Context, p Postgres) (url string, end func() error, err error) {
	const port = 5432
	return launched(ctx, func() (string, error) {
		cmd := []string{"postgres", "-c", "max_connections=300", "-c", "shared_preload_libraries=pg_stat_statements"}
		addr, err := launch(ctx, spec{image: image(p.kind()), cmd: cmd, env: trust}, port)
		if err != nil {
			return "", err
		}
		url := "postgres://postgres@" + addr + "/postgres"
		return url, newPostgresNode(server{Addr: addr, Name: string(p) + " at " + addr}, url).wait(ctx)
	})
}

// launched ends what was begun if start fails.
func launched(ctx context.Context, start func() (string, error)) (at string, end func() error, err error) {
	if err := run.begin(ctx); err != nil {
		return "", nil, err
	}
	end = func() error { return run.end(true) }
	if at, err = start(); err != nil {
		return "", nil, errors.Join(err, end())
	}
	return at, end, nil
}

// launch starts a container, and returns its own address with port.
func launch(ctx context.Context, sp spec, port int) (addr string, err error) {
	id, err := run.start(ctx, sp)
	if err != nil {
		return "", err
	}
	info, err := run.docker.ContainerInspect(ctx, id, client.ContainerInspectOptions{})
	if err != nil {
		return "", err
	}
	for _, n := range info.Container.NetworkSettings.Networks {
		if n.IPAddress.IsValid() {
			return net.JoinHostPort(n.IPAddress.String(), strconv.Itoa(port)), nil
		}
	}
	return "", fmt.Errorf("the container of %s has no address of its own", sp.image)
}
