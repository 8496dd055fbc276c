package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite testdata")

func command(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, talk bytes.Buffer
	code = run(t.Context(), args, &out, &talk)
	return code, out.String(), talk.String()
}

// spec 9.3: the migration of every tool, with everything and in both directions.
func TestGolden(t *testing.T) {
	t.Parallel()
	everything := []string{"-schema=my schema", "-role=app-user", "-marks", "-sweep=*/10 * * * *"}
	odd := []string{"-collection=my \"locks\"", "-version=20260102150405", "-name=odd"}
	for _, name := range []string{"mongosh", "json", "migrate-mongo"} {
		golden(t, "mongo", name, "default")
		golden(t, "mongo", name, "odd", odd...)
		golden(t, "mongo", name, "down", "-down")
	}
	for name := range formats {
		golden(t, "postgres", name, "default")
		golden(t, "postgres", name, "everything", everything...)
		golden(t, "postgres", name, "down", append([]string{"-down"}, everything...)...)
	}
}

// golden compares what is written in a format with what is kept.
func golden(t *testing.T, kind, format, name string, flags ...string) {
	t.Helper()
	t.Run(format+"/"+name, func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		args := append([]string{kind, "-format=" + format, "-o", dir}, flags...)
		code, out, talk := command(t, args...)
		if code != exitOK {
			t.Fatalf("run(%q) = %d, %s", args, code, talk)
		}
		folder := filepath.Join("testdata", format, name)
		if *update {
			if err := os.RemoveAll(folder); err != nil {
				t.Fatal(err)
			}
			if err := os.MkdirAll(folder, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		for path := range strings.Lines(out) {
			path = strings.TrimSpace(path)
			got, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(folder, filepath.Base(path))
			if *update {
				if err := os.WriteFile(file, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("run(%q) wrote %s:\n%s\nwant:\n%s", args, filepath.Base(path), got, want)
			}
		}
		written, _ := os.ReadDir(dir)
		kept, _ := os.ReadDir(folder)
		if len(written) != len(kept) || len(kept) == 0 {
			t.Errorf("run(%q) wrote %d files; want %d", args, len(written), len(kept))
		}
		// What goes to stdout without -o is the step itself.
		_, out, _ = command(t, append([]string{kind, "-format=" + format}, flags...)...)
		found := false
		for _, f := range kept {
			text, _ := os.ReadFile(filepath.Join(folder, f.Name()))
			found = found || string(text) == out && !strings.Contains(f.Name(), ".down.") && !strings.HasPrefix(f.Name(), "U")
		}
		if !found {
			t.Errorf("stdout is none of the files:\n%s", out)
		}
	})
}

// A file that differs is never overwritten, and then the others are not written either.
func TestOutputKeepsFiles(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "new")
	args := []string{"postgres", "-format=golang-migrate", "-version=7", "-o=" + dir}
	if code, _, talk := command(t, args...); code != exitOK {
		t.Fatalf("first: %d, %s", code, talk)
	}
	code, out, talk := command(t, args...)
	if code != exitOK || out != "" || strings.Count(talk, "unchanged") != 2 {
		t.Errorf("again: %d, %q, %q; want both unchanged", code, out, talk)
	}
	up, down := filepath.Join(dir, "7_locco_locks.up.sql"), filepath.Join(dir, "7_locco_locks.down.sql")
	if err := os.Remove(up); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(down, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, talk := command(t, args...); code != exitUsage || !strings.Contains(talk, "differs") {
		t.Errorf("over a file that differs: %d, %q; want 2", code, talk)
	}
	if text, _ := os.ReadFile(down); string(text) != "mine" {
		t.Errorf("the file is now %q", text)
	}
	if _, err := os.Stat(up); err == nil {
		t.Error("the other file was written; want all or none")
	}
}

// Wrong usage exits with 2 and says on stderr what is wrong.
func TestUsage(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		args []string
		want string
	}{
		{"NoCommand", nil, "expected one of"},
		{"UnknownFlag", []string{"postgres", "-nope"}, "-nope"},
		{"UnknownFormat", []string{"postgres", "-format=rails"}, "rails"},
		{"NoSuchStep", []string{"postgres", "-from=1", "-to=2"}, "no step from version 1 of the schema to 2"},
		{"SameVersion", []string{"postgres", "-from=1"}, "no step from version 1 of the schema to 1"},
		{"DownAndTo", []string{"postgres", "-down", "-to=0"}, "leave them out"},
		{"LongTable", []string{"postgres", "-table=" + strings.Repeat("x", 58)}, "57 bytes"},
		{"EmptyTable", []string{"postgres", "-table="}, "empty"},
		{"TemporarySchema", []string{"postgres", "-schema=pg_temp"}, "schema of the server"},
		{"RolePublic", []string{"postgres", "-role=public"}, "everybody"},
		{"BadSweep", []string{"postgres", "-sweep=hourly"}, "five fields"},
		{"BadVersion", []string{"postgres", "-version=../7"}, "number"},
		{"BadName", []string{"postgres", "-name=../x"}, "letters"},
		{"LineBreak", []string{"postgres", "-table=a\n-- +goose Down"}, "line breaks"},
		{"Placeholder", []string{"postgres", "-format=flyway", "-table=${x}"}, "${"},
		{"Semicolon", []string{"postgres", "-format=golang-migrate", "-table=a;b"}, ";"},
		{"Annotation", []string{"postgres", "-format=goose", "-table=+goose"}, "+goose"},
		{"MongoNoCollection", []string{"mongo", "-collection="}, "-collection"},
		{"MongoDollar", []string{"mongo", "-collection=a$b"}, "-collection"},
		{"MongoSystem", []string{"mongo", "-collection=system.users"}, "-collection"},
		{"MongoLineBreak", []string{"mongo", "-collection=a\nb"}, "-collection"},
		{"MongoBadVersion", []string{"mongo", "-version=../7"}, "number"},
		{"MongoBadName", []string{"mongo", "-name=../x"}, "letters"},
		{"MongoUnknownFormat", []string{"mongo", "-format=sql"}, "sql"},
		{"CheckWithoutURL", []string{"check"}, "url"},
		{"CheckBadURL", []string{"check", "-url=postgres://u:secret@h:port/x"}, "-url"},
		{"CheckBadRole", []string{"check", "-url=postgres://127.0.0.1:1/x", "-role=none"}, "-role"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			code, out, talk := command(t, tc.args...)
			if code != exitUsage || out != "" || !strings.Contains(talk, tc.want) || strings.Contains(talk, "secret") {
				t.Errorf("run(%q) = %d, %q, %q; want 2 and %q", tc.args, code, out, talk, tc.want)
			}
		})
	}
}

func TestSteps(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ a, b []string }{
		{nil, []string{"-from=0", "-to=1"}},
		{[]string{"-to=1"}, []string{"--from", "0"}},
		{[]string{"-down"}, []string{"-from=1", "-to=0"}},
		{[]string{"-down"}, []string{"-to=0"}},
	} {
		_, a, _ := command(t, append([]string{"postgres"}, tc.a...)...)
		code, b, talk := command(t, append([]string{"postgres"}, tc.b...)...)
		if code != exitOK || a != b || a == "" {
			t.Errorf("%q prints\n%s\nand %q (%d, %s)\n%s", tc.a, a, tc.b, code, talk, b)
		}
	}
}

// A server that cannot be reached is 3, and nothing of it is a result.
func TestCheckCannotConnect(t *testing.T) {
	t.Parallel()
	code, out, talk := command(t, "check", "-url=postgres://user:secret@127.0.0.1:1/app")
	if code != exitConnect || out != "" || talk == "" || strings.Contains(talk, "secret") {
		t.Errorf("check = %d, %q, %q; want 3, and no password", code, out, talk)
	}
}

func TestHelp(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"-help"}, {"-h"}, {"postgres", "-help"}, {"check", "--help"}} {
		code, out, talk := command(t, args...)
		if code != exitOK || !strings.Contains(out, "Usage:") || talk != "" {
			t.Errorf("run(%q) = %d, %q, %q; want help on stdout", args, code, out, talk)
		}
	}
}

// The example of the header makes the same file again.
func TestHeaderHasTheFlags(t *testing.T) {
	t.Parallel()
	_, first, _ := command(t, "postgres", "-table=t", "-schema=s", "-role=r", "-marks")
	line := strings.Split(first, "\n")[1]
	_, again, _ := command(t, strings.Fields(strings.TrimPrefix(line, "-- loccoddl "))...)
	if first != again || first == "" {
		t.Errorf("%q makes\n%s\nwant\n%s", line, again, first)
	}
}
