package integration_test

import (
	"crypto/rand"
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/locco-go/locco/contract"
	"github.com/locco-go/locco/contract/integration"
	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/postgres"
)

func eachPostgres(t *testing.T, test func(t *testing.T, p integration.Postgres)) {
	t.Helper()
	for _, p := range integration.Postgreses() {
		t.Run(string(p), func(t *testing.T) {
			t.Parallel()
			test(t, p)
		})
	}
}

// spec 9.1, 8.3: the backend passes the suite on every version that it is made for; on
// 17 that is [TestPostgresContractWithGrants]. Neither runs beside another test, nor one
// version beside another: that is more than two cores can serve within the leases of
// the cases.
func TestPostgresContract(t *testing.T) {
	for _, p := range []integration.Postgres{integration.Postgres15, integration.Postgres18} {
		t.Run(string(p), func(t *testing.T) { postgresContract(t, p) })
	}
}

func postgresContract(t *testing.T, p integration.Postgres) {
	t.Helper()
	url := integration.SharedPostgres(t, p).Database(t)
	// The cases share the pools, which is what costs most.
	pool, peer := contractPool(t, url), contractPool(t, url)
	contract.Run(t, contract.Harness{
		Unit: postgresUnit,
		New:  func(*testing.T) locco.Backend { return postgres.New(pool) },
		Peer: func(*testing.T, locco.Backend) locco.Backend { return postgres.New(peer) },
		Broken: func(t *testing.T) locco.Backend {
			t.Helper()
			return postgres.New(integration.Pool(t, "postgres://postgres@127.0.0.1:1/postgres"))
		},
		BrokenCause: syscall.ECONNREFUSED,
	})
}

// postgresUnit is twice the default, since a cycle costs the server ten times what it
// costs Redis, and the cases run side by side.
const postgresUnit = 100 * time.Millisecond

// contractPool returns a pool in which the cases, which run at the same time, do not wait
// for each other, and not for new connections either: on two busy cores a process of the
// server needs up to half a second for its first statements. Its user may not be allowed
// to create the schema, which has to be there then.
func contractPool(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	const size = 20
	pool := integration.Pool(t, url, func(c *pgxpool.Config) { c.MaxConns = size })
	var conns []*pgxpool.Conn
	for range size {
		conn, err := pool.Acquire(t.Context())
		if err != nil {
			t.Fatalf("connect to %s: %v", url, err)
		}
		conns = append(conns, conn)
		warm(t, postgres.New(conn))
	}
	for _, conn := range conns {
		conn.Release()
	}
	return pool
}

// warm runs what the cases run most.
func warm(t *testing.T, b *postgres.Backend) {
	t.Helper()
	for _, fenced := range []bool{false, true} {
		l := locco.Lease{Key: rand.Text(), Token: "from", TTL: time.Minute, Fenced: fenced}
		_, err := b.Acquire(t.Context(), l)
		_, errExtend := b.Extend(t.Context(), l)
		_, errHolds := b.Holds(t.Context(), l.Key, l.Token)
		verdicts := b.ExtendMany(t.Context(), []locco.Lease{l})
		l.Token = "to"
		_, errTransfer := b.Transfer(t.Context(), "from", l)
		_, errRelease := b.Release(t.Context(), l.Key, l.Token)
		if err := errors.Join(err, errExtend, errHolds, verdicts[0].Err, errTransfer, errRelease); err != nil {
			t.Fatalf("the first use of a connection: %v", err)
		}
	}
}
