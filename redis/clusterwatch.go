package redis

import (
	"context"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/locco-go/locco/core/pubsub"
	"github.com/locco-go/locco/redis/protocol"
)

const (
	// maxRedirections is how often a subscription follows a slot.
	maxRedirections = 5

	// nodePatience is how long the answers of nodes are waited for at once. A node that
	// takes longer goes on by itself, so that it holds up none of the others.
	nodePatience = 100 * time.Millisecond
)

// clusterSubscriber is subscribed to channels of the nodes of a Cluster, each at the
// node that has its slot, over one connection a node. A node that is gone takes only
// its own channels with it.
type clusterSubscriber struct {
	client rueidis.Client
	events pubsub.Events

	mu         sync.Mutex // guards what follows, and what is in the nodes
	nodes      map[string]*node
	owner      map[uint16]string // the address of the node that has a slot, as far as known
	refreshing chan struct{}     // closed when the driver has looked again; nil if it does not
	watching   sync.WaitGroup
}

func newClusterSubscriber(client rueidis.Client, events pubsub.Events) *clusterSubscriber {
	return &clusterSubscriber{client: client, events: events, nodes: map[string]*node{}, owner: map[uint16]string{}}
}

// node is a node with a connection to it.
type node struct {
	cluster *clusterSubscriber
	addr    string
	conn    *subscriber      // nil until it is there
	wanted  map[string]bool  // the channels that are subscribed, or being so
	asking  chan struct{}    // closed when what is being subscribed has its answers; nil if nothing is
	answers map[string]error // of channels that nobody has taken in yet; nil is a subscription
	gone    chan struct{}    // closed when it is given up
}

// Message implements [pubsub.Events].
func (n *node) Message(channel string) { n.cluster.events.Message(channel) }

// Lost implements [pubsub.Events]: a slot has moved, or we have unsubscribed. A node that
// has lost its last channel is let go.
func (n *node) Lost(channel string) {
	n.cluster.mu.Lock()
	wanted := n.wanted[channel]
	delete(n.wanted, channel)
	delete(n.answers, channel)
	empty := len(n.wanted) == 0
	n.cluster.mu.Unlock()
	if wanted {
		n.cluster.events.Lost(channel)
	}
	if empty {
		go n.letGo() // it may wait for the one that told us
	}
}

// Subscribe implements [pubsub.Conn]. The nodes are asked at the same time. What a slow
// one has not answered yet can be had later.
func (c *clusterSubscriber) Subscribe(ctx context.Context, channels []string) (refused map[string]error, err error) {
	ctx, cancel := context.WithTimeout(ctx, nodePatience)
	defer cancel()
	refused = map[string]error{}
	for range maxRedirections {
		byNode := map[*node][]string{}
		for _, channel := range channels {
			if n := c.locate(channel); n != nil {
				byNode[n] = append(byNode[n], channel)
			} else {
				refused[channel] = rueidis.ErrNoAddr
			}
		}
		answered := map[*node]<-chan struct{}{}
		for n, list := range byNode {
			answered[n] = n.ask(list)
		}
		channels = nil
		for n, list := range byNode {
			select {
			case <-answered[n]:
			case <-ctx.Done():
			}
			for channel, err := range n.take(list) {
				if refused[channel] = err; err == nil {
					delete(refused, channel)
				} else if c.moved(channel, err) {
					channels = append(channels, channel)
				}
			}
		}
		if len(channels) == 0 {
			return refused, nil
		}
		select {
		case <-c.refresh(channels[0]):
		case <-ctx.Done():
		}
	}
	return refused, nil
}

// locate answers a node for a channel: the one that has it, or any if that is not
// known; nil if the driver knows of none.
func (c *clusterSubscriber) locate(channel string) *node {
	known := c.client.Nodes()
	c.mu.Lock()
	defer c.mu.Unlock()
	addr := c.owner[protocol.Slot(channel)]
	if known[addr] == nil {
		for addr = range known {
			if n := c.nodes[addr]; n == nil || n.asking == nil { // rather not one that is slow
				break
			}
		}
	}
	if known[addr] == nil {
		return nil
	}
	n := c.nodes[addr]
	if n == nil {
		n = &node{cluster: c, addr: addr, wanted: map[string]bool{}, answers: map[string]error{}, gone: make(chan struct{})}
		c.nodes[addr] = n
	}
	return n
}

// moved takes in an error of a subscription, and tells whether it sends us to another
// node.
func (c *clusterSubscriber) moved(channel string, err error) bool {
	slot := protocol.Slot(channel)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == pubsub.ErrLater { //nolint:errorlint // never wrapped
		return false
	}
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
// where channel belongs. What it returns is closed when that is over. It has time of its
// own: the driver would close a connection that it shares with others when that is up.
func (c *clusterSubscriber) refresh(channel string) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refreshing != nil {
		return c.refreshing
	}
	done := make(chan struct{})
	c.refreshing = done
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
		defer cancel()
		_ = c.client.Do(ctx, c.client.B().Get().Key(channel).Build()).Error()
		c.mu.Lock()
		defer c.mu.Unlock()
		c.refreshing = nil
		close(done)
	}()
	return done
}

// ask begins to subscribe the channels of list that have no answer yet, if the node is
// not at it already. What it returns is closed when there are answers.
func (n *node) ask(list []string) <-chan struct{} {
	n.cluster.mu.Lock()
	defer n.cluster.mu.Unlock()
	if n.asking != nil {
		return n.asking
	}
	done := make(chan struct{})
	if n.cluster.nodes[n.addr] != n { // given up since it was found
		close(done)
		return done
	}
	var channels []string
	for _, channel := range list {
		if _, known := n.answers[channel]; !known {
			channels = append(channels, channel)
			n.wanted[channel] = true // from now on its loss is noticed
		}
	}
	if len(channels) == 0 {
		close(done)
		return done
	}
	n.asking = done
	go func() {
		defer close(done)
		refused, err := n.subscribe(channels)
		n.cluster.mu.Lock()
		defer n.cluster.mu.Unlock()
		n.asking = nil
		for _, channel := range channels {
			answer := err
			if answer == nil {
				answer = refused[channel]
			}
			wanted := n.wanted[channel]
			if answer != nil {
				delete(n.wanted, channel)
			}
			if wanted { // else it was lost meanwhile, or is given up
				n.answers[channel] = answer
			}
		}
	}()
	return done
}

// take returns the answers for the channels of list.
func (n *node) take(list []string) map[string]error {
	n.cluster.mu.Lock()
	defer n.cluster.mu.Unlock()
	answers := map[string]error{}
	for _, channel := range list {
		err, known := n.answers[channel]
		if !known {
			answers[channel] = pubsub.ErrLater
			continue
		}
		delete(n.answers, channel)
		answers[channel] = err
		if err == nil {
			n.cluster.owner[protocol.Slot(channel)] = n.addr
			for _, other := range n.cluster.nodes { // that was asked before, and is silent
				if other != n {
					delete(other.wanted, channel)
				}
			}
		}
	}
	return answers
}

// subscribe asks the node, to which it connects if it has to.
func (n *node) subscribe(channels []string) (refused map[string]error, err error) {
	conn, err := n.connect()
	if err != nil {
		return nil, err
	}
	if refused, err = conn.Subscribe(context.Background(), channels); err != nil {
		n.drop()
	}
	return refused, err
}

func (n *node) connect() (*subscriber, error) {
	c := n.cluster
	c.mu.Lock()
	conn := n.conn
	c.mu.Unlock()
	if conn != nil {
		return conn, nil
	}
	client := c.client.Nodes()[n.addr]
	if client == nil {
		n.drop()
		return nil, rueidis.ErrNoAddr
	}
	conn = newSubscriber(client, true, n)
	c.mu.Lock()
	kept := c.nodes[n.addr] == n
	if kept {
		n.conn = conn
		c.watching.Go(n.watch)
	}
	c.mu.Unlock()
	if !kept {
		conn.Close()
		return nil, rueidis.ErrClosing
	}
	return conn, nil
}

// watch waits for the end of the connection.
func (n *node) watch() {
	select {
	case <-n.conn.broken: //nolint:errcheck // why does not matter: it is set up again
		n.drop()
	case <-n.gone:
	}
}

// letGo gives the connection up if no channel needs it, and tells whether it did.
func (n *node) letGo() bool { return n.giveUp(func() bool { return len(n.wanted) == 0 }) }

// drop gives the connection up, and tells of the channels that it had.
func (n *node) drop() { n.giveUp(func() bool { return true }) }

func (n *node) giveUp(really func() bool) bool {
	c := n.cluster
	c.mu.Lock()
	if c.nodes[n.addr] != n || !really() {
		c.mu.Unlock()
		return false
	}
	delete(c.nodes, n.addr)
	close(n.gone)
	conn := n.conn
	var lost []string
	for channel := range n.wanted {
		lost = append(lost, channel)
		if slot := protocol.Slot(channel); c.owner[slot] == n.addr {
			delete(c.owner, slot)
		}
	}
	c.mu.Unlock()
	if conn != nil {
		conn.Close()
	}
	for _, channel := range lost {
		c.events.Lost(channel)
	}
	return true
}

// Unsubscribe implements [pubsub.Conn]. A node that needs no channel any more is let go,
// with what it is still asked for. It waits for
// no answer: an order that goes wrong is noticed as a loss.
func (c *clusterSubscriber) Unsubscribe(_ context.Context, channels []string) error {
	c.mu.Lock()
	byNode := map[*node][]string{}
	for _, channel := range channels {
		for _, n := range c.nodes {
			delete(n.answers, channel)
			if n.wanted[channel] {
				delete(n.wanted, channel)
				byNode[n] = append(byNode[n], channel)
			}
		}
	}
	for n, list := range byNode {
		conn, empty := n.conn, len(n.wanted) == 0
		go func() {
			if empty && n.letGo() {
				return
			}
			if conn != nil && conn.Unsubscribe(context.Background(), list) != nil {
				n.drop()
			}
		}()
	}
	c.mu.Unlock()
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
		close(n.gone)
	}
	c.mu.Unlock()
	for _, n := range nodes {
		if n.conn != nil {
			n.conn.Close()
		}
	}
	c.watching.Wait()
}
