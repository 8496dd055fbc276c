package redis

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/rueidis"

	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/core/pubsub"
	"github.com/locco-go/locco/redis/protocol"
)

// Watch implements [locco.Watcher]. All watches of a Backend share one connection of
// their own, on a Cluster one for each node that has a key which is watched, opened at
// the first and closed a second after the last; a connection that broke is opened
// again in the background, after which every watcher is woken once. With
// [WithoutWakeUps], and on a Cluster before Redis 7.0, it answers
// [errors.ErrUnsupported].
func (b *Backend) Watch(ctx context.Context, key string) (wake <-chan struct{}, stop func(), err error) {
	switch {
	case b.publish == "" || b.speechless.Load():
		return nil, nil, errors.ErrUnsupported
	case b.muted.Load():
		return nil, nil, &locco.ValidationError{Field: "redis user", Value: "ACL", Rule: "must be allowed to publish; " + needs}
	}
	return b.hub.Watch(ctx, protocol.Channel(key))
}

func newHub(client rueidis.Client, cluster bool) *pubsub.Hub {
	return pubsub.New(func(_ context.Context, events pubsub.Events) (pubsub.Conn, error) {
		if cluster {
			return newClusterSubscriber(client, events), nil
		}
		return newSubscriber(client, false, events), nil
	})
}

// subscriber is a connection that is subscribed to channels of one server.
type subscriber struct {
	conn    rueidis.DedicatedClient
	sharded bool
	broken  <-chan error
}

func newSubscriber(client rueidis.Client, sharded bool, events pubsub.Events) *subscriber {
	conn, _ := client.Dedicate()
	return &subscriber{conn: conn, sharded: sharded, broken: conn.SetPubSubHooks(rueidis.PubSubHooks{
		OnMessage: func(m rueidis.PubSubMessage) { events.Message(m.Channel) },
		OnSubscription: func(s rueidis.PubSubSubscription) {
			if s.Kind == "sunsubscribe" { // a slot has moved, unless we asked for it
				events.Lost(s.Channel)
			}
		},
	})}
}

// Subscribe implements [pubsub.Conn]: in one command, and one by one if that is
// refused, because the user may not listen to one of them.
func (s *subscriber) Subscribe(ctx context.Context, channels []string) (refused map[string]error, err error) {
	if !s.sharded {
		if err := s.subscribe(ctx, channels...); err == nil || !answered(err) {
			return nil, err
		}
	}
	refused = map[string]error{}
	for _, channel := range channels { // those of several slots cannot share a command
		if err := s.subscribe(ctx, channel); answered(err) {
			refused[channel] = s.explain(err)
		} else if err != nil {
			return nil, err
		}
	}
	return refused, nil
}

// answerTimeout is how long the server may take for the answer to one command.
const answerTimeout = 5 * time.Second

func (s *subscriber) subscribe(ctx context.Context, channels ...string) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	cmd := s.conn.B().Subscribe().Channel(channels...).Build()
	if s.sharded {
		cmd = s.conn.B().Ssubscribe().Channel(channels...).Build()
	}
	return s.conn.Do(ctx, cmd).Error()
}

// explain makes of a server that knows no sharded channels one that has no wake-ups.
func (s *subscriber) explain(err error) error {
	if s.sharded && strings.Contains(err.Error(), "unknown command") {
		return &silentError{err}
	}
	return explain(err)
}

// silentError matches [errors.ErrUnsupported].
type silentError struct{ err error }

func (e *silentError) Error() string {
	return "locco: wake-ups on a Cluster need Redis 7.0 or Valkey: " + e.err.Error()
}

func (e *silentError) Unwrap() []error { return []error{e.err, errors.ErrUnsupported} }

// Unsubscribe implements [pubsub.Conn].
func (s *subscriber) Unsubscribe(ctx context.Context, channels []string) error {
	if !s.sharded {
		return s.conn.Do(ctx, s.conn.B().Unsubscribe().Channel(channels...).Build()).Error()
	}
	for _, channel := range channels {
		if err := s.sunsubscribe(ctx, channel); err != nil {
			return err
		}
	}
	return nil
}

func (s *subscriber) sunsubscribe(ctx context.Context, channel string) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	return s.conn.Do(ctx, s.conn.B().Sunsubscribe().Channel(channel).Build()).Error()
}

// Wait implements [pubsub.Conn].
func (s *subscriber) Wait(ctx context.Context) error {
	select {
	case err := <-s.broken:
		if err == nil {
			err = rueidis.ErrClosing
		}
		return err
	case <-ctx.Done():
		return nil
	}
}

// Close implements [pubsub.Conn]. A connection that was subscribed does not go back to
// the pool.
func (s *subscriber) Close() { s.conn.Close() }

// answered tells whether err is the server's answer, and the connection sound.
func answered(err error) bool {
	_, ok := redisError(err)
	return ok
}
