package integration_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/locco-go/locco/contract/integration"
	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/redis/protocol"
)

// onlyWoken makes a wake-up the only reason for which a wait can end in time.
var onlyWoken = []locco.CallOption{locco.RetryForever(), locco.RetryDelay(time.Minute)}

// spec 8.6: on a Cluster a release wakes those who wait at another client, whichever
// node has the key, and goes on to do so when the slot has moved, when connections were
// killed and when a node was away; and it says nothing to the other nodes.
func TestRedisClusterWakeUps(t *testing.T) {
	t.Parallel()
	for _, r := range []integration.Redis{integration.Redis7, integration.Redis8, integration.Valkey8} {
		t.Run(string(r), func(t *testing.T) {
			t.Parallel()
			c := integration.StartCluster(t, r)
			s := settings{addrs: c.Addrs(), cluster: true}
			for _, d := range drivers() {
				// One after the other: they do harm to the same Cluster.
				t.Run(d.name, func(t *testing.T) { clusterWakeUps(t, c, d, s) })
			}
		})
	}
}

func clusterWakeUps(t *testing.T, c *integration.Cluster, d driver, s settings) {
	t.Helper()
	holder, waiter := newLocker(t, d.open(t, s)), newLocker(t, d.open(t, s))
	keys := keyOfEachNode(t, c, d.name)

	for i, key := range keys {
		before := shardMessages(t, c)
		woken(t, c, holder, waiter, key, func() {})
		for other, n := range shardMessages(t, c) {
			// A node says so to the replicas of its own shard, of which there are none here.
			if n != before[other] {
				t.Errorf("a release of a key of node %d: node %d has %d more messages of the kind publishshard", i, other, n-before[other])
			}
		}
	}

	t.Run("Together", func(t *testing.T) {
		var locks []*locco.Lock
		for _, key := range keys {
			locks = append(locks, take(t, holder, key, time.Minute))
		}
		granted := make(chan string, len(keys))
		for _, key := range keys {
			go func() {
				if lock, err := waiter.Acquire(t.Context(), key, time.Minute, onlyWoken...); err != nil {
					t.Errorf("Acquire(%s) = %v", key, err)
				} else {
					_ = lock.Release(t.Context())
				}
				granted <- key
			}()
		}
		for _, n := range c.Nodes {
			awaitSubscriptions(t, n, 1)
		}
		for _, lock := range locks {
			if err := lock.Release(t.Context()); err != nil {
				t.Errorf("Release(%s) = %v", lock.Key(), err)
			}
		}
		for range keys {
			<-granted
		}
	})

	t.Run("KilledConnections", func(t *testing.T) {
		for i, key := range keys {
			woken(t, c, holder, waiter, key, func() {
				awaitChannel(t, c.Nodes[i], protocol.Channel(key))
				c.Nodes[i].KillClients(t)
				awaitSubscriptions(t, c.Nodes[i], 1)
			})
		}
	})

	t.Run("MovedSlot", func(t *testing.T) {
		from := c.Owner(t, keys[0])
		to := (from + 1) % len(c.Nodes)
		woken(t, c, holder, waiter, keys[0], func() {
			awaitChannel(t, c.Nodes[from], protocol.Channel(keys[0]))
			c.MoveSlot(t, keys[0], to)
			awaitChannel(t, c.Nodes[to], protocol.Channel(keys[0]))
		})
		c.MoveSlot(t, keys[0], from) // for the next driver
	})

	t.Run("NodeAway", func(t *testing.T) {
		woken(t, c, holder, waiter, keys[1], func() {
			awaitChannel(t, c.Nodes[1], protocol.Channel(keys[1]))
			c.Nodes[1].Pause(t)
			c.Nodes[1].Unpause(t)
			c.Nodes[1].KillClients(t)
			awaitChannel(t, c.Nodes[1], protocol.Channel(keys[1]))
		})
	})

	t.Run("NodeRestarted", func(t *testing.T) { // with the loss of what it had
		take(t, holder, keys[2], 10*time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		done := make(chan taken, 1)
		go func() {
			lock, err := waiter.Acquire(ctx, keys[2], time.Minute, onlyWoken...)
			done <- taken{lock, err}
		}()
		awaitChannel(t, c.Nodes[2], protocol.Channel(keys[2]))
		c.Nodes[2].Stop(t)
		b := d.open(t, s).(locco.Watcher)
		if _, _, err := b.Watch(ctx, keys[2]); err == nil || ctx.Err() != nil {
			t.Errorf("Watch at a node that is down = %v; want its error", err)
		}
		c.Nodes[2].Start(t)
		c.WaitOK(t)
		release(t, got(t, done))
	})

	t.Run("SilentNode", func(t *testing.T) {
		b := d.open(t, s).(locco.Watcher)
		c.Nodes[1].Pause(t)
		silent := make(chan struct{})
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		go func() {
			defer close(silent)
			if _, stop, err := b.Watch(ctx, keys[1]); err == nil {
				stop()
			}
		}()
		for i := range 20 { // so that most of them begin after the other one
			for _, key := range []string{keys[0], keys[2]} {
				tag, _ := protocol.HashTag(protocol.Channel(key))
				_, stop, err := b.Watch(ctx, fmt.Sprintf("{%s}:%d", tag, i))
				if err != nil {
					t.Fatalf("Watch at a node, while another is silent = %v", err)
				}
				t.Cleanup(stop)
			}
		}
		select {
		case <-silent:
			t.Error("the watches at other nodes had to wait for that at a silent one")
		default:
		}
		c.Nodes[1].Unpause(t)
		<-silent
	})

	t.Run("OneConnectionEach", func(t *testing.T) {
		b := d.open(t, s).(locco.Watcher)
		for i := range 30 {
			_, stop, err := b.Watch(t.Context(), fmt.Sprintf("%s:many:%d", d.name, i))
			if err != nil {
				t.Fatalf("Watch = %v", err)
			}
			t.Cleanup(stop)
		}
		for _, n := range c.Nodes {
			awaitSubscriptions(t, n, 1)
		}
	})

	t.Run("Closed", func(t *testing.T) {
		for _, n := range c.Nodes {
			awaitSubscriptions(t, n, 0)
		}
	})

	t.Run("KeyWithoutHashTag", func(t *testing.T) {
		woken(t, c, holder, waiter, "a}b"+d.name, func() {})
	})
}

// woken has holder take key and waiter wait for it, does harm, and lets holder release
// the key. The wait must end by that.
func woken(t *testing.T, c *integration.Cluster, holder, waiter *locco.Locker, key string, harm func()) {
	t.Helper()
	lock := take(t, holder, key, time.Minute)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	type result struct {
		lock *locco.Lock
		err  error
	}
	done := make(chan result, 1)
	go func() {
		next, err := waiter.Acquire(ctx, key, time.Minute, onlyWoken...)
		done <- result{next, err}
	}()
	awaitChannel(t, c.Nodes[c.Owner(t, key)], protocol.Channel(key))
	harm()
	if err := lock.Release(t.Context()); err != nil { // on a connection that was killed
		if err := lock.Release(t.Context()); err != nil {
			t.Fatalf("Release(%s) = %v, the second time too", key, err)
		}
	}
	r := <-done
	if r.err != nil {
		t.Fatalf("spec 8.6: a waiter for %s was not woken by its release: %v", key, r.err)
	}
	if err := r.lock.Release(t.Context()); err != nil {
		t.Errorf("Release(%s) = %v", key, err)
	}
}

// keyOfEachNode returns a key for each node of the cluster.
func keyOfEachNode(t *testing.T, c *integration.Cluster, prefix string) []string {
	t.Helper()
	keys := make([]string, len(c.Nodes))
	for i, found := 0, 0; found < len(keys); i++ {
		key := fmt.Sprintf("%s:%d", prefix, i)
		if owner := c.Owner(t, key); keys[owner] == "" {
			keys[owner] = key
			found++
		}
	}
	return keys
}

// shardMessages returns for each node how many messages about published channels it
// has sent to and had from others.
func shardMessages(t *testing.T, c *integration.Cluster) []int {
	t.Helper()
	list := make([]int, len(c.Nodes))
	for i, n := range c.Nodes {
		text, err := do(t, n.Client(t), "CLUSTER", "INFO").ToString()
		if err != nil {
			t.Fatalf("CLUSTER INFO: %v", err)
		}
		for line := range strings.Lines(text) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
			if strings.Contains(name, "publish") {
				k, err := strconv.Atoi(value)
				if err != nil {
					t.Fatalf("CLUSTER INFO has %q: %v", line, err)
				}
				list[i] += k
			}
		}
	}
	return list
}

// awaitSubscriptions waits until so many connections of n are subscribed to channels of
// its shard.
func awaitSubscriptions(t *testing.T, n *integration.Node, want int) {
	t.Helper()
	client := n.Client(t)
	soon(t, fmt.Sprintf("%d subscribed connections at %s", want, n.Name), func() bool {
		text, err := do(t, client, "CLIENT", "LIST").ToString()
		return err == nil && strings.Count(text, " ssub=")-strings.Count(text, " ssub=0 ") == want
	})
}

// awaitChannel waits until somebody is subscribed to a channel at n.
func awaitChannel(t *testing.T, n *integration.Node, channel string) {
	t.Helper()
	client := n.Client(t)
	soon(t, "a subscription of "+channel+" at "+n.Name, func() bool {
		list, err := do(t, client, "PUBSUB", "SHARDCHANNELS").AsStrSlice()
		if err != nil {
			return false
		}
		return slices.Contains(list, channel)
	})
}
