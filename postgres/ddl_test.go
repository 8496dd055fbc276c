package postgres_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/postgres"
)

// spec 9.3: what is not asked for is not made, and the way back undoes each part.
func TestDDL(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name         string
		schema       postgres.Schema
		create, drop []string // how the statements begin
	}{
		{
			"Default",
			postgres.Schema{},
			[]string{`CREATE TABLE IF NOT EXISTS "locco_locks" (`, `CREATE SEQUENCE IF NOT EXISTS "locco_locks_fence" `},
			[]string{`DROP SEQUENCE IF EXISTS "locco_locks_fence"`, `DROP TABLE IF EXISTS "locco_locks"`},
		},
		{
			"Everything",
			postgres.Schema{Table: []string{`a"`, `b'\`}, Role: `r"`, Marks: true, Sweep: "30 seconds"},
			[]string{
				`CREATE TABLE IF NOT EXISTS "a"""."b'\" (`, `CREATE SEQUENCE IF NOT EXISTS "a"""."b'\_fence" `,
				`CREATE TABLE IF NOT EXISTS "a"""."b'\_marks" (`,
				`GRANT USAGE ON SCHEMA "a""" TO "r"""`,
				`GRANT SELECT, INSERT, UPDATE, DELETE ON TABLE "a"""."b'\" TO "r"""`,
				`GRANT USAGE ON SEQUENCE "a"""."b'\_fence" TO "r"""`,
				`GRANT SELECT, INSERT, UPDATE ON TABLE "a"""."b'\_marks" TO "r"""`,
				`SELECT cron.schedule(E'a".b''\\_sweep', E'30 seconds', E'WITH ended AS (`,
			},
			[]string{
				`SELECT cron.unschedule(jobid) FROM cron.job WHERE jobname = E'a".b''\\_sweep'`,
				`DROP TABLE IF EXISTS "a"""."b'\_marks"`, `DROP SEQUENCE IF EXISTS "a"""."b'\_fence"`, `DROP TABLE IF EXISTS "a"""."b'\"`,
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			create, err := postgres.DDL(tc.schema)
			if err != nil || !slices.EqualFunc(create, tc.create, strings.HasPrefix) {
				t.Errorf("DDL = %q, %v; want %q", create, err, tc.create)
			}
			drop, err := postgres.DropDDL(tc.schema)
			if err != nil || !slices.EqualFunc(drop, tc.drop, strings.HasPrefix) {
				t.Errorf("DropDDL = %q, %v; want %q", drop, err, tc.drop)
			}
			for _, s := range append(create, drop...) {
				if strings.Contains(s, ";") {
					t.Errorf("%s: has a semicolon, at which tools split", s)
				}
			}
		})
	}
}

// spec 1.9: what cannot be is said before anything is done.
func TestSchemaInvalid(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		field  string
		schema postgres.Schema
	}{
		{"Table", postgres.Schema{Table: []string{"a", "b", "c"}}},
		{"Table", postgres.Schema{Table: []string{""}}},
		{"Table", postgres.Schema{Table: []string{"pg_temp", "locks"}}},
		{"Table", postgres.Schema{Table: []string{"pg_class"}}},
		{"Table", postgres.Schema{Table: []string{strings.Repeat("x", 58)}}},
		{"Role", postgres.Schema{Role: "public"}},
		{"Role", postgres.Schema{Role: strings.Repeat("x", 64)}},
		{"Role", postgres.Schema{Role: "a\x00"}},
		{"Sweep", postgres.Schema{Sweep: "daily"}},
		{"Sweep", postgres.Schema{Sweep: "60 seconds"}},
		{"Sweep", postgres.Schema{Sweep: "* * * * '"}},
	} {
		_, created := postgres.DDL(tc.schema)
		_, dropped := postgres.DropDDL(tc.schema)
		_, checked := postgres.Check(t.Context(), nil, tc.schema)
		for _, err := range []error{created, dropped, checked} {
			if v, ok := errors.AsType[*locco.ValidationError](err); !ok || !strings.HasSuffix(v.Field, "."+tc.field) {
				t.Errorf("%+v: %v; want a validation error of %s", tc.schema, err, tc.field)
			}
		}
	}
	if _, err := postgres.Check(t.Context(), nil, postgres.Schema{}); !errors.Is(err, locco.ErrInvalid) {
		t.Errorf("Check(nil) = %v; want a validation error", err)
	}
}
