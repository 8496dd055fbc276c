package postgres

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	locco "github.com/locco-go/locco/core"
)

// SchemaVersion is the version of the schema that this package works with. It grows
// when a release needs another one; loccoddl then prints the step between the two.
const SchemaVersion = 1

// Schema says what a database is to have for locks, beyond the defaults. The zero
// Schema is what the first use of a [Backend] creates: the table locco_locks, and the
// sequence of its fences.
type Schema struct {
	// Table names the table of the locks as [WithTable] does: a table, or a schema and a
	// table. The default is "locco_locks". The schema itself is not created.
	Table []string

	// Role is a role that an application connects as. [DDL] grants it what a Backend
	// needs, and no more: SELECT, INSERT, UPDATE and DELETE on the table, USAGE on the
	// sequence, SELECT, INSERT and UPDATE on the marks, and USAGE on the schema if Table
	// names one. The default is to grant nothing.
	Role string

	// Marks adds the table that the fences of resources are kept in: the name of the
	// table with "_marks" behind it, in the same schema.
	Marks bool

	// Sweep is when a job of the extension pg_cron deletes rows whose lease has ended:
	// five fields of cron ("*/10 * * * *"), or "30 seconds". The extension must be there,
	// in the same database. A run deletes 10,000 rows at most. The default is no job: see
	// [Backend.SweepExpired].
	Sweep string
}

// DDL returns the statements that create what s asks for, in order, each without a
// semicolon. They can be run in one transaction, and again on what is there already.
// They fail with a [locco.ValidationError] if s cannot be had.
func DDL(s Schema) ([]string, error) {
	if err := s.validate(); err != nil {
		return nil, err
	}
	t := s.table()
	statements := []string{createTable(t), createSequence(t)}
	if s.Marks {
		statements = append(statements, createMarks(t))
	}
	if s.Role != "" {
		role := quote(s.Role)
		if len(t) > 1 {
			statements = append(statements, grant("USAGE", "SCHEMA "+quote(t[0]), role))
		}
		statements = append(statements,
			grant(strings.Join(tableRights, ", "), "TABLE "+t.quoted(), role),
			grant(sequenceRight, "SEQUENCE "+t.fence(), role))
		if s.Marks {
			statements = append(statements, grant(strings.Join(marksRights, ", "), "TABLE "+t.marks(), role))
		}
	}
	if s.Sweep != "" {
		statements = append(statements, scheduleSweep(t, s.Sweep))
	}
	return statements, nil
}

// DropDDL returns the statements that undo those of [DDL], in order. The locks are
// gone then, and so are the fences: those of a sequence that is made anew begin at 1,
// and resources that remember larger ones refuse them. A schema stays, and so does the
// right to use it.
func DropDDL(s Schema) ([]string, error) {
	if err := s.validate(); err != nil {
		return nil, err
	}
	t := s.table()
	var statements []string
	if s.Sweep != "" {
		// By its number: to unschedule a name that is not there is an error.
		statements = append(statements, "SELECT cron.unschedule(jobid) FROM cron.job WHERE jobname ="+literal(sweepJob(t))+
			" AND database = current_database()")
	}
	if s.Marks {
		statements = append(statements, "DROP TABLE IF EXISTS "+t.marks())
	}
	return append(statements, "DROP SEQUENCE IF EXISTS "+t.fence(), "DROP TABLE IF EXISTS "+t.quoted()), nil
}

// The rights that a role needs.
var (
	tableRights = []string{"SELECT", "INSERT", "UPDATE", "DELETE"}
	marksRights = []string{"SELECT", "INSERT", "UPDATE"}
)

const sequenceRight = "USAGE"

// createTable and its siblings are the one source of the schema, for the set-up at
// first use, [DDL] and what [Check] proposes.
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

func createMarks(t table) string {
	return "CREATE TABLE IF NOT EXISTS " + t.marks() + ` (
    name text COLLATE "C" NOT NULL PRIMARY KEY,
    fence bigint NOT NULL
)`
}

func grant(rights, object, role string) string {
	return "GRANT " + rights + " ON " + object + " TO " + role
}

func quote(name string) string { return pgx.Identifier{name}.Sanitize() }

// sweepBatch is how many rows a job of pg_cron deletes in a run.
const sweepBatch = 10_000

// sweepJob is the name of the job.
func sweepJob(t table) string { return strings.Join(t.beside("_sweep"), ".") }

// sweepCommand is what the job runs: the statement of [Backend.SweepExpired] in one
// line, for the tables in which jobs are listed.
func sweepCommand(t table) string {
	sql := strings.Join(strings.Fields(withoutComment(sweepSQL)), " ")
	return strings.NewReplacer("{table}", t.quoted(), "$1", strconv.Itoa(sweepBatch)).Replace(sql)
}

func scheduleSweep(t table, schedule string) string {
	return "SELECT cron.schedule(" + strings.TrimSpace(literal(sweepJob(t))) + "," + literal(schedule) + "," + literal(sweepCommand(t)) + ")"
}

func (s *Schema) table() table {
	if len(s.Table) == 0 {
		return table{defaultTable}
	}
	return s.Table
}

// schedule is one that pg_cron may understand. Whether it does is its own business.
var schedule = regexp.MustCompile(`^(?:[1-9]|[1-5][0-9]) seconds$|^[-0-9A-Za-z*/,$]+(?: [-0-9A-Za-z*/,$]+){4}$`)

// validate finds what is wrong with a schema.
func (s *Schema) validate() error {
	if err := s.table().validate("postgres Schema.Table"); err != nil {
		return err
	}
	bad := func(field string, value any, rule string) error {
		return &locco.ValidationError{Field: "postgres Schema." + field, Value: value, Rule: rule}
	}
	if s.Role != "" {
		if rule := invalidName(s.Role, maxName); rule != "" {
			return bad("Role", s.Role, rule)
		}
		// GRANT takes these two for what they mean without quotes.
		if s.Role == "public" || s.Role == "none" {
			return bad("Role", s.Role, "must be a role: even in quotes, public is everybody and none is nobody")
		}
	}
	if s.Sweep != "" && !schedule.MatchString(s.Sweep) {
		return bad("Sweep", s.Sweep, `must be five fields of cron or, for example, "30 seconds"`)
	}
	return nil
}
