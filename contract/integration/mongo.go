package integration

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// Mongo is a kind of server that speaks the protocol of MongoDB.
type Mongo string

// The servers that the tests run on.
const (
	Mongo6 Mongo = "Mongo6"
	Mongo7 Mongo = "Mongo7"
	Mongo8 Mongo = "Mongo8"

	// FerretDB is for machines that cannot have MongoDB. It has no replica set.
	FerretDB Mongo = "FerretDB"
)

// Mongos returns FerretDB where the environment names one, and else every MongoDB.
func Mongos() []Mongo {
	if env := "LOCCO_TEST_" + FerretDB.kind().env; os.Getenv(env+"_IMAGE") != "" || os.Getenv(env+"_URL") != "" {
		return []Mongo{FerretDB}
	}
	return []Mongo{Mongo6, Mongo7, Mongo8}
}

func (m Mongo) kind() kind {
	switch m {
	case Mongo6:
		return kind{"MONGO6", "mongo:6", "mongod"}
	case Mongo7:
		return kind{"MONGO7", "mongo:7", "mongod"}
	case Mongo8:
		return kind{"MONGO", "mongo:8", "mongod"}
	case FerretDB:
		return kind{"FERRETDB", "locco-test/ferretdb:2", "ferretdb"}
	default:
		panic("integration: no such server: " + string(m))
	}
}

// replicaSet is the name of the replica set of one member that a MongoDB is.
const replicaSet = "rs0"

// MongoNode is one server of MongoDB.
type MongoNode struct {
	server

	// URL is for its clients.
	URL string

	// ReplicaSet is the name of its replica set. It is "" for a server that has none,
	// and so neither change streams nor transactions.
	ReplicaSet string
}

// SharedMongo returns a server that all tests of the run may use at the same time. It
// ends with the run. LOCCO_TEST_MONGO_URL, LOCCO_TEST_MONGO6_URL, LOCCO_TEST_MONGO7_URL
// and LOCCO_TEST_FERRETDB_URL name one that runs already; the user must be allowed to
// use all databases.
func SharedMongo(t testing.TB, m Mongo) *MongoNode {
	t.Helper()
	if url := os.Getenv("LOCCO_TEST_" + m.kind().env + "_URL"); url != "" {
		n, err := givenMongo(t.Context(), url)
		if err != nil {
			t.Fatalf("LOCCO_TEST_%s_URL: %v", m.kind().env, err)
		}
		return n
	}
	n, err := shared(t, m, func() (*MongoNode, error) {
		n, err := startMongo(context.Background(), m, nil)
		if err != nil {
			return nil, err
		}
		n.shared = true
		err = n.wait(context.Background())
		return n, err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// StartMongo starts a server for this test. Args are added to its command, such as
// "--setParameter", "ttlMonitorSleepSecs=1".
func StartMongo(t testing.TB, m Mongo, args ...string) *MongoNode {
	t.Helper()
	n, err := startMongo(t.Context(), m, args)
	if err != nil {
		t.Fatal(err)
	}
	cleanUp(t, n.Name, n.id)
	if err := n.wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	return n
}

func startMongo(ctx context.Context, m Mongo, args []string) (n *MongoNode, err error) {
	if err := run.begin(ctx); err != nil {
		return nil, err
	}
	err = run.withPorts(1, func(ports []int) error {
		addr := net.JoinHostPort(host, strconv.Itoa(ports[0]))
		n = &MongoNode{
			server: server{Addr: addr, Name: string(m) + " at " + addr, port: ports[0]},
			URL:    "mongodb://" + addr + "/?replicaSet=" + replicaSet,
			// The member has the address that it has for the tests, so that clients that
			// ask the set for it find it.
			ReplicaSet: replicaSet,
		}
		if m == FerretDB {
			n.URL, n.ReplicaSet = "mongodb://"+addr+"/?directConnection=true", ""
		}
		n.ping = n.ready
		n.id, err = run.start(ctx, spec{
			image:   image(m.kind()),
			cmd:     m.command(ports[0], args...),
			publish: ports,
		})
		return err
	})
	return n, err
}

func (m Mongo) command(port int, args ...string) []string {
	command := []string{
		"mongod", "--port", strconv.Itoa(port), "--bind_ip_all", "--replSet", replicaSet, "--wiredTigerCacheSizeGB", "0.25",
	}
	if m == FerretDB {
		command = []string{"--listen-addr=:" + strconv.Itoa(port)} // the image has the command
	}
	return append(command, args...)
}

// givenMongo returns a server that runs already.
func givenMongo(ctx context.Context, url string) (*MongoNode, error) {
	config := options.Client().ApplyURI(url)
	if err := config.Validate(); err != nil {
		return nil, err
	}
	addr := strings.Join(config.Hosts, ",")
	n := &MongoNode{server: server{Addr: addr, Name: addr, shared: true}, URL: url}
	n.ping = func(ctx context.Context) error {
		return n.with(ctx, options.Client().ApplyURI(url), func(c *mongo.Client) error {
			h, err := hello(ctx, c)
			n.ReplicaSet = h.SetName
			return err
		})
	}
	if err := n.wait(ctx); err != nil {
		return nil, err
	}
	return n, nil
}

// ready tells whether the server takes writes. The first time, it makes the replica set.
func (n *MongoNode) ready(ctx context.Context) error {
	direct := options.Client().SetHosts([]string{n.Addr}).SetDirect(true)
	return n.with(ctx, direct, func(c *mongo.Client) error {
		h, err := hello(ctx, c)
		switch {
		case err != nil:
			return err
		case h.Primary:
			return nil
		case h.SetName != "":
			return notYet(nil, "it is no primary")
		}
		err = c.Database("admin").RunCommand(ctx, bson.D{{Key: "replSetInitiate", Value: bson.D{
			{Key: "_id", Value: n.ReplicaSet},
			{Key: "members", Value: bson.A{bson.D{{Key: "_id", Value: 0}, {Key: "host", Value: n.Addr}}}},
		}}}).Err()
		const alreadyInitialized = 23
		if e, ok := errors.AsType[mongo.ServerError](err); ok && e.HasErrorCode(alreadyInitialized) {
			err = nil
		}
		return notYet(err, "its replica set has no primary")
	})
}

// helloReply is what a server tells of itself.
type helloReply struct {
	Primary bool   `bson:"isWritablePrimary"`
	SetName string `bson:"setName"`
}

func hello(ctx context.Context, c *mongo.Client) (reply helloReply, err error) {
	if err := c.Ping(ctx, nil); err != nil {
		return reply, err
	}
	err = c.Database("admin").RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Decode(&reply)
	return reply, err
}

// with calls do with a client that does not wait long for a server.
func (n *MongoNode) with(ctx context.Context, config *options.ClientOptions, do func(*mongo.Client) error) error {
	c, err := mongo.Connect(config.SetServerSelectionTimeout(2 * time.Second).SetTimeout(10 * time.Second))
	if err != nil {
		return fmt.Errorf("connect to %s: %w", n.Name, err)
	}
	defer disconnect(context.WithoutCancel(ctx), c)
	return do(c)
}

// disconnect ends a client, whose server may not answer any more.
func disconnect(ctx context.Context, c *mongo.Client) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_ = c.Disconnect(ctx)
}

// Client returns a client of this server, which is disconnected at the end of the test.
func (n *MongoNode) Client(t testing.TB, settings ...func(*options.ClientOptions)) *mongo.Client {
	t.Helper()
	config := options.Client().ApplyURI(n.URL)
	for _, set := range settings {
		set(config)
	}
	c, err := mongo.Connect(config)
	if err != nil {
		t.Fatalf("connect to %s: %v", n.Name, err)
	}
	t.Cleanup(func() { disconnect(context.Background(), c) })
	return c
}

// Database returns the name of a database that no other test has. It is dropped at the
// end of the test.
func (n *MongoNode) Database(t testing.TB) string {
	t.Helper()
	name := "test_" + rand.Text()
	t.Cleanup(func() {
		if !n.shared {
			return // it ends with its server
		}
		ctx, cancel := context.WithTimeout(context.Background(), dockerTimeout)
		defer cancel()
		err := n.with(ctx, options.Client().ApplyURI(n.URL), func(c *mongo.Client) error {
			return c.Database(name).Drop(ctx)
		})
		if err != nil {
			t.Errorf("drop the database: %v", err)
		}
	})
	return name
}
