package postgres

import (
	"context"
	_ "embed" // the statement that looks at the schema
	"fmt"
	"slices"
	"strings"
)

//go:embed sql/look.sql
var lookSQL string

// maxFence is the largest fence: the largest integer that JSON keeps exactly.
const maxFence = 1<<53 - 1

// createTable and createSequence are the one source of the schema, for the set-up at
// first use, [DDL] and loccoddl.
//
// The collation keeps the index sound when the system's library of collations
// changes, and its comparisons cheap. The sequence is not owned by the table: a table
// that is made anew must not begin with old fences.
func createTable(t table) string {
	return "CREATE TABLE IF NOT EXISTS " + t.quoted() + ` (
    key text COLLATE "C" NOT NULL PRIMARY KEY,
    token text NOT NULL,
    expires_at timestamptz NOT NULL
)`
}

func createSequence(t table) string {
	return fmt.Sprintf("CREATE SEQUENCE IF NOT EXISTS %s MINVALUE 1 MAXVALUE %d CACHE 1 NO CYCLE", t.fence(), int64(maxFence))
}

// schema is what there is in a database.
type schema struct {
	hasTable     bool
	kind         string
	persistence  string
	rowSecurity  bool
	columns      []string
	hasUniqueKey bool

	hasSequence  bool
	sequenceKind string
	increment    int64
	cache        int64
	cycle        bool
	maximum      int64
}

// look reads the schema.
func (r *runner) look(ctx context.Context, t table) (schema, error) {
	var s schema
	err := r.use(ctx, false, func(db DB) error {
		return db.QueryRow(ctx, withoutComment(lookSQL), r.arguments(newCall("", t.quoted(), t.fence()))...).Scan(
			&s.hasTable, &s.kind, &s.persistence, &s.rowSecurity, &s.columns, &s.hasUniqueKey,
			&s.hasSequence, &s.sequenceKind, &s.increment, &s.cache, &s.cycle, &s.maximum)
	})
	return s, err
}

// tableProblem says why the table cannot work; "" if it can.
func (s *schema) tableProblem() string {
	switch {
	case !s.hasTable:
		return "must exist"
	case s.kind != "r" && s.kind != "p":
		return "must be a table"
	}
	for _, want := range []string{"key text", "token text", "expires_at timestamp with time zone"} {
		if !slices.ContainsFunc(s.columns, func(c string) bool { return strings.TrimSuffix(c, " not null") == want }) {
			return "must have the column " + want
		}
	}
	if !s.hasUniqueKey {
		return "must have a primary key or unique index on the column key alone"
	}
	return ""
}

// sequenceProblem says why the sequence cannot work; "" if it can.
func (s *schema) sequenceProblem() string {
	switch {
	case !s.hasSequence:
		return "must exist"
	case s.sequenceKind != "S":
		return "must be a sequence"
	case s.increment < 1:
		return "must have an increment of at least 1"
	case s.cache != 1:
		return "must have CACHE 1: each session would draw numbers in advance, and fences run backwards"
	case s.cycle:
		return "must have NO CYCLE"
	}
	return ""
}
