package integration_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/locco-go/locco/contract"
	"github.com/locco-go/locco/contract/integration"
	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/postgres"
)

// spec 8.3: every way in which pgx sends a statement gives the same answers.
func TestPostgresExecModes(t *testing.T) {
	t.Parallel()
	const p = integration.Postgres17
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(strings.ReplaceAll(mode.String(), " ", "_"), func(t *testing.T) {
			t.Parallel()
			url := integration.SharedPostgres(t, p).Database(t)
			pool := integration.Pool(t, url, func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode })
			everyStatement(t, postgres.New(pool))
		})
	}
	t.Run("Unprepared", func(t *testing.T) {
		t.Parallel()
		url := integration.SharedPostgres(t, p).Database(t)
		pool := integration.Pool(t, url)
		everyStatement(t, postgres.New(pool, postgres.WithoutPreparedStatements()))
		for range 4 {
			n := 0
			if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_prepared_statements`, pgx.QueryExecModeExec).Scan(&n); err != nil || n != 0 {
				t.Errorf("%d prepared statements, %v; want none", n, err)
			}
		}
	})
}

// everyStatement uses each statement once with what grants and what refuses.
func everyStatement(t *testing.T, b *postgres.Backend) {
	t.Helper()
	cycle(t, b)
	lease := func(key, token string) locco.Lease {
		return locco.Lease{Key: key, Token: token, TTL: time.Minute, Fenced: true, WantLeft: true}
	}
	want := func(what string, ok, wanted bool, err error) {
		t.Helper()
		if ok != wanted || err != nil {
			t.Errorf("%s = %v, %v; want %v", what, ok, err, wanted)
		}
	}
	const odd = `it's \ "odd" $1 é`
	g, err := b.Acquire(call(t), lease(odd, "a"))
	want("Acquire", g.OK && g.Fence > 0, true, err)
	refused, err := b.Acquire(call(t), lease(odd, "b"))
	want("Acquire of a held key", refused.OK || refused.Left <= 0, false, err)
	ok, err := b.Extend(call(t), lease(odd, "a"))
	want("Extend", ok, true, err)
	ok, err = b.Holds(call(t), odd, "a")
	want("Holds", ok, true, err)
	next, err := b.Transfer(call(t), "a", lease(odd, "c"))
	want("Transfer", next.OK && next.Fence > g.Fence, true, err)
	_, at, err := b.AcquireMany(call(t), []locco.Lease{lease("m1", "m"), lease(odd, "m")})
	want("AcquireMany with a held key", at == 1, true, err)
	gs, at, err := b.AcquireMany(call(t), []locco.Lease{lease("m1", "m"), lease("m2", "m")})
	want("AcquireMany", len(gs) == 2 && at == -1 && gs[0].Fence > next.Fence, true, err)
	for i, v := range b.ExtendMany(call(t), []locco.Lease{lease("m1", "m"), lease("m2", "x"), lease(odd, "c")}) {
		want("ExtendMany", v.OK, i != 1, v.Err)
	}
	wake, stop, err := b.Watch(call(t), odd)
	if err != nil {
		t.Fatalf("Watch = %v", err)
	}
	defer stop()
	ok, err = b.Release(call(t), odd, "a")
	want("Release by an earlier holder", ok, false, err)
	ok, err = b.Release(call(t), odd, "c")
	want("Release", ok, true, err)
	select {
	case <-wake:
	case <-time.After(patience):
		t.Error("a release woke nobody")
	}
	if _, err := b.SweepExpired(call(t), 10); err != nil {
		t.Errorf("SweepExpired = %v", err)
	}
}

// spec 8.3, 8.6: through a pooler that gives each transaction another connection
// everything works but listening, and that too over a connection of its own.
func TestPostgresTransactionPooler(t *testing.T) {
	t.Parallel()
	n, url := integration.StartPgBouncer(t, integration.Postgres17)
	pool, peer := contractPool(t, url), contractPool(t, url)
	t.Run("WakeUps", func(t *testing.T) {
		t.Parallel()
		admin := integration.Pool(t, n.URL)
		listen := func(ctx context.Context) (*pgx.Conn, error) { return pgx.Connect(ctx, n.URL) }
		of := func(pool *pgxpool.Pool) *postgres.Backend {
			return postgres.New(pool, postgres.WithTable("woken"), postgres.WithoutPreparedStatements(), postgres.WithListenConn(listen))
		}
		everyStatement(t, of(pool))
		soon(t, "nobody listens", func() bool { return listening(t, admin) == 0 })
		lock := take(t, newLocker(t, of(pool)), "k", time.Minute)
		waiter := awaitWakeUp(t, newLocker(t, of(peer)), "k")
		soon(t, "the waiter listens", func() bool { return listening(t, admin) == 1 })
		release(t, lock)
		release(t, got(t, waiter))
	})
	t.Run("Contract", func(t *testing.T) {
		t.Parallel()
		of := func(pool *pgxpool.Pool) locco.Backend {
			return postgres.New(pool, postgres.WithoutPreparedStatements(), postgres.WithoutWakeUps())
		}
		contract.Run(t, contract.Harness{
			New:            func(*testing.T) locco.Backend { return of(pool) },
			Peer:           func(*testing.T, locco.Backend) locco.Backend { return of(peer) },
			WithoutWatcher: true,
			Unit:           postgresUnit,
		})
	})
}
