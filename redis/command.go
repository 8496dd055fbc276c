package redis

import (
	"context"
	"time"

	"github.com/redis/rueidis"

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
	if !b.config.replication {
		return b.client.Do(ctx, cmd), nil
	}
	rs := b.doMulti(ctx, cmd)
	return rs[0], b.acknowledged(rs[1])
}

// doMulti runs commands that write in one exchange, with WAIT behind them if that was
// asked for. As WAIT blocks, the driver gives all of them one connection that
// nobody else uses meanwhile.
func (b *Backend) doMulti(ctx context.Context, cmds ...rueidis.Completed) []rueidis.RedisResult {
	if b.config.replication {
		wait := b.client.B().Wait().Numreplicas(int64(b.config.replicas)).
			Timeout(protocol.Milliseconds(b.config.timeout)).Build()
		cmds = append(cmds, wait)
	}
	return b.client.DoMulti(ctx, cmds...)
}

// acknowledged reads the answer of WAIT.
func (b *Backend) acknowledged(r rueidis.RedisResult) error {
	n, err := r.AsInt64()
	if err != nil {
		return explain(err)
	}
	if int(n) < b.config.replicas {
		return &ReplicationError{Wanted: b.config.replicas, Acknowledged: int(n)}
	}
	return nil
}

// resent is after how long a refusal is looked at twice. The driver sends a write
// again only when a connection with a lifetime ends (ConnLifetime) while the server
// is silent, and it waits a second for the server before that.
const resent = 900 * time.Millisecond

// ownGrant tells whether a refusal that took long is that of a request which had
// been granted before, because the driver sent it twice.
func (b *Backend) ownGrant(ctx context.Context, sent time.Time, key, token string, again bool) bool {
	if again || time.Since(sent) < resent {
		return false
	}
	ours, err := b.Holds(ctx, key, token)
	return err == nil && ours
}
