// Package postgres is the backend of locco for PostgreSQL, through the driver pgx v5.
//
//	pool, err := pgxpool.New(ctx, "postgres://localhost/app")
//	…
//	locker, err := locco.New(postgres.New(pool), locco.WithFencing())
//
// # Guarantees
//
// A key is a row of one table, and the clock of the primary decides when a lease has
// ended. Every operation is one statement in a transaction of its own, and so one atomic
// step, as durable as the server's settings make a commit. A refused attempt reads and
// writes nothing: no WAL, no row version, no number of the sequence. Postgres 12 and later.
//
// Fencing tokens come from a sequence, drawn when the row is the grant's: they grow with
// every grant of a key, however one grant follows another. A sequence that is set back
// (a restored backup, a failover to a standby that lagged) gives numbers again that were
// given before; loccoddl check finds one that is behind the marks of [Resource].
//
// What a holder and a waiter see:
//
//   - A restart, a failover, a backend that was terminated, a broken connection: the call
//     that used it fails with the driver's error. An acquire tries again within its retry
//     budget, by its token, and takes what its first request stored for its own. An
//     extension is tried again by the heartbeat. Leases are data and survive a restart.
//   - A server or network that goes silent: calls end at the locker's call timeout, and
//     pgx closes the connection. A holder knows that its lease has ended without hearing
//     from the server.
//   - Another transaction that holds the row (a statement by hand, a stalled backend): the
//     server gives up waiting after half of the call's time, a second at most, with its
//     error 55P03, which counts as a look without a grant. An extension of many locks
//     goes on without that row.
//   - ALTER TABLE, VACUUM FULL and the like hold the whole table: calls then end at the
//     call timeout.
//   - A deadlock, a serialization failure (with another default_transaction_isolation), a
//     server that starts, stops, has become a standby or has too many connections:
//     tried again within the budget.
//
// Asynchronous replication loses at a failover what the standby has not seen, and a
// second holder may then get the key while the first one believes in its lease. With
// synchronous_standby_names set, a grant is one only if its commit was confirmed: where
// the server stopped waiting for the standby (it then warns that the transaction may not
// be there), the answer counts as lost, and the key is given back. The server's settings
// decide what a standby confirms; synchronous_commit = off or local asks for nothing.
//
// Waiters are woken by NOTIFY, sent by a release only if somebody waits for the key: a
// waiter shares an advisory lock, which the statement of the release tests. It costs
// those for whom nobody waits nothing that could be measured. All watches of a Backend
// share one connection, taken out of the pool at the first wait; see [Backend.Watch]. (With
// an OnNotification of the caller's own in the pool's configuration, a notification that
// comes while a watch begins or ends may be missed.) So
// a process needs its pool and one connection more, for any number of holders and
// waiters.
//
// Behind a pooler that gives each transaction another connection (PgBouncer in
// transaction mode) everything works but listening: use [WithListenConn] with an address
// of the server itself, or [WithoutWakeUps]; and [WithoutPreparedStatements] if the
// pooler does not follow prepared statements.
//
// # Stored data
//
// The table ("locco_locks", [WithTable]) has the columns key (text, the primary key), token
// (text) and expires_at (timestamptz). The sequence beside it has the same name with
// "_fence" behind it, and is used by fenced grants only. Both are made at first use if
// they are missing, unless [WithoutSetUp] is given; [DDL] and loccoddl print them for
// migrations. The first use also checks that the table has a unique key on key alone, and
// that the sequence is as it should be.
//
// A row stays after its lease has ended, until the key is taken or released, or
// [Backend.SweepExpired] deletes it.
//
// An advisory lock has the number that is the first eight bytes of the SHA-256 of
// "locco:" and the key, and a channel is called "locco_" and that number in hexadecimal
// digits. A process that waits for many keys at a time uses as many entries of the
// server's table of locks; it waits for 1,000 of them at most with wake-ups. Raise
// max_locks_per_transaction where several processes do so.
//
// # Errors
//
// Errors of the server and of the driver are returned as they are. A database that is set
// up wrong is a [*locco.ValidationError] that wraps the server's error and says what is
// missing: a table, a column, a key, a right. The role needs
//
//	SELECT, INSERT, UPDATE, DELETE on the table
//	USAGE on the sequence, if grants are fenced
//	USAGE on their schema
//
// and CREATE on the schema only where the table is to be made at first use.
//
// # Driver access
//
// The pool is the caller's and is not closed. A *pgx.Conn serves one call at a time, and
// is refused inside a transaction, as a pgx.Tx is: a lock would be nobody's until the
// commit. No session state is used or left behind, except on the listening connection.
//
// A call's context has the locker's call timeout, not the caller's cancellation, so pgx
// closes no connection because a caller went away.
package postgres
