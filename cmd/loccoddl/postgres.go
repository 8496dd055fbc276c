package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"unicode"

	"github.com/locco-go/locco/postgres"
)

type postgresCommand struct {
	schemaFlags `embed:""`

	Format  string `default:"sql" enum:"sql,goose,golang-migrate,dbmate,atlas,flyway,liquibase" help:"Of which tool: sql, goose, golang-migrate, dbmate, atlas, flyway, liquibase (default: ${default})."`
	Output  string `short:"o" placeholder:"DIR" help:"Write the migration into this folder, under the tool's kind of name. A file that is there and differs is left alone."`
	Version string `help:"Version in the file's name: what comes next in your folder (default: 1)."`
	Name    string `default:"locco_locks" help:"Name in the file's name (default: ${default})."`
	Down    bool   `help:"The other way round: drop everything. Same as -from=1 -to=0."`
	From    *int   `help:"Version of the schema that is there (default: 0, nothing)."`
	To      *int   `help:"Version of the schema that is wanted (default: the newest)."`
}

// Help implements kong.HelpProvider.
func (*postgresCommand) Help() string {
	return `Without -o the migration goes to stdout. A tool that keeps the way back in a file of its own
(golang-migrate, flyway) gets it with -o; without, print it with -down.

The statements need CREATE on the schema, can run in one transaction, and can run again. Dropping the
sequence makes fences begin again at 1: resources that remember larger ones then refuse all writers.

  loccoddl postgres -role=app | psql -v ON_ERROR_STOP=1 -1 "$DATABASE_URL"
  loccoddl postgres -role=app -format=goose -version=20260102150405 -o=migrations`
}

// Run does it.
func (c *postgresCommand) Run(out *output) error {
	down, err := c.direction()
	if err != nil {
		return err
	}
	f := formats[c.Format]
	if err := c.check(&f); err != nil {
		return err
	}
	s := c.schema()
	create, err := postgres.DDL(s)
	if err != nil {
		return err
	}
	drop, err := postgres.DropDDL(s)
	if err != nil {
		return err
	}
	m := migration{
		header: c.header(down), version: c.Version, name: c.Name, forward: create, back: drop,
	}
	if m.version == "" {
		m.version = f.first
	}
	if down {
		m.forward, m.back = drop, create
	}
	files := f.files(&m)
	if c.Output == "" {
		fmt.Fprint(out.stdout, files[0].text)
	} else if err := write(c.Output, files, out); err != nil {
		return err
	}
	if f.hint != "" {
		fmt.Fprintln(out.stderr, f.hint)
	}
	return nil
}

// direction reads which step is wanted.
func (c *postgresCommand) direction() (down bool, err error) {
	from, to := 0, postgres.SchemaVersion
	if c.Down {
		from, to = to, from
	}
	switch {
	case c.Down && (c.From != nil || c.To != nil):
		return false, usage("-down says both -from and -to: leave them out")
	case c.From != nil && c.To != nil:
		from, to = *c.From, *c.To
	case c.From != nil:
		from = *c.From
	case c.To != nil:
		to = *c.To
		if to == 0 {
			from = postgres.SchemaVersion
		}
	}
	switch {
	case from == 0 && to == postgres.SchemaVersion:
		return false, nil
	case from == postgres.SchemaVersion && to == 0:
		return true, nil
	}
	return false, usage("there is no step from version %d of the schema to %d: this loccoddl knows 0 (nothing) and %d",
		from, to, postgres.SchemaVersion)
}

var (
	plainVersion  = regexp.MustCompile(`^\d{1,18}$`)
	flywayVersion = regexp.MustCompile(`^\d+([._]\d+)*$`)
	plainName     = regexp.MustCompile(`^[A-Za-z0-9_]{1,100}$`)
)

// check refuses what a file, or the tool that reads it, cannot carry.
func (c *postgresCommand) check(f *format) error {
	version := plainVersion
	if c.Format == "flyway" {
		version = flywayVersion
	}
	if c.Version != "" && !version.MatchString(c.Version) {
		return usage("-version %q: must be a number, such as 7 or 20260102150405", c.Version)
	}
	if !plainName.MatchString(c.Name) {
		return usage("-name %q: must be letters, digits and _", c.Name)
	}
	for _, x := range []struct{ flag, name string }{{"table", c.Table}, {"schema", c.Schema}, {"role", c.Role}} {
		if strings.ContainsFunc(x.name, func(r rune) bool { return unicode.IsControl(r) || r == '\u2028' || r == '\u2029' }) {
			return usage("-%s %q: must not have control characters or line breaks in a file", x.flag, x.name)
		}
		for _, trap := range f.traps {
			if strings.Contains(strings.ToLower(x.name), trap) {
				return usage("-%s %q: must not have %s in it: %s could take it for its own; use -format=sql", x.flag, x.name, trap, c.Format)
			}
		}
	}
	return nil
}

// header says how to make the file again. The same flags give the same file.
func (c *postgresCommand) header(down bool) []string {
	args := []string{"-table=" + c.Table}
	for _, x := range []struct{ flag, value string }{{"schema", c.Schema}, {"role", c.Role}, {"sweep", c.Sweep}} {
		if x.value != "" {
			args = append(args, "-"+x.flag+"="+x.value)
		}
	}
	if c.Marks {
		args = append(args, "-marks")
	}
	from, to := 0, postgres.SchemaVersion
	if down {
		from, to = to, from
	}
	for i, a := range args {
		if strings.ContainsAny(a, " ;*") {
			args[i] = "'" + a + "'"
		}
	}
	return []string{
		fmt.Sprintf("-- locco schema for PostgreSQL, version %d to %d", from, to),
		"-- loccoddl postgres " + strings.Join(args, " "),
	}
}

// write writes the files, all or none: nothing is overwritten.
func write(dir string, files []file, out *output) error {
	fresh := files[:0:0]
	for _, f := range files {
		path := filepath.Join(dir, f.name)
		there, err := os.ReadFile(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			fresh = append(fresh, f)
		case err != nil:
			return &codeError{exitUsage, err}
		case string(there) != f.text:
			return usage("%s is there already and differs: choose another -version or -name, or remove it", path)
		default:
			fmt.Fprintln(out.stderr, "unchanged:", path)
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // as any folder of source code
		return &codeError{exitUsage, err}
	}
	for _, f := range fresh {
		path := filepath.Join(dir, f.name)
		// Exclusively, in case that it came meanwhile.
		w, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644) //nolint:gosec // as any source file
		if err != nil {
			return &codeError{exitUsage, err}
		}
		_, err = w.WriteString(f.text)
		if err = errors.Join(err, w.Close()); err != nil {
			return &codeError{exitUsage, err}
		}
		fmt.Fprintln(out.stdout, path)
	}
	return nil
}
