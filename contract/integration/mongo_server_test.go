package integration_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/locco-go/locco/contract/integration"
)

// The tests of this file try out the servers, and what is done to them, with the
// driver alone.

func eachMongo(t *testing.T, test func(t *testing.T, m integration.Mongo)) {
	t.Helper()
	for _, m := range integration.Mongos() {
		t.Run(string(m), func(t *testing.T) {
			t.Parallel()
			test(t, m)
		})
	}
}

// seat is a document that has one owner until it expires.
type seat struct {
	Owner   string    `bson:"owner"`
	Expires time.Time `bson:"expires"`
}

// sit makes owner that of the seat k, by the server's clock, unless another one has it, and
// returns who has it then.
func sit(t *testing.T, c *mongo.Collection, owner string, d time.Duration) seat {
	t.Helper()
	free := bson.D{{Key: "$lte", Value: bson.A{
		bson.D{{Key: "$ifNull", Value: bson.A{"$expires", time.Unix(0, 0)}}}, "$$NOW",
	}}}
	choose := func(yes, no any) bson.D {
		return bson.D{{Key: "$cond", Value: bson.A{free, yes, no}}}
	}
	update := mongo.Pipeline{{{Key: "$set", Value: bson.D{
		{Key: "owner", Value: choose(bson.D{{Key: "$literal", Value: owner}}, "$owner")},
		{Key: "expires", Value: choose(bson.D{{Key: "$add", Value: bson.A{"$$NOW", d.Milliseconds()}}}, "$expires")},
	}}}}
	var after seat
	err := c.FindOneAndUpdate(t.Context(), bson.D{{Key: "_id", Value: "k"}}, update,
		options.FindOneAndUpdate().SetUpsert(true).SetReturnDocument(options.After)).Decode(&after)
	if err != nil {
		t.Fatalf("FindOneAndUpdate: %v", err)
	}
	return after
}

// impatient makes a server that is away visible soon.
func impatient(o *options.ClientOptions) {
	o.SetServerSelectionTimeout(300 * time.Millisecond).SetRetryReads(false).SetRetryWrites(false)
}

func TestMongoServerShared(t *testing.T) {
	t.Parallel()
	eachMongo(t, func(t *testing.T, m integration.Mongo) {
		a, b := integration.SharedMongo(t, m), integration.SharedMongo(t, m)
		if a.Addr != b.Addr {
			t.Errorf("SharedMongo = %s, then %s; want one server", a.Addr, b.Addr)
		}
		client := a.Client(t)
		if err := client.Ping(t.Context(), nil); err != nil {
			t.Errorf("Ping: %v", err)
		}
		var info struct{ Version string }
		if err := client.Database("admin").RunCommand(t.Context(), bson.D{{Key: "buildInfo", Value: 1}}).Decode(&info); err != nil {
			t.Fatalf("buildInfo: %v", err)
		}
		want := map[integration.Mongo]string{
			integration.Mongo6:   "6.",
			integration.Mongo7:   "7.",
			integration.Mongo8:   "8.",
			integration.FerretDB: "7.", // what it says that it is
		}[m]
		if !strings.HasPrefix(info.Version, want) {
			t.Errorf("the version of %s is %q; want %s", m, info.Version, want)
		}
		if x, y := a.Database(t), a.Database(t); x == y {
			t.Errorf("Database = %s, twice; want another one each time", x)
		}
	})
}

// What a lock needs of a server: one statement decides, by the server's clock.
func TestMongoServerUpsert(t *testing.T) {
	t.Parallel()
	eachMongo(t, func(t *testing.T, m integration.Mongo) {
		n := integration.SharedMongo(t, m)
		c := n.Client(t).Database(n.Database(t)).Collection("seats")
		first := sit(t, c, "a", time.Hour)
		if first.Owner != "a" || !first.Expires.After(time.Now()) {
			t.Errorf("a free seat = %+v; want it to be that of a for an hour", first)
		}
		if held := sit(t, c, "b", time.Hour); held != first {
			t.Errorf("the seat of another = %+v; want %+v", held, first)
		}
		past := bson.D{{Key: "$set", Value: bson.D{{Key: "expires", Value: time.Now().Add(-time.Hour)}}}}
		if _, err := c.UpdateOne(t.Context(), bson.D{{Key: "_id", Value: "k"}}, past); err != nil {
			t.Fatalf("UpdateOne: %v", err)
		}
		if expired := sit(t, c, "b", time.Hour); expired.Owner != "b" {
			t.Errorf("an expired seat = %+v; want it to be that of b", expired)
		}
	})
}

func TestMongoServerReplicaSet(t *testing.T) {
	t.Parallel()
	eachMongo(t, func(t *testing.T, m integration.Mongo) {
		n := integration.SharedMongo(t, m)
		c := n.Client(t).Database(n.Database(t)).Collection("c")
		stream, err := c.Watch(t.Context(), mongo.Pipeline{})
		if n.ReplicaSet == "" {
			if err == nil {
				t.Errorf("Watch without a replica set: no error")
			}
			return
		}
		if err != nil {
			t.Fatalf("Watch: %v", err)
		}
		defer func() { _ = stream.Close(context.WithoutCancel(t.Context())) }()
		if _, err := c.InsertOne(t.Context(), bson.D{{Key: "_id", Value: "k"}}); err != nil {
			t.Fatalf("InsertOne: %v", err)
		}
		if !stream.Next(t.Context()) {
			t.Errorf("Next: %v; want what was inserted", stream.Err())
		}
	})
}

func TestMongoServerArguments(t *testing.T) {
	t.Parallel()
	eachMongo(t, func(t *testing.T, m integration.Mongo) {
		if m == integration.FerretDB {
			n := integration.StartMongo(t, m, "--auth")
			const unauthorized = 13
			err := n.Client(t).Database(n.Database(t)).Collection("c").FindOne(t.Context(), bson.D{}).Err()
			if e, ok := errors.AsType[mongo.ServerError](err); !ok || !e.HasErrorCode(unauthorized) {
				t.Errorf("FindOne of nobody: %v; want code %d", err, unauthorized)
			}
			return
		}
		n := integration.StartMongo(t, m, "--setParameter", "ttlMonitorSleepSecs=7")
		var reply struct {
			Seconds int `bson:"ttlMonitorSleepSecs"`
		}
		get := bson.D{{Key: "getParameter", Value: 1}, {Key: "ttlMonitorSleepSecs", Value: 1}}
		if err := n.Client(t).Database("admin").RunCommand(t.Context(), get).Decode(&reply); err != nil || reply.Seconds != 7 {
			t.Errorf("ttlMonitorSleepSecs = %d, %v; want 7", reply.Seconds, err)
		}
	})
}

func TestMongoServerPause(t *testing.T) {
	t.Parallel()
	eachMongo(t, func(t *testing.T, m integration.Mongo) {
		n := integration.StartMongo(t, m)
		c := n.Client(t).Database(n.Database(t)).Collection("seats")
		before := sit(t, c, "a", time.Hour)
		n.Pause(t)
		if err := n.Client(t, impatient).Ping(t.Context(), nil); err == nil {
			t.Error("Ping of a paused server: no error")
		}
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		if err := c.FindOne(ctx, bson.D{}).Err(); !mongo.IsTimeout(err) {
			t.Errorf("FindOne on a paused server: %v; want no answer", err)
		}
		n.Unpause(t)
		if after := sit(t, c, "b", time.Hour); after != before {
			t.Errorf("the seat after the pause = %+v; want %+v", after, before)
		}
	})
}

func TestMongoServerRestart(t *testing.T) {
	t.Parallel()
	eachMongo(t, func(t *testing.T, m integration.Mongo) {
		n := integration.StartMongo(t, m)
		database := n.Database(t)
		before := sit(t, n.Client(t).Database(database).Collection("seats"), "a", time.Hour)
		n.Stop(t)
		if err := n.Client(t, impatient).Ping(t.Context(), nil); err == nil {
			t.Error("Ping of a stopped server: no error")
		}
		n.Start(t)
		c := n.Client(t).Database(database).Collection("seats")
		if after := sit(t, c, "b", time.Hour); after != before {
			t.Errorf("the seat after a restart = %+v; want %+v", after, before)
		}
	})
}
