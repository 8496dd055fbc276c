package integration_test

import (
	"testing"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/locco-go/locco/contract"
	"github.com/locco-go/locco/contract/integration"
	locco "github.com/locco-go/locco/core"
	loccomongo "github.com/locco-go/locco/mongo"
)

// spec 9.1, 8.4: the backend passes the suite. It does not run beside another test: that is
// more than two cores can serve within the leases of the cases.
//
// The driver tells why no server could be asked in words only, so what the suite calls the
// cause cannot be found in its error.
func TestMongoContract(t *testing.T) {
	for _, m := range integration.Mongos() {
		t.Run(string(m), func(t *testing.T) {
			n := integration.SharedMongo(t, m)
			name := n.Database(t)
			locks := func() *mongo.Collection { return n.Client(t).Database(name).Collection("contract-locks") }
			own, peers := locks(), locks()
			contract.Run(t, contract.Harness{
				Unit: postgresUnit,
				New:  func(*testing.T) locco.Backend { return loccomongo.New(own) },
				Peer: func(*testing.T, locco.Backend) locco.Backend { return loccomongo.New(peers) },
				Broken: func(t *testing.T) locco.Backend {
					t.Helper()
					client, err := mongo.Connect(options.Client().ApplyURI("mongodb://127.0.0.1:1/?directConnection=true"))
					if err != nil {
						t.Fatal(err)
					}
					return loccomongo.New(client.Database("app").Collection("locks"))
				},
				WithoutWatcher:     true,
				WithoutManyAcquire: true,
			})
		})
	}
}
