// Package redis is the backend of locco for Redis 6.2 and later and Valkey, through
// the driver rueidis: one server, Sentinels, or a Cluster.
//
//	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{"127.0.0.1:6379"}})
//	…
//	locker, err := locco.New(redis.New(client), locco.WithFencing())
//
// # Guarantees
//
// A key lives on one primary, whose clock decides when a lease has ended. Every
// operation is one command or one script, and so one atomic step. There is no
// quorum over several servers.
//
// Replication is asynchronous. A failover to a replica that has not seen a grant
// loses it, and a second holder may get the key while the first one believes in
// its lease; [WithReplication] and [WithDurability] narrow that window. Fencing
// tokens tell the two apart: a token is at least the primary's time in
// microseconds, so the tokens of a key go on growing when the counter is lost, and
// when the clock steps back, but not if both happen at once.
//
// What a holder and a waiter see:
//
//   - SCRIPT FLUSH, a restart of the server, a failover: scripts are sent again. A
//     restart with empty data loses the leases: the holder's next Extend, Check or
//     Release finds out, and the key can be granted at once.
//   - A broken connection: the call that used it fails with the driver's error. An
//     acquire tries again within its retry budget, by its token, and takes what its
//     first request stored for its own. An extension is tried again by the
//     heartbeat. The lock stays held until its lease ends.
//   - A server or network that goes silent: calls end at the locker's call timeout.
//     A holder knows that its lease has ended without hearing from the server.
//   - READONLY, LOADING, CLUSTERDOWN, TRYAGAIN, MASTERDOWN: as a broken connection.
//   - OOM with the policy noeviction, or a stored value of another type at the
//     counter: the server's error, and nothing is stored. A value of another type
//     at the key itself is refused like a key that another holder has.
//   - A policy that evicts can evict a lock: use noeviction, or a server of its own.
//
// Waiters are woken by a message of the release. A message that is lost costs at
// most the retry delay. All watches of a Backend share one connection, opened at
// the first wait; see [Backend.Watch]. On a Cluster the message goes through a sharded
// channel (SPUBLISH, Redis 7.0 and Valkey) to those who listen to the key's shard and
// to nobody else, and a Backend has a connection to each node at which it waits;
// before Redis 7.0 waiters there look once in every retry delay and when the lease
// ends.
//
// Sets of keys are taken in one step by one script, on a Cluster if all keys share
// a slot (a common hash tag: "{order:42}:a" and "{order:42}:b"); otherwise one by
// one. Extensions that fall due together are sent together, 32 of them a script.
//
// # Stored data
//
// A lock is the key: a string with the token as its value and the lease as its
// expiry, SET key token PX ttl NX (and GET, from Redis 7.0 on, which tells a refusal from
// a request that came twice; before, a refusal costs a second command). The Node library of the same name stores the same.
// Beside it, only for fenced grants, is the counter "{key}:locco-fence", or
// "key:locco-fence" if the key has a hash tag. It expires a day after the last
// grant, or after its lease if that is longer. A key with a "}" but without a hash
// tag cannot have its counter in its slot: on a Cluster client a fenced acquire of
// it is a [*locco.ValidationError]. Messages go through the channel
// "{key}:locco-free", "key:locco-free" if the key has a hash tag, or that of the key's
// own name if it has a "}" but no hash tag.
//
// # Errors
//
// Errors of the server and of the driver are returned as they are. A right that is
// missing (NOPERM) is a [*locco.ValidationError] that wraps the server's error and
// says what the user needs:
//
//	+evalsha +eval +set +get +del +pexpire +pttl +time
//	+publish +subscribe +unsubscribe and the channels, unless WithoutWakeUps is given;
//	on a Cluster +spublish +ssubscribe +sunsubscribe in their place
//
// besides +wait for WithReplication, +waitaof for WithDurability, and what the driver
// needs to connect (+hello +client +ping, on a Cluster +cluster).
//
// A user who may not publish can still release; the next wait reports it as a
// notice, and waiters then look once in every retry delay. [*ReplicationError]
// says that fewer replicas than asked for have acknowledged a write.
//
// # Driver access
//
// The client is the caller's and is not closed. Writes are never marked as
// retryable, so rueidis sends a write again only where the server has not run it
// (MOVED, ASK, an unknown script). The one exception is a connection whose lifetime has
// ended (ConnLifetime) and that breaks while answers are outstanding. What acquires then
// learns from the server that the key has its own token, and is tried again; so it is with
// proxies that repeat requests. A release that went out twice may say [locco.ErrLost] of a
// lock that the first one has freed.
//
// Reads that decide something are scripts and go to the primary, also with
// SendToReplicas. A call with a deadline keeps rueidis out of its slower pipelining
// mode as long as calls do not overlap; subscriptions and WAIT use connections of
// their own.
package redis
