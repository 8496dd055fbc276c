package postgres

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	locco "github.com/locco-go/locco/core"
)

var (
	_ locco.Backend      = (*Backend)(nil)
	_ locco.Fencer       = (*Backend)(nil)
	_ locco.Retryer      = (*Backend)(nil)
	_ locco.Watcher      = (*Backend)(nil)
	_ locco.Transferrer  = (*Backend)(nil)
	_ locco.ManyAcquirer = (*Backend)(nil)
	_ locco.ManyExtender = (*Backend)(nil)
	_ locco.Validator    = (*Backend)(nil)
)

// DB is what a Backend needs of pgx: a *pgxpool.Pool, or a *pgx.Conn outside of a
// transaction, or something that wraps one of them.
type DB interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Backend keeps leases in a table of Postgres. Create it with [New]. It is safe for
// concurrent use, needs no closing, and is not copied.
type Backend struct {
	db     *runner
	config config
	sql    statements
	hub    *hub

	setUp  chan struct{} // holds one: the right to look at the schema
	table  atomic.Bool   // the table is as it should be
	fences atomic.Bool   // so is the sequence
}

// New returns a Backend on db, which stays the caller's: New does no I/O, registers
// nothing on it and never closes it. What is wrong with db or an option is reported by
// [Backend.Validate], which [locco.New] asks, so that locco.New(postgres.New(pool))
// stays one line; nil options are none.
//
// A *pgx.Conn serves one call at a time, the others wait for it. It must not be used
// for anything else meanwhile, and not be inside a transaction: a lock would be
// nobody's until the commit. A pgx.Tx is refused for the same reason.
func New(db DB, opts ...Option) *Backend {
	b := &Backend{config: config{table: table{defaultTable}}, setUp: make(chan struct{}, 1)}
	for _, o := range opts {
		if o != nil {
			o.apply(&b.config)
		}
	}
	b.db = newRunner(db, b.config.unprepared)
	if b.Validate() != nil {
		return b
	}
	connect := b.config.listen
	if connect == nil {
		connect = b.db.dedicate
	}
	if connect != nil && !b.config.silent {
		b.hub = newHub(connect)
	}
	b.sql = newStatements(b.config.table, !b.config.silent)
	return b
}

// Validate implements [locco.Validator]. It may be called on a nil Backend.
func (b *Backend) Validate() error {
	switch {
	case b == nil:
		return &locco.ValidationError{Field: "backend", Rule: "must come from postgres.New, not be nil"}
	case b.db == nil:
		return &locco.ValidationError{Field: "postgres db", Rule: "must not be nil"}
	case b.db.tx:
		return &locco.ValidationError{Field: "postgres db", Rule: "must not be a transaction: its locks would be nobody's until the commit"}
	}
	return b.config.table.validate("postgres.WithTable")
}

// Fences implements [locco.Fencer]: always true.
func (*Backend) Fences() bool { return true }

// Acquire implements [locco.Backend].
func (b *Backend) Acquire(ctx context.Context, l locco.Lease) (locco.Grant, error) {
	if err := b.ready(ctx, l.Fenced); err != nil {
		return locco.Grant{}, err
	}
	var (
		fence, left *int64
		synchronous bool
	)
	err := b.db.row(ctx, &synchronous, b.sql.acquire.of(l.Fenced),
		[]any{l.Key, l.Token, milliseconds(l.TTL), l.Again, lockTimeout(ctx)}, &fence, &left, &synchronous)
	switch {
	case errors.Is(err, pgx.ErrNoRows): // somebody was faster
		return locco.Grant{}, nil
	case err != nil:
		return locco.Grant{}, b.explain(err)
	case fence == nil:
		g := locco.Grant{}
		if l.WantLeft && left != nil {
			g.Left = time.Duration(*left) * time.Millisecond
		}
		return g, nil
	}
	return locco.Grant{OK: true, Fence: *fence}, nil
}

// Extend implements [locco.Backend].
func (b *Backend) Extend(ctx context.Context, l locco.Lease) (bool, error) {
	var synchronous bool
	return b.applied(ctx, &synchronous, b.sql.extend,
		[]any{l.Key, l.Token, milliseconds(l.TTL), lockTimeout(ctx)}, &synchronous)
}

// Release implements [locco.Backend]. It wakes those who wait, if there are any.
func (b *Backend) Release(ctx context.Context, key, token string) (bool, error) {
	var live bool
	args := []any{key, token, lockTimeout(ctx)}
	into := []any{&live}
	if !b.config.silent {
		var told *string
		args = append(args, lockID(key), channel(key))
		into = append(into, &told)
	}
	ok, err := b.applied(ctx, nil, b.sql.release, args, into...)
	return ok && live, err
}

// Holds implements [locco.Backend]. A standby does not know, and answers an error.
func (b *Backend) Holds(ctx context.Context, key, token string) (bool, error) {
	var held, standby bool
	if ok, err := b.applied(ctx, nil, b.sql.holds, []any{key, token}, &held, &standby); !ok {
		return false, err
	}
	if standby {
		return false, errStandby
	}
	return held, nil
}

// Transfer implements [locco.Transferrer]. With to.Again, a live lease of to's own
// token is a grant too.
func (b *Backend) Transfer(ctx context.Context, from string, to locco.Lease) (locco.Grant, error) {
	if err := b.ready(ctx, to.Fenced); err != nil {
		return locco.Grant{}, err
	}
	var g locco.Grant
	var synchronous bool
	ok, err := b.applied(ctx, &synchronous, b.sql.transfer.of(to.Fenced),
		[]any{to.Key, from, to.Token, milliseconds(to.TTL), to.Again, lockTimeout(ctx)}, &g.Fence, &synchronous)
	if !ok {
		return locco.Grant{}, err
	}
	g.OK = true
	return g, nil
}

// applied runs a statement that answers one row if it applied.
func (b *Backend) applied(ctx context.Context, synchronous *bool, sql string, args []any, into ...any) (bool, error) {
	if err := b.ready(ctx, false); err != nil {
		return false, err
	}
	err := b.db.row(ctx, synchronous, sql, args, into...)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	return err == nil, b.explain(err)
}

// SweepExpired deletes up to limit rows whose lease has ended, and returns how many it
// deleted. Nothing needs it: an ended lease is taken over where it stands. It frees the
// space of keys that nobody asks for again. Call it now and then, from any process,
// until it returns less than limit.
func (b *Backend) SweepExpired(ctx context.Context, limit int) (int, error) {
	if limit < 1 {
		return 0, &locco.ValidationError{Field: "limit", Value: limit, Rule: "must be at least 1"}
	}
	var n int
	_, err := b.applied(ctx, nil, b.sql.sweep, []any{limit}, &n)
	return n, err
}

// milliseconds is a TTL as it is stored: whole milliseconds, never fewer than ttl.
func milliseconds(ttl time.Duration) int64 {
	return int64((ttl + time.Millisecond - 1) / time.Millisecond)
}
