package mongo

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	locco "github.com/locco-go/locco/core"
)

// fencesSuffix is behind the name of the collection of locks in that of the counters. A
// counter is a document for each key, which stays when the lock is gone:
// {_id: key, fence: 17}.
const fencesSuffix = "-fences"

// draw answers the next fence of a key. It is drawn when the lease is stored, so what is
// granted later has a larger one; one that comes too late for its lease counts for
// nothing (spec 1.6), and so does no harm.
func (b *Backend) draw(ctx context.Context, key string) (fence int64, err error) {
	for range tries {
		var counter struct{ Fence int64 }
		err = b.fences.FindOneAndUpdate(ctx, bson.D{{Key: "_id", Value: key}},
			bson.D{{Key: "$inc", Value: bson.D{{Key: "fence", Value: int64(1)}}}},
			options.FindOneAndUpdate().SetUpsert(true).SetReturnDocument(options.After),
		).Decode(&counter)
		if err == nil {
			return counter.Fence, nil
		}
		if !inTheWay(err) || ctx.Err() != nil {
			break
		}
	}
	return 0, err
}

// afterwards is explain for an error that came when the lease was stored: it does not say
// that nothing was (spec 1.9), so that the key is given back.
func (b *Backend) afterwards(err error) error {
	b.drawn.Store(false)
	explained := b.explain(err)
	if errors.Is(explained, locco.ErrInvalid) {
		return fmt.Errorf("locco: drawing a fence: %w", err)
	}
	return explained
}
