package mongo

import (
	"context"
	"errors"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	locco "github.com/locco-go/locco/core"
)

// ExtendMany implements [locco.ManyExtender]: one command for all, and a second one when
// not all were changed, which tells who still holds its key.
func (b *Backend) ExtendMany(ctx context.Context, ls []locco.Lease) []locco.Verdict {
	verdicts := make([]locco.Verdict, len(ls))
	if len(ls) == 0 {
		return verdicts
	}
	all := func(err error) []locco.Verdict {
		for i := range verdicts {
			verdicts[i] = locco.Verdict{Err: err}
		}
		return verdicts
	}
	if err := b.ready(ctx, false); err != nil {
		return all(err)
	}
	models := make([]mongo.WriteModel, len(ls))
	for i := range ls {
		models[i] = mongo.NewUpdateOneModel().SetFilter(ofHolder(ls[i].Key, ls[i].Token)).
			SetUpdate(stored(live, ls[i].Token, ls[i].TTL))
	}
	r, err := b.locks.BulkWrite(ctx, models, options.BulkWrite().SetOrdered(false))
	var partly mongo.BulkWriteException
	if err != nil && (!errors.As(err, &partly) || partly.WriteConcernError != nil || len(partly.WriteErrors) == 0) {
		return all(b.explain(err))
	}
	if err == nil && r.ModifiedCount == int64(len(ls)) {
		for i := range verdicts {
			verdicts[i].OK = true
		}
		return verdicts
	}
	// Whoever holds a key now did so when the extension came, which was therefore done: an
	// ended lease does not come back.
	held, err := b.held(ctx, ls)
	if err != nil {
		return all(b.explain(err))
	}
	for i := range ls {
		verdicts[i].OK = held[holder{ls[i].Key, ls[i].Token}]
	}
	for _, e := range partly.WriteErrors {
		if e.Index >= 0 && e.Index < len(ls) {
			verdicts[e.Index] = locco.Verdict{Err: b.explain(e)}
		}
	}
	return verdicts
}

type holder struct{ key, token string }

// held answers which of the leases are held by their tokens.
func (b *Backend) held(ctx context.Context, ls []locco.Lease) (map[holder]bool, error) {
	each := make(bson.A, len(ls))
	for i := range ls {
		each[i] = ofHolder(ls[i].Key, ls[i].Token)
	}
	cursor, err := b.locks.Aggregate(ctx, mongo.Pipeline{
		{{Key: "$match", Value: bson.D{{Key: "$or", Value: each}}}},
		{{Key: "$project", Value: bson.D{
			{Key: "_id", Value: 0}, {Key: fieldKey, Value: 1}, {Key: fieldToken, Value: 1}, {Key: "live", Value: live},
		}}},
	})
	if err != nil {
		return nil, err
	}
	var list []struct {
		Key   string `bson:"key"`
		Token string `bson:"uniqueValue"`
		Live  bool   `bson:"live"`
	}
	if err := cursor.All(ctx, &list); err != nil {
		return nil, err
	}
	held := map[holder]bool{}
	for _, d := range list {
		held[holder{d.Key, d.Token}] = d.Live
	}
	return held, nil
}
