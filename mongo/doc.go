// Package mongo is the backend of locco for MongoDB 4.4 and later, and for FerretDB 2 on
// DocumentDB, through the driver mongo-driver v2.
//
//	client, err := mongo.Connect(options.Client().ApplyURI("mongodb://localhost"))
//	…
//	locks := client.Database("app").Collection(loccomongo.DefaultCollection)
//	locker, err := locco.New(loccomongo.New(locks), locco.WithFencing())
//
// # Guarantees
//
// A key is a document of one collection, and the clock of the primary decides when a lease
// has ended. Every operation changes one document in one step, with the write concern
// "majority", whatever the client's options say. A grant that a majority has not confirmed
// in time counts as lost, and is given back. What an answer of the old primary is worth
// while a new one is elected the server decides: it steps down within its election
// timeout (10 s by default), and writes that it takes until then are confirmed by nobody.
//
// Fencing tokens come from a counter for each key, drawn when the lease is stored: they
// grow with every grant of a key, however one grant follows another. They outlive the
// locks, also where the server deletes documents. A counter that is set back (a restored
// backup, a lost write of an old primary) gives numbers again that were given before.
//
// What a holder and a waiter see:
//
//   - A restart, an election, a broken connection: the call that used it fails with the
//     driver's error, unless the driver has repeated it, which it does so that the server
//     runs it once (retryWrites). An acquire tries again within its retry budget, by its
//     token, and takes what its first request stored for its own. An extension is tried
//     again by the heartbeat. Leases are data and survive a restart.
//   - A server or network that goes silent: calls end at the locker's call timeout. A
//     holder knows that its lease has ended without hearing from the server.
//   - No server that could be asked: the driver's server selection error, or [locco.ErrLate]
//     if the call's time is over first.
//   - A write concern error, a conflict of writes, and on DocumentDB a deadlock: tried again
//     within the budget.
//
// Waiters look at the key once in every retry delay and when its lease ends: a release
// wakes those of its own process only.
//
// On a sharded cluster shard the collection by key or not at all: the unique index needs
// it. $$NOW is then the clock of the shard's primary, one for each key, so leases are as
// good as on a replica set. A move of a chunk does not lose documents.
//
// # Stored data
//
// A lock is a document {key, uniqueValue, expireAt} with the token as uniqueValue, as the
// Node library of the same name stores it. Its name for the collection is
// [DefaultCollection]. An end of the lease is a document whose expireAt has passed; a
// release moves it to 1970. The index expireAt_1 makes the server delete what has ended,
// within a minute or so; the unique index key_1 keeps two documents from having one key,
// and no lock is safe without it. Both are made at first use if they are missing, unless
// [WithoutSetUp] is given; [Indexes] is for migrations.
//
// Beside it, only for fenced grants, is the collection of that name with "-fences" behind
// it, with a document {_id: key, fence} for each key that was ever granted. Delete one only
// when nothing remembers a fence of that key. The document with the _id "" is drawn from
// at the first use.
//
// The Node library compares expireAt with the clock of its own machine, and its extension
// makes a document anew that is gone. Beside it exclusion holds as far as its clock is that
// of the server, and its holders extend in time.
//
// # Errors
//
// Errors of the server and of the driver are returned as they are. A right that is missing
// and an index that is missing or does something else are a [*locco.ValidationError] that
// wraps the server's error and says what is needed: readWrite on the database, or
//
//	find, insert, update, remove on both collections
//	listIndexes on that of the locks, and createIndex unless WithoutSetUp is given
//
// # Driver access
//
// The collection and its client are the caller's. A call's context has the locker's call
// timeout, not the caller's cancellation, so the driver closes no connection because a
// caller went away. An uncontended lock costs two commands, three if it is fenced; a
// refused look one, or two where how long the lease still runs is asked for.
package mongo
