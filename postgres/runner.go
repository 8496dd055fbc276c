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
	conn single        // db itself, if it is one connection
	busy chan struct{} // holds one: the right to use conn

	// strict: the server waits for standbys at a commit, so that every answer is
	// checked for the warning that it gave that up.
	strict atomic.Bool
}

// single is one connection: a *pgx.Conn, or something that embeds one.
type single interface {
	DB
	PgConn() *pgconn.PgConn
	IsClosed() bool
	Config() *pgx.ConnConfig
}

func newRunner(db DB, unprepared bool) *runner {
	if isNil(db) {
		return nil
	}
	r := &runner{db: db, unprepared: unprepared}
	switch db := db.(type) {
	case pgx.Tx:
		r.tx = true
	case single:
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

func isNil(db any) bool {
	v := reflect.ValueOf(db)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}

// errUnconfirmed is for a commit that did not wait for its standby: what it stored may
// be lost at a failover, so it is nobody's grant. The next attempt knows its token.
var errUnconfirmed = errors.New("locco: the commit was not confirmed by the synchronous standby")

// call is a statement with its arguments and room for its answer, made at once.
type call struct {
	sql  string
	args [7]any // the first is for the runner
	n    int
	into [4]any
	m    int

	answer      int64
	done        bool
	synchronous bool // the commit waits for a standby
	doubted     bool // its answer says so
}

func newCall(sql string, args ...any) *call {
	c := &call{sql: sql}
	c.n = 1 + copy(c.args[1:], args)
	return c
}

// scan says where the answer goes.
func (c *call) scan(into ...any) *call {
	c.m = copy(c.into[:], into)
	for _, i := range into {
		c.doubted = c.doubted || i == any(&c.synchronous)
	}
	return c
}

// arguments are those that pgx is given.
func (r *runner) arguments(c *call) []any {
	if r.unprepared {
		c.args[0] = pgx.QueryExecModeExec
		return c.args[:c.n]
	}
	return c.args[1:c.n]
}

// row runs a statement that answers one row, or [pgx.ErrNoRows]. The statement is one
// transaction.
func (r *runner) row(ctx context.Context, c *call) error {
	strict := c.doubted && r.strict.Load()
	err := r.use(ctx, strict, func(db DB) error {
		return db.QueryRow(ctx, c.sql, r.arguments(c)...).Scan(c.into[:c.m]...)
	})
	return r.confirm(ctx, err, strict, c)
}

// rows runs a statement of several rows, and each after each of them was read.
func (r *runner) rows(ctx context.Context, c *call, each func()) error {
	strict := c.doubted && r.strict.Load()
	err := r.use(ctx, strict, func(db DB) error {
		rows, err := db.Query(ctx, c.sql, r.arguments(c)...)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			if err := rows.Scan(c.into[:c.m]...); err != nil {
				return err
			}
			each()
		}
		return rows.Err() // also that of the commit, which comes last
	})
	return r.confirm(ctx, err, strict, c)
}

// confirm doubts what was stored if its commit should have waited for a standby, and
// perhaps did not: because the context ended, which may have canceled that wait, or
// because nobody has watched for the warning yet.
func (r *runner) confirm(ctx context.Context, err error, strict bool, c *call) error {
	if err != nil || !c.synchronous {
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

// learn finds out whether a commit waits for standbys. That may change later, which
// [runner.confirm] notices.
func (r *runner) learn(ctx context.Context) error {
	c := newCall("SELECT " + synchronous)
	err := r.use(ctx, false, func(db DB) error {
		return db.QueryRow(ctx, c.sql, r.arguments(c)...).Scan(&c.synchronous)
	})
	if c.synchronous {
		r.strict.Store(true)
	}
	return err
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

// watched runs f on a connection and fails if the server sent a warning, which is all
// that our statements let it send. What the user does with warnings is set in the
// connection's configuration, which we cannot change, so we read the trace of the protocol.
func watched(conn single, f func(db DB) error) error {
	var w warnings
	frontend := conn.PgConn().Frontend()
	frontend.Trace(&w, pgproto3.TracerOptions{SuppressTimestamps: true, RegressMode: true})
	defer func() {
		// The driver still writes to a connection that it gave up, in the background.
		if !conn.IsClosed() {
			frontend.Untrace()
		}
	}()
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
		config := r.conn.Config()
		config.OnNotification = nil // pgx has put that of r.conn there
		return pgx.ConnectConfig(ctx, config)
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

// mostLockTimeout is most of what lockTimeout answers, as a value that costs nothing.
var mostLockTimeout any = "1000"

// lockTimeout is how long the server may wait for a row that another transaction
// holds, in milliseconds: half of the time that is left, so that its answer comes
// before we give the connection up (unless the call has to wait for one), and at most a
// second.
func lockTimeout(ctx context.Context) any {
	deadline, ok := ctx.Deadline()
	if !ok {
		return mostLockTimeout
	}
	wait := time.Until(deadline) / 2
	if wait >= time.Second {
		return mostLockTimeout
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
