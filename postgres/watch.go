package postgres

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/core/pubsub"
)

// maxTopics is how many keys are listened to at a time. Each is an entry in the
// server's table of locks, which all sessions share: it has
// max_locks_per_transaction times max_connections entries, 6,400 by default.
const maxTopics = 1000

// tooManyError is the answer to a watch of one key too many.
type tooManyError struct{}

func (tooManyError) Error() string {
	return fmt.Sprintf("locco: %d keys are watched already; waiters of others look once in every retry delay", maxTopics)
}

// Watch implements [locco.Watcher]. All watches of a Backend share one connection,
// opened at the first and closed a second after the last; one that broke is opened
// again in the background, after which every watcher is woken once. At most 1,000 keys
// are watched at a time, and waiters of others look once in every retry delay. With
// [WithoutWakeUps] it answers [errors.ErrUnsupported].
func (b *Backend) Watch(ctx context.Context, key string) (wake <-chan struct{}, stop func(), err error) {
	switch {
	case b.hub == nil:
		return nil, nil, errors.ErrUnsupported
	case b.hub.Topics() >= maxTopics:
		return nil, nil, tooManyError{}
	}
	return b.hub.Watch(ctx, channel(number(key)))
}

// A key has a number of 64 bits: an advisory lock of that number says that somebody
// waits, and a channel of that name says that the key is free. Two keys with the same
// number wake each other's waiters, which costs a look.
func number(key string) int64 {
	sum := sha256.Sum256([]byte("locco:" + key))
	return int64(binary.BigEndian.Uint64(sum[:])) //nolint:gosec // all 64 bits, of whatever sign
}

const channelPrefix = "locco_"

// channel is what the statement of a release makes of a number.
func channel(number int64) string {
	return channelPrefix + strconv.FormatUint(uint64(number), 16) //nolint:gosec // as to_hex does
}

// listener is a connection that listens.
type listener struct {
	conn     *pgx.Conn
	events   pubsub.Events
	channels map[string]bool // that it listens to
}

// newHub returns a hub whose connections come from connect.
func newHub(connect func(ctx context.Context) (*pgx.Conn, error)) *pubsub.Hub {
	return pubsub.New(func(ctx context.Context, events pubsub.Events) (pubsub.Conn, error) {
		conn, err := connect(ctx)
		if err == nil && conn == nil {
			err = &locco.ValidationError{Field: "postgres.WithListenConn", Rule: "must return a connection or an error"}
		}
		if err != nil {
			return nil, err
		}
		return &listener{conn, events, map[string]bool{}}, nil
	})
}

// Subscribe implements [pubsub.Conn], in one round trip. The advisory lock says to those
// who release that somebody waits. While a release that found nobody commits, it is not
// to be had: who looks once it is there finds the key free.
func (l *listener) Subscribe(ctx context.Context, channels []string) (refused map[string]error, err error) {
	results, err := l.script(ctx, channels, "LISTEN %s; SELECT pg_try_advisory_lock_shared(%d);")
	if err != nil {
		return nil, err
	}
	for i, name := range channels {
		if rows := results[2*i+1].Rows; len(rows) == 1 && string(rows[0][0]) == "t" {
			l.channels[name] = true
			continue
		}
		if refused == nil {
			refused = map[string]error{}
		}
		refused[name] = pubsub.ErrLater
	}
	if refused == nil {
		return nil, nil
	}
	// Nobody may be there to ask for it again.
	_, err = l.script(ctx, slices.Collect(maps.Keys(refused)), "UNLISTEN %s; SELECT %d;")
	return refused, err
}

// Unsubscribe implements [pubsub.Conn].
func (l *listener) Unsubscribe(ctx context.Context, channels []string) error {
	channels = slices.DeleteFunc(channels, func(name string) bool { return !l.channels[name] }) // refused ones have been ended
	if len(channels) == 0 {
		return nil
	}
	for _, name := range channels {
		delete(l.channels, name)
	}
	_, err := l.script(ctx, channels, "UNLISTEN %s; SELECT pg_advisory_unlock_shared(%d);")
	return err
}

// script runs two statements for each channel, in one round trip and one transaction.
func (l *listener) script(ctx context.Context, channels []string, statements string) ([]*pgconn.Result, error) {
	var sql strings.Builder
	for _, name := range channels {
		n, err := strconv.ParseUint(strings.TrimPrefix(name, channelPrefix), 16, 64)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&sql, statements, name, int64(n)) //nolint:gosec // as channel does
	}
	results, err := l.conn.PgConn().Exec(ctx, sql.String()).ReadAll()
	if err == nil && len(results) != 2*len(channels) {
		err = fmt.Errorf("locco: %d results of %d statements", len(results), 2*len(channels))
	}
	return results, err
}

// Wait implements [pubsub.Conn]. It ends by the deadline of the network connection, not
// by a context given to the driver: with the handler of contexts that the caller may have
// set in the pool's configuration, that could take long, and send requests to cancel
// what runs next.
func (l *listener) Wait(ctx context.Context) error {
	network := l.conn.PgConn().Conn()
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		_ = network.SetReadDeadline(time.Unix(1, 0))
	})
	defer func() {
		if !stop() {
			<-ended
		}
		if !l.conn.IsClosed() { // else it is the driver's, which cleans up
			_ = network.SetReadDeadline(time.Time{})
		}
	}()
	for {
		n, err := l.conn.WaitForNotification(context.Background())
		switch {
		case err == nil && n != nil:
			l.events.Message(n.Channel)
		case err == nil: // the caller's OnNotification was told which
			for name := range l.channels {
				l.events.Message(name)
			}
		case ctx.Err() != nil && !l.conn.IsClosed():
			return nil
		default:
			return err
		}
	}
}

// Close implements [pubsub.Conn].
func (l *listener) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = l.conn.Close(ctx)
}
