package integration_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/locco-go/locco/contract"
	"github.com/locco-go/locco/contract/integration"
	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/postgres"
)

// execute runs statements as they are given, in order.
func execute(t testing.TB, db postgres.DB, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if _, err := db.Exec(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

func ddl(t testing.TB, s postgres.Schema) []string {
	t.Helper()
	statements, err := postgres.DDL(s)
	if err != nil {
		t.Fatalf("DDL(%+v): %v", s, err)
	}
	return statements
}

// drifts returns what Check finds, without the settings of a server for tests, which
// does not wait for its disk.
func drifts(t testing.TB, db postgres.DB, s postgres.Schema) []postgres.Drift {
	t.Helper()
	all, err := postgres.Check(t.Context(), db, s)
	if err != nil {
		t.Fatalf("Check(%+v): %v", s, err)
	}
	found := []postgres.Drift{}
	for _, d := range all {
		if d.Object != "setting fsync" {
			found = append(found, d)
		}
	}
	return found
}

func wantNoDrift(t testing.TB, db postgres.DB, s postgres.Schema) {
	t.Helper()
	for _, d := range drifts(t, db, s) {
		t.Errorf("Check of a fresh database: %+v; want nothing", d)
	}
}

// newRole makes a role that may log in and nothing else, and returns its name and url
// with it in the place of the user.
func newRole(t testing.TB, n *integration.PostgresNode, url string) (role, asRole string) {
	t.Helper()
	config, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	role = fmt.Sprintf("role_%d", time.Now().UnixNano())
	n.Exec(t, "CREATE ROLE "+role+" LOGIN")
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		for _, at := range []string{url, n.URL} {
			conn, err := pgx.Connect(ctx, at)
			if err != nil {
				t.Errorf("connect to drop the role: %v", err)
				return
			}
			statement := "DROP OWNED BY " + role
			if at == n.URL {
				statement = "DROP ROLE " + role
			}
			if _, err := conn.Exec(ctx, statement); err != nil {
				t.Errorf("%s: %v", statement, err)
			}
			_ = conn.Close(ctx)
		}
	})
	return role, fmt.Sprintf("postgres://%s@%s:%d/%s", role, config.Host, config.Port, config.Database)
}

type driftCase struct {
	name   string
	breaks string // {role} is the role, {db} the database
	want   string // part of a problem
	object string // "" is the table
	warns  bool
	more   bool // it breaks more than one thing
	fixed  bool // the fixes mend all
	schema func(s *postgres.Schema)
}

// spec 9.3: the check finds each drift and says how to mend it, and what it says
// mends it.
func TestPostgresCheckFindsDrift(t *testing.T) {
	t.Parallel()
	const fence = `"locco_locks_fence"`
	cases := []driftCase{
		{name: "TableMissing", breaks: `DROP TABLE locco_locks`, want: "must exist", fixed: true, more: true},
		{name: "TableIsAView", breaks: `DROP TABLE locco_locks; CREATE VIEW locco_locks AS SELECT 1 AS key`, want: "not a view"},
		{name: "TableIsForeign", breaks: `DROP TABLE locco_locks; CREATE FOREIGN DATA WRAPPER w; CREATE SERVER s FOREIGN DATA WRAPPER w;
			CREATE FOREIGN TABLE locco_locks (key text) SERVER s`, want: "not a foreign table"},
		{name: "TablePartitioned", breaks: `DROP TABLE locco_locks; CREATE TABLE locco_locks (key text COLLATE "C" PRIMARY KEY, token text NOT NULL,
			expires_at timestamptz NOT NULL) PARTITION BY HASH (key); CREATE TABLE part PARTITION OF locco_locks FOR VALUES WITH (MODULUS 1, REMAINDER 0);
			GRANT SELECT, INSERT, UPDATE, DELETE ON locco_locks TO {role}`, want: "plain table", warns: true},
		{name: "TableUnlogged", breaks: `ALTER TABLE locco_locks SET UNLOGGED`, want: "unlogged", fixed: true},
		{name: "TableInherited", breaks: `CREATE TABLE child () INHERITS (locco_locks)`, want: "inherit"},
		{name: "TableInherits", breaks: `CREATE TABLE parent (key text COLLATE "C"); ALTER TABLE locco_locks INHERIT parent`, want: "must not inherit", warns: true},
		{name: "TableTemporary", breaks: `CREATE TEMPORARY TABLE locco_locks (LIKE public.locco_locks INCLUDING ALL)`, want: "temporary", fixed: true, more: true},
		{name: "KeyMissing", breaks: `ALTER TABLE locco_locks DROP CONSTRAINT locco_locks_pkey`, want: "on the column key alone", fixed: true},
		{name: "KeyComposite", breaks: `ALTER TABLE locco_locks DROP CONSTRAINT locco_locks_pkey, ADD PRIMARY KEY (key, token)`, want: "on the column key alone", more: true},
		{name: "KeyPartial", breaks: `ALTER TABLE locco_locks DROP CONSTRAINT locco_locks_pkey; CREATE UNIQUE INDEX ON locco_locks (key) WHERE token > ''`, want: "on the column key alone", more: true},
		{name: "KeyDeferrable", breaks: `ALTER TABLE locco_locks DROP CONSTRAINT locco_locks_pkey, ADD PRIMARY KEY (key) DEFERRABLE`, want: "on the column key alone"},
		{name: "KeyVarchar", breaks: `ALTER TABLE locco_locks ALTER key TYPE varchar(9) COLLATE "C"`, want: "column key text, not character varying(9)", more: true, fixed: true},
		{name: "KeyCollation", breaks: `ALTER TABLE locco_locks ALTER key TYPE text COLLATE "und-x-icu"`, want: `COLLATE "C"`, warns: true, fixed: true},
		{name: "KeyFuzzy", breaks: `CREATE COLLATION ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
			ALTER TABLE locco_locks ALTER key TYPE text COLLATE ci`, want: "different keys for the same", fixed: true},
		{name: "TokenMissing", breaks: `ALTER TABLE locco_locks DROP token`, want: "column token text", fixed: true},
		{name: "TokenUUID", breaks: `ALTER TABLE locco_locks ALTER token TYPE uuid USING token::uuid`, want: "column token text, not uuid", fixed: true},
		{name: "TokenNullable", breaks: `ALTER TABLE locco_locks ALTER token DROP NOT NULL`, want: "NOT NULL on the column token", warns: true, fixed: true},
		{name: "ExpiryWithoutZone", breaks: `ALTER TABLE locco_locks ALTER expires_at TYPE timestamp`, want: "time zones", fixed: true},
		{name: "ExpiryCoarse", breaks: `ALTER TABLE locco_locks ALTER expires_at TYPE timestamptz(0)`, want: "not timestamp(0) with time zone", fixed: true},
		{name: "ExtraColumn", breaks: `ALTER TABLE locco_locks ADD tenant int NOT NULL`, want: `column "tenant" with NOT NULL`, fixed: true},
		{name: "TriggerBefore", breaks: `CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'; CREATE TRIGGER g BEFORE UPDATE ON locco_locks FOR EACH ROW EXECUTE FUNCTION f()`, want: `trigger "g": before`, fixed: true},
		{name: "TriggerAfter", breaks: `CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'; CREATE TRIGGER g AFTER DELETE ON locco_locks FOR EACH ROW EXECUTE FUNCTION f()`, want: `trigger "g"`, warns: true, fixed: true},
		{name: "Rule", breaks: `CREATE RULE r AS ON DELETE TO locco_locks DO INSTEAD NOTHING`, want: `rule "r"`, fixed: true},
		{name: "CheckConstraint", breaks: `ALTER TABLE locco_locks ADD CONSTRAINT k CHECK (key <> 'x')`, want: `constraint "k"`, warns: true, fixed: true},
		{name: "ForeignKey", breaks: `CREATE TABLE other (token text PRIMARY KEY); ALTER TABLE locco_locks ADD CONSTRAINT k FOREIGN KEY (token) REFERENCES other`, want: `constraint "k"`, fixed: true},
		{name: "ReferredTo", breaks: `CREATE TABLE other (key text CONSTRAINT k REFERENCES locco_locks)`, want: "referred to by other", fixed: true},
		{name: "UniqueToo", breaks: `CREATE UNIQUE INDEX u ON locco_locks (expires_at)`, want: "unique index u", warns: true},
		{name: "RowSecurity", breaks: `ALTER TABLE locco_locks ENABLE ROW LEVEL SECURITY`, want: "applies to the role", fixed: true},
		{name: "RowSecurityOfOthers", breaks: `ALTER TABLE locco_locks ENABLE ROW LEVEL SECURITY; ALTER ROLE {role} BYPASSRLS`, want: "for another role", warns: true, fixed: true},
		{name: "RowSecurityForced", breaks: `ALTER TABLE locco_locks OWNER TO {role}, ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY`, want: "applies to the role", more: true, fixed: true},

		{name: "GrantSelect", breaks: `REVOKE SELECT ON locco_locks FROM {role}`, want: "needs SELECT", fixed: true},
		{name: "GrantInsert", breaks: `REVOKE INSERT ON locco_locks FROM {role}`, want: "needs INSERT", fixed: true},
		{name: "GrantUpdate", breaks: `REVOKE UPDATE ON locco_locks FROM {role}`, want: "needs UPDATE", fixed: true},
		{name: "GrantDelete", breaks: `REVOKE DELETE ON locco_locks FROM {role}`, want: "needs DELETE", fixed: true},
		{name: "GrantSequence", breaks: `REVOKE USAGE ON SEQUENCE locco_locks_fence FROM {role}`, object: "sequence " + fence, want: "needs USAGE", fixed: true},
		{name: "GrantSchema", breaks: `REVOKE USAGE ON SCHEMA public FROM PUBLIC`, want: "needs USAGE on the schema", more: true, fixed: true},
		{name: "GrantTruncate", breaks: `GRANT TRUNCATE ON locco_locks TO {role}`, want: "TRUNCATE", warns: true, fixed: true},
		{name: "GrantSetval", breaks: `GRANT UPDATE ON SEQUENCE locco_locks_fence TO {role}`, object: "sequence " + fence, want: "setval", warns: true, fixed: true},
		{name: "GrantPublic", breaks: `GRANT DELETE, INSERT ON locco_locks TO PUBLIC`, want: "PUBLIC has DELETE, INSERT", warns: true, fixed: true},
		{name: "Owner", breaks: `ALTER TABLE locco_locks OWNER TO {role}`, want: "belong to the role", warns: true},
		{name: "Superuser", breaks: `ALTER ROLE {role} SUPERUSER`, object: `role "{role}"`, want: "superuser", warns: true, fixed: true},
		{name: "RoleMissing", breaks: `SELECT`, object: `role "nobody"`, want: "must exist", schema: func(s *postgres.Schema) { s.Role = "nobody" }},

		{name: "SequenceMissing", breaks: `DROP SEQUENCE locco_locks_fence`, object: "sequence " + fence, want: "must exist", more: true, fixed: true},
		{name: "SequenceIsATable", breaks: `DROP SEQUENCE locco_locks_fence; CREATE TABLE locco_locks_fence ()`, object: "sequence " + fence, want: "must be a sequence"},
		{name: "SequenceCache", breaks: `ALTER SEQUENCE locco_locks_fence CACHE 9`, object: "sequence " + fence, want: "CACHE 1", fixed: true},
		{name: "SequenceBackwards", breaks: `ALTER SEQUENCE locco_locks_fence INCREMENT -1`, object: "sequence " + fence, want: "at least 1", fixed: true},
		{name: "SequenceBySteps", breaks: `ALTER SEQUENCE locco_locks_fence INCREMENT 10`, object: "sequence " + fence, want: "increment of 1", warns: true, fixed: true},
		{name: "SequenceCycle", breaks: `ALTER SEQUENCE locco_locks_fence CYCLE`, object: "sequence " + fence, want: "NO CYCLE", fixed: true},
		{name: "SequenceInteger", breaks: `ALTER SEQUENCE locco_locks_fence AS integer MAXVALUE 99`, object: "sequence " + fence, want: "bigint", fixed: true},
		{name: "SequenceLow", breaks: `ALTER SEQUENCE locco_locks_fence MAXVALUE 9999`, object: "sequence " + fence, want: "come to an end", warns: true, fixed: true},
		{name: "SequenceHigh", breaks: `ALTER SEQUENCE locco_locks_fence NO MAXVALUE`, object: "sequence " + fence, want: "not exact", warns: true, fixed: true},
		{name: "SequenceOwned", breaks: `ALTER SEQUENCE locco_locks_fence OWNED BY locco_locks.key`, object: "sequence " + fence, want: "dropped along", warns: true, fixed: true},
		{name: "SequenceElsewhere", breaks: `CREATE SCHEMA z; ALTER SEQUENCE locco_locks_fence SET SCHEMA z; GRANT USAGE ON SCHEMA z TO {role};
			ALTER DATABASE {db} SET search_path = public, z; SET search_path = public, z`, object: "sequence " + fence, want: `schema of the table`, warns: true, fixed: true},
		{name: "SequenceBehind", breaks: `INSERT INTO locco_locks_marks VALUES ('r', 42)`, object: "sequence " + fence, want: "has seen 42", fixed: true},

		{name: "MarksMissing", breaks: `DROP TABLE locco_locks_marks`, object: `table "locco_locks_marks"`, want: "must exist", more: true, fixed: true},
		{name: "MarksInteger", breaks: `ALTER TABLE locco_locks_marks ALTER fence TYPE integer`, object: `table "locco_locks_marks"`, want: "fence bigint", fixed: true},
		{name: "MarksGrant", breaks: `REVOKE UPDATE ON locco_locks_marks FROM {role}`, object: `table "locco_locks_marks"`, want: "needs UPDATE", fixed: true},
		{name: "MarksDelete", breaks: `GRANT DELETE ON locco_locks_marks TO {role}`, object: `table "locco_locks_marks"`, want: "DELETE", warns: true, fixed: true},

		{name: "PathOfTheRole", breaks: `CREATE SCHEMA z; CREATE TABLE z.locco_locks (); GRANT USAGE ON SCHEMA z TO {role}; ALTER ROLE {role} IN DATABASE {db} SET search_path = "z", public`,
			want: `of the schema "z"`},
		{name: "PathWithout", breaks: `CREATE SCHEMA z; ALTER ROLE {role} SET search_path = z`, want: "must be on the search path", more: true},
		{name: "Shadowed", breaks: `CREATE SCHEMA {role}; GRANT USAGE ON SCHEMA {role} TO {role}; CREATE TABLE {role}.locco_locks ()`, want: "must be the same for all"},
		{name: "Shadows", breaks: `CREATE SCHEMA z; GRANT USAGE ON SCHEMA z TO {role}; CREATE TABLE z.locco_locks (); ALTER DATABASE {db} SET search_path = public, z`,
			want: `hides that of the schema "z"`, warns: true},

		{name: "SynchronousCommit", breaks: `ALTER ROLE {role} SET synchronous_commit = off`, object: "setting synchronous_commit", want: "must not be off", warns: true},
		{name: "NoPgCron", breaks: `SELECT`, object: "extension pg_cron", want: "must be there", schema: func(s *postgres.Schema) { s.Sweep = "*/5 * * * *" }},
	}
	// Every case is a transaction that is rolled back, so that one database serves all.
	eachPostgres(t, func(t *testing.T, p integration.Postgres) {
		n := integration.SharedPostgres(t, p)
		conn, err := pgx.Connect(t.Context(), n.Database(t))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close(context.Background()) })
		for _, tc := range cases {
			t.Run(tc.name, func(t *testing.T) { tc.test(t, conn) }) //nolint:tparallel // they share a connection
		}
	})
}

func (tc *driftCase) test(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	role := fmt.Sprintf("role_%d", time.Now().UnixNano())
	s := postgres.Schema{Role: role, Marks: true}
	execute(t, tx, "CREATE ROLE "+role)
	execute(t, tx, ddl(t, s)...)
	wantNoDrift(t, tx, s)

	fill := strings.NewReplacer("{role}", role, "{db}", conn.Config().Database).Replace
	execute(t, tx, fill(tc.breaks))
	if tc.schema != nil {
		tc.schema(&s)
	}
	object := fill(tc.object)
	if object == "" {
		object = `table "locco_locks"`
	}
	want := postgres.SeverityError
	if tc.warns {
		want = postgres.SeverityWarning
	}
	found := drifts(t, tx, s)
	if !slices.ContainsFunc(found, func(d postgres.Drift) bool {
		return d.Object == object && d.Severity == want && strings.Contains(d.Problem, tc.want)
	}) {
		t.Errorf("Check = %+v; want %s of the %s: …%s…", found, want, object, tc.want)
	}
	if len(found) != 1 && !tc.more {
		t.Errorf("Check = %+v; want one drift", found)
	}
	if !tc.fixed {
		return
	}
	// A fix may make others possible: what was missing has no grants yet.
	for range 3 {
		for _, d := range found {
			if d.Fix != "" {
				execute(t, tx, d.Fix)
			}
		}
		found = drifts(t, tx, s)
	}
	if len(found) > 0 {
		t.Errorf("Check after the fixes = %+v; want nothing", found)
	}
}

var _ = errors.Is
var _ sync.Mutex
var _ = contract.Run
var _ locco.Backend
var _ *pgxpool.Pool
