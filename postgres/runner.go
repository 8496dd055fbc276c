package postgres

import (
	"bytes"
	"context"
	"errors"
	"reflect"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"

	locco "github.com/locco-go/locco/core"
)

// runner runs statements on what the caller gave us.
type runner struct {
	db         DB
	tx         bool // db is a transaction
	unprepared bool

	pool interface { // nil if db has no connections to give
		Acquire(ctx context.Context) (*pgxpool.Conn, error)
	}
	conn *pgx.Conn     // db itself, if it is one connection
	busy chan struct{} // holds one: the right to use conn

	// strict: the server waits for standbys at a commit, so that every answer is
	// checked for the warning that it gave that up.
	strict atomic.Bool
}

func newRunner(db DB, unprepared bool) *runner {
	if v := reflect.ValueOf(db); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil
	}
	r := &runner{db: db, unprepared: unprepared}
	switch db := db.(type) {
	case pgx.Tx:
		r.tx = true
	case *pgx.Conn:
		r.conn = db
	case interface{ Conn() *pgx.Conn }: // such as *pgxpool.Conn
		r.conn = db.Conn()
	case interface {
		Acquire(ctx context.Context) (*pgxpool.Conn, error)
	}:
		r.pool = db
	}
	if r.conn != nil {
		r.busy = make(chan struct{}, 1)
	}
	return r
}

// errUnconfirmed is for a commit that did not wait for its standby: what it stored may
// be lost at a failover, so it is nobody's grant. The next attempt knows its token.
var errUnconfirmed = errors.New("locco: the commit was not confirmed by the synchronous standby")

// row runs a statement that answers one row, or [pgx.ErrNoRows]. The statement is one
// transaction. synchronous is where it says that its commit waits for a standby; nil
// if it stores nothing that must not get lost.
func (r *runner) row(ctx context.Context, synchronous *bool, sql string, args []any, into ...any) error {
	strict := synchronous != nil && r.strict.Load()
	err := r.use(ctx, strict, func(db DB) error {
		return db.QueryRow(ctx, sql, r.arguments(args)...).Scan(into...)
	})
	return r.confirm(ctx, err, strict, synchronous)
}

// rows runs a statement of several rows, each of which says whether its commit waits
// for a standby.
func (r *runner) rows(ctx context.Context, sql string, args []any, each func(rows pgx.Rows, synchronous *bool) error) error {
	var synchronous bool
	strict := r.strict.Load()
	err := r.use(ctx, strict, func(db DB) error {
		rows, err := db.Query(ctx, sql, r.arguments(args)...)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			if err := each(rows, &synchronous); err != nil {
				return err
			}
		}
		return rows.Err() // also that of the commit, which comes last
	})
	return r.confirm(ctx, err, strict, &synchronous)
}

// confirm doubts what was stored if its commit should have waited for a standby, and
// perhaps did not: because the context ended, which may have canceled that wait, or
// because nobody has watched for the warning yet.
func (r *runner) confirm(ctx context.Context, err error, strict bool, synchronous *bool) error {
	if err != nil || synchronous == nil || !*synchronous {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if !strict {
		r.strict.Store(true)
		return errUnconfirmed
	}
	return nil
}

func (r *runner) arguments(args []any) []any {
	if r.unprepared {
		return append([]any{pgx.QueryExecModeExec}, args...)
	}
	return args
}

// use lends f the database: the pool, or one connection for it alone. If strict, f
// fails when the server gave a warning.
func (r *runner) use(ctx context.Context, strict bool, f func(db DB) error) error {
	switch {
	case r.conn != nil:
		select {
		case r.busy <- struct{}{}:
			defer func() { <-r.busy }()
		case <-ctx.Done():
			return ctx.Err()
		}
		if status := r.conn.PgConn().TxStatus(); status != 'I' && !r.conn.IsClosed() {
			return &locco.ValidationError{
				Field: "postgres db", Value: string(status),
				Rule: "must not be inside a transaction: its locks would be nobody's until the commit",
			}
		}
		if strict {
			return watched(r.conn, f)
		}
		return f(r.conn)
	case !strict:
		return f(r.db)
	case r.pool != nil:
		c, err := r.pool.Acquire(ctx)
		if err != nil {
			return err
		}
		defer c.Release()
		return watched(c.Conn(), f)
	default:
		return &locco.ValidationError{
			Field: "postgres db", Rule: "must be a *pgxpool.Pool or a *pgx.Conn, or have the method Acquire of the former, " +
				"as the server replicates synchronously and what it says at a commit has to be read",
		}
	}
}

// watched runs f on a connection and fails if the server sent a warning. What the
// user does with warnings is set in the connection's configuration, which we cannot
// change, so we read the trace of the protocol.
func watched(conn *pgx.Conn, f func(db DB) error) error {
	var w warnings
	frontend := conn.PgConn().Frontend()
	frontend.Trace(&w, pgproto3.TracerOptions{SuppressTimestamps: true, RegressMode: true})
	defer frontend.Untrace()
	if err := f(conn); err != nil {
		return err
	}
	if w.seen {
		return errUnconfirmed
	}
	return nil
}

// warnings looks for a warning in a trace.
type warnings struct{ seen bool }

func (w *warnings) Write(line []byte) (int, error) {
	if bytes.HasPrefix(line, []byte("B\tNoticeResponse\t")) {
		w.seen = true
	}
	return len(line), nil
}

// dedicate returns a connection of our own. It comes out of the pool, which then makes
// itself another.
func (r *runner) dedicate(ctx context.Context) (*pgx.Conn, error) {
	switch {
	case r.pool != nil:
		c, err := r.pool.Acquire(ctx)
		if err != nil {
			return nil, err
		}
		return c.Hijack(), nil
	case r.conn != nil:
		return pgx.ConnectConfig(ctx, r.conn.Config())
	}
	return nil, errors.ErrUnsupported
}

// exec runs a statement that answers nothing.
func (r *runner) exec(ctx context.Context, sql string) error {
	return r.use(ctx, false, func(db DB) error {
		_, err := db.Exec(ctx, sql)
		return err
	})
}

// lockTimeout is how long the server may wait for a row that another transaction
// holds, in milliseconds: half of the time that is left, so that its answer comes
// before we give the connection up.
func lockTimeout(ctx context.Context) string {
	const most = time.Second
	wait := most
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(time.Until(deadline)/2, most)
	}
	return strconv.FormatInt(max(wait.Milliseconds(), 1), 10)
}

var _ DB = (*pgxpool.Pool)(nil)

var _ DB = (*pgx.Conn)(nil)

// isCode tells whether err is an error of the server with this SQLSTATE.
func isCode(err error, code string) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && e.Code == code
}
