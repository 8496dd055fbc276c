package postgres

import (
	"context"
	_ "embed" // the statements are files
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	locco "github.com/locco-go/locco/core"
)

var (
	//go:embed sql/raise.sql
	raiseSQL string
	//go:embed sql/mark.sql
	markSQL string
	//go:embed sql/stillheld.sql
	stillHeldSQL string
)

// ErrStale means that a later holder has claimed the resource. [StaleError] has the
// details.
var ErrStale = errors.New("locco: a later holder has claimed the resource")

// StaleError says that the fence is smaller than one that the resource has seen.
// It matches [ErrStale].
type StaleError struct {
	Resource string
	Fence    int64
	Seen     int64 // the highest fence so far
}

func (e *StaleError) Error() string {
	return fmt.Sprintf("locco: resource %q has seen fence %d; %d is stale", e.Resource, e.Seen, e.Fence)
}

// Is reports whether target is [ErrStale].
func (e *StaleError) Is(target error) bool { return target == ErrStale }

// Resource is data kept in Postgres that a fenced lock protects. It refuses what comes
// from an earlier holder, whatever that holder believes: the highest fence seen is kept
// in a table of marks, beside the table of locks by default ("locco_locks_marks": name,
// fence). [DDL] and loccoddl print it; it is not created at first use. All who write to
// the data do so through it.
//
// The data and the marks are in one database. The locks may be anywhere, also in Redis.
type Resource struct {
	name  string
	marks string
	table table
}

// NewResource returns the resource called name, whose mark is in the table of marks that
// belongs to the table of [WithTable]; other options say nothing here.
func NewResource(name string, opts ...Option) *Resource {
	c := config{table: table{defaultTable}}
	for _, o := range opts {
		if o != nil {
			o.apply(&c)
		}
	}
	r := &Resource{name: name, table: c.table}
	if c.table.validate("") == nil {
		r.marks = c.table.marks()
	}
	return r
}

// Raise claims the resource for fence: from now on every smaller one is refused with a
// [*StaleError]. Call it before the first read of the data, so that no earlier holder
// can change what was read. An equal fence passes. On a pool or a connection it is a
// transaction of its own; on a pgx.Tx it counts from the commit.
func (r *Resource) Raise(ctx context.Context, db DB, fence int64) error {
	switch {
	case r == nil || r.name == "":
		return &locco.ValidationError{Field: "resource", Value: "", Rule: "must not be empty"}
	case strings.ContainsRune(r.name, 0):
		return &locco.ValidationError{Field: "resource", Value: r.name, Rule: "must not have a NUL"}
	case isNil(db):
		return &locco.ValidationError{Field: "postgres db", Rule: "must not be nil"}
	case fence < 1 || fence > maxFence:
		return &locco.ValidationError{Field: "fence", Value: fence, Rule: "must come from a fenced lock (locco.WithFencing)"}
	}
	if err := r.table.validate("postgres.WithTable"); err != nil {
		return err
	}
	var passed bool
	err := db.QueryRow(ctx, r.fill(raiseSQL), r.name, fence).Scan(&passed)
	if !errors.Is(err, pgx.ErrNoRows) {
		return r.explain(err)
	}
	stale := &StaleError{Resource: r.name, Fence: fence}
	if err := db.QueryRow(ctx, r.fill(markSQL), r.name).Scan(&stale.Seen); err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return r.explain(err)
	}
	return stale
}

// Beginner begins transactions: a *pgxpool.Pool or a *pgx.Conn.
type Beginner interface {
	Begin(ctx context.Context) (pgx.Tx, error)
}

// Guard runs write in a transaction which has claimed the resource for fence, and
// commits it. A smaller fence than one seen is refused with a [*StaleError], and write
// is not run. Until the commit nobody else can claim the resource, so what write does
// comes before everything that a later holder does. If write fails nothing is stored,
// the claim neither, and the error is write's.
//
//	err := accounts.Guard(ctx, pool, lock.Fence(), func(tx pgx.Tx) error {
//		_, err := tx.Exec(ctx, "UPDATE account SET balance = balance - $1 WHERE id = $2", 17, 42)
//		return err
//	})
func (r *Resource) Guard(ctx context.Context, db Beginner, fence int64, write func(tx pgx.Tx) error) error {
	switch {
	case isNil(db):
		return &locco.ValidationError{Field: "postgres db", Rule: "must not be nil"}
	case write == nil:
		return &locco.ValidationError{Field: "write", Rule: "must not be nil"}
	}
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		if err := r.Raise(ctx, tx, fence); err != nil {
			return err
		}
		return write(tx)
	})
}

func (r *Resource) fill(sql string) string {
	return strings.ReplaceAll(withoutComment(sql), "{marks}", r.marks)
}

func (r *Resource) explain(err error) error {
	if isCode(err, undefinedTable) || isCode(err, undefinedColumn) || isCode(err, insufficientPrivilege) || isCode(err, noUniqueKey) {
		return &locco.ValidationError{
			Field: "postgres table", Value: r.marks,
			Rule: "must be a table of marks that the role may SELECT, INSERT and UPDATE: loccoddl postgres -marks prints it", Err: err,
		}
	}
	return err
}

// CheckTx tells, inside the caller's own transaction, whether lock still holds its key,
// and keeps it so until the end of the transaction: whoever comes next waits for that,
// even if the lease ends before. nil means yes; a [locco.ErrLost] means no, and the
// transaction is to be rolled back. It needs no fence. The data is in the same database
// as the locks of backend.
//
// Call it last, right before the commit: until then an extension of the lock waits too,
// for a second at most, and is tried again. It is made for the isolation level READ
// COMMITTED. In a transaction of REPEATABLE READ or SERIALIZABLE an extension of the lock
// since its snapshot is a serialization failure (40001), so there it has to be shorter than
// the interval of the heartbeat.
func (b *Backend) CheckTx(ctx context.Context, tx pgx.Tx, lock *locco.Lock) error {
	if err := b.Validate(); err != nil {
		return err
	}
	if isNil(tx) {
		return &locco.ValidationError{Field: "tx", Rule: "must not be nil"}
	}
	if err := lock.Err(); err != nil {
		return err
	}
	var live bool
	sql := strings.ReplaceAll(withoutComment(stillHeldSQL), "{table}", b.config.table.quoted())
	args := []any{lock.Key(), lock.Token()}
	if b.config.unprepared {
		args = append([]any{pgx.QueryExecModeExec}, args...)
	}
	err := tx.QueryRow(ctx, sql, args...).Scan(&live)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return b.explain(err)
	}
	if !live {
		return &locco.LostError{Key: lock.Key(), Reason: locco.ReasonObserved}
	}
	return nil
}
