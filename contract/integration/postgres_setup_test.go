package integration_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/locco-go/locco/contract/integration"
	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/postgres"
)

// wantSetUp checks that an error says that the database is set up wrong, and what helps.
func wantSetUp(t *testing.T, what string, err error, names string) {
	t.Helper()
	if _, ok := errors.AsType[*locco.ValidationError](err); !ok {
		t.Errorf("spec 1.9: %s = %v; want a ValidationError", what, err)
		return
	}
	for _, part := range []string{"loccoddl", names} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%s = %v; want %q in it", what, err, part)
		}
	}
}

// spec 1.9, 8.3: each right that is missing is a validation error which names it, at its
// first use; once it is granted the next call works.
func TestPostgresRights(t *testing.T) {
	t.Parallel()
	eachPostgresDatabase(t, func(t *testing.T, n *integration.PostgresNode, url string) {
		admin := integration.Pool(t, url, two)
		role, asRole := newRole(t, n, url)
		execute(t, admin, ddl(t, postgres.Schema{Role: role})...)
		b := postgres.New(integration.Pool(t, asRole, two))
		cycle(t, b)
		lease := locco.Lease{Key: "k", Token: "t", TTL: time.Minute, Fenced: true, Again: true}
		acquire := func() error { _, err := b.Acquire(call(t), lease); return err }
		for _, c := range []struct {
			right, on string
			do        func() error
		}{
			{"SELECT", "locco_locks", acquire},
			{"INSERT", "locco_locks", acquire},
			{"UPDATE", "locco_locks", acquire},
			{"DELETE", "locco_locks", func() error { return first2(b.Release(call(t), "k", "x")) }},
			{"USAGE", "SEQUENCE locco_locks_fence", acquire},
		} {
			execute(t, admin, fmt.Sprintf("REVOKE %s ON %s FROM %s", c.right, c.on, role))
			err := c.do()
			wantSetUp(t, "without "+c.right, err, c.right)
			if code(err) != "42501" && c.right != "USAGE" { // which the look at the schema finds
				t.Errorf("without %s: %v; want the server's error inside", c.right, err)
			}
			execute(t, admin, fmt.Sprintf("GRANT %s ON %s TO %s", c.right, c.on, role))
			if err := c.do(); err != nil {
				t.Errorf("with %s again: %v", c.right, err)
			}
		}
		execute(t, admin, "REVOKE USAGE ON SCHEMA public FROM PUBLIC", "REVOKE ALL ON SCHEMA public FROM "+role)
		hidden := postgres.New(integration.Pool(t, asRole, two), postgres.WithTable("public", "locco_locks"))
		_, err := hidden.Acquire(call(t), lease)
		wantSetUp(t, "without USAGE on the schema", err, "USAGE")
		execute(t, admin, "GRANT USAGE ON SCHEMA public TO PUBLIC")
		cycle(t, hidden) // CREATE is denied, and nothing is to be created

		none := postgres.New(integration.Pool(t, asRole, two), postgres.WithTable("others"))
		execute(t, admin, "REVOKE CREATE ON SCHEMA public FROM PUBLIC")
		_, err = none.Acquire(call(t), lease)
		wantSetUp(t, "without CREATE", err, "others")
	})
}

// spec 1.9, 8.3: what is missing or wrong is a validation error at first use, before
// anything is stored; a check that failed runs again.
func TestPostgresTables(t *testing.T) {
	t.Parallel()
	const good = `key text COLLATE "C" PRIMARY KEY, token text NOT NULL, expires_at timestamptz NOT NULL`
	eachPostgresDatabase(t, func(t *testing.T, _ *integration.PostgresNode, url string) {
		pool := integration.Pool(t, url)
		for name, c := range map[string]struct{ make, want string }{
			"Missing":        {"", "must exist"},
			"CompositeKey":   {"CREATE TABLE {t} (key text, token text, expires_at timestamptz, PRIMARY KEY (key, token))", "key alone"},
			"NoKey":          {"CREATE TABLE {t} (key text, token text, expires_at timestamptz)", "key alone"},
			"PartialKey":     {"CREATE TABLE {t} (key text, token text, expires_at timestamptz); CREATE UNIQUE INDEX ON {t} (key) WHERE token <> ''", "key alone"},
			"ExpressionKey":  {"CREATE TABLE {t} (key text, token text, expires_at timestamptz); CREATE UNIQUE INDEX ON {t} (lower(key))", "key alone"},
			"WrongType":      {"CREATE TABLE {t} (key text PRIMARY KEY, token text, expires_at timestamp)", "expires_at timestamp with time zone"},
			"KeyOfBytes":     {"CREATE TABLE {t} (key bytea PRIMARY KEY, token text, expires_at timestamptz)", "key text"},
			"View":           {"CREATE VIEW {t} AS SELECT ''::text AS key, ''::text AS token, now() AS expires_at", "must be a table"},
			"NoSequence":     {"CREATE TABLE {t} (" + good + ")", "must exist"},
			"SequenceCache":  {"CREATE TABLE {t} (" + good + "); CREATE SEQUENCE {t}_fence CACHE 5", "CACHE 1"},
			"SequenceCycles": {"CREATE TABLE {t} (" + good + "); CREATE SEQUENCE {t}_fence CYCLE", "NO CYCLE"},
			"SequenceDown":   {"CREATE TABLE {t} (" + good + "); CREATE SEQUENCE {t}_fence INCREMENT -1", "increment"},
		} {
			t.Run(name, func(t *testing.T) {
				table := "t_" + strings.ToLower(name)
				fill := strings.NewReplacer("{t}", table).Replace
				if c.make != "" {
					execute(t, pool, fill(c.make))
				}
				b := postgres.New(pool, postgres.WithTable(table), postgres.WithoutSetUp())
				_, err := b.Acquire(call(t), locco.Lease{Key: "k", Token: "t", TTL: time.Minute, Fenced: true})
				wantSetUp(t, "Acquire", err, c.want)
				if n := scanned[int](t, pool, "SELECT count(*) FROM pg_class WHERE relname::text = $1::text || '_fence' AND relkind = 'S'", table); n > 0 && !strings.HasPrefix(name, "Sequence") {
					t.Error("WithoutSetUp has made a sequence")
				}
				if strings.Contains(name, "Sequence") {
					if g, err := b.Acquire(call(t), locco.Lease{Key: "k", Token: "t", TTL: time.Minute}); err != nil || !g.OK {
						t.Errorf("Acquire without a fence = %+v, %v; want a grant: the sequence is not needed", g, err)
					}
				}
				drop := "DROP TABLE IF EXISTS {t}"
				if name == "View" {
					drop = "DROP VIEW {t}"
				}
				execute(t, pool, fill(drop+"; DROP SEQUENCE IF EXISTS {t}_fence; CREATE TABLE {t} ("+good+"); CREATE SEQUENCE {t}_fence"))
				cycle(t, b)
			})
		}
	})
}

// spec 8.3: processes that come at the same time make the table together, and one that
// is dropped while it is used comes back.
func TestPostgresFirstUseConcurrentSafe(t *testing.T) {
	t.Parallel()
	eachPostgresDatabase(t, func(t *testing.T, _ *integration.PostgresNode, url string) {
		admin := integration.Pool(t, url)
		var pools []*pgxpool.Pool
		for range 10 {
			pool := integration.Pool(t, url, two)
			if err := pool.Ping(t.Context()); err != nil {
				t.Fatal(err)
			}
			pools = append(pools, pool)
		}
		for round := range 5 {
			w := &witness{}
			var wg sync.WaitGroup
			for _, pool := range pools {
				l := newLocker(t, postgres.New(pool, postgres.WithTable(fmt.Sprint("round", round))), locco.WithFencing())
				wg.Go(func() {
					lock, err := l.Acquire(t.Context(), "k", time.Minute, locco.RetryForever(), locco.RetryDelay(5*time.Millisecond))
					if err != nil {
						t.Errorf("Acquire = %v", err)
						return
					}
					w.granted(t, lock)
					if err := lock.Release(t.Context()); err != nil {
						t.Errorf("Release = %v", err)
					}
				})
			}
			wg.Wait()
			if len(w.locks) != len(pools) {
				t.Errorf("%d grants; want %d", len(w.locks), len(pools))
			}
		}

		b := postgres.New(pools[0])
		l := newLocker(t, b, locco.WithFencing())
		lock := take(t, l, "k", time.Minute)
		execute(t, admin, "DROP TABLE locco_locks")
		err := lock.Extend(t.Context(), time.Minute)
		wantSetUp(t, "Extend without the table", err, "locco_locks")
		if err := lock.Extend(t.Context(), time.Minute); !errors.Is(err, locco.ErrLost) {
			t.Errorf("Extend of a lock whose table was dropped = %v; want ErrLost: the table is there again, and empty", err)
		}
		if next := take(t, l, "k", time.Minute); next.Fence() <= lock.Fence() {
			t.Errorf("spec 6.4: fence %d after %d: the sequence is not the table's", next.Fence(), lock.Fence())
		}
		execute(t, admin, "DROP SEQUENCE locco_locks_fence")
		_, err = l.TryAcquire(t.Context(), "other", time.Minute)
		wantSetUp(t, "TryAcquire without the sequence", err, "sequence")
		release(t, take(t, l, "other", time.Minute))
	})
}

// spec 1.9, 8.3: a transaction is no place for a lock. Of one connection, calls wait for
// each other.
func TestPostgresOneConnection(t *testing.T) {
	t.Parallel()
	eachPostgresDatabase(t, func(t *testing.T, _ *integration.PostgresNode, url string) {
		pool := integration.Pool(t, url)
		pooled, err := pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer pooled.Release()
		conn := connectTo(t, url)
		for name, db := range map[string]postgres.DB{"Conn": conn, "Pooled": pooled, "Embedded": tracing{connectTo(t, url)}} {
			t.Run(name, func(t *testing.T) {
				b := postgres.New(db)
				cycle(t, b)
				l := newLocker(t, b, locco.WithFencing())
				w := &witness{}
				var wg sync.WaitGroup
				for range 8 {
					wg.Go(func() {
						for range 5 {
							lock, err := l.Acquire(t.Context(), name, time.Minute, locco.RetryForever())
							if err != nil {
								t.Errorf("Acquire = %v", err)
								return
							}
							w.granted(t, lock)
							if err := lock.Release(t.Context()); err != nil {
								t.Errorf("Release = %v", err)
							}
						}
					})
				}
				wg.Wait()
				// Wake-ups have a connection of their own.
				lock := take(t, newLocker(t, postgres.New(pool)), name, time.Minute)
				waiter := awaitWakeUp(t, l, name)
				soon(t, "the waiter listens", func() bool { return listening(t, pool) == 1 })
				releaseAnyway(t, lock)
				release(t, got(t, waiter))
				soon(t, "nobody listens", func() bool { return listening(t, pool) == 0 })

				execute(t, db, "BEGIN")
				if _, err := l.TryAcquire(t.Context(), "in a transaction", time.Minute); !errors.Is(err, locco.ErrInvalid) {
					t.Errorf("TryAcquire inside a transaction = %v; want ErrInvalid", err)
				}
				execute(t, db, "ROLLBACK")
				release(t, take(t, l, "outside", time.Minute))
			})
		}
		tx, err := conn.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback(context.Background()) }()
		of, err := pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = of.Rollback(context.Background()) }()
		for _, db := range []postgres.DB{tx, of} {
			if _, err := locco.New(postgres.New(db)); !errors.Is(err, locco.ErrInvalid) {
				t.Errorf("locco.New on a %T = %v; want ErrInvalid", db, err)
			}
		}
	})
}

// tracing is a connection with something of its own.
type tracing struct{ *pgx.Conn }
