package main

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/locco-go/locco/contract/integration"
)

// TestMain lets this program be what main lets it be.
func TestMain(m *testing.M) {
	if text := os.Getenv(workerEnv); text != "" {
		if err := work(context.Background(), text, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(integration.Main(m))
}

func TestFlags(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		args []string
		says string
	}{
		{"Backend", []string{"-backend=oracle"}, `no backend "oracle"; want one of: redis, redis7, valkey`},
		{"Case", []string{"-case=latency,speed"}, `no case "speed"; want some of: latency,throughput`},
		{"Rounds", []string{"-rounds=0"}, "-rounds=0; want at least 1"},
		{"Duration", []string{"-rounds=10", "-duration=9ms"}, "-duration=9ms; want at least"},
		{"Subject", []string{"-subject=("}, "-subject: "},
		{"Argument", []string{"redis"}, `unexpected argument "redis"`},
		{"Flag", []string{"-speed"}, "flag provided but not defined"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var stdout, stderr strings.Builder
			if code := run(t.Context(), tc.args, &stdout, &stderr); code != 2 {
				t.Errorf("run(%q) = %d; want 2", tc.args, code)
			}
			if !strings.Contains(stderr.String(), tc.says) || stdout.Len() > 0 {
				t.Errorf("run(%q) says %q and %q; want %q on stderr", tc.args, stdout.String(), stderr.String(), tc.says)
			}
		})
	}
}

// TestRedis runs every case on a server, with workers in processes of their own. It
// looks at what is counted, not at times.
func TestRedis(t *testing.T) {
	t.Parallel()
	server := integration.SharedRedis(t, integration.Redis8)
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	var stdout, stderr strings.Builder
	args := []string{"-url=redis://" + server.Addr, "-rounds=2", "-duration=100ms", "-locks=200"}
	if code := run(ctx, args, &stdout, &stderr); code != 0 {
		t.Fatalf("run(%q) = %d; it says:\n%s", args, code, stderr.String())
	}
	for _, pattern := range []string{
		`(?m)^# locco on Redis \d`,
		`(?m)^\| raw .* 2\.00 \| +2\.00 \| +\d`, // commands and round trips
		`(?m)^\| locco, fenced  .* 2\.00 \| +2\.00 \| +\d`,
		`(?m)^\| locco  .* 2\.00 \| +2\.00 \| +\d`,
		`(?m)^\| BLPOP +\| +8 \|.* 2\.00 \|`,
		`(?m)^\| locco, fenced +\| +8 \|`,
		`(?m)^\| locco, fenced +\| +1000 \|`,
		`(?m)^## Renewal`,
	} {
		if !regexp.MustCompile(pattern).MatchString(stdout.String()) {
			t.Errorf("nothing matches %s", pattern)
		}
	}
	if t.Failed() {
		t.Log(stdout.String())
	}
}

func TestRedisUsage(t *testing.T) {
	t.Parallel()
	u, err := redisUsage(infoFields("# Commandstats\r\ncmdstat_set:calls=21,usec=175,usec_per_call=8.33,rejected_calls=0\r\n" +
		"cmdstat_evalsha:calls=2,usec=40,usec_per_call=20.00\r\ntotal_reads_processed:17\r\n" +
		"used_cpu_sys:0.250000\r\nused_cpu_user:1.500000\r\nused_cpu_user_children:9.0\r\n"))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := u.sum([]string{"set", "evalsha", "get"}), (command{23, 215 * time.Microsecond}); got != want {
		t.Errorf("sum = %v; want %v", got, want)
	}
	if u.reads != 17 || u.cpu != 1750*time.Millisecond {
		t.Errorf("reads = %d, cpu = %v; want 17, 1.75s", u.reads, u.cpu)
	}
	if _, err := redisUsage(infoFields("used_cpu_sys:much\r\nused_cpu_user:1\r\n")); err == nil {
		t.Error("a time that is no number gave no error")
	}
}
