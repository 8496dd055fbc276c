package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Option is an option of [New]. Options are made by the With… functions.
type Option interface {
	apply(c *config)
}

// config is what New collects.
type config struct {
	table      table
	keepSchema bool
	unprepared bool
	silent     bool
	listen     func(ctx context.Context) (*pgx.Conn, error)
}

type option func(c *config)

func (o option) apply(c *config) { o(c) }

// WithTable names the table of the locks: a table that the search path finds, or a
// schema and a table. The default is "locco_locks". Names are taken as they are, as
// if written in double quotes. The fences come from the sequence of that name with
// "_fence" behind it, in the same schema, so the name has at most 57 bytes.
func WithTable(name ...string) Option {
	return option(func(c *config) { c.table = append(table{}, name...) })
}

// WithoutSetUp creates nothing. The first use checks that what it needs is there, and
// is a validation error that says what is missing if it is not. The default is to
// create the table and the sequence at first use if they are missing. See [DDL].
func WithoutSetUp() Option {
	return option(func(c *config) { c.keepSchema = true })
}

// WithoutPreparedStatements sends every statement without preparing it under a name,
// for a pooler that gives each transaction another connection and knows nothing of
// prepared statements (PgBouncer before 1.21, or with max_prepared_statements = 0).
// It costs the server's planning for each call. The default is the mode of the
// caller's connections.
func WithoutPreparedStatements() Option {
	return option(func(c *config) { c.unprepared = true })
}

// WithoutWakeUps turns wake-ups off: a release tells nobody, and waiters look at the
// key once in every retry delay and when its lease ends. It is for poolers that give
// each transaction another connection, through which nothing can listen. All
// processes that share keys should agree: one that waits is not woken by one that is
// silent.
func WithoutWakeUps() Option {
	return option(func(c *config) { c.silent = true })
}

// WithListenConn says where the connection comes from that listens for wake-ups: one
// to the server itself, where the rest goes through a pooler. The Backend closes it
// when nobody waits any more. The default is a connection taken out of the caller's
// pool.
func WithListenConn(connect func(ctx context.Context) (*pgx.Conn, error)) Option {
	return option(func(c *config) { c.listen = connect })
}
