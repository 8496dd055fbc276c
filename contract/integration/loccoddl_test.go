package integration_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-migrate/migrate/v4"
	migratepgx "github.com/golang-migrate/migrate/v4/database/pgx/v5"
	"github.com/golang-migrate/migrate/v4/source/iofs"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // for tools that want database/sql
	"github.com/pressly/goose/v3"

	"github.com/locco-go/locco/contract"
	"github.com/locco-go/locco/contract/integration"
	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/postgres"
)

// two makes a pool of two.
func two(c *pgxpool.Config) { c.MaxConns = 2 }

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

		{
			name: "PathOfTheRole", breaks: `CREATE SCHEMA z; CREATE TABLE z.locco_locks (); GRANT USAGE ON SCHEMA z TO {role}; ALTER ROLE {role} IN DATABASE {db} SET search_path = "z", public`,
			want: `of the schema "z"`,
		},
		{name: "PathWithout", breaks: `CREATE SCHEMA z; ALTER ROLE {role} SET search_path = z`, want: "must be on the search path", more: true},
		{name: "Shadowed", breaks: `CREATE SCHEMA {role}; GRANT USAGE ON SCHEMA {role} TO {role}; CREATE TABLE {role}.locco_locks ()`, want: "must be the same for all"},
		{
			name: "Shadows", breaks: `CREATE SCHEMA z; GRANT USAGE ON SCHEMA z TO {role}; CREATE TABLE z.locco_locks (); ALTER DATABASE {db} SET search_path = public, z`,
			want: `hides that of the schema "z"`, warns: true,
		},

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
			t.Run(tc.name, func(t *testing.T) { tc.test(t, conn) })
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

// loccoddl builds the command once.
var loccoddl = sync.OnceValues(func() (path string, err error) {
	dir, err := os.MkdirTemp("", "loccoddl")
	if err != nil {
		return "", err
	}
	path = filepath.Join(dir, "loccoddl")
	build := exec.Command("go", "build", "-o", path, ".")
	build.Dir = filepath.Join("..", "..", "cmd", "loccoddl")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build loccoddl: %w\n%s", err, out)
	}
	return path, nil
})

func runLoccoddl(t testing.TB, args ...string) (code int, stdout string) {
	t.Helper()
	path, err := loccoddl()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), path, args...)
	var talk strings.Builder
	cmd.Stderr = &talk
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if talk.Len() > 0 {
		t.Logf("loccoddl %q: %s", args, strings.TrimSpace(talk.String()))
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

// cycle uses a lock of every kind of statement once.
func cycle(t testing.TB, b locco.Backend) {
	t.Helper()
	l, err := locco.New(b, locco.WithFencing())
	if err != nil {
		t.Fatal(err)
	}
	var last int64
	for range 2 {
		lock, err := l.TryAcquire(t.Context(), "cycle", time.Minute)
		if err != nil {
			t.Fatalf("TryAcquire: %v", err)
		}
		if lock.Fence() <= last {
			t.Errorf("fence %d after %d; want a larger one", lock.Fence(), last)
		}
		last = lock.Fence()
		if err := lock.Extend(t.Context(), time.Minute); err != nil {
			t.Errorf("Extend: %v", err)
		}
		if err := lock.Release(t.Context()); err != nil {
			t.Errorf("Release: %v", err)
		}
	}
}

// tool runs migrations in a folder.
type tool struct {
	up, down func(t *testing.T, url, dir string)
}

func tools() map[string]tool {
	// These have no library in Go: their files are SQL with comments for the tool.
	script := func(pattern string) func(t *testing.T, url, dir string) {
		return func(t *testing.T, url, dir string) {
			t.Helper()
			files, err := filepath.Glob(filepath.Join(dir, pattern))
			if err != nil || len(files) != 1 {
				t.Fatalf("%s: %q, %v; want one file", pattern, files, err)
			}
			text, err := os.ReadFile(files[0])
			if err != nil {
				t.Fatal(err)
			}
			execute(t, integration.Pool(t, url), string(text))
		}
	}
	return map[string]tool{
		"goose":          {gooseDo((*goose.Provider).Up), gooseDo(gooseDown)},
		"golang-migrate": {migrateDo((*migrate.Migrate).Up, false), migrateDo((*migrate.Migrate).Down, false)},
		// With its splitter of statements, which looks for semicolons.
		"golang-migrate multi": {migrateDo((*migrate.Migrate).Up, true), migrateDo((*migrate.Migrate).Down, true)},
		"dbmate":               {dbmateDo(0), dbmateDo(1)},
		"sql":                  {script("locco_locks.sql"), script("*.down.sql")},
		"atlas":                {script("1_*.sql"), nil},
		"flyway":               {script("V1__*.sql"), script("U1__*.sql")},
		"liquibase":            {script("1_*.sql"), nil},
	}
}

func gooseDown(p *goose.Provider, ctx context.Context) ([]*goose.MigrationResult, error) { //nolint:revive // as a method expression has it
	return p.DownTo(ctx, 0)
}

func gooseDo(do func(*goose.Provider, context.Context) ([]*goose.MigrationResult, error)) func(t *testing.T, url, dir string) {
	return func(t *testing.T, url, dir string) {
		t.Helper()
		db := openSQL(t, url)
		p, err := goose.NewProvider(goose.DialectPostgres, db, os.DirFS(dir))
		if err != nil {
			t.Fatalf("goose: %v", err)
		}
		if _, err := do(p, t.Context()); err != nil {
			t.Fatalf("goose: %v", err)
		}
	}
}

func migrateDo(do func(*migrate.Migrate) error, multi bool) func(t *testing.T, url, dir string) {
	return func(t *testing.T, url, dir string) {
		t.Helper()
		source, err := iofs.New(os.DirFS(dir), ".")
		if err != nil {
			t.Fatal(err)
		}
		driver, err := migratepgx.WithInstance(openSQL(t, url), &migratepgx.Config{
			MultiStatementEnabled: multi, MultiStatementMaxSize: migratepgx.DefaultMultiStatementMaxSize,
		})
		if err != nil {
			t.Fatalf("golang-migrate: %v", err)
		}
		m, err := migrate.NewWithInstance("iofs", source, "pgx5", driver)
		if err != nil {
			t.Fatalf("golang-migrate: %v", err)
		}
		if err := do(m); err != nil && !errors.Is(err, migrate.ErrNoChange) {
			t.Fatalf("golang-migrate: %v", err)
		}
		if _, err := m.Close(); err != nil {
			t.Errorf("golang-migrate: %v", err)
		}
	}
}

// dbmateDo reads a file as dbmate says that it does: comments, a line for each
// direction, and what stands below it in one piece.
func dbmateDo(direction int) func(t *testing.T, url, dir string) {
	return func(t *testing.T, url, dir string) {
		t.Helper()
		files, err := filepath.Glob(filepath.Join(dir, "[0-9]*.sql"))
		if err != nil || len(files) != 1 {
			t.Fatalf("dbmate: %q, %v; want one file", files, err)
		}
		text, err := os.ReadFile(files[0])
		if err != nil {
			t.Fatal(err)
		}
		parts := regexp.MustCompile(`(?m)^--\s*migrate:(up|down)\s*$`).Split(string(text), -1)
		if len(parts) != 3 {
			t.Fatalf("dbmate: %d parts; want a head, up and down", len(parts))
		}
		for line := range strings.Lines(parts[0]) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "--") {
				t.Errorf("dbmate: %q stands before the first direction", line)
			}
		}
		execute(t, integration.Pool(t, url), parts[1+direction])
	}
}

func openSQL(t testing.TB, url string) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// spec 9.3: the migrations run in the tools that they are for, up, up again, down and
// up; locks work on what they make, and the check finds nothing.
func TestPostgresMigrations(t *testing.T) {
	t.Parallel()
	eachPostgres(t, func(t *testing.T, p integration.Postgres) {
		for name, tool := range tools() {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				n := integration.SharedPostgres(t, p)
				url := n.Database(t)
				role, asRole := newRole(t, n, url)
				dir := t.TempDir()
				flags := []string{"-schema=app data", "-table=the locks", "-role=" + role, "-marks"}
				if code, _ := runLoccoddl(t, append([]string{"postgres", "-format=" + strings.TrimSuffix(name, " multi"), "-o=" + dir}, flags...)...); code != 0 {
					t.Fatalf("loccoddl postgres: exit code %d", code)
				}
				admin := integration.Pool(t, url, two)
				execute(t, admin, `CREATE SCHEMA "app data"`)

				tool.up(t, url, dir)
				tool.up(t, url, dir)
				if tool.down != nil {
					tool.down(t, url, dir)
					var left int
					if err := admin.QueryRow(t.Context(), `SELECT count(*) FROM pg_class WHERE relnamespace = '"app data"'::regnamespace`).Scan(&left); err != nil || left != 0 {
						t.Errorf("after down: %d relations, %v; want none", left, err)
					}
					tool.up(t, url, dir)
				}

				s := postgres.Schema{Table: []string{"app data", "the locks"}, Role: role, Marks: true}
				wantNoDrift(t, admin, s)
				pool := integration.Pool(t, asRole, two)
				cycle(t, postgres.New(pool, postgres.WithTable(s.Table...), postgres.WithoutSetUp()))
				r := postgres.NewResource("r", postgres.WithTable(s.Table...))
				if err := r.Raise(t.Context(), pool, 1); err != nil {
					t.Errorf("Raise: %v", err)
				}

				// The exit codes of the command.
				check := append([]string{"check", "-url=" + url}, flags...)
				if code, out := runLoccoddl(t, check...); code != 0 || strings.Contains(out, "error:") {
					t.Errorf("loccoddl check = %d, %s; want 0", code, out)
				}
				execute(t, admin, `ALTER SEQUENCE "app data"."the locks_fence" CYCLE`)
				if code, out := runLoccoddl(t, check...); code != 1 || !strings.Contains(out, "NO CYCLE") {
					t.Errorf("loccoddl check of a sequence that cycles = %d, %s; want 1", code, out)
				}
			})
		}
	})
}

// spec 9.3, 8.3: the check finds nothing in what the first use makes.
func TestPostgresCheckOfFirstUse(t *testing.T) {
	t.Parallel()
	eachPostgres(t, func(t *testing.T, p integration.Postgres) {
		pool := integration.Pool(t, integration.SharedPostgres(t, p).Database(t), two)
		cycle(t, postgres.New(pool))
		wantNoDrift(t, pool, postgres.Schema{})
		// And the statements find nothing to do there.
		execute(t, pool, ddl(t, postgres.Schema{})...)
		wantNoDrift(t, pool, postgres.Schema{})
	})
}

// spec 9.3: what is granted is enough for everything that a backend does. It is not
// parallel: beside three more runs of the suite, leases end for want of a processor.
func TestPostgresContractWithGrants(t *testing.T) {
	n := integration.SharedPostgres(t, integration.Postgres17)
	url := n.Database(t)
	role, asRole := newRole(t, n, url)
	execute(t, integration.Pool(t, url, two), ddl(t, postgres.Schema{Role: role})...)
	pool, peers := contractPool(t, asRole), contractPool(t, asRole)
	contract.Run(t, contract.Harness{
		Unit: postgresUnit,
		New:  func(*testing.T) locco.Backend { return postgres.New(pool, postgres.WithoutSetUp()) },
		Peer: func(*testing.T, locco.Backend) locco.Backend { return postgres.New(peers, postgres.WithoutSetUp()) },
	})
	// The suite does not sweep.
	if _, err := postgres.New(pool, postgres.WithoutSetUp()).SweepExpired(t.Context(), 10); err != nil {
		t.Errorf("SweepExpired: %v", err)
	}
}

// spec 1.9, 9.3: and no grant is too much: without any one of them the first use says
// which it is, and a backend that is at work too.
func TestPostgresGrantMissing(t *testing.T) {
	t.Parallel()
	eachPostgres(t, func(t *testing.T, p integration.Postgres) {
		n := integration.SharedPostgres(t, p)
		url := n.Database(t)
		role, asRole := newRole(t, n, url)
		admin := integration.Pool(t, url, two)
		execute(t, admin, "CREATE SCHEMA app")
		s := postgres.Schema{Table: []string{"app", "locks"}, Role: role}
		pool := integration.Pool(t, asRole, two)
		open := func() *postgres.Backend {
			return postgres.New(pool, postgres.WithTable(s.Table...), postgres.WithoutSetUp())
		}
		for _, tc := range []struct{ revoke, want string }{
			{"SELECT ON app.locks", "SELECT"},
			{"INSERT ON app.locks", "INSERT"},
			{"UPDATE ON app.locks", "UPDATE"},
			{"DELETE ON app.locks", "DELETE"},
			{"USAGE ON SEQUENCE app.locks_fence", "USAGE on the sequence"},
			{"USAGE ON SCHEMA app", "USAGE on the schema"},
		} {
			t.Run(strings.ReplaceAll(tc.revoke, " ", "_"), func(t *testing.T) {
				execute(t, admin, ddl(t, s)...)
				working := open()
				cycle(t, working)
				execute(t, admin, "REVOKE "+tc.revoke+" FROM "+role)
				lease := locco.Lease{Key: tc.revoke, Token: "t", TTL: time.Minute, Fenced: true}
				wantNamed := func(err error) {
					t.Helper()
					var invalid *locco.ValidationError
					if !errors.As(err, &invalid) || !strings.Contains(invalid.Rule, tc.want) {
						t.Errorf("without %s: %v; want a validation error that names %s", tc.revoke, err, tc.want)
					}
				}
				_, err := open().Acquire(t.Context(), lease)
				wantNamed(err)
				all := func() error {
					_, acquired := working.Acquire(t.Context(), lease)
					_, extended := working.Extend(t.Context(), lease)
					_, released := working.Release(t.Context(), lease.Key, lease.Token)
					return errors.Join(acquired, extended, released)
				}
				wantNamed(all())
			})
		}
	})
}

// spec 8.3: processes that start at the same time all create what is missing, and none
// fails.
func TestPostgresSetUpTogetherConcurrentSafe(t *testing.T) {
	t.Parallel()
	eachPostgres(t, func(t *testing.T, p integration.Postgres) {
		url := integration.SharedPostgres(t, p).Database(t)
		pools := make([]*pgxpool.Pool, 10)
		for i := range pools {
			pools[i] = integration.Pool(t, url, two)
			if err := pools[i].Ping(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		for round := range 5 {
			start := make(chan struct{})
			errs := make(chan error, len(pools))
			for i, pool := range pools {
				go func() {
					b := postgres.New(pool, postgres.WithTable(fmt.Sprintf("locks %d", round)))
					<-start
					g, err := b.Acquire(t.Context(), locco.Lease{Key: fmt.Sprint(i), Token: "t", TTL: time.Minute, Fenced: true})
					if err == nil && !g.OK {
						err = errors.New("refused")
					}
					errs <- err
				}()
			}
			close(start)
			for range pools {
				if err := <-errs; err != nil {
					t.Errorf("Acquire: %v", err)
				}
			}
		}
	})
}

const setUpURL = "LOCCO_TEST_SET_UP_URL"

// spec 8.3: so do processes of their own.
func TestPostgresSetUpByProcesses(t *testing.T) {
	t.Parallel()
	if url := os.Getenv(setUpURL); url != "" { // we are one of them
		cycleAlone(t, url)
		return
	}
	url := integration.SharedPostgres(t, integration.Postgres17).Database(t)
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			cmd := exec.CommandContext(t.Context(), path, "-test.run=^TestPostgresSetUpByProcesses$")
			cmd.Env = append(os.Environ(), setUpURL+"="+url)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("a process: %v\n%s", err, out)
			}
		})
	}
	all.Wait()
	wantNoDrift(t, integration.Pool(t, url, two), postgres.Schema{})
}

func cycleAlone(t *testing.T, url string) {
	t.Helper()
	b := postgres.New(integration.Pool(t, url, two))
	lease := locco.Lease{Key: rand.Text(), Token: "t", TTL: time.Minute, Fenced: true}
	if g, err := b.Acquire(t.Context(), lease); err != nil || !g.OK {
		t.Errorf("Acquire = %+v, %v; want a grant", g, err)
	}
}

// spec 9.3: the job of pg_cron is made, found, replaced and dropped, and its command
// deletes what has expired. The servers of the tests do not have the extension, so its
// table and functions stand here with the same names and arguments; when a job runs is
// pg_cron's own affair.
func TestPostgresSweepJob(t *testing.T) {
	t.Parallel()
	eachPostgres(t, func(t *testing.T, p integration.Postgres) {
		pool := integration.Pool(t, integration.SharedPostgres(t, p).Database(t), two)
		execute(t, pool, `CREATE SCHEMA cron`,
			`CREATE TABLE cron.job (jobid bigserial PRIMARY KEY, schedule text NOT NULL, command text NOT NULL, database text NOT NULL DEFAULT current_database(),
				username text NOT NULL DEFAULT current_user, active boolean NOT NULL DEFAULT true, jobname text, UNIQUE (jobname, username))`,
			`CREATE FUNCTION cron.schedule(job_name text, schedule text, command text) RETURNS bigint LANGUAGE sql AS
				'INSERT INTO cron.job AS j (jobname, schedule, command) VALUES ($1, $2, $3)
				 ON CONFLICT (jobname, username) DO UPDATE SET schedule = excluded.schedule, command = excluded.command, active = true RETURNING jobid'`,
			`CREATE FUNCTION cron.unschedule(job_id bigint) RETURNS boolean LANGUAGE sql AS 'DELETE FROM cron.job WHERE jobid = $1 RETURNING true'`)
		s := postgres.Schema{Table: []string{"public", `it's "locks"`}, Sweep: "*/5 * * * *"}
		drop, err := postgres.DropDDL(s)
		if err != nil {
			t.Fatal(err)
		}
		execute(t, pool, drop...)
		execute(t, pool, ddl(t, s)...)
		execute(t, pool, ddl(t, s)...)
		wantNoDrift(t, pool, s)
		later := s
		later.Sweep = "30 seconds"
		if found := drifts(t, pool, later); len(found) != 1 || !strings.Contains(found[0].Problem, "schedule") {
			t.Errorf("Check with another schedule = %+v; want that", found)
		} else {
			execute(t, pool, found[0].Fix)
			wantNoDrift(t, pool, later)
		}

		quoted := pgx.Identifier(s.Table).Sanitize()
		execute(t, pool, "INSERT INTO "+quoted+" VALUES ('ended', 't', now() - interval '1 s'), ('live', 't', now() + interval '1 h')")
		var command string
		if err := pool.QueryRow(t.Context(), "SELECT command FROM cron.job").Scan(&command); err != nil {
			t.Fatal(err)
		}
		execute(t, pool, command)
		var left string
		if err := pool.QueryRow(t.Context(), "SELECT string_agg(key, ',') FROM "+quoted).Scan(&left); err != nil || left != "live" {
			t.Errorf("the command of the job left %q, %v; want live", left, err)
		}

		execute(t, pool, drop...)
		var jobs int
		if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM cron.job").Scan(&jobs); err != nil || jobs != 0 {
			t.Errorf("after DropDDL: %d jobs, %v; want none", jobs, err)
		}
		execute(t, pool, ddl(t, s)[:2]...)
		if found := drifts(t, pool, s); len(found) != 1 || !strings.HasPrefix(found[0].Object, "job ") {
			t.Errorf("Check without the job = %+v; want that", found)
		}
	})
}

// relations tells what there is besides indexes, which have names of their own.
func relations(t testing.TB, db postgres.DB) map[string]bool {
	t.Helper()
	rows, err := db.Query(t.Context(), `SELECT n.nspname || chr(1) || c.relname FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
		WHERE c.relkind IN ('r', 'S', 'v', 'm', 'p', 'f') AND n.nspname <> 'pg_toast'`)
	if err != nil {
		t.Fatal(err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]bool{}
	for _, name := range names {
		there[name] = true
	}
	return there
}

// spec 9.3, 8.3: whatever the names, the statements make the table of exactly that name
// with what belongs to it, grant it to exactly that role, and touch nothing else; or the
// names are refused.
func FuzzPostgresNames(f *testing.F) {
	for _, seed := range [][3]string{
		{"", "locco_locks", ""},
		{"app", "locks", "app"},
		{"App", `say "hi"`, `O'Neil`},
		{`"`, `"; DROP TABLE bystander; --`, `x", PUBLIC; --`},
		{`';`, `'); DROP TABLE bystander; --`, `\'`},
		{"$$", "$1", "$tag$"},
		{"select", "table", "user"},
		{"a.b", "c.d", "e.f"},
		{" ", "  ", "\t"},
		{"x\ny", "-- a\n; DROP TABLE bystander", "\r\n"},
		{"schéma", "запоры🔒", "rôle"},
		{"public", "bystander_of_none", "current_user"},
		{"", "{table}{fence}{marks}", "session_user"},
		{"\\", "\\x27; DROP TABLE bystander; \\", "U&\"\\0041\""},
		{strings.Repeat("s", 63), strings.Repeat("t", 57), strings.Repeat("r", 63)},
		{strings.Repeat("s", 64), "t", ""},
		{"", strings.Repeat("t", 58), ""},
		{"", strings.Repeat("é", 28) + "t", ""},
		{"", strings.Repeat("é", 29), ""},
		{"", "a\x00b", ""},
		{"", "\xff", ""},
		{"", "", ""},
		{"pg_temp", "locks", ""},
		{"pg_catalog", "pg_class", ""},
		{"", "t", "public"},
		{"", "t", "none"},
		{"", "pg_class", ""},
		{"", "_t", "r"},
	} {
		f.Add(seed[0], seed[1], seed[2])
	}
	pool := integration.Pool(f, integration.SharedPostgres(f, integration.Postgres17).Database(f), two)
	execute(f, pool, "CREATE TABLE bystander ()")
	f.Fuzz(func(t *testing.T, schema, name, role string) {
		s := postgres.Schema{Table: []string{name}, Role: role, Marks: true, Sweep: ""}
		if schema != "" {
			s.Table = []string{schema, name}
		}
		create, err := postgres.DDL(s)
		if err != nil {
			if !errors.Is(err, locco.ErrInvalid) {
				t.Errorf("DDL(%q): %v; want a validation error", s.Table, err)
			}
			return
		}
		drop, err := postgres.DropDDL(s)
		if err != nil {
			t.Fatalf("DropDDL(%q): %v", s.Table, err)
		}
		tx, err := pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback(context.Background()) }()
		in := "public"
		if schema != "" {
			in = schema
			execute(t, tx, "CREATE SCHEMA IF NOT EXISTS "+pgx.Identifier{schema}.Sanitize())
		}
		if role != "" {
			var there bool
			if err := tx.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1)", role).Scan(&there); err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(role, "pg_") && !there {
				return // the server's own
			}
			if !there {
				execute(t, tx, "CREATE ROLE "+pgx.Identifier{role}.Sanitize())
			}
		}
		want := relations(t, tx)
		before := maps.Clone(want)
		for _, suffix := range []string{"", "_fence", "_marks"} {
			if want[in+"\x01"+name+suffix] {
				return // another table stands there
			}
			want[in+"\x01"+name+suffix] = true
		}
		execute(t, tx, create...)
		execute(t, tx, create...)
		if got := relations(t, tx); !maps.Equal(got, want) {
			t.Errorf("DDL(%q) made %v of %v", s.Table, got, before)
		}
		for _, d := range drifts(t, tx, s) {
			if d.Severity == postgres.SeverityError {
				t.Errorf("Check(%q, %q): %+v", s.Table, role, d)
			}
		}
		execute(t, tx, drop...)
		if got := relations(t, tx); !maps.Equal(got, before) {
			t.Errorf("DropDDL(%q) left %v of %v", s.Table, got, before)
		}
	})
}
