package integration_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/locco-go/locco/contract/integration"
	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/postgres"
)

// cancels makes a pool whose connections ask the server to cancel what takes too long,
// and wait for its answer.
func cancels(c *pgxpool.Config) {
	c.ConnConfig.BuildContextWatcherHandler = cancelsFor(5 * time.Second)
}

func cancelsFor(patience time.Duration) func(*pgconn.PgConn) ctxwatch.Handler {
	return func(conn *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.CancelRequestContextWatcherHandler{Conn: conn, DeadlineDelay: patience}
	}
}

// quiet makes a pool to whose connections the server sends no warnings.
func quiet(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["client_min_messages"] = "error" }

// spec 1.1, 2.6, 8.3: where commits wait for a standby, one that was not confirmed grants
// nothing: neither when the server gave up the wait, which it answers with success and a
// warning, nor when our time was up.
func TestPostgresSynchronousStandby(t *testing.T) {
	t.Parallel()
	eachPostgres(t, func(t *testing.T, p integration.Postgres) {
		s := integration.StartPostgresReplicated(t, p)
		for name, options := range map[string][]func(*pgxpool.Config){"Closes": nil, "Cancels": {cancels}, "Quiet": {quiet}} {
			// One after the other: they share the standby.
			t.Run(name, func(t *testing.T) { synchronous(t, s, options) })
		}
	})
}

func synchronous(t *testing.T, s *integration.PostgresReplicated, options []func(*pgxpool.Config)) {
	t.Helper()
	n := s.Primary
	prefix := t.Name() + ":"
	var notices atomic.Int64
	options = append(options, named(t.Name()[len("TestPostgres"):]), func(c *pgxpool.Config) {
		c.ConnConfig.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
			if n.Severity == "WARNING" {
				notices.Add(1)
			}
		}
	})
	pool := integration.Pool(t, n.URL, options...)
	b := postgres.New(pool)
	l := newLocker(t, b, locco.WithFencing(), locco.WithPrefix(prefix), locco.WithCallTimeout(time.Second))
	patient := newLocker(t, b, locco.WithFencing(), locco.WithPrefix(prefix), locco.WithCallTimeout(patience))
	// Nothing here waits for the standby.
	admin := connectTo(t, n.URL, func(c *pgx.ConnConfig) { c.RuntimeParams["synchronous_commit"] = "local" })
	other := newLocker(t, postgres.New(integration.Pool(t, n.URL, func(c *pgxpool.Config) {
		c.ConnConfig.RuntimeParams["synchronous_commit"] = "local"
	})), locco.WithFencing(), locco.WithPrefix(prefix))

	// All is well: the first look is a grant.
	first, err := patient.TryAcquire(t.Context(), "k", time.Minute)
	if err != nil {
		t.Fatalf("TryAcquire with the standby there = %v", err)
	}
	wantHeld(t, first)
	moved := take(t, patient, "moved", time.Minute)
	locks := []*locco.Lock{take(t, l, "m1", time.Minute), take(t, l, "m2", time.Minute)}
	if g, err := b.Acquire(call(t), locco.Lease{Key: prefix + "from", Token: "a", TTL: time.Minute}); err != nil || !g.OK {
		t.Fatalf("Acquire = %+v, %v", g, err)
	}

	s.Standby.Pause(t)
	paused := true
	defer func() {
		if paused {
			s.Standby.Unpause(t)
		}
	}()

	// The server gives up its wait: it answers with success.
	cancel := func() {
		t.Helper()
		soon(t, "a commit waits for the standby, and is canceled", func() bool {
			return scanned[int](t, admin, `SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity
				WHERE wait_event = 'SyncRep' AND application_name = $1`, pool.Config().ConnConfig.RuntimeParams["application_name"]) > 0
		})
	}
	canceled := func(what string, do func() error) {
		t.Helper()
		before := notices.Load()
		done := make(chan error, 1)
		go func() { done <- do() }()
		cancel()
		select {
		case err := <-done:
			if err == nil || errors.Is(err, locco.ErrHeld) || errors.Is(err, locco.ErrInvalid) {
				t.Errorf("%s whose commit was not confirmed = %v; want an error, which is not ErrHeld", what, err)
			}
		case <-time.After(patience):
			t.Fatalf("%s: no answer", what)
		}
		if notices.Load() == before {
			t.Errorf("%s: the caller's own OnNotice was not called", what)
		}
	}
	lease := func(key, token string) locco.Lease {
		return locco.Lease{Key: prefix + key, Token: token, TTL: time.Minute, Fenced: true}
	}
	long := func() context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		t.Cleanup(cancel)
		return ctx
	}
	canceled("Acquire", func() error { _, err := b.Acquire(long(), lease("direct", "t")); return err })
	canceled("Extend", func() error { return first2(b.Extend(long(), lease("from", "a"))) })
	canceled("Transfer", func() error { _, err := b.Transfer(long(), "a", lease("from", "b")); return err })
	canceled("AcquireMany", func() error {
		_, _, err := b.AcquireMany(long(), []locco.Lease{lease("s1", "t"), lease("s2", "t")})
		return err
	})
	canceled("ExtendMany", func() error {
		var errs []error
		for _, v := range b.ExtendMany(long(), []locco.Lease{lease("m1", locks[0].Token()), lease("m2", locks[1].Token())}) {
			if v.OK {
				t.Error("ExtendMany whose commit was not confirmed: a verdict is OK")
			}
			errs = append(errs, v.Err)
		}
		return errors.Join(errs...)
	})
	canceled("Lock.Extend", func() error { return moved.Extend(t.Context(), time.Minute) })
	canceled("TryAcquire", func() error { _, err := patient.TryAcquire(t.Context(), "tried", time.Minute); return err })
	for _, lock := range append(locks, moved) {
		wantHeld(t, lock) // spec 4.4: a failed extension loses nothing
	}

	// Our own time is up. What is given back before the server has stopped to wait stays
	// until its lease ends.
	const brief = 10 * time.Second
	_, err = l.TryAcquire(t.Context(), "late", brief)
	if !errors.Is(err, locco.ErrLate) || errors.Is(err, locco.ErrHeld) {
		t.Errorf("TryAcquire without the standby = %v; want ErrLate", err)
	}
	if err := locks[0].Extend(t.Context(), time.Minute); err == nil {
		t.Error("Extend without the standby = nil; want an error")
	}
	if _, err := l.AcquireMany(t.Context(), []string{"l1", "l2"}, brief, locco.Retries(0)); err == nil || errors.Is(err, locco.ErrHeld) {
		t.Errorf("AcquireMany without the standby = %v; want an error that is not ErrHeld", err)
	}
	// A waiter goes on, and has the key once the standby is back, by its own token.
	waiter := await(t, l, "waited", time.Minute)
	soon(t, "the waiter's commit hangs", func() bool {
		return scanned[bool](t, admin, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event = 'SyncRep')`)
	})

	s.Standby.Unpause(t)
	paused = false
	s.WaitLinked(t)
	release(t, got(t, waiter))
	wantHeld(t, first)
	release(t, first)
	// What was not granted is given back, or was never there, or has ended.
	for _, key := range []string{"tried", "late", "l1", "l2", "waited", "k"} {
		soon(t, key+" is free", func() bool {
			lock, err := other.TryAcquire(t.Context(), key, time.Minute)
			if err != nil && !errors.Is(err, locco.ErrHeld) {
				t.Fatalf("TryAcquire(%q) = %v", key, err)
			}
			return err == nil && lock.Release(t.Context()) == nil
		})
	}
	for _, lock := range append(locks, moved) {
		if err := lock.Extend(t.Context(), time.Minute); err != nil {
			t.Errorf("Extend(%q) with the standby back = %v", lock.Key(), err)
		}
		release(t, lock)
	}
	// And what follows asks as ever.
	again := take(t, l, "k", time.Minute)
	if again.Fence() <= first.Fence() {
		t.Errorf("spec 6.4: fence %d after %d", again.Fence(), first.Fence())
	}
	release(t, again)
	if !strings.HasPrefix(again.Key(), prefix) {
		t.Errorf("Key = %q; want the prefix %q", again.Key(), prefix)
	}
}

func first2(_ bool, err error) error { return err }

// spec 1.9, 8.3: what cannot be asked for the warning of a commit is refused, instead of
// believing each answer.
func TestPostgresSynchronousNeedsConnections(t *testing.T) {
	t.Parallel()
	const p = integration.Postgres17
	s := integration.StartPostgresReplicated(t, p)
	pool := integration.Pool(t, s.Primary.URL)
	lease := locco.Lease{Key: "k", Token: "t", TTL: time.Minute}
	if _, err := postgres.New(bare{pool}).Acquire(call(t), lease); !errors.Is(err, locco.ErrInvalid) {
		t.Errorf("Acquire on something without connections = %v; want ErrInvalid", err)
	}
	if g, err := postgres.New(embedding{pool}).Acquire(call(t), lease); err != nil || !g.OK {
		t.Errorf("Acquire on something that embeds a pool = %+v, %v; want a grant", g, err)
	}
	conn := connectTo(t, s.Primary.URL)
	lease.Key = "k2"
	if g, err := postgres.New(conn).Acquire(call(t), lease); err != nil || !g.OK {
		t.Errorf("Acquire on a connection = %+v, %v; want a grant", g, err)
	}
	// A standby that is set later: the first answer is doubted, and its retry is ours.
	execute(t, connectTo(t, s.Primary.URL), "ALTER SYSTEM SET synchronous_standby_names = ''", "SELECT pg_reload_conf()")
	b := postgres.New(pool)
	cycle(t, b)
	l := newLocker(t, b)
	execute(t, connectTo(t, s.Primary.URL), "ALTER SYSTEM SET synchronous_standby_names = 'standby'", "SELECT pg_reload_conf()")
	s.WaitLinked(t)
	release(t, take(t, l, "later", time.Minute))
}

// bare has the methods of a pool that a Backend needs, and no other.
type bare struct{ postgres.DB }

// embedding is a pool with something of its own.
type embedding struct{ *pgxpool.Pool }
