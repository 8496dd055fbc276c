package main

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"
)

// backend is a store that subjects are measured on.
type backend struct {
	name string

	// launch starts a server; end removes it.
	launch func(ctx context.Context) (url string, end func() error, err error)

	// open connects to a server.
	open func(ctx context.Context, url string) (store, error)
}

// store is a server, seen from one process. Its subjects share one client.
type store interface {
	// version names the server.
	version(ctx context.Context) (string, error)

	// usage reads the server's counters.
	usage(ctx context.Context) (usage, error)

	// subjects returns what can be measured. The first one that has the function
	// that a case needs is the base of its ratios.
	subjects() []*subject

	close()
}

// usage is what a server has done since it started.
type usage struct {
	commands map[string]command // by name, those that scripts run included
	reads    int64              // from sockets
	cpu      time.Duration      // of the server's process
}

// command is how often a command ran, and for how long.
type command struct {
	calls int64
	took  time.Duration
}

// with returns u and n times other.
func (u usage) with(n int64, other usage) usage {
	sum := usage{map[string]command{}, u.reads + n*other.reads, u.cpu + time.Duration(n)*other.cpu}
	maps.Copy(sum.commands, u.commands)
	for name, c := range other.commands {
		sum.commands[name] = command{sum.commands[name].calls + n*c.calls, sum.commands[name].took + time.Duration(n)*c.took}
	}
	return sum
}

// sum adds up the named commands.
func (u usage) sum(names []string) command {
	var sum command
	for _, name := range names {
		sum.calls += u.commands[name].calls
		sum.took += u.commands[name].took
	}
	return sum
}

// subject is something to measure. A function that is nil is something that it
// cannot do, or that would say nothing new; a case leaves it out then.
type subject struct {
	name string

	// commands are those that it sends. A server counts what a script runs like
	// what a client sends, so a name must not stand here if its scripts use it too.
	commands []string

	// cycle takes a free key and frees it.
	cycle func(ctx context.Context, key string) error

	// hold waits for a key that others want too.
	hold func(ctx context.Context, key string) (free func(context.Context) error, err error)

	// prepare is called once before key is used with hold.
	prepare func(ctx context.Context, key string) error

	// crowds is true if many waiters of a process are to be cheap.
	crowds bool

	// keeper returns what keeps many keys.
	keeper func() (keeper, error)
}

// keeper takes keys and keeps them until its end.
type keeper struct {
	keep    func(ctx context.Context, key string, ttl time.Duration) error
	renewed func() int64 // how many renewals there were
	end     func(ctx context.Context) error
}

// named returns the subject of that name.
func named(subjects []*subject, name string) (*subject, error) {
	names := make([]string, 0, len(subjects))
	for _, s := range subjects {
		if s.name == name {
			return s, nil
		}
		names = append(names, s.name)
	}
	return nil, fmt.Errorf("no subject %q; want one of: %s", name, strings.Join(names, "; "))
}
