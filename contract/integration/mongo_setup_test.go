package integration_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/locco-go/locco/contract/integration"
	locco "github.com/locco-go/locco/core"
	loccomongo "github.com/locco-go/locco/mongo"
)

// spec 8.4: fifty processes that use a collection for the first time at once make its
// indexes, and one of them is granted the key.
func TestMongoFirstUseConcurrentSafe(t *testing.T) {
	t.Parallel()
	eachMongoDatabase(t, func(t *testing.T, n *integration.MongoNode, database string) {
		var mu sync.Mutex
		var locks []*locco.Lock
		var wg sync.WaitGroup
		collection := n.Client(t).Database(database).Collection(loccomongo.DefaultCollection)
		for range 50 {
			l := newLocker(t, loccomongo.New(collection), locco.WithFencing(), locco.WithCallTimeout(patience))
			wg.Go(func() {
				lock, err := l.TryAcquire(t.Context(), "k", time.Hour)
				switch {
				case err == nil:
					mu.Lock()
					locks = append(locks, lock)
					mu.Unlock()
				case errors.Is(err, locco.ErrInvalid):
					t.Errorf("TryAcquire = %v; want a lock or ErrHeld", err)
				}
			})
		}
		wg.Wait()
		if len(locks) != 1 {
			t.Fatalf("%d holders; want one", len(locks))
		}
		names := indexNames(t, collection)
		if !names["key_1"] || !names["expireAt_1"] {
			t.Errorf("the collection has the indexes %v; want key_1 and expireAt_1", names)
		}
		release(t, locks[0])
	})
}

func indexNames(t *testing.T, c *mongo.Collection) map[string]bool {
	t.Helper()
	list, err := c.Indexes().ListSpecifications(t.Context())
	if err != nil {
		t.Fatalf("listIndexes: %v", err)
	}
	names := map[string]bool{}
	for _, i := range list {
		names[i.Name] = true
	}
	return names
}

// spec 1.9, 8.4: an index that is missing or does something else is a validation error at
// first use, before anything is stored, and is neither dropped nor changed; a check that
// failed runs again.
func TestMongoIndexes(t *testing.T) {
	t.Parallel()
	index := func(keys bson.D, opts *options.IndexOptionsBuilder) []mongo.IndexModel {
		return []mongo.IndexModel{{Keys: keys, Options: opts}}
	}
	key := bson.D{{Key: "key", Value: 1}}
	for name, tc := range map[string]struct {
		there []mongo.IndexModel
		opts  []loccomongo.Option
		want  string // "": none
	}{
		"Missing":        {nil, []loccomongo.Option{loccomongo.WithoutSetUp()}, "key_1"},
		"There":          {loccomongo.Indexes(), []loccomongo.Option{loccomongo.WithoutSetUp()}, ""},
		"ThereAndSetUp":  {loccomongo.Indexes(), nil, ""},
		"NoExpiry":       {loccomongo.Indexes()[:1], []loccomongo.Option{loccomongo.WithoutSetUp()}, ""},
		"AnotherName":    {index(key, options.Index().SetName("locks").SetUnique(true)), nil, ""},
		"NotUnique":      {index(key, options.Index()), nil, "not unique"},
		"NotUniqueKept":  {index(key, options.Index()), []loccomongo.Option{loccomongo.WithoutSetUp()}, "not unique"},
		"Partial":        {index(key, options.Index().SetUnique(true).SetPartialFilterExpression(bson.D{{Key: "uniqueValue", Value: "x"}})), nil, "partial"},
		"Composite":      {index(bson.D{{Key: "key", Value: 1}, {Key: "uniqueValue", Value: 1}}, options.Index().SetUnique(true)), []loccomongo.Option{loccomongo.WithoutSetUp()}, "key_1"},
		"OtherExpiry":    {index(bson.D{{Key: "expireAt", Value: 1}}, options.Index().SetExpireAfterSeconds(3600)), nil, ""},
		"CompositeSetUp": {index(bson.D{{Key: "key", Value: 1}, {Key: "uniqueValue", Value: 1}}, options.Index().SetUnique(true)), nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachMongoDatabase(t, func(t *testing.T, n *integration.MongoNode, database string) {
				c := n.Client(t).Database(database).Collection("locks")
				if len(tc.there) > 0 {
					if _, err := c.Indexes().CreateMany(t.Context(), tc.there); err != nil {
						t.Fatalf("createIndexes: %v", err)
					}
				}
				b := loccomongo.New(c, tc.opts...)
				for range 2 {
					g, err := b.Acquire(call(t), locco.Lease{Key: "k", Token: "t", TTL: time.Minute, Again: true})
					if tc.want == "" {
						if !g.OK || err != nil {
							t.Errorf("Acquire = %+v, %v; want a grant", g, err)
						}
						continue
					}
					var invalid *locco.ValidationError
					if !errors.As(err, &invalid) || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "loccoddl mongo") {
						t.Errorf("spec 1.9: Acquire = %v; want a ValidationError with %q and loccoddl mongo", err, tc.want)
					}
				}
				if tc.want == "" {
					return
				}
				if count, err := c.CountDocuments(t.Context(), bson.D{}); err != nil || count != 0 {
					t.Errorf("%d documents, %v; want none", count, err)
				}
				// Once it is mended the next call works.
				if err := c.Indexes().DropAll(t.Context()); err != nil && len(tc.there) > 0 {
					t.Fatalf("dropIndexes: %v", err)
				}
				if _, err := c.Indexes().CreateMany(t.Context(), loccomongo.Indexes()); err != nil {
					t.Fatalf("createIndexes: %v", err)
				}
				if g, err := b.Acquire(call(t), locco.Lease{Key: "k", Token: "t", TTL: time.Minute}); !g.OK || err != nil {
					t.Errorf("Acquire with the indexes = %+v, %v; want a grant", g, err)
				}
			})
		})
	}
}

// spec 9.3: the commands that loccoddl prints make what the backend needs, again too, and
// drop it.
func TestMongoIndexCommands(t *testing.T) {
	t.Parallel()
	eachMongoDatabase(t, func(t *testing.T, n *integration.MongoNode, database string) {
		db := n.Client(t).Database(database)
		c := db.Collection("locks")
		for range 2 {
			if err := db.RunCommand(t.Context(), printed(t, "-collection=locks")).Err(); err != nil {
				t.Fatalf("createIndexes: %v", err)
			}
		}
		b := loccomongo.New(c, loccomongo.WithoutSetUp())
		if g, err := b.Acquire(call(t), locco.Lease{Key: "k", Token: "t", TTL: time.Minute}); !g.OK || err != nil {
			t.Errorf("Acquire = %+v, %v; want a grant", g, err)
		}
		if _, err := c.Indexes().CreateMany(t.Context(), loccomongo.Indexes()); err != nil {
			t.Errorf("createIndexes of what is there = %v; want the same indexes", err)
		}
		if err := db.RunCommand(t.Context(), printed(t, "-collection=locks", "-down")).Err(); err != nil {
			t.Fatalf("dropIndexes: %v", err)
		}
		if names := indexNames(t, c); names["key_1"] || names["expireAt_1"] {
			t.Errorf("indexes %v are left; want none but that of _id", names)
		}
	})
}

// printed is a command as loccoddl prints it.
func printed(t *testing.T, flags ...string) (command bson.D) {
	t.Helper()
	code, out := runLoccoddl(t, append([]string{"mongo", "-format=json"}, flags...)...)
	if code != 0 {
		t.Fatalf("loccoddl exits with %d", code)
	}
	if err := bson.UnmarshalExtJSON([]byte(out), false, &command); err != nil {
		t.Fatalf("loccoddl printed %q: %v", out, err)
	}
	return command
}

// spec 6.1, 6.4, 8.4: fences grow over releases and when the documents of the locks are
// deleted, as the server does it when they have ended; and what is stored is what the Node
// library stores.
func TestMongoStoredData(t *testing.T) {
	t.Parallel()
	eachMongoDatabase(t, func(t *testing.T, n *integration.MongoNode, database string) {
		db := n.Client(t).Database(database)
		c := db.Collection(loccomongo.DefaultCollection)
		l := newLocker(t, loccomongo.New(c), locco.WithFencing())
		last := int64(0)
		for i := range 6 {
			lock := take(t, l, "k", time.Minute)
			if lock.Fence() <= last {
				t.Errorf("spec 6.1: fence %d after %d", lock.Fence(), last)
			}
			last = lock.Fence()
			var d bson.M
			if err := c.FindOne(t.Context(), bson.D{{Key: "key", Value: "k"}}).Decode(&d); err != nil {
				t.Fatal(err)
			}
			delete(d, "_id")
			at, ok := d["expireAt"].(bson.DateTime)
			if left := time.Until(at.Time()); len(d) != 3 || d["uniqueValue"] != lock.Token() || !ok || left < 30*time.Second || left > 2*time.Minute {
				t.Errorf("stored %v; want the key, the token and the end in a minute", d)
			}
			release(t, lock)
			if i%2 == 0 {
				if _, err := c.DeleteMany(t.Context(), bson.D{}); err != nil {
					t.Fatal(err)
				}
			}
		}
		count, err := db.Collection(loccomongo.DefaultCollection+"-fences").CountDocuments(t.Context(), bson.D{{Key: "_id", Value: "k"}})
		if err != nil || count != 1 {
			t.Errorf("%d counters, %v; want one", count, err)
		}
	})
}

// spec 6.5: raise and guard refuse a smaller fence, in one step with the write.
func TestMongoGuard(t *testing.T) {
	t.Parallel()
	eachMongoDatabase(t, func(t *testing.T, n *integration.MongoNode, database string) {
		c := n.Client(t).Database(database).Collection("accounts")
		balance := func() any {
			t.Helper()
			var d bson.M
			if err := c.FindOne(t.Context(), bson.D{{Key: "_id", Value: 1}}).Decode(&d); err != nil {
				t.Fatal(err)
			}
			return d["balance"]
		}
		set := func(fence int64, v int32) error {
			return loccomongo.Guard(t.Context(), c, 1, fence, bson.D{{Key: "$set", Value: bson.D{{Key: "balance", Value: v}}}})
		}
		fine := func(what string, err error) {
			t.Helper()
			if err != nil {
				t.Errorf("%s = %v; want nil", what, err)
			}
		}
		stale := func(what string, err error, seen int64) {
			t.Helper()
			var e *loccomongo.StaleError
			if !errors.As(err, &e) || !errors.Is(err, loccomongo.ErrStale) || e.Seen != seen {
				t.Errorf("%s = %v; want a StaleError that has seen %d", what, err, seen)
			}
		}
		fine("Guard of what is not there", set(5, 10))
		fine("Guard with the same fence", set(5, 11))
		stale("Guard with a smaller fence", set(4, 12), 5)
		fine("Raise", loccomongo.Raise(t.Context(), c, 1, 9))
		stale("Guard with a fence before", set(8, 13), 9)
		stale("Raise with a fence before", loccomongo.Raise(t.Context(), c, 1, 8), 9)
		if v := balance(); v != int32(11) {
			t.Errorf("balance = %v; want 11", v)
		}
		fine("Guard with a larger fence", set(10, 20))
		if v := balance(); v != int32(20) {
			t.Errorf("balance = %v; want 20", v)
		}
		// Many at a time, with the fence as the value: the largest stays.
		var wg sync.WaitGroup
		for fence := int64(11); fence <= 40; fence++ {
			wg.Go(func() {
				for {
					err := set(fence, int32(fence)) //nolint:gosec // small
					if err == nil || errors.Is(err, loccomongo.ErrStale) {
						return
					}
					if _, ok := errors.AsType[mongo.ServerError](err); !ok {
						t.Errorf("Guard = %v", err)
						return
					}
				}
			})
		}
		wg.Wait()
		if v := balance(); v != int32(40) {
			t.Errorf("balance = %v; want that of the largest fence, 40", v)
		}
	})
}
