package postgres

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/core/pubsub"
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
	hub    *pubsub.Hub

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
	var g locco.Grant
	if err := b.ready(ctx, l.Fenced); err != nil {
		return g, err
	}
	c := newCall(b.sql.acquire.of(l.Fenced), l.Key, l.Token, milliseconds(l.TTL), l.Again, lockTimeout(ctx))
	c.scan(&c.answer, &c.synchronous)
	for try := 1; ; try++ {
		ok, err := b.applied(ctx, c)
		if err != nil {
			return g, err
		}
		if ok {
			break
		}
		// Somebody was faster, or has freed the key meanwhile.
		if try == acquireTries {
			return g, errRaced
		}
	}
	if c.answer <= 0 {
		if l.WantLeft {
			g.Left = time.Duration(-c.answer) * time.Millisecond
		}
		return g, nil
	}
	return granted(c.answer, l.Fenced), nil
}

// acquireTries is how often a key is tried for which others are faster each time.
const acquireTries = 5

// granted reads the answer of a statement that grants.
func granted(answer int64, fenced bool) locco.Grant {
	if !fenced {
		answer = 0
	}
	return locco.Grant{OK: true, Fence: answer}
}

// Extend implements [locco.Backend].
func (b *Backend) Extend(ctx context.Context, l locco.Lease) (bool, error) {
	if err := b.ready(ctx, false); err != nil {
		return false, err
	}
	c := newCall(b.sql.extend, l.Key, l.Token, milliseconds(l.TTL), lockTimeout(ctx))
	return b.applied(ctx, c.scan(&c.synchronous))
}

// Release implements [locco.Backend]. It wakes those who wait, if there are any.
func (b *Backend) Release(ctx context.Context, key, token string) (bool, error) {
	if err := b.ready(ctx, false); err != nil {
		return false, err
	}
	var c *call
	if b.config.silent {
		c = newCall(b.sql.release, key, token, lockTimeout(ctx))
	} else {
		c = newCall(b.sql.release, key, token, lockTimeout(ctx), number(key))
	}
	ok, err := b.applied(ctx, c.scan(&c.done))
	return ok && c.done, err
}

// Holds implements [locco.Backend]. A standby does not know, and answers an error.
func (b *Backend) Holds(ctx context.Context, key, token string) (bool, error) {
	if err := b.ready(ctx, false); err != nil {
		return false, err
	}
	var standby bool
	c := newCall(b.sql.holds, key, token)
	if ok, err := b.applied(ctx, c.scan(&c.done, &standby)); !ok {
		return false, err
	}
	if standby {
		return false, errStandby
	}
	return c.done, nil
}

// Transfer implements [locco.Transferrer]. With to.Again, a live lease of to's own
// token is a grant too.
func (b *Backend) Transfer(ctx context.Context, from string, to locco.Lease) (locco.Grant, error) {
	if err := b.ready(ctx, to.Fenced); err != nil {
		return locco.Grant{}, err
	}
	c := newCall(b.sql.transfer.of(to.Fenced), to.Key, from, to.Token, milliseconds(to.TTL), to.Again, lockTimeout(ctx))
	ok, err := b.applied(ctx, c.scan(&c.answer, &c.synchronous))
	if !ok {
		return locco.Grant{}, err
	}
	return granted(c.answer, to.Fenced), nil
}

// applied runs a statement that answers one row if it applied.
func (b *Backend) applied(ctx context.Context, c *call) (bool, error) {
	err := b.db.row(ctx, c)
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
	if err := b.Validate(); err != nil {
		return 0, err
	}
	if err := b.ready(ctx, false); err != nil {
		return 0, err
	}
	c := newCall(b.sql.sweep, limit)
	_, err := b.applied(ctx, c.scan(&c.answer))
	return int(c.answer), err
}

// milliseconds is a TTL as it is stored: whole milliseconds, never fewer than ttl.
func milliseconds(ttl time.Duration) int64 {
	return int64((ttl + time.Millisecond - 1) / time.Millisecond)
}
