package redis

import (
	"context"
	"fmt"

	"github.com/redis/rueidis"

	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/redis/protocol"
)

// evalSHA builds the call of a script that the server should know.
func (b *Backend) evalSHA(s *protocol.Script, keys, args []string) rueidis.Completed {
	return b.client.B().Evalsha().Sha1(s.SHA).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()
}

// eval builds the call of a script that the server does not know.
func (b *Backend) eval(s *protocol.Script, keys, args []string) rueidis.Completed {
	return b.client.B().Eval().Script(s.Source).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()
}

// read runs a script whose effect no replica has to acknowledge.
func (b *Backend) read(ctx context.Context, s *protocol.Script, keys, args []string) rueidis.RedisResult {
	r := b.client.Do(ctx, b.evalSHA(s, keys, args))
	if isNoScript(r.Error()) {
		r = b.client.Do(ctx, b.eval(s, keys, args))
	}
	return r
}

// write runs a script, and waits for the replicas if that was asked for.
func (b *Backend) write(ctx context.Context, s *protocol.Script, keys, args []string) (rueidis.RedisResult, error) {
	r, err := b.do(ctx, b.evalSHA(s, keys, args))
	if isNoScript(r.Error()) {
		r, err = b.do(ctx, b.eval(s, keys, args))
	}
	return r, err
}

// do runs a command that writes. The error is a [*ReplicationError] or that of WAIT,
// and counts only if the command did what it was to do.
func (b *Backend) do(ctx context.Context, cmd rueidis.Completed) (rueidis.RedisResult, error) {
	if b.config.ack == ackNone {
		return b.client.Do(ctx, cmd), nil
	}
	rs := b.doMulti(ctx, cmd)
	return rs[0], b.acknowledged(rs[1])
}

// doMulti runs commands that write in one exchange, with WAIT or WAITAOF behind them
// if that was asked for. As these block, the driver gives all of them one connection that
// nobody else uses meanwhile.
func (b *Backend) doMulti(ctx context.Context, cmds ...rueidis.Completed) []rueidis.RedisResult {
	switch b.config.ack {
	case ackWait:
		cmds = append(cmds, b.client.B().Wait().Numreplicas(int64(b.config.replicas)).
			Timeout(protocol.Milliseconds(b.config.timeout)).Build())
	case ackAOF:
		cmds = append(cmds, b.client.B().Waitaof().Numlocal(1).Numreplicas(int64(b.config.replicas)).
			Timeout(protocol.Milliseconds(b.config.timeout)).Build())
	}
	return b.client.DoMulti(ctx, cmds...)
}

// acknowledged reads the answer of WAIT or WAITAOF.
func (b *Backend) acknowledged(r rueidis.RedisResult) error {
	local, replicas := int64(1), int64(0)
	var err error
	if b.config.ack == ackAOF {
		var both []int64
		if both, err = r.AsIntSlice(); err == nil && len(both) != 2 {
			err = fmt.Errorf("locco: WAITAOF answered %d", both)
		}
		if err == nil {
			local, replicas = both[0], both[1]
		}
	} else {
		replicas, err = r.AsInt64()
	}
	switch {
	case err != nil:
		// The write is done, so this is no ValidationError, whatever it says: the next
		// probe will tell.
		b.able.Store(false)
		return err
	case local < 1 || int(replicas) < b.config.replicas:
		return &ReplicationError{Wanted: b.config.replicas, Acknowledged: int(replicas), Unsynced: local < 1}
	}
	return nil
}

// probe finds out, before anything is written, whether the server and the user can do
// what [WithReplication] or [WithDurability] asks for: a [*locco.ValidationError] says
// that nothing was stored.
func (b *Backend) probe(ctx context.Context) error {
	if b.config.ack == ackNone || b.able.Load() {
		return nil
	}
	// What nobody waits for is acknowledged at once.
	cmd := b.client.B().Wait().Numreplicas(0).Timeout(1).Build()
	if b.config.ack == ackAOF {
		cmd = b.client.B().Waitaof().Numlocal(1).Numreplicas(0).Timeout(1).Build()
	}
	err := b.client.Do(ctx, cmd).Error()
	if err == nil {
		b.able.Store(true)
		return nil
	}
	if isIncapable(err) {
		return &locco.ValidationError{Field: b.config.ack.option(), Rule: b.config.ack.needs(), Err: err}
	}
	return explain(err)
}
