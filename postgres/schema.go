package postgres

import (
	"context"
	_ "embed" // the statement that looks at the schema
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

//go:embed sql/look.sql
var lookSQL string

// maxFence is the largest fence: the largest integer that JSON keeps exactly.
const maxFence = 1<<53 - 1

// layout is what there is in a database.
type layout struct {
	Table    *relation `json:"table"`
	Sequence *relation `json:"sequence"`
	Marks    *relation `json:"marks"`
}

// relation is a table or a sequence, or what stands in its place.
type relation struct {
	OID         int64     `json:"oid"`
	Schema      string    `json:"schema"`
	Kind        string    `json:"kind"`
	Persistence string    `json:"persistence"`
	Columns     []column  `json:"columns"`
	Unique      []string  `json:"unique"`
	Usage       bool      `json:"usage"`
	Rights      []string  `json:"rights"`
	Numbers     *sequence `json:"sequence"`
}

type column struct {
	Name    string `json:"name"`
	Type    string `json:"type"`
	NotNull bool   `json:"not_null"`
	Filled  bool   `json:"filled"` // it has a default
}

type sequence struct {
	Type      string `json:"type"`
	Increment int64  `json:"increment"`
	Cache     int64  `json:"cache"`
	Cycle     bool   `json:"cycle"`
	Minimum   int64  `json:"minimum"`
	Maximum   int64  `json:"maximum"`
}

// lookArguments are what look.sql takes. An empty role is the current one.
func lookArguments(t table, role string) []any {
	var schema, name *string
	if len(t) > 1 {
		schema = &t[0]
	}
	if role != "" {
		name = &role
	}
	return []any{schema, t.name(), t.name() + fenceSuffix, t.name() + marksSuffix, name}
}

// look reads the schema, and what the current role may do with it.
func (r *runner) look(ctx context.Context, t table) (layout, error) {
	var l layout
	var text string
	err := r.use(ctx, false, func(db DB) error {
		args := lookArguments(t, "")
		if r.unprepared {
			args = append([]any{pgx.QueryExecModeExec}, args...)
		}
		return db.QueryRow(ctx, withoutComment(lookSQL), args...).Scan(&text)
	})
	if err == nil {
		err = json.Unmarshal([]byte(text), &l)
	}
	return l, err
}

// shape is how a table is to be.
type shape struct {
	name    string // as it stands in a statement
	create  string
	key     string
	columns []column
	rights  []string
}

func lockShape(t table) shape {
	return shape{
		name: t.quoted(), create: createTable(t), key: "key",
		columns: []column{
			{Name: "key", Type: "text"}, {Name: "token", Type: "text"}, {Name: "expires_at", Type: "timestamp with time zone"},
		},
		rights: tableRights,
	}
}

func markShape(t table) shape {
	return shape{
		name: t.marks(), create: createMarks(t), key: "name",
		columns: []column{{Name: "name", Type: "text"}, {Name: "fence", Type: "bigint"}},
		rights:  marksRights,
	}
}

// finding is a [Drift] in the making.
type finding struct {
	problem string
	fix     string
	fatal   bool // nothing works: the first use fails with it
	warning bool
}

func fatal(problem, fix string) finding { return finding{problem: problem, fix: fix, fatal: true} }

var kinds = map[string]string{
	"v": "a view", "m": "a materialized view", "f": "a foreign table", "S": "a sequence", "i": "an index", "c": "a type",
}

// missing is what is said of something that is not there.
func missing(qualified bool, create string) finding {
	if qualified {
		return fatal("must exist", create)
	}
	return fatal("must exist, in a schema of the search path that the role may use", create)
}

// compare finds what is wrong with a table, the worst first, as far as look tells it.
// role is for the statements that mend it, "" if it is not known. A table by name
// alone is looked for along the search path.
func (r *relation) compare(want *shape, qualified bool, role string) []finding {
	if r == nil {
		return []finding{missing(qualified, want.create)}
	}
	switch {
	case r.Kind != "r" && r.Kind != "p":
		return []finding{fatal("must be a table, not "+kinds[r.Kind], "")}
	case r.Persistence == "t":
		return []finding{fatal("must not be a temporary table: only its own session sees it", "DROP TABLE "+want.name)}
	}
	var found []finding
	alter := "ALTER TABLE " + want.name + " "
	for _, w := range want.columns {
		i := slices.IndexFunc(r.Columns, func(c column) bool { return c.Name == w.Name })
		change := alter + "ALTER COLUMN " + w.Name
		switch {
		case i < 0:
			found = append(found, fatal("must have the column "+w.Name+" "+w.Type, alter+"ADD COLUMN "+w.Name+" "+w.Type+" NOT NULL"))
		case r.Columns[i].Type == "timestamp without time zone" && w.Type == "timestamp with time zone":
			found = append(found, fatal("must have the column "+w.Name+" "+w.Type+
				", not without: sessions with different time zones would not agree when a lease ends",
				change+" TYPE timestamptz USING "+w.Name+" AT TIME ZONE current_setting('TimeZone')"))
		case r.Columns[i].Type != w.Type:
			found = append(found, fatal("must have the column "+w.Name+" "+w.Type+", not "+r.Columns[i].Type,
				change+" TYPE "+w.Type+" USING "+w.Name+"::"+w.Type))
		case !r.Columns[i].NotNull:
			found = append(found, finding{problem: "must have NOT NULL on the column " + w.Name, fix: change + " SET NOT NULL", warning: true})
		}
	}
	for _, c := range r.Columns {
		known := slices.ContainsFunc(want.columns, func(w column) bool { return w.Name == c.Name })
		if !known && c.NotNull && !c.Filled {
			found = append(found, fatal("must not have the column "+quote(c.Name)+" with NOT NULL and no default: no row could be stored",
				alter+"ALTER COLUMN "+quote(c.Name)+" DROP NOT NULL"))
		}
	}
	if !slices.Contains(r.Unique, want.key) {
		found = append(found, fatal("must have a primary key or unique index on the column "+want.key+
			" alone, neither partial nor deferrable", alter+"ADD UNIQUE ("+want.key+")"))
	}
	if r.Kind == "p" {
		found = append(found, finding{problem: "must be a plain table: a partition that is detached takes its locks along", warning: true})
	}
	if r.Persistence == "u" {
		found = append(found, finding{
			problem: "must not be unlogged: it is empty after a crash of the server and on every standby, and whoever holds a lock does not know",
			fix:     alter + "SET LOGGED",
		})
	}
	return append(found, r.lacking(want.rights, "TABLE "+want.name, role)...)
}

// compareSequence finds what is wrong with the sequence, the worst first.
func (r *relation) compareSequence(t table, role string) []finding {
	if r == nil {
		return []finding{missing(len(t) > 1, createSequence(t))}
	}
	switch {
	case r.Kind != "S":
		return []finding{fatal("must be a sequence", "")}
	case r.Persistence == "t":
		return []finding{fatal("must not be a temporary sequence: only its own session sees it", "DROP SEQUENCE "+t.fence())}
	}
	var found []finding
	alter := "ALTER SEQUENCE " + t.fence() + " "
	s := r.Numbers
	if s.Increment < 1 {
		found = append(found, fatal("must have an increment of at least 1: fences would run backwards", alter+"INCREMENT BY 1"))
	}
	if s.Cache != 1 {
		found = append(found, fatal("must have CACHE 1: each session would draw numbers in advance, and fences run backwards", alter+"CACHE 1"))
	}
	if s.Cycle {
		found = append(found, fatal("must have NO CYCLE: fences would begin again at the end", alter+"NO CYCLE"))
	}
	if s.Minimum < 1 {
		found = append(found, fatal("must have a MINVALUE of at least 1: fences are positive", alter+"MINVALUE 1"))
	}
	limit := fmt.Sprintf("MAXVALUE %d", int64(maxFence))
	switch {
	case s.Type != "bigint":
		found = append(found, finding{problem: "must be of the type bigint, not " + s.Type + ": fences come to an end", fix: alter + "AS bigint " + limit})
	case s.Maximum < maxFence:
		found = append(found, finding{problem: "must have " + limit + ": fences come to an end", fix: alter + limit, warning: true})
	case s.Maximum > maxFence:
		found = append(found, finding{
			problem: "must have " + limit + ": larger integers are not exact everywhere", fix: alter + limit, warning: true,
		})
	}
	if s.Increment > 1 {
		found = append(found, finding{problem: "must have an increment of 1: fences come to an end sooner", fix: alter + "INCREMENT BY 1", warning: true})
	}
	if r.Persistence == "u" {
		found = append(found, finding{problem: "must not be unlogged: fences begin again after a crash of the server", fix: alter + "SET LOGGED"})
	}
	rights := []string{sequenceRight}
	if slices.Contains(r.Rights, "UPDATE") {
		rights = nil // does as well for nextval
	}
	return append(found, r.lacking(rights, "SEQUENCE "+t.fence(), role)...)
}

// lacking finds the rights that the role does not have.
func (r *relation) lacking(rights []string, object, role string) []finding {
	var found []finding
	add := func(right, object string) {
		fix := ""
		if role != "" {
			fix = grant(right, object, quote(role))
		}
		found = append(found, fatal("the role needs "+right+" on the "+strings.ToLower(strings.Fields(object)[0]), fix))
	}
	if !r.Usage {
		add("USAGE", "SCHEMA "+quote(r.Schema))
	}
	for _, right := range rights {
		if !slices.Contains(r.Rights, right) {
			add(right, object)
		}
	}
	return found
}
