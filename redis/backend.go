package redis

import (
	"context"
	"fmt"
	"reflect"
	"sync/atomic"

	"github.com/redis/rueidis"

	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/core/pubsub"
	"github.com/locco-go/locco/redis/protocol"
)

var (
	_ locco.Backend      = (*Backend)(nil)
	_ locco.Fencer       = (*Backend)(nil)
	_ locco.Retryer      = (*Backend)(nil)
	_ locco.Watcher      = (*Backend)(nil)
	_ locco.Transferrer  = (*Backend)(nil)
	_ locco.ManyAcquirer = (*Backend)(nil)
	_ locco.ManyExtender = (*Backend)(nil)
	_ locco.Validator    = (*Backend)(nil)
)

// Backend keeps leases on a Redis server. Create it with [New]. It is safe for
// concurrent use, needs no closing, and is not copied.
type Backend struct {
	client  rueidis.Client
	config  config
	cluster bool
	publish string // the command that publishes a release; "" for none
	hub     *pubsub.Hub

	muted      atomic.Bool // a release was not allowed to publish
	speechless atomic.Bool // a server does not know the command
	able       atomic.Bool // the server is known to take WAIT or WAITAOF
	old        atomic.Bool // a server does not take SET with NX and GET
}

// New returns a Backend on client: of one server, of Sentinels or of a Cluster. The
// client stays the caller's: New does no I/O, registers nothing on it and never
// closes it. A nil client or a bad option is reported by [Backend.Validate], which
// [locco.New] asks, so that locco.New(redis.New(client)) stays one line; nil
// options are none.
func New(client rueidis.Client, opts ...Option) *Backend {
	b := &Backend{client: client}
	for _, o := range opts {
		if o != nil {
			o.apply(&b.config)
		}
	}
	if isNil(client) {
		b.client = nil
		return b
	}
	b.cluster = client.Mode() == rueidis.ClientModeCluster
	switch {
	case b.config.silent:
	case b.cluster: // PUBLISH would go to every node
		b.publish = protocol.ShardPublish
	default:
		b.publish = protocol.Publish
	}
	b.hub = newHub(client, b.cluster)
	return b
}

func isNil(client rueidis.Client) bool {
	v := reflect.ValueOf(client)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}

// Validate implements [locco.Validator]. It may be called on a nil Backend.
func (b *Backend) Validate() error {
	switch {
	case b == nil:
		return &locco.ValidationError{Field: "backend", Rule: "must come from redis.New, not be nil"}
	case b.client == nil:
		return &locco.ValidationError{Field: "redis client", Rule: "must not be nil"}
	case b.config.ack == ackNone:
		return nil
	}
	least := 1
	if b.config.ack == ackAOF {
		least = 0
	}
	field := b.config.ack.option()
	switch {
	case b.config.acks > 1:
		return &locco.ValidationError{Field: field, Rule: "must be given once, and without redis.WithReplication or redis.WithDurability beside it"}
	case b.config.replicas < least:
		return &locco.ValidationError{Field: field, Value: b.config.replicas, Rule: fmt.Sprintf("must ask for at least %d replicas", least)}
	case b.config.timeout <= 0:
		return &locco.ValidationError{Field: field, Value: b.config.timeout, Rule: "must have a timeout above 0"}
	case b.cluster:
		return &locco.ValidationError{
			Field: field, Value: b.client.Mode(),
			Rule: "must not be used on a Cluster client, where WAIT may run on another connection than its write",
		}
	}
	return nil
}

// Fences implements [locco.Fencer]: always true.
func (*Backend) Fences() bool { return true }

// keysOf is the keys of a script that grants: the key, and the counter of its
// fences if the grant is fenced.
type keysOf struct {
	list [2]string
	n    int
}

func (k *keysOf) slice() []string { return k.list[:k.n] }

// check finds before any I/O what this server cannot do for l, and names its keys.
func (b *Backend) check(l *locco.Lease) (keys keysOf, err error) {
	if b.config.ack != ackNone && l.TTL <= b.config.timeout {
		return keys, &locco.ValidationError{
			Field: "ttl", Value: l.TTL, Rule: "must be longer than the timeout of " + b.config.ack.option() + ", " + b.config.timeout.String(),
		}
	}
	keys.list[0], keys.n = l.Key, 1
	if !l.Fenced {
		return keys, nil
	}
	if b.cluster && !protocol.SharesSlot(l.Key) {
		return keys, &locco.ValidationError{
			Field: "key", Value: l.Key,
			Rule: `must have a hash tag or no "}": on a Cluster the counter of its fences could not be in its slot`,
		}
	}
	keys.list[1], keys.n = protocol.FenceKey(l.Key), 2
	return keys, nil
}

// Acquire implements [locco.Backend]. Without a fence it is SET with NX, GET and PX;
// what is left of the lease that refuses it costs a second command, sent only then.
func (b *Backend) Acquire(ctx context.Context, l locco.Lease) (locco.Grant, error) {
	keys, err := b.check(&l)
	if err == nil {
		err = b.probe(ctx)
	}
	if err != nil {
		return locco.Grant{}, err
	}
	if l.Fenced || l.Again {
		args := protocol.AcquireArguments(l.Token, l.TTL, l.Again)
		return b.grant(ctx, &protocol.Acquire, &keys, &args, &l)
	}
	ok, err := b.set(ctx, &l)
	if ok || err != nil || !l.WantLeft {
		return locco.Grant{OK: ok}, err
	}
	var g locco.Grant
	// It is refused, whether or not the server says for how long.
	if left, err := b.client.Do(ctx, b.client.B().Pttl().Key(l.Key).Build()).AsInt64(); err == nil {
		g.Left = protocol.LeftLater(left)
	}
	return g, nil
}

// set takes a key by SET. With GET it answers whose the key is, and so tells a refusal
// from our own grant.
func (b *Backend) set(ctx context.Context, l *locco.Lease) (ok bool, err error) {
	if b.old.Load() {
		return b.setOld(ctx, l)
	}
	r, waited := b.do(ctx, b.client.B().Set().Key(l.Key).Value(l.Token).Nx().Get().PxMilliseconds(protocol.Milliseconds(l.TTL)).Build())
	holder, err := r.ToString()
	switch {
	case rueidis.IsRedisNil(err): // nobody's, until now
		return waited == nil, waited
	case isWrongType(err):
		return false, nil
	case isSyntax(err):
		b.old.Store(true)
		return b.setOld(ctx, l)
	case err == nil && holder == l.Token:
		return false, errUnsure
	}
	return false, explain(err)
}

// setOld is set for servers before Redis 7.0, where a refusal costs a second command.
func (b *Backend) setOld(ctx context.Context, l *locco.Lease) (ok bool, err error) {
	r, waited := b.do(ctx, b.client.B().Set().Key(l.Key).Value(l.Token).Nx().PxMilliseconds(protocol.Milliseconds(l.TTL)).Build())
	err = r.Error()
	if err == nil {
		return waited == nil, waited
	}
	if !rueidis.IsRedisNil(err) {
		return false, explain(err)
	}
	ours, err := b.Holds(ctx, l.Key, l.Token)
	switch {
	case isWrongType(err):
		return false, nil
	case ours:
		return false, errUnsure
	}
	return false, err
}

// grant runs a script that grants.
func (b *Backend) grant(ctx context.Context, s *protocol.Script, keys *keysOf, args *protocol.Arguments, l *locco.Lease) (locco.Grant, error) {
	r, waited := b.write(ctx, s, keys.slice(), args.Slice())
	answer, err := r.AsInt64()
	if err != nil {
		return locco.Grant{}, explain(err)
	}
	var g locco.Grant
	ok, fence, left := protocol.Grant(answer)
	switch {
	case ok && waited != nil:
		return g, waited
	case ok && l.Fenced:
		g.Fence = fence
	case !ok && l.WantLeft:
		g.Left = left
	}
	g.OK = ok
	return g, nil
}

// Extend implements [locco.Backend].
func (b *Backend) Extend(ctx context.Context, l locco.Lease) (bool, error) {
	l.Fenced = false
	keys, err := b.check(&l)
	if err == nil {
		err = b.probe(ctx)
	}
	if err != nil {
		return false, err
	}
	args := protocol.ExtendArguments(l.Token, l.TTL)
	r, waited := b.write(ctx, &protocol.Extend, keys.slice(), args.Slice())
	n, err := r.AsInt64()
	switch {
	case err != nil:
		return false, explain(err)
	case n != 0 && waited != nil:
		return false, waited
	}
	return n != 0, nil
}

// Release implements [locco.Backend]. It publishes that the key is free.
func (b *Backend) Release(ctx context.Context, key, token string) (bool, error) {
	channel := ""
	if b.publish != "" {
		channel = protocol.Channel(key)
	}
	args := protocol.ReleaseArguments(token, b.publish, channel)
	n, err := b.read(ctx, &protocol.Release, []string{key}, args.Slice()).AsInt64()
	switch n {
	case protocol.FreedSilently:
		b.muted.Store(true)
	case protocol.FreedUnheard:
		b.speechless.Store(true)
	}
	return n != protocol.NotOurs, explain(err)
}

// Holds implements [locco.Backend]. It asks the primary.
func (b *Backend) Holds(ctx context.Context, key, token string) (bool, error) {
	args := protocol.HoldsArguments(token)
	n, err := b.read(ctx, &protocol.Holds, []string{key}, args.Slice()).AsInt64()
	return n != 0, explain(err)
}

// Transfer implements [locco.Transferrer]. With to.Again, a live lease of to's own
// token is a grant too.
func (b *Backend) Transfer(ctx context.Context, from string, to locco.Lease) (locco.Grant, error) {
	keys, err := b.check(&to)
	if err == nil {
		err = b.probe(ctx)
	}
	if err != nil {
		return locco.Grant{}, err
	}
	args := protocol.TransferArguments(from, to.Token, to.TTL, to.Again)
	return b.grant(ctx, &protocol.Transfer, &keys, &args, &to)
}
