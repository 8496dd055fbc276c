package postgres

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	locco "github.com/locco-go/locco/core"
)

// The names that are made of the table's.
const (
	defaultTable = "locco_locks"
	fenceSuffix  = "_fence"
	marksSuffix  = "_marks"
)

// maxName is the length of a name in bytes.
const maxName = 63

// maxTable is the length of a table's name in bytes that leaves room for the longest
// suffix: Postgres cuts what is longer than 63 off, and says so in a notice only.
const maxTable = maxName - len(fenceSuffix)

// table is the name of a table, with its schema if that was given.
type table pgx.Identifier

func (t table) name() string { return t[len(t)-1] }

// beside returns the name of what belongs to the table, in the same schema.
func (t table) beside(suffix string) pgx.Identifier {
	id := append(pgx.Identifier{}, t...)
	id[len(id)-1] += suffix
	return id
}

// quoted returns the name as it stands in a statement.
func (t table) quoted() string { return pgx.Identifier(t).Sanitize() }

// fence returns the name of the sequence that the fences come from.
func (t table) fence() string { return t.beside(fenceSuffix).Sanitize() }

// marks returns the name of the table that [Resource] keeps its marks in.
func (t table) marks() string { return t.beside(marksSuffix).Sanitize() }

// validate finds what is wrong with a name.
func (t table) validate(field string) error {
	bad := func(rule string) error {
		return &locco.ValidationError{Field: field, Value: []string(t), Rule: rule}
	}
	if len(t) < 1 || len(t) > 2 {
		return bad("must be a table, or a schema and a table")
	}
	for i, part := range t {
		limit := maxName
		if i == len(t)-1 {
			limit = maxTable
		}
		if rule := invalidName(part, limit); rule != "" {
			return bad(rule)
		}
	}
	if strings.HasPrefix(t[0], "pg_") {
		if len(t) == 1 {
			return bad("must be with its schema if it begins with pg_: the server's own tables are found first")
		}
		return bad("must not be in a schema of the server: what is in pg_temp, only one session sees")
	}
	return nil
}

// invalidName says what is wrong with a name; "" if nothing is.
func invalidName(name string, limit int) string {
	switch {
	case name == "":
		return "must not be empty"
	case len(name) > limit:
		return fmt.Sprintf("must have at most %d bytes", limit)
	case !utf8.ValidString(name) || strings.ContainsRune(name, 0):
		return "must be valid UTF-8 without NUL"
	}
	return ""
}

// literal returns text as a literal of SQL, whatever standard_conforming_strings says.
func literal(text string) string {
	return " E'" + strings.NewReplacer(`\`, `\\`, `'`, `''`).Replace(text) + "'"
}
