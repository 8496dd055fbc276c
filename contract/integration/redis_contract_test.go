package integration_test

import (
	"syscall"
	"testing"

	"github.com/redis/rueidis"

	"github.com/locco-go/locco/contract"
	"github.com/locco-go/locco/contract/integration"
	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/redis"
)

// spec 9.1, 8.2: the backend passes the suite on every server that it is made
// for.
func TestRedisContract(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r integration.Redis) {
		node := integration.SharedRedis(t, r)
		client := node.Client(t)
		contract.Run(t, contract.Harness{
			New:  func(*testing.T) locco.Backend { return redis.New(client) },
			Peer: func(t *testing.T, _ locco.Backend) locco.Backend { t.Helper(); return redis.New(node.Client(t)) },
			Broken: func(t *testing.T) locco.Backend {
				t.Helper()
				// A client that cannot connect is returned beside the error.
				broken, _ := rueidis.NewClient(rueidis.ClientOption{
					InitAddress: []string{"127.0.0.1:1"}, ForceSingleClient: true, DisableCache: true,
				})
				t.Cleanup(broken.Close)
				return redis.New(broken)
			},
			BrokenCause: syscall.ECONNREFUSED,
		})
	})
}
