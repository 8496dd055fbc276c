package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"

	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/postgres"
)

// The exit codes.
const (
	exitOK = iota
	exitDrift
	exitUsage
	exitConnect
)

type cli struct {
	Postgres postgresCommand `cmd:"" help:"Print the tables for PostgreSQL, or write them as a migration."`
	Mongo    mongoCommand    `cmd:"" help:"Print the indexes for MongoDB, or write them as a migration."`
	Check    checkCommand    `cmd:"" help:"Check a PostgreSQL database that exists. It only reads."`
}

// schemaFlags are what both commands take.
type schemaFlags struct {
	Table  string `default:"locco_locks" help:"Table of the locks, as in postgres.WithTable (default: ${default})."`
	Schema string `help:"Schema of the table. It must exist. Default: what the search path finds."`
	Role   string `help:"Role that the application connects as. It is granted what it needs and no more."`
	Marks  bool   `help:"Also the table of marks, for postgres.Resource (fences checked where data is written)."`
	Sweep  string `placeholder:"CRON" help:"Also a job of the extension pg_cron that deletes expired rows, such as '*/10 * * * *'."`
}

func (f *schemaFlags) schema() postgres.Schema {
	s := postgres.Schema{Table: []string{f.Table}, Role: f.Role, Marks: f.Marks, Sweep: f.Sweep}
	if f.Schema != "" {
		s.Table = []string{f.Schema, f.Table}
	}
	return s
}

// codeError is an error with the exit code that it means.
type codeError struct {
	code int
	err  error
}

func (e *codeError) Error() string { return e.err.Error() }

func (e *codeError) Unwrap() error { return e.err }

func usage(format string, args ...any) error {
	return &codeError{exitUsage, fmt.Errorf(format, args...)}
}

// run is the command: results go to stdout, everything else to stderr.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var c cli
	helped := false
	parser, err := kong.New(&c,
		kong.Name("loccoddl"),
		kong.Description("What locco needs in a database: for migrations, and to check one that exists. "+
			"Flags may have one dash or two. Exit codes: 0 all is well, 1 the check found something, 2 wrong usage, "+
			"3 the database cannot be reached or read."),
		kong.Writers(stdout, stderr),
		kong.Exit(func(int) { helped = true }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
	)
	if err != nil {
		fmt.Fprintln(stderr, "loccoddl:", err)
		return exitUsage
	}
	parsed, err := parser.Parse(twoDashes(args))
	switch {
	case helped:
		return exitOK
	case err != nil:
		fmt.Fprintf(stderr, "loccoddl: %v (see loccoddl -help)\n", err)
		return exitUsage
	}
	parsed.BindTo(ctx, (*context.Context)(nil))
	err = parsed.Run(&output{stdout, stderr})
	if err == nil {
		return exitOK
	}
	code := exitUsage
	if coded, ok := errors.AsType[*codeError](err); ok {
		code = coded.code
	}
	if text := explain(err); text != "" {
		fmt.Fprintln(stderr, "loccoddl:", text)
	}
	return code
}

type output struct{ stdout, stderr io.Writer }

// explain names a flag where the library names a field.
func explain(err error) string {
	if invalid, ok := errors.AsType[*locco.ValidationError](err); ok {
		field := strings.ToLower(strings.TrimPrefix(invalid.Field, "postgres Schema."))
		return fmt.Sprintf("-%s %q: %s", field, invalid.Value, invalid.Rule)
	}
	return err.Error()
}

// twoDashes lets flags have one dash, as those of Go's own tools do. Only -h and -o are
// one letter.
func twoDashes(args []string) []string {
	out := make([]string, len(args))
	for i, a := range args {
		switch {
		case strings.HasPrefix(a, "-o="):
			a = "--output" + a[2:]
		case len(a) > 2 && a[0] == '-' && a[1] != '-':
			a = "-" + a
		}
		out[i] = a
	}
	return out
}
