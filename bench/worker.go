package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"golang.org/x/sys/unix"
)

// workerEnv makes this program a worker. Its value is an [order].
const workerEnv = "LOCCO_BENCH_WORKER"

// order tells a worker what it works on; the job comes when all are ready.
type order struct {
	Backend, URL, Subject string
}

// monotonic reads CLOCK_MONOTONIC, which all processes of a machine share. That of
// package time begins in each process anew.
func monotonic() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // the clock is there on every system that this is built for
	}
	return ts.Nano()
}

// processTime is the CPU time that this process has used.
func processTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		panic(err) // as above
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// work is the main of a worker: it connects, says that it is ready, reads its job,
// and writes its grants.
func work(ctx context.Context, text string, stdin io.Reader, stdout io.Writer) error {
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	b, err := backendNamed(o.Backend)
	if err != nil {
		return err
	}
	st, err := b.open(ctx, o.URL)
	if err != nil {
		return err
	}
	defer st.close()
	s, err := named(st.subjects(), o.Subject)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(stdout, "ready"); err != nil {
		return err
	}
	var j job
	if err := json.NewDecoder(stdin).Decode(&j); err != nil {
		return err
	}
	grants, err := contend(ctx, s, j, monotonic)
	if err != nil {
		return err
	}
	return json.NewEncoder(stdout).Encode(grants)
}

// process is a worker seen from the program that started it.
type process struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func startWorker(ctx context.Context, o order) (*process, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.CommandContext(ctx, path)}
	p.cmd.Env = append(os.Environ(), workerEnv+"="+string(text))
	p.cmd.Stderr = os.Stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = bufio.NewReader(out)
	return p, p.cmd.Start()
}

// spawner returns a function that runs workers as processes of their own. They all
// begin when the last of them has connected.
func spawner(backend, url string) func(context.Context, string, int, job, time.Duration) ([][]grant, error) {
	return func(ctx context.Context, subject string, workers int, j job, turn time.Duration) (grants [][]grant, err error) {
		ctx, cancel := context.WithCancel(ctx)
		var started []*process
		defer func() {
			if err != nil {
				cancel() // ends those that still run
			}
			for _, p := range started {
				err = errors.Join(err, p.cmd.Wait())
			}
			cancel()
		}()
		for range workers {
			p, err := startWorker(ctx, order{backend, url, subject})
			if err != nil {
				return nil, err
			}
			started = append(started, p)
		}
		for _, p := range started {
			if _, err := p.out.ReadString('\n'); err != nil {
				return nil, fmt.Errorf("a worker did not get ready: %w", err)
			}
		}
		j.End = monotonic() + int64(turn)
		for _, p := range started {
			if err := json.NewEncoder(p.in).Encode(j); err != nil {
				return nil, err
			}
		}
		grants = make([][]grant, workers)
		for i, p := range started {
			if err := json.NewDecoder(p.out).Decode(&grants[i]); err != nil {
				return nil, fmt.Errorf("a worker came to nothing: %w", err)
			}
		}
		return grants, nil
	}
}
