package redis

import (
	"context"
	"errors"
	"strings"
	"sync"

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

func (s *subscriber) subscribe(ctx context.Context, channels ...string) error {
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
		if err := s.conn.Do(ctx, s.conn.B().Sunsubscribe().Channel(channel).Build()).Error(); err != nil {
			return err
		}
	}
	return nil
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

// maxRedirections is how often a subscription follows a slot.
const maxRedirections = 5

// clusterSubscriber is subscribed to channels of the nodes of a Cluster, each at the
// node that has its slot, over one connection a node. A node that is gone takes only
// its own channels with it.
type clusterSubscriber struct {
	client rueidis.Client
	events pubsub.Events

	mu       sync.Mutex // guards what follows
	nodes    map[string]*node
	owner    map[uint16]string // the address of the node that has a slot, as far as known
	watching sync.WaitGroup
}

// node is the connection to a node.
type node struct {
	*subscriber
	channels map[string]bool
	closed   chan struct{}
}

// nodeEvents is what a connection to a node reports to.
type nodeEvents struct {
	cluster *clusterSubscriber
	node    *node
}

// Message implements [pubsub.Events].
func (e nodeEvents) Message(channel string) { e.cluster.events.Message(channel) }

// Lost implements [pubsub.Events]: a slot has moved, or we have unsubscribed.
func (e nodeEvents) Lost(channel string) {
	e.cluster.mu.Lock()
	ours := e.node.channels[channel]
	delete(e.node.channels, channel)
	e.cluster.mu.Unlock()
	if ours {
		e.cluster.events.Lost(channel)
	}
}

func newClusterSubscriber(client rueidis.Client, events pubsub.Events) *clusterSubscriber {
	return &clusterSubscriber{client: client, events: events, nodes: map[string]*node{}, owner: map[uint16]string{}}
}

// Subscribe implements [pubsub.Conn]. The nodes are asked at the same time, so that one
// that is silent holds up no other.
func (c *clusterSubscriber) Subscribe(ctx context.Context, channels []string) (refused map[string]error, err error) {
	refused = map[string]error{}
	for range maxRedirections {
		byNode := map[string][]string{}
		for _, channel := range channels {
			addr, err := c.locate(channel)
			if err != nil {
				refused[channel] = err
				continue
			}
			byNode[addr] = append(byNode[addr], channel)
		}
		var (
			wg sync.WaitGroup
			mu sync.Mutex // guards refused and channels
		)
		channels = nil
		for addr, list := range byNode {
			wg.Go(func() {
				answers, err := c.subscribeAt(ctx, addr, list)
				mu.Lock()
				defer mu.Unlock()
				for _, channel := range list {
					if err == nil && answers[channel] == nil {
						delete(refused, channel)
						continue
					}
					refused[channel] = errors.Join(err, answers[channel])
					if c.moved(channel, refused[channel]) {
						channels = append(channels, channel)
					}
				}
			})
		}
		wg.Wait()
		if len(channels) == 0 {
			return refused, nil
		}
		c.refresh(ctx, channels[0])
	}
	return refused, nil
}

// locate answers a node for a channel: the one that has it, or any if that is not
// known.
func (c *clusterSubscriber) locate(channel string) (addr string, err error) {
	nodes := c.client.Nodes()
	c.mu.Lock()
	defer c.mu.Unlock()
	if addr := c.owner[protocol.Slot(channel)]; nodes[addr] != nil {
		return addr, nil
	}
	for addr := range nodes {
		return addr, nil
	}
	return "", rueidis.ErrNoAddr
}

// moved takes in an answer that sends us to another node.
func (c *clusterSubscriber) moved(channel string, err error) bool {
	slot := protocol.Slot(channel)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.owner, slot)
	e, ok := redisError(err)
	if !ok {
		return false
	}
	addr, ok := e.IsMoved()
	if ok {
		c.owner[slot] = addr
	}
	return ok
}

// refresh makes the driver, which learns of a node by being sent to it, send something
// where channel belongs.
func (c *clusterSubscriber) refresh(ctx context.Context, channel string) {
	_ = c.client.Do(ctx, c.client.B().Exists().Key(channel).Build()).Error()
}

// subscribeAt subscribes channels at one node.
func (c *clusterSubscriber) subscribeAt(ctx context.Context, addr string, channels []string) (refused map[string]error, err error) {
	client := c.client.Nodes()[addr]
	if client == nil {
		return nil, rueidis.ErrNoAddr
	}
	c.mu.Lock()
	n := c.nodes[addr]
	c.mu.Unlock()
	if n == nil {
		n = &node{channels: map[string]bool{}, closed: make(chan struct{})}
		n.subscriber = newSubscriber(client, true, nodeEvents{c, n})
		c.mu.Lock()
		c.nodes[addr] = n
		c.mu.Unlock()
		c.watching.Go(func() { c.watch(addr, n) })
	}
	c.mu.Lock()
	for _, channel := range channels { // first, so that the loss of one is noticed from now on
		n.channels[channel] = true
	}
	c.mu.Unlock()
	refused, err = n.Subscribe(ctx, channels)
	if err != nil {
		c.drop(addr, n)
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, channel := range channels {
		if refused[channel] == nil {
			c.owner[protocol.Slot(channel)] = addr
		} else {
			delete(n.channels, channel)
		}
	}
	return refused, nil
}

// watch waits for the end of a connection.
func (c *clusterSubscriber) watch(addr string, n *node) {
	select {
	case <-n.broken: //nolint:errcheck // why does not matter: it is set up again
		c.drop(addr, n)
	case <-n.closed:
	}
}

// drop gives up a connection, and tells of the channels that it had.
func (c *clusterSubscriber) drop(addr string, n *node) {
	c.mu.Lock()
	known := c.nodes[addr] == n
	var channels []string
	if known {
		delete(c.nodes, addr)
		close(n.closed)
		for channel := range n.channels {
			channels = append(channels, channel)
			delete(c.owner, protocol.Slot(channel))
		}
	}
	c.mu.Unlock()
	if known {
		n.Close()
	}
	for _, channel := range channels {
		c.events.Lost(channel)
	}
}

// Unsubscribe implements [pubsub.Conn]. A node without channels is let go.
func (c *clusterSubscriber) Unsubscribe(ctx context.Context, channels []string) error {
	c.mu.Lock()
	byNode := map[string][]string{}
	for _, channel := range channels {
		for addr, n := range c.nodes {
			if n.channels[channel] {
				delete(n.channels, channel)
				byNode[addr] = append(byNode[addr], channel)
			}
		}
	}
	nodes := map[string]*node{}
	for addr := range byNode {
		nodes[addr] = c.nodes[addr]
	}
	c.mu.Unlock()
	for addr, n := range nodes {
		c.mu.Lock()
		empty := len(n.channels) == 0
		c.mu.Unlock()
		if empty || n.Unsubscribe(ctx, byNode[addr]) != nil {
			c.drop(addr, n)
		}
	}
	return nil
}

// Wait implements [pubsub.Conn]. What breaks is told channel by channel.
func (c *clusterSubscriber) Wait(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// Close implements [pubsub.Conn].
func (c *clusterSubscriber) Close() {
	c.mu.Lock()
	nodes := c.nodes
	c.nodes = map[string]*node{}
	for _, n := range nodes {
		close(n.closed)
	}
	c.mu.Unlock()
	for _, n := range nodes {
		n.Close()
	}
	c.watching.Wait()
}
