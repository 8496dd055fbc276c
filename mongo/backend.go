package mongo

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	locco "github.com/locco-go/locco/core"
)

var (
	_ locco.Backend      = (*Backend)(nil)
	_ locco.Fencer       = (*Backend)(nil)
	_ locco.Retryer      = (*Backend)(nil)
	_ locco.Transferrer  = (*Backend)(nil)
	_ locco.ManyExtender = (*Backend)(nil)
	_ locco.Validator    = (*Backend)(nil)
)

// Backend keeps leases in a collection of MongoDB. Create it with [New]. It is safe for
// concurrent use, needs no closing, and is not copied.
type Backend struct {
	locks  *mongo.Collection // nil if the caller's was
	fences *mongo.Collection
	config config

	setUp   chan struct{} // holds one: the right to look at the indexes
	indexed atomic.Bool   // the indexes are as they should be
	drawn   atomic.Bool   // fences can be drawn
}

// DefaultCollection is the name that the Node library of the same name uses.
const DefaultCollection = "locco-locks"

// New returns a Backend on a collection: client.Database("app").Collection(
// [DefaultCollection]), to share locks with the Node library of the same name. The
// collection and its client stay the caller's: New does no I/O, registers nothing on
// them and never closes them. Whatever their options say, writes have the write concern
// "majority" and reads go to the primary. What is wrong with the collection is reported
// by [Backend.Validate], which [locco.New] asks, so that locco.New(mongo.New(collection))
// stays one line; nil options are none.
func New(collection *mongo.Collection, opts ...Option) *Backend {
	b := &Backend{setUp: make(chan struct{}, 1)}
	for _, o := range opts {
		if o != nil {
			o.apply(&b.config)
		}
	}
	if collection == nil {
		return b
	}
	own := options.Collection().SetWriteConcern(writeconcern.Majority()).
		SetReadPreference(readpref.Primary()).SetReadConcern(readconcern.Local())
	b.locks = collection.Clone(own)
	b.fences = collection.Database().Collection(collection.Name()+fencesSuffix, own)
	return b
}

// Validate implements [locco.Validator]. It may be called on a nil Backend.
func (b *Backend) Validate() error {
	switch {
	case b == nil:
		return &locco.ValidationError{Field: "backend", Rule: "must come from mongo.New, not be nil"}
	case b.locks == nil:
		return &locco.ValidationError{Field: "mongo collection", Rule: "must not be nil"}
	}
	return nil
}

// Fences implements [locco.Fencer]: always true.
func (*Backend) Fences() bool { return true }

// tries is how often an update is sent that another one was in the way of: each time the
// server has undone it.
const tries = 5

// Acquire implements [locco.Backend]. It is one upsert, and if l.Fenced a second command
// that draws the fence; what is left of the lease that refuses it costs one more, sent
// only then.
func (b *Backend) Acquire(ctx context.Context, l locco.Lease) (locco.Grant, error) {
	if err := b.ready(ctx, l.Fenced); err != nil {
		return locco.Grant{}, err
	}
	may := free
	if l.Again {
		may = bson.D{{Key: "$or", Value: bson.A{free, hasToken(l.Token)}}}
	}
	ok, err := b.take(ctx, l, may)
	switch {
	case err != nil:
		return locco.Grant{}, b.explain(err)
	case ok:
		return b.granted(ctx, &l)
	case !l.WantLeft:
		return locco.Grant{}, nil
	}
	var g locco.Grant
	// It is refused, whether or not the server says for how long.
	if left, found, err := b.left(ctx, ofKey(l.Key)); err == nil {
		g.Left = max(left, time.Millisecond)
		if !found { // released meanwhile
			g.Left = time.Millisecond
		}
	}
	return g, nil
}

// take stores l if the expression may holds for what is there, or nothing is.
//
// That the token is new makes a grant a change of the document. One that is repeated can
// compute what is there already, so then it asks whose that is.
func (b *Backend) take(ctx context.Context, l locco.Lease, may bson.D) (bool, error) {
	for try := 1; ; try++ {
		r, err := b.locks.UpdateOne(ctx, ofKey(l.Key), stored(may, l.Token, l.TTL), options.UpdateOne().SetUpsert(true))
		switch {
		case mongo.IsDuplicateKeyError(err) && try < tries:
			continue
		case err != nil:
			return false, err
		case r.UpsertedCount+r.ModifiedCount > 0:
			return true, nil
		case !l.Again:
			return false, nil
		}
		return b.holds(ctx, l.Key, l.Token)
	}
}

// update changes a document that is there. Servers that are built on Postgres may find a
// deadlock where many want one. (Those who insert one would meet again at once: they try
// again after the delay of their retry.)
func (b *Backend) update(ctx context.Context, filter bson.D, change mongo.Pipeline) (r *mongo.UpdateResult, err error) {
	for range tries {
		r, err = b.locks.UpdateOne(ctx, filter, change)
		if !inTheWay(err) || ctx.Err() != nil {
			break
		}
	}
	return r, err
}

// granted is the grant of a lease that has just been stored, with its fence.
func (b *Backend) granted(ctx context.Context, l *locco.Lease) (g locco.Grant, err error) {
	if l.Fenced {
		if g.Fence, err = b.draw(ctx, l.Key); err != nil {
			return locco.Grant{}, b.afterwards(err)
		}
	}
	g.OK = true
	return g, nil
}

// Extend implements [locco.Backend].
func (b *Backend) Extend(ctx context.Context, l locco.Lease) (bool, error) {
	if err := b.ready(ctx, false); err != nil {
		return false, err
	}
	r, err := b.update(ctx, ofHolder(l.Key, l.Token), stored(live, l.Token, l.TTL))
	switch {
	case err != nil:
		return false, b.explain(err)
	case r.ModifiedCount > 0:
		return true, nil
	case r.MatchedCount == 0:
		return false, nil
	}
	// It has ended, or ends when it should anyway.
	ok, err := b.holds(ctx, l.Key, l.Token)
	return ok, b.explain(err)
}

// Release implements [locco.Backend]. It ends the lease where it stands, and leaves the
// document to the index that deletes what has ended.
func (b *Backend) Release(ctx context.Context, key, token string) (bool, error) {
	if err := b.ready(ctx, false); err != nil {
		return false, err
	}
	r, err := b.update(ctx, ofHolder(key, token), ended)
	if err != nil {
		return false, b.explain(err)
	}
	return r.ModifiedCount > 0, nil
}

// Holds implements [locco.Backend]. It asks the primary.
func (b *Backend) Holds(ctx context.Context, key, token string) (bool, error) {
	if err := b.ready(ctx, false); err != nil {
		return false, err
	}
	ok, err := b.holds(ctx, key, token)
	return ok, b.explain(err)
}

func (b *Backend) holds(ctx context.Context, key, token string) (bool, error) {
	left, found, err := b.left(ctx, ofHolder(key, token))
	return found && left >= 0, err
}

// left tells how long the lease of a document still runs; below 0 if it has ended.
func (b *Backend) left(ctx context.Context, filter bson.D) (left time.Duration, found bool, err error) {
	cursor, err := b.locks.Aggregate(ctx, mongo.Pipeline{
		{{Key: "$match", Value: filter}},
		{{Key: "$project", Value: bson.D{
			{Key: "_id", Value: 0},
			{Key: "left", Value: bson.D{{Key: "$subtract", Value: bson.A{"$" + fieldExpiry, "$$NOW"}}}},
		}}},
	})
	if err != nil {
		return 0, false, err
	}
	var list []struct{ Left *int64 }
	if err := cursor.All(ctx, &list); err != nil || len(list) == 0 {
		return 0, false, err
	}
	if list[0].Left == nil {
		return -1, true, nil
	}
	const most = int64(math.MaxInt64 / time.Millisecond)
	return time.Duration(min(max(*list[0].Left, -1), most)) * time.Millisecond, true, nil
}

// Transfer implements [locco.Transferrer]. With to.Again, a live lease of to's own token
// is a grant too.
func (b *Backend) Transfer(ctx context.Context, from string, to locco.Lease) (locco.Grant, error) {
	if err := b.ready(ctx, to.Fenced); err != nil {
		return locco.Grant{}, err
	}
	filter := ofHolder(to.Key, from)
	if to.Again {
		filter = bson.D{{Key: fieldKey, Value: to.Key}, {Key: fieldToken, Value: bson.D{{Key: "$in", Value: bson.A{from, to.Token}}}}}
	}
	r, err := b.update(ctx, filter, stored(live, to.Token, to.TTL))
	ok := err == nil && r.ModifiedCount > 0
	if err == nil && !ok && to.Again && r.MatchedCount > 0 {
		ok, err = b.holds(ctx, to.Key, to.Token)
	}
	switch {
	case err != nil:
		return locco.Grant{}, b.explain(err)
	case !ok:
		return locco.Grant{}, nil
	}
	return b.granted(ctx, &to)
}
