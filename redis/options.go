package redis

import "time"

// Option is an option of [New]. Options are made by the With… functions.
type Option interface {
	apply(c *config)
}

// config is what New collects.
type config struct {
	silent   bool
	ack      ack
	acks     int // how many options set ack
	replicas int
	timeout  time.Duration
}

// ack is what is waited for after a write.
type ack uint8

const (
	ackNone ack = iota
	ackWait     // WAIT
	ackAOF      // WAITAOF
)

// option returns the name of the option that asks for it.
func (a ack) option() string {
	if a == ackAOF {
		return "redis.WithDurability"
	}
	return "redis.WithReplication"
}

// needs says what it takes.
func (a ack) needs() string {
	if a == ackAOF {
		return "must be used with Redis 7.2 or Valkey, with appendonly yes"
	}
	return "must be used with a server that knows WAIT"
}

func (c *config) acknowledge(a ack, replicas int, timeout time.Duration) {
	c.ack, c.replicas, c.timeout = a, replicas, timeout
	c.acks++
}

type option func(c *config)

func (o option) apply(c *config) { o(c) }

// WithoutWakeUps turns wake-ups off: a release publishes nothing, and waiters look
// at the key once in every retry delay and when its lease ends. It is for a user
// who may not publish or subscribe, and for proxies that cannot. All processes that
// share keys should agree: one that waits is not woken by one that is silent.
func WithoutWakeUps() Option {
	return option(func(c *config) { c.silent = true })
}

// WithReplication makes every acquire, extension and hand-over wait until so many
// replicas have acknowledged it (WAIT), at most for timeout. If fewer have, the
// answer is a [*ReplicationError]: an acquire then gives the key back, an extension
// leaves the lock held until its lease ends. The default is not to wait.
//
// It narrows the window in which a failover loses a lock, and does not close it: a
// replica that did not acknowledge may still be promoted.
//
// The timeout must be shorter than the TTL of every lock, and should be shorter
// than the locker's call timeout. Each such call takes a connection of its own
// from the client's pool while it runs. On a Cluster client it is a validation
// error: after a redirection WAIT would not run where the write did.
func WithReplication(replicas int, timeout time.Duration) Option {
	return option(func(c *config) { c.acknowledge(ackWait, replicas, timeout) })
}

// WithDurability makes every acquire, extension and hand-over wait until it has been
// written to disk, in the append-only file of the primary and of so many replicas, which
// may be 0 (WAITAOF), at most for timeout. It is for a server that may restart and is to
// know its locks then. If it was not confirmed in time the answer is a
// [*ReplicationError], with the consequences that [WithReplication] names, and what is
// said there about the timeout, connections and Clusters holds here too. The default is
// not to wait. Of the two options one can be given.
//
// It needs Redis 7.2 or Valkey, with appendonly yes; else the first use is a validation
// error, before anything is stored. With appendfsync always it costs a write to disk,
// with everysec up to a second, with no it is not confirmed.
func WithDurability(replicas int, timeout time.Duration) Option {
	return option(func(c *config) { c.acknowledge(ackAOF, replicas, timeout) })
}
