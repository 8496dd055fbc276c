package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"runtime/pprof"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/locco-go/locco/contract/integration"
)

func main() {
	if code, reaping := integration.Reaping(); reaping {
		os.Exit(code)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	if text := os.Getenv(workerEnv); text != "" {
		if err := work(ctx, text, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintf(os.Stderr, "bench: worker: %v\n", err)
			os.Exit(1)
		}
		return
	}
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// backends are what -backend can name.
var backends = []backend{
	redisBackend("redis", integration.Redis8),
	redisBackend("redis7", integration.Redis7),
	redisBackend("valkey", integration.Valkey8),
	postgresBackend("postgres", integration.Postgres17),
	postgresBackend("postgres18", integration.Postgres18),
}

func backendNamed(name string) (backend, error) {
	var names []string
	for _, b := range backends {
		if b.name == name {
			return b, nil
		}
		names = append(names, b.name)
	}
	return backend{}, fmt.Errorf("no backend %q; want one of: %s", name, strings.Join(names, ", "))
}

// plan is what the flags say.
type plan struct {
	backend  backend
	url      string
	cases    []string
	subjects *regexp.Regexp
	rounds   int
	duration time.Duration
	locks    int
	profile  string
}

func caseNames() []string {
	var names []string
	for _, c := range cases {
		names = append(names, c.name)
	}
	return names
}

// parse reads the flags. It has told what is wrong with them.
func parse(args []string, stderr io.Writer) (p plan, err error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&p.url, "url", "", "a server that runs already, such as redis://10.0.0.7:6379; the default is to start one in a container")
	flags.IntVar(&p.rounds, "rounds", 20, "how many turns each subject of a case gets")
	flags.DurationVar(&p.duration, "duration", 6*time.Second, "the time of all turns of one subject in a case")
	flags.IntVar(&p.locks, "locks", 10_000, "how many locks the case renewal keeps")
	flags.StringVar(&p.profile, "cpuprofile", "", "a file for the CPU profile of this process")
	name := flags.String("backend", "redis", "what to measure on")
	list := flags.String("case", strings.Join(caseNames(), ","), "what to measure, separated by commas")
	pattern := flags.String("subject", "", "measure only the subjects that this regular expression matches, and what they are compared with")
	if err := flags.Parse(args); err != nil {
		return plan{}, err
	}
	check := func() error {
		if flags.NArg() > 0 {
			return fmt.Errorf("unexpected argument %q", flags.Arg(0))
		}
		if p.rounds < 1 {
			return fmt.Errorf("-rounds=%d; want at least 1", p.rounds)
		}
		if p.duration < time.Duration(p.rounds)*time.Millisecond {
			return fmt.Errorf("-duration=%v; want at least a millisecond for each of %d rounds", p.duration, p.rounds)
		}
		if p.locks < 1 {
			return fmt.Errorf("-locks=%d; want at least 1", p.locks)
		}
		for name := range strings.SplitSeq(*list, ",") {
			if !slices.Contains(caseNames(), name) {
				return fmt.Errorf("no case %q; want some of: %s", name, strings.Join(caseNames(), ","))
			}
			p.cases = append(p.cases, name)
		}
		if p.subjects, err = regexp.Compile(*pattern); err != nil {
			return fmt.Errorf("-subject: %w", err)
		}
		p.backend, err = backendNamed(*name)
		return err
	}
	if err := check(); err != nil {
		fmt.Fprintf(stderr, "bench: %v\n", err)
		return plan{}, err
	}
	return p, nil
}

// run is main with everything it touches as an argument. It returns the exit code:
// 0 done, 1 failed or interrupted, 2 called wrong.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	p, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	}
	if err := p.measure(ctx, stdout, stderr); err != nil {
		fmt.Fprintf(stderr, "bench: %v\n", err)
		return 1
	}
	return 0
}

func (p *plan) measure(ctx context.Context, stdout, stderr io.Writer) (err error) {
	say := func(format string, args ...any) { fmt.Fprintf(stderr, "bench: "+format+"\n", args...) }
	if p.url == "" {
		say("starting a server")
		url, end, err := p.backend.launch(ctx)
		if err != nil {
			return err
		}
		p.url = url
		defer func() {
			if e := end(); e != nil {
				say("removing the server: %v", e)
			}
		}()
	}
	st, err := p.backend.open(ctx, p.url)
	if err != nil {
		return err
	}
	defer st.close()
	version, err := st.version(ctx)
	if err != nil {
		return err
	}
	if p.profile != "" {
		f, err := os.Create(p.profile)
		if err != nil {
			return err
		}
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer func() {
			pprof.StopCPUProfile()
			if e := f.Close(); err == nil {
				err = e
			}
		}()
	}
	r := &runner{
		store:    st,
		subjects: st.subjects(),
		only:     p.subjects,
		rounds:   p.rounds,
		duration: p.duration,
		locks:    p.locks,
		prefix:   "bench:" + rand.Text() + ":",
		say:      say,
		clock:    monotonic,
		spawn:    spawner(p.backend.name, p.url),
	}
	if warning := busy(); warning != "" {
		say("%s", warning)
	}
	fmt.Fprintf(stdout, "# locco on %s\n\n%s.\n", version, machine())
	return r.run(ctx, p.cases, stdout)
}
