package integration_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/locco-go/locco/contract/integration"
	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/postgres"
)

// named makes the connections of a pool known to the server by a name.
func named(name string) func(*pgxpool.Config) {
	return func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["application_name"] = name }
}

// scanned runs a query that answers one row of one column.
func scanned[T any](t testing.TB, db postgres.DB, sql string, args ...any) (v T) {
	t.Helper()
	if err := db.QueryRow(t.Context(), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// call is the context of a backend's call.
func call(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// connectTo is one connection, which ends with the test.
func connectTo(t testing.TB, url string, change ...func(*pgx.ConnConfig)) *pgx.Conn {
	t.Helper()
	config, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range change {
		f(config)
	}
	conn, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatalf("connect to %s: %v", url, err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = conn.Close(ctx)
	})
	return conn
}

// begin begins a transaction on a connection of its own.
func begin(t testing.TB, url string) pgx.Tx {
	t.Helper()
	tx, err := connectTo(t, url).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

func commit(t testing.TB, tx pgx.Tx) {
	t.Helper()
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatalf("COMMIT: %v", err)
	}
}

func code(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code
	}
	return ""
}

// through is url by way of another address.
func through(t testing.TB, url, addr string) string {
	t.Helper()
	config, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("postgres://%s@%s/%s", config.User, addr, config.Database)
}

// wakeUps counts the wake-ups that a locker has received.
func (j *journal) wakeUps(key string, outcome locco.Outcome) (n int) {
	for _, e := range j.of(key, locco.EventWakeUp) {
		if e.Outcome == outcome {
			n++
		}
	}
	return n
}

// listening tells how many waiters the server knows of: each key that is waited for is
// an advisory lock that is shared.
func listening(t testing.TB, db postgres.DB) int {
	t.Helper()
	return scanned[int](t, db, `SELECT count(*) FROM pg_locks AS l JOIN pg_database AS d ON d.oid = l.database
		WHERE l.locktype = 'advisory' AND l.mode = 'ShareLock' AND l.granted AND d.datname = current_database()`)
}

// blocked tells how many sessions wait for a lock in this database.
func blocked(t testing.TB, db postgres.DB) int {
	t.Helper()
	return scanned[int](t, db, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`)
}

// ended waits until the lease of a key has ended by the server's clock.
func ended(t *testing.T, db postgres.DB, key string) {
	t.Helper()
	soon(t, "the lease has ended", func() bool {
		return scanned[bool](t, db, `SELECT NOT EXISTS (SELECT FROM locco_locks WHERE key = $1 AND expires_at > clock_timestamp())`, key)
	})
}

// eachPostgresDatabase runs the test on every version, with a database of its own.
func eachPostgresDatabase(t *testing.T, test func(t *testing.T, n *integration.PostgresNode, url string)) {
	t.Helper()
	eachPostgres(t, func(t *testing.T, p integration.Postgres) {
		n := integration.SharedPostgres(t, p)
		test(t, n, n.Database(t))
	})
}
