package mongo_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	locco "github.com/locco-go/locco/core"
	loccomongo "github.com/locco-go/locco/mongo"
)

func buildReport(context.Context, int64) error { return nil }

func Example() {
	ctx := context.Background()
	client, err := mongo.Connect(options.Client().ApplyURI("mongodb://localhost"))
	if err != nil {
		log.Fatal(err)
	}
	locks := client.Database("app").Collection(loccomongo.DefaultCollection)
	locker, err := locco.New(loccomongo.New(locks), locco.WithFencing())
	if err != nil {
		log.Fatal(err)
	}
	err = locker.WithLock(ctx, "report:2026", 30*time.Second,
		func(ctx context.Context, lock *locco.Lock) error {
			return buildReport(ctx, lock.Fence()) // ctx ends if the lock is lost
		})
	if errors.Is(err, locco.ErrHeld) {
		fmt.Println("somebody else is building the report")
	} else if err != nil {
		log.Fatal(err)
	}
}

// A document that refuses what comes from an earlier holder, whatever that holder
// believes.
func ExampleGuard() {
	ctx := context.Background()
	client, err := mongo.Connect(options.Client().ApplyURI("mongodb://localhost"))
	if err != nil {
		log.Fatal(err)
	}
	db := client.Database("app")
	accounts := db.Collection("accounts")
	locker, err := locco.New(loccomongo.New(db.Collection(loccomongo.DefaultCollection)), locco.WithFencing())
	if err != nil {
		log.Fatal(err)
	}
	err = locker.WithLock(ctx, "account:42", 30*time.Second,
		func(ctx context.Context, lock *locco.Lock) error {
			if err := loccomongo.Raise(ctx, accounts, 42, lock.Fence()); err != nil { // before the first read
				return err
			}
			return loccomongo.Guard(ctx, accounts, 42, lock.Fence(),
				bson.D{{Key: "$inc", Value: bson.D{{Key: "balance", Value: -17}}}})
		})
	if errors.Is(err, loccomongo.ErrStale) {
		fmt.Println("a later holder has the account: nothing was written")
	} else if err != nil {
		log.Fatal(err)
	}
}
