package mongo

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// The fields of a lock's document, which the Node library of the same name shares.
const (
	fieldKey    = "key"
	fieldToken  = "uniqueValue"
	fieldExpiry = "expireAt"
)

// live is an expression: the lease runs, by the server's clock. $$NOW has whole
// milliseconds, cut off, so a lease that ends in the present one still runs: else it
// would be up to a millisecond short (spec 1.3). What has no expiry is free. The clock
// is compared here and not in filters, where DocumentDB does not take it.
var live = bson.D{{Key: "$gte", Value: bson.A{"$" + fieldExpiry, "$$NOW"}}}

var free = bson.D{{Key: "$not", Value: bson.A{live}}}

// hasToken is an expression: the document has the token.
func hasToken(token string) bson.D {
	return bson.D{{Key: "$eq", Value: bson.A{"$" + fieldToken, literal(token)}}}
}

// literal keeps a token that begins with "$" from being a name.
func literal(token string) bson.D { return bson.D{{Key: "$literal", Value: token}} }

// stored is an update: if the expression may holds, token has the key for ttl from now.
// Else the document stays as it is.
func stored(may bson.D, token string, ttl time.Duration) mongo.Pipeline {
	return mongo.Pipeline{{{Key: "$set", Value: bson.D{
		{Key: fieldToken, Value: cond(may, literal(token), "$"+fieldToken)},
		{Key: fieldExpiry, Value: cond(may, bson.D{{Key: "$add", Value: bson.A{"$$NOW", milliseconds(ttl)}}}, "$"+fieldExpiry)},
	}}}}
}

// ended is an update: a lease that runs ends. Its end is one that is past by every clock:
// the Node library compares its own.
//
// The document stays for a while. To delete it and to insert it again for the next holder
// takes as many writes, and where many want one key, servers that are built on Postgres
// (DocumentDB) find a deadlock in every other insert.
var ended = mongo.Pipeline{{{Key: "$set", Value: bson.D{
	{Key: fieldExpiry, Value: cond(live, time.UnixMilli(0), "$"+fieldExpiry)},
}}}}

func cond(may bson.D, then, otherwise any) bson.D {
	return bson.D{{Key: "$cond", Value: bson.A{may, then, otherwise}}}
}

// milliseconds is a TTL as it is stored: whole milliseconds, never fewer than ttl.
func milliseconds(ttl time.Duration) int64 {
	return int64((ttl + time.Millisecond - 1) / time.Millisecond)
}

// ofKey and ofHolder are filters.
func ofKey(key string) bson.D { return bson.D{{Key: fieldKey, Value: key}} }

func ofHolder(key, token string) bson.D {
	return bson.D{{Key: fieldKey, Value: key}, {Key: fieldToken, Value: token}}
}
