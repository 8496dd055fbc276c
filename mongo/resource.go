package mongo

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	locco "github.com/locco-go/locco/core"
)

// maxFence is the largest fence: the largest integer that a double keeps exactly.
const maxFence = 1<<53 - 1

// ErrStale means that a later holder has claimed the resource. [StaleError] has the
// details.
var ErrStale = errors.New("locco: a later holder has claimed the resource")

// StaleError says that the fence is smaller than one that the document has seen. Nothing
// was written. It matches [ErrStale].
type StaleError struct {
	ID    any // the _id of the document
	Fence int64
	Seen  int64 // the highest fence so far; 0 if it is not known
}

func (e *StaleError) Error() string {
	return fmt.Sprintf("locco: document %v has seen fence %d; %d is stale", e.ID, e.Seen, e.Fence)
}

// Is reports whether target is [ErrStale].
func (e *StaleError) Is(target error) bool { return target == ErrStale }

// FieldFence is the field of a document in which [Raise] and [Guard] keep the highest
// fence that it has seen.
const FieldFence = "loccoFence"

// Raise claims the document with this _id for fence: from now on [Raise] and [Guard] refuse
// every smaller one with a [*StaleError]. Call it before the document is read, so that no
// earlier holder can change what was read. An equal fence passes. A document that is not
// there is made, with nothing but its _id and the fence. All who write to the document do
// so through Guard. The write concern is "majority", whatever the collection's is.
func Raise(ctx context.Context, collection *mongo.Collection, id any, fence int64) error {
	return Guard(ctx, collection, id, fence, nil)
}

// Guard runs an update of the document with this _id, in one step with the check that no
// larger fence was seen; else it is refused with a [*StaleError] and not run. It claims
// the document as [Raise] does. Update has update operators ($set, $inc, …), but none for
// [FieldFence] and no pipeline. A document that is not there is made.
//
//	err := mongo.Guard(ctx, accounts, 42, lock.Fence(), bson.D{{"$inc", bson.D{{"balance", -17}}}})
func Guard(ctx context.Context, collection *mongo.Collection, id any, fence int64, update bson.D) error {
	switch {
	case collection == nil:
		return &locco.ValidationError{Field: "mongo collection", Rule: "must not be nil"}
	case id == nil:
		return &locco.ValidationError{Field: "id", Rule: "must not be nil"}
	case fence < 1 || fence > maxFence:
		return &locco.ValidationError{Field: "fence", Value: fence, Rule: "must come from a fenced lock (locco.WithFencing)"}
	}
	all, err := withFence(update, fence)
	if err != nil {
		return err
	}
	c := collection.Clone(options.Collection().SetWriteConcern(writeconcern.Majority()))
	// A document that has seen a larger fence does not match, and the insert that takes its
	// place then meets its _id.
	filter := bson.D{{Key: "_id", Value: id}, {Key: FieldFence, Value: bson.D{{Key: "$not", Value: bson.D{{Key: "$gt", Value: fence}}}}}}
	for try := 1; ; try++ {
		_, err = c.UpdateOne(ctx, filter, all, options.UpdateOne().SetUpsert(true))
		if !mongo.IsDuplicateKeyError(err) {
			return err
		}
		seen, found := seenFence(ctx, c, id)
		if found && seen > fence || try == tries {
			return &StaleError{ID: id, Fence: fence, Seen: seen}
		}
		// Somebody has just made it.
	}
}

// withFence adds the fence to an update.
func withFence(update bson.D, fence int64) (bson.D, error) {
	mark := bson.E{Key: FieldFence, Value: fence}
	all, set := bson.D{}, false
	for _, e := range update {
		if !strings.HasPrefix(e.Key, "$") {
			return nil, &locco.ValidationError{Field: "update", Value: e.Key, Rule: "must consist of update operators, such as $set"}
		}
		if e.Key == "$set" {
			fields, ok := e.Value.(bson.D)
			if !ok {
				return nil, &locco.ValidationError{Field: "update", Value: e.Value, Rule: "must have a bson.D behind $set"}
			}
			e.Value, set = append(append(bson.D{}, fields...), mark), true
		}
		all = append(all, e)
	}
	if !set {
		all = append(all, bson.E{Key: "$set", Value: bson.D{mark}})
	}
	return all, nil
}

func seenFence(ctx context.Context, c *mongo.Collection, id any) (fence int64, found bool) {
	var d bson.M
	err := c.FindOne(ctx, bson.D{{Key: "_id", Value: id}}, options.FindOne().SetProjection(bson.D{{Key: FieldFence, Value: 1}})).Decode(&d)
	if err != nil {
		return 0, false
	}
	switch v := d[FieldFence].(type) {
	case int64:
		return v, true
	case int32:
		return int64(v), true
	case float64:
		return int64(v), true
	}
	return 0, true
}
