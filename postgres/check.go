package postgres

import (
	"context"
	_ "embed" // the statements are files
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	locco "github.com/locco-go/locco/core"
)

var (
	//go:embed sql/checkrole.sql
	checkRoleSQL string
	//go:embed sql/checktable.sql
	checkTableSQL string
	//go:embed sql/checkowner.sql
	checkOwnerSQL string
	//go:embed sql/checkpath.sql
	checkPathSQL string
	//go:embed sql/checkfences.sql
	checkFencesSQL string
	//go:embed sql/checkreadable.sql
	checkReadableSQL string
	//go:embed sql/checkcron.sql
	checkCronSQL string
	//go:embed sql/checksweep.sql
	checkSweepSQL string
)

// Severity says how bad a [Drift] is.
type Severity string

// The severities.
const (
	// SeverityError is for locks that fail, or are not safe, as things stand.
	SeverityError Severity = "error"

	// SeverityWarning is for locks that are safe until something else happens: an
	// upgrade, a crash, a mistake of a role that may do more than it needs.
	SeverityWarning Severity = "warning"
)

// Drift is something in a database that is not as [DDL] makes it.
type Drift struct {
	Object   string   `json:"object"`  // what it is about: table "locco_locks"
	Problem  string   `json:"problem"` // what must be otherwise, and why
	Fix      string   `json:"fix,omitempty"`
	Severity Severity `json:"severity"`
}

// Check compares a database with s and returns every difference that matters, none if
// all is well. It only reads, and works on a standby too; db may be a transaction. What
// Fix says is a statement to be thought over, and run by who owns the table; it is empty
// where a person must decide.
//
// Rights are those of s.Role. Without it they are the current role's, and only what that
// lacks is told. An error is one of s ([locco.ValidationError]), or of the driver.
func Check(ctx context.Context, db DB, s Schema) ([]Drift, error) {
	if err := s.validate(); err != nil {
		return nil, err
	}
	if isNil(db) {
		return nil, &locco.ValidationError{Field: "postgres db", Rule: "must not be nil"}
	}
	c := &check{db: db, schema: s, table: s.table(), drifts: []Drift{}}
	if err := c.run(ctx); err != nil {
		return nil, err
	}
	return c.drifts, nil
}

// check is one run of [Check].
type check struct {
	db     DB
	schema Schema
	table  table
	drifts []Drift

	role      string // that of the schema, or the current one
	superuser bool
}

func (c *check) query(ctx context.Context, sql string, args []any, into ...any) error {
	// Without prepared statements, for whatever pooler there is.
	return c.db.QueryRow(ctx, withoutComment(sql), append([]any{pgx.QueryExecModeExec}, args...)...).Scan(into...)
}

func (c *check) add(object string, found ...finding) {
	for _, f := range found {
		d := Drift{Object: object, Problem: f.problem, Fix: f.fix, Severity: SeverityError}
		if f.warning {
			d.Severity = SeverityWarning
		}
		c.drifts = append(c.drifts, d)
	}
}

func (c *check) warn(object, problem, fix string) {
	c.add(object, finding{problem: problem, fix: fix, warning: true})
}

func (c *check) run(ctx context.Context) error {
	path, found, err := c.lookAtRole(ctx)
	if err != nil || !found {
		return err
	}
	var text string
	if err := c.query(ctx, lookSQL, lookArguments(c.table, c.role), &text); err != nil {
		return err
	}
	var l layout
	if err := json.Unmarshal([]byte(text), &l); err != nil {
		return err
	}
	locks, marks := lockShape(c.table), markShape(c.table)
	if err := c.lookAtTable(ctx, l.Table, &locks); err != nil {
		return err
	}
	if err := c.lookAtSequence(ctx, &l); err != nil {
		return err
	}
	if c.schema.Marks || l.Marks != nil {
		if err := c.lookAtTable(ctx, l.Marks, &marks); err != nil {
			return err
		}
		if err := c.lookAtFences(ctx, &l); err != nil {
			return err
		}
	}
	if len(c.table) == 1 {
		if err := c.lookAtPath(ctx, &l, path); err != nil {
			return err
		}
	}
	if c.schema.Sweep != "" {
		return c.lookAtSweep(ctx)
	}
	return nil
}

// lookAtRole looks at the role and at the settings of its sessions.
func (c *check) lookAtRole(ctx context.Context) (path string, found bool, err error) {
	var name *string
	if c.schema.Role != "" {
		name = &c.schema.Role
	}
	var synchronousCommit, fsync, pages string
	err = c.query(ctx, checkRoleSQL, []any{name}, &c.role, &c.superuser, &path, &synchronousCommit, &fsync, &pages)
	object := "role " + quote(c.schema.Role)
	if errors.Is(err, pgx.ErrNoRows) {
		c.add(object, finding{problem: "must exist", fix: "CREATE ROLE " + quote(c.schema.Role) + " LOGIN"})
		return "", false, nil
	}
	if err != nil {
		return "", false, err
	}
	if c.schema.Role != "" && c.superuser {
		c.warn(object, "must not be a superuser: nothing keeps it from setting fences back or emptying the table",
			"ALTER ROLE "+quote(c.role)+" NOSUPERUSER")
	}
	for _, s := range []struct{ name, value, consequence string }{
		{"fsync", fsync, "after a crash of the machine locks are gone and fences begin again, or the database is broken"},
		{"full_page_writes", pages, "after a crash of the machine the table may be broken"},
		{"synchronous_commit", synchronousCommit, "after a crash of the server locks of the last moments are gone"},
	} {
		if s.value == "off" {
			c.warn("setting "+s.name, "must not be off: "+s.consequence, "")
		}
	}
	return path, true, nil
}

// extras is what checktable.sql tells.
type extras struct {
	Collation *struct {
		Name  string `json:"name"`
		Sound bool   `json:"sound"`
		Fuzzy bool   `json:"fuzzy"`
	} `json:"collation"`
	Triggers []struct {
		Name   string `json:"name"`
		Before bool   `json:"before"`
	} `json:"triggers"`
	Rules       []string `json:"rules"`
	Constraints []struct {
		Name  string `json:"name"`
		Kind  string `json:"kind"`
		Table string `json:"table"`
		Here  bool   `json:"here"`
	} `json:"constraints"`
	Uniques            []string `json:"uniques"`
	Children           bool     `json:"children"`
	Parents            bool     `json:"parents"`
	RowSecurity        bool     `json:"row_security"`
	RowSecurityApplies bool     `json:"row_security_applies"`
}

// lookAtTable looks at the table of locks or of marks.
func (c *check) lookAtTable(ctx context.Context, r *relation, want *shape) error {
	object := "table " + want.name
	c.add(object, r.compare(want, len(c.table) > 1, c.role)...)
	if r == nil || r.Kind != "r" && r.Kind != "p" {
		return nil
	}
	var text string
	err := c.query(ctx, checkTableSQL, []any{r.OID, c.role, want.key}, &text)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil // dropped a moment ago
	}
	var x extras
	if err == nil {
		err = json.Unmarshal([]byte(text), &x)
	}
	if err != nil {
		return err
	}
	alter := "ALTER TABLE " + want.name + " "
	if k := x.Collation; k != nil && (k.Fuzzy || !k.Sound) {
		f := finding{
			problem: "must have COLLATE \"C\" on the column " + want.key + ", not " + quote(k.Name) +
				": with another one the index breaks when an upgrade of the system changes the order of letters, and a key is there twice",
			fix:     alter + "ALTER COLUMN " + want.key + ` TYPE text COLLATE "C"`,
			warning: true,
		}
		if k.Fuzzy {
			f.problem = "must have COLLATE \"C\" on the column " + want.key + ", not " + quote(k.Name) + ", which takes different keys for the same"
			f.warning = false
		}
		c.add(object, f)
	}
	c.lookAtHooks(object, want, &x)
	switch {
	case x.RowSecurityApplies:
		c.add(object, finding{
			problem: "must not have row-level security that applies to the role: a policy hides rows or refuses them, so that locks fail",
			fix:     alter + "DISABLE ROW LEVEL SECURITY",
		})
	case x.RowSecurity:
		c.warn(object, "must not have row-level security: for another role than this one, a policy hides rows or refuses them",
			alter+"DISABLE ROW LEVEL SECURITY")
	}
	if r.Kind == "r" && x.Children {
		c.add(object, finding{problem: "must not have tables that inherit from it: its key does not hold for their rows"})
	}
	if x.Parents {
		c.warn(object, "must not inherit from another table or be its partition: what is done to the rows of that one is done to the locks", "")
	}
	return c.lookAtExcess(ctx, r, object, "TABLE "+want.name, want.rights)
}

// lookAtHooks looks at what runs or is checked when a row is written.
func (c *check) lookAtHooks(object string, want *shape, x *extras) {
	alter := "ALTER TABLE " + want.name + " "
	for _, g := range x.Triggers {
		f := finding{
			problem: "must not have the trigger " + quote(g.Name) + ": it runs inside every lock operation, which fails with it and waits for it",
			fix:     "DROP TRIGGER " + quote(g.Name) + " ON " + want.name, warning: true,
		}
		if g.Before {
			f.problem = "must not have the trigger " + quote(g.Name) + ": before a row is written it can change the row or drop it, " +
				"so that a lock is somebody else's, ends at another time, or is never had or freed"
			f.warning = false
		}
		c.add(object, f)
	}
	for _, r := range x.Rules {
		c.add(object, finding{
			problem: "must not have the rule " + quote(r) + ": it replaces statements by others, and the server refuses ON CONFLICT with it",
			fix:     "DROP RULE " + quote(r) + " ON " + want.name,
		})
	}
	for _, k := range x.Constraints {
		problem := "must not have the constraint " + quote(k.Name) + ": it refuses what is to be stored"
		drop := alter
		if k.Kind == "f" && !k.Here {
			problem = "must not be referred to by " + k.Table + " (constraint " + quote(k.Name) + "): no lock could be freed then, or rows go with it"
			drop = "ALTER TABLE " + k.Table + " "
		}
		c.add(object, finding{problem: problem, fix: drop + "DROP CONSTRAINT " + quote(k.Name), warning: k.Kind == "c"})
	}
	for _, u := range x.Uniques {
		c.warn(object, "must not have the unique index "+u+" besides its key: an acquire that it refuses fails", "")
	}
}

// lookAtExcess looks for rights that nothing needs.
func (c *check) lookAtExcess(ctx context.Context, r *relation, object, grantee string, needed []string) error {
	var owner bool
	var public []string
	var ownedBy string
	err := c.query(ctx, checkOwnerSQL, []any{r.OID, c.role}, &owner, &public, &ownedBy)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	if len(public) > 0 {
		rights := strings.Join(public, ", ")
		c.warn(object, "must not be open to everybody: PUBLIC has "+rights, "REVOKE "+rights+" ON "+grantee+" FROM PUBLIC")
	}
	if ownedBy != "" && r.Kind == "S" {
		c.warn(object, "must not be owned by "+ownedBy+": it is dropped along with that, and fences begin again",
			"ALTER "+grantee+" OWNED BY NONE")
	}
	if c.schema.Role == "" || c.superuser {
		return nil
	}
	if owner {
		c.warn(object, "must not belong to the role: an owner can empty, change or drop it", "ALTER "+grantee+" OWNER TO CURRENT_USER")
		return nil
	}
	var excess []string
	for _, right := range r.Rights {
		if !slices.Contains(needed, right) && !slices.Contains(public, right) {
			excess = append(excess, right)
		}
	}
	if len(excess) > 0 {
		rights := strings.Join(excess, ", ")
		why := ""
		if r.Kind == "S" {
			why = ": with it setval sets fences back"
		}
		c.warn(object, "must not give the role "+rights+why, "REVOKE "+rights+" ON "+grantee+" FROM "+quote(c.role))
	}
	return nil
}

func (c *check) lookAtSequence(ctx context.Context, l *layout) error {
	object := "sequence " + c.table.fence()
	r := l.Sequence
	c.add(object, r.compareSequence(c.table, c.role)...)
	if r == nil || r.Kind != "S" {
		return nil
	}
	if l.Table != nil && l.Table.Persistence != "t" && l.Table.Schema != r.Schema {
		c.warn(object, "must be in the schema of the table, "+quote(l.Table.Schema)+", not "+quote(r.Schema),
			"ALTER SEQUENCE "+pgx.Identifier{r.Schema, c.table.name() + fenceSuffix}.Sanitize()+" SET SCHEMA "+quote(l.Table.Schema))
	}
	return c.lookAtExcess(ctx, r, object, "SEQUENCE "+c.table.fence(), []string{sequenceRight})
}

// readable tells whether the current role may read all of these. It is asked first, as
// an error would end a transaction of the caller.
func (c *check) readable(ctx context.Context, oids ...int64) (bool, error) {
	var ok bool
	err := c.query(ctx, checkReadableSQL, []any{oids}, &ok)
	return ok, err
}

// lookAtFences compares the sequence with the marks. The current role need not be
// allowed to read them.
func (c *check) lookAtFences(ctx context.Context, l *layout) error {
	fence := func(col column) bool { return col.Name == "fence" && col.Type == "bigint" }
	if l.Sequence == nil || l.Sequence.Kind != "S" || l.Marks == nil || l.Marks.Kind == "S" || !slices.ContainsFunc(l.Marks.Columns, fence) {
		return nil
	}
	object := "sequence " + c.table.fence()
	readable, err := c.readable(ctx, l.Sequence.OID, l.Marks.OID)
	if err != nil {
		return err
	}
	if !readable {
		c.warn(object, "could not be compared with the marks: the role that checks needs SELECT on the sequence and on the table of marks", "")
		return nil
	}
	sql := strings.NewReplacer("{marks}", c.table.marks(), "{fence}", c.table.fence()).Replace(withoutComment(checkFencesSQL))
	var next, seen int64
	if err := c.query(ctx, sql, nil, &next, &seen); err != nil {
		return err
	}
	if next <= seen {
		c.add(object, finding{
			problem: fmt.Sprintf("must be ahead of the marks: its next fence is %d, and a resource has seen %d, as after a restore or a failover", next, seen),
			fix:     fmt.Sprintf("SELECT setval(%s::regclass, %d)", strings.TrimSpace(literal(c.table.fence())), seen),
		})
	}
	return nil
}

// lookAtPath looks for what a name without a schema means to the role, and for others
// of that name.
func (c *check) lookAtPath(ctx context.Context, l *layout, path string) error {
	schemas := append([]string{"pg_catalog"}, searchPath(path, c.role)...)
	for _, x := range []struct {
		kind, name string
		r          *relation
	}{
		{"table", c.table.name(), l.Table},
		{"sequence", c.table.name() + fenceSuffix, l.Sequence},
		{"table", c.table.name() + marksSuffix, l.Marks},
	} {
		if x.r == nil {
			continue
		}
		rows, err := c.db.Query(ctx, withoutComment(checkPathSQL), pgx.QueryExecModeExec, x.name, schemas, c.role)
		if err != nil {
			return err
		}
		type place struct {
			Schema string
			OID    int64
		}
		places, err := pgx.CollectRows(rows, pgx.RowToStructByPos[place])
		if err != nil {
			return err
		}
		object := x.kind + " " + quote(x.name)
		switch {
		case len(places) == 0:
			c.add(object, finding{problem: fmt.Sprintf("must be on the search path of the role, which is %s; it is in the schema %s", path, quote(x.r.Schema))})
		case places[0].OID != x.r.OID:
			c.add(object, finding{problem: fmt.Sprintf(
				"must be the same for all: on the search path of the role, %s, it is that of the schema %s, and here that of %s; name the schema",
				path, quote(places[0].Schema), quote(x.r.Schema))})
		case len(places) > 1:
			c.warn(object, fmt.Sprintf("must be the only one on the search path: it hides that of the schema %s; name the schema", quote(places[1].Schema)), "")
		}
	}
	return nil
}

// searchPath reads the setting: names, in quotes or folded, and commas between them.
func searchPath(setting, role string) []string {
	var schemas []string
	for rest := strings.TrimSpace(setting); rest != ""; {
		var name string
		if strings.HasPrefix(rest, `"`) {
			var b strings.Builder
			for rest = rest[1:]; rest != ""; {
				part, after, _ := strings.Cut(rest, `"`)
				b.WriteString(part)
				if rest = after; !strings.HasPrefix(rest, `"`) {
					break
				}
				b.WriteByte('"')
				rest = rest[1:]
			}
			name = b.String()
			_, rest, _ = strings.Cut(rest, ",")
		} else {
			name, rest, _ = strings.Cut(rest, ",")
			name = strings.ToLower(strings.TrimSpace(name))
		}
		if name == "$user" {
			name = role
		}
		if name != "" {
			schemas = append(schemas, name)
		}
		rest = strings.TrimSpace(rest)
	}
	return schemas
}

func (c *check) lookAtSweep(ctx context.Context) error {
	object := "job " + quote(sweepJob(c.table))
	create := scheduleSweep(c.table, c.schema.Sweep)
	var jobs int64
	err := c.query(ctx, checkCronSQL, nil, &jobs)
	if errors.Is(err, pgx.ErrNoRows) {
		c.add("extension pg_cron", finding{problem: "must be there, in this database, for the job that deletes expired rows", fix: "CREATE EXTENSION pg_cron"})
		return nil
	}
	if err != nil {
		return err
	}
	readable, err := c.readable(ctx, jobs)
	if err != nil {
		return err
	}
	if !readable {
		c.warn(object, "could not be looked for: the role that checks needs SELECT on cron.job and USAGE on its schema", "")
		return nil
	}
	var when, command string
	var active bool
	err = c.query(ctx, checkSweepSQL, []any{sweepJob(c.table)}, &when, &command, &active)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		c.add(object, finding{problem: "must exist, and the role that checks must see it", fix: create})
	case err != nil:
		return err
	case !active || when != c.schema.Sweep || command != sweepCommand(c.table):
		c.warn(object, "must be active, with the schedule and the command of this schema", create)
	}
	return nil
}
