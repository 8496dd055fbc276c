package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestRunShowsEveryScene(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var stdout, stderr bytes.Buffer
		start := time.Now()
		if code := run(t.Context(), nil, &stdout, &stderr); code != 0 || stderr.Len() > 0 {
			t.Fatalf("run = %d, stderr %q; want 0 and nothing", code, stderr.String())
		}
		if took := time.Since(start); took > 8*time.Second {
			t.Errorf("the demo took %v; want a few seconds", took)
		}
		for _, want := range []string{
			"1. ", "2. ", "3. ", "4. ", "5. ", "6. ",
			"after waiting", "looks once and moves on", "part 4 of 4", "lost (extend)", "(disk)   refuses hans", "Done: ",
		} {
			if !strings.Contains(stdout.String(), want) {
				t.Errorf("the output lacks %q:\n%s", want, stdout.String())
			}
		}
	})
}

func TestRunInterrupted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		var stdout, stderr bytes.Buffer
		if code := run(ctx, nil, &stdout, &stderr); code != 1 || !strings.Contains(stderr.String(), "interrupted") {
			t.Errorf("run = %d, stderr %q; want 1 and that it was interrupted", code, stderr.String())
		}
	})
}

func TestRunUsage(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, args, stderr string
		code               int
	}{
		{"Help", "-h", "where the locks are kept", 0},
		{"UnknownFlag", "-frontend=x", "not defined", 2},
		{"Argument", "memory", `unexpected argument "memory"`, 2},
		{"UnknownBackend", "-backend=etcd", `unknown backend "etcd"`, 2},
		{"MongoWithoutURL", "-backend=mongo", "needs -url", 2},
		{"MongoBadURL", "-backend=mongo -url=localhost:27017", "the -url", 2},
		{"MongoNotThere", "-backend=mongo -url=mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=100", "connect to MongoDB", 2},
		{"PostgresWithoutURL", "-backend=postgres", "needs -url", 2},
		{"PostgresBadURL", "-backend=postgres -url=postgres://[", "the -url", 2},
		{"PostgresNotThere", "-backend=postgres -url=postgres://127.0.0.1:1/x", "connect to Postgres", 2},
		{"RedisWithoutURL", "-backend=redis", "needs -url", 2},
		{"RedisBadURL", "-backend=redis -url=localhost:6379", "the -url", 2},
		{"RedisNotThere", "-backend=redis -url=redis://127.0.0.1:1", "connect to Redis", 2},
		{"MemoryWithURL", "-url=x", "has no -url", 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var stdout, stderr bytes.Buffer
			code := run(t.Context(), strings.Fields(tc.args), &stdout, &stderr)
			if code != tc.code || !strings.Contains(stderr.String(), tc.stderr) {
				t.Errorf("run(%s) = %d, stderr %q; want %d and %q", tc.args, code, stderr.String(), tc.code, tc.stderr)
			}
		})
	}
}
