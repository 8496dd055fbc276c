// Command demo shows locco at work in a few seconds: workers that share keys, a
// callback whose lock is kept alive, a lock that is lost, fencing tokens, and a
// set of keys. Run it with
//
//	go run ./docs/examples/demo
//	go run ./docs/examples/demo -backend=redis -url=redis://127.0.0.1:6379
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run is main with everything it touches as an argument. It returns the exit
// code: 0 done, 1 failed or interrupted, 2 called wrong.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	flags.SetOutput(stderr)
	name := flags.String("backend", "memory", "where the locks are kept: "+strings.Join(backendNames(), ", "))
	url := flags.String("url", "", "the address of that store, such as redis://127.0.0.1:6379; memory needs none")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	case flags.NArg() > 0:
		fmt.Fprintf(stderr, "demo: unexpected argument %q\n", flags.Arg(0))
		return 2
	}
	backend, closeBackend, err := openBackend(ctx, *name, *url)
	if err != nil {
		fmt.Fprintf(stderr, "demo: %v\n", err)
		return 2
	}
	defer closeBackend()

	d := newDemo(stdout, backend)
	fmt.Fprintf(stdout, "locco on %s\n", *name)
	err = d.play(ctx)
	switch {
	case ctx.Err() != nil:
		fmt.Fprintln(stderr, "demo: interrupted; all locks were released")
		return 1
	case err != nil:
		fmt.Fprintf(stderr, "demo: %v\n", err)
		return 1
	}
	fmt.Fprintf(stdout, "\nDone: %s.\n", d.summary())
	return 0
}
