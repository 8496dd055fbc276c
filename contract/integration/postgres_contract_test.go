package integration_test

import (
	"syscall"
	"testing"

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
	pool, peer := integration.Pool(t, url, large), integration.Pool(t, url, large)
	contract.Run(t, contract.Harness{
		New:  func(*testing.T) locco.Backend { return postgres.New(pool) },
		Peer: func(*testing.T, locco.Backend) locco.Backend { return postgres.New(peer) },
		Broken: func(t *testing.T) locco.Backend {
			t.Helper()
			return postgres.New(integration.Pool(t, "postgres://postgres@127.0.0.1:1/postgres"))
		},
		BrokenCause: syscall.ECONNREFUSED,
	})
}

// large makes a pool in which the cases, which run at the same time, do not wait for
// each other: that is a part of the time of a call.
func large(c *pgxpool.Config) { c.MaxConns = 20 }
