package redis

import "time"

// Option is an option of [New]. Options are made by the With… functions.
type Option interface {
	apply(c *config)
}

// config is what New collects.
type config struct {
	silent      bool
	replication bool
	replicas    int
	timeout     time.Duration
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
	return option(func(c *config) { c.replication, c.replicas, c.timeout = true, replicas, timeout })
}
