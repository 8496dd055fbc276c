package mongo

import (
	"context"
	"fmt"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	locco "github.com/locco-go/locco/core"
)

// The names of the indexes.
const (
	keyIndex    = fieldKey + "_1"
	expiryIndex = fieldExpiry + "_1"
)

// Indexes returns the indexes of the collection of locks, for use without loccoddl:
// key_1, which is unique and which no lock is safe without, and expireAt_1, by which the
// server deletes documents some time after their lease has ended. The collection of
// fences needs none.
//
//	_, err := collection.Indexes().CreateMany(ctx, mongo.Indexes())
func Indexes() []mongo.IndexModel {
	return []mongo.IndexModel{
		{Keys: bson.D{{Key: fieldKey, Value: 1}}, Options: options.Index().SetName(keyIndex).SetUnique(true)},
		{Keys: bson.D{{Key: fieldExpiry, Value: 1}}, Options: options.Index().SetName(expiryIndex).SetExpireAfterSeconds(0)},
	}
}

// CreateIndexes returns the command that creates [Indexes], for a program that runs it as
// it is: db.RunCommand(ctx, mongo.CreateIndexes("locco-locks")). It can run again on what is
// there. Loccoddl prints it.
func CreateIndexes(collection string) bson.D {
	return bson.D{
		{Key: "createIndexes", Value: collection},
		{Key: "indexes", Value: bson.A{
			bson.D{{Key: "key", Value: bson.D{{Key: fieldKey, Value: 1}}}, {Key: "name", Value: keyIndex}, {Key: "unique", Value: true}},
			bson.D{{Key: "key", Value: bson.D{{Key: fieldExpiry, Value: 1}}}, {Key: "name", Value: expiryIndex}, {Key: "expireAfterSeconds", Value: 0}},
		}},
	}
}

// DropIndexes returns the command that drops [Indexes].
func DropIndexes(collection string) bson.D {
	return bson.D{{Key: "dropIndexes", Value: collection}, {Key: "index", Value: bson.A{keyIndex, expiryIndex}}}
}

// ready sees to it, at the first use, that the indexes are there, and that fences can be
// drawn if fenced. A failure is not kept: the next call looks again.
func (b *Backend) ready(ctx context.Context, fenced bool) error {
	if b.indexed.Load() && (!fenced || b.drawn.Load()) {
		return nil
	}
	if err := b.Validate(); err != nil {
		return err
	}
	select {
	case b.setUp <- struct{}{}:
		defer func() { <-b.setUp }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if !b.indexed.Load() {
		if err := b.index(ctx); err != nil {
			return err
		}
		b.indexed.Store(true)
	}
	if fenced && !b.drawn.Load() {
		// What it may not do is to be found out before anything is stored. No key is empty.
		if _, err := b.draw(ctx, ""); err != nil {
			return b.explain(err)
		}
		b.drawn.Store(true)
	}
	return nil
}

// index creates the indexes that are missing.
func (b *Backend) index(ctx context.Context) error {
	there, err := b.look(ctx)
	if err != nil {
		return b.explain(err)
	}
	var missing []mongo.IndexModel
	for i, name := range []string{fieldKey, fieldExpiry} {
		if there[name] == "" {
			missing = append(missing, Indexes()[i])
		}
	}
	problem := there[fieldKey]
	if problem == "" && b.config.keepSchema {
		problem = "must have the unique index " + keyIndex + " on " + fieldKey
	}
	if problem != "" && problem != sound {
		return b.schemaError(problem, nil)
	}
	if len(missing) == 0 || b.config.keepSchema {
		return nil
	}
	_, err = b.locks.Indexes().CreateMany(ctx, missing)
	switch {
	case hasCode(err, codeIndexOptionsConflict, codeIndexKeySpecsConflict):
		return b.schemaError("must have no other index of the name or on the field of one that is to be created", err)
	case mongo.IsDuplicateKeyError(err):
		return b.schemaError("must not have two documents of the same key", err)
	}
	return b.explain(err)
}

func (b *Backend) schemaError(problem string, err error) error {
	return &locco.ValidationError{
		Field: "mongo collection", Value: b.locks.Database().Name() + "." + b.locks.Name(),
		Rule: problem + " (see loccoddl mongo)", Err: err,
	}
}

// sound is an index that does what it is for.
const sound = "sound"

// look finds indexes on key and expireAt alone: for each field "" if there is none, [sound],
// or what is wrong with it.
func (b *Backend) look(ctx context.Context) (map[string]string, error) {
	cursor, err := b.locks.Indexes().List(ctx)
	if hasCode(err, codeNamespaceNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var list []struct {
		Name      string   `bson:"name"`
		Key       bson.D   `bson:"key"`
		Unique    bool     `bson:"unique"`
		Sparse    bool     `bson:"sparse"`
		Hidden    bool     `bson:"hidden"`
		Partial   bson.Raw `bson:"partialFilterExpression"`
		Collation bson.Raw `bson:"collation"`
	}
	if err := cursor.All(ctx, &list); err != nil {
		if hasCode(err, codeNamespaceNotFound) {
			return nil, nil
		}
		return nil, err
	}
	found := map[string]string{}
	for _, i := range list {
		if len(i.Key) != 1 {
			continue
		}
		field := i.Key[0].Key
		if field == fieldExpiry {
			found[field] = sound // what else it does harms no lock
		}
		if field != fieldKey || found[field] == sound {
			continue
		}
		var wrong []string
		if !i.Unique {
			wrong = append(wrong, "not unique")
		}
		if i.Sparse {
			wrong = append(wrong, "sparse")
		}
		if i.Partial != nil {
			wrong = append(wrong, "partial")
		}
		if i.Collation != nil {
			wrong = append(wrong, "with a collation")
		}
		if found[field] = sound; len(wrong) > 0 {
			found[field] = fmt.Sprintf("must have a unique index on %s, of all documents and byte for byte; %s is %s",
				fieldKey, i.Name, strings.Join(wrong, ", "))
		}
	}
	return found, nil
}
