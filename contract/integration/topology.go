package integration

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/redis/rueidis"
)

// member is a server of a topology: its name, and its container's command.
type member struct {
	name       string
	entrypoint []string
	cmd        []string
}

// topology is servers that share a network, in which 127.0.0.1 with the same ports
// as outside leads to each of them. The network is that of a container that does
// nothing else, so that every server can be restarted.
type topology struct {
	redis   Redis
	ports   []int
	network string // id of the container
}

// newTopology makes the network for n servers.
func newTopology(t testing.TB, r Redis, n int) *topology {
	t.Helper()
	if err := run.begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	p := &topology{redis: r}
	err := run.withPorts(n, func(ports []int) (err error) {
		p.ports = ports
		p.network, err = run.start(t.Context(), spec{
			image:      image(r.kind()),
			entrypoint: []string{"sleep", "infinity"},
			publish:    ports,
		})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	cleanUp(t, "the network of "+string(r), p.network)
	return p
}

// start starts the servers that have the given ports, all at the same time, and
// waits until they answer.
func (p *topology) start(t testing.TB, ports []int, members ...member) []*Node {
	t.Helper()
	nodes := make([]*Node, len(members))
	errs := make([]error, len(members))
	var wg sync.WaitGroup
	for i, m := range members {
		wg.Go(func() {
			n := newNode(string(p.redis)+" "+m.name, ports[i])
			n.id, errs[i] = run.start(t.Context(), spec{
				image:      image(p.redis.kind()),
				entrypoint: m.entrypoint,
				cmd:        m.cmd,
				network:    p.network,
			})
			if errs[i] == nil {
				nodes[i] = n
				errs[i] = n.wait(t.Context())
			}
		})
	}
	wg.Wait()
	for _, n := range nodes {
		if n != nil {
			cleanUp(t, n.Name, n.id)
		}
	}
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return nodes
}

// startPair starts a primary and a replica on the first two ports.
func (p *topology) startPair(t testing.TB, args []string) (primary, replica *Node) {
	t.Helper()
	nodes := p.start(t, p.ports,
		member{name: "primary", cmd: p.redis.primaryCommand(p.ports[0], args)},
		member{name: "replica", cmd: p.redis.replicaCommand(p.ports[1], p.ports[0], args)})
	waitLinked(t, nodes[0], nodes[1])
	return nodes[0], nodes[1]
}

func (r Redis) replicaCommand(port, of int, args []string) []string {
	return r.command(port, append([]string{
		"--replicaof", host + " " + strconv.Itoa(of),
		"--replica-announce-ip", host, "--replica-announce-port", strconv.Itoa(port),
		"--repl-diskless-sync-delay", "0",
	}, args...)...)
}

func (r Redis) primaryCommand(port int, args []string) []string {
	return r.command(port, append([]string{
		"--replica-announce-ip", host, "--replica-announce-port", strconv.Itoa(port),
		"--repl-diskless-sync-delay", "0",
	}, args...)...)
}

// Replicated is a primary and its replica.
type Replicated struct {
	Primary, Replica *Node
}

// StartReplicated starts a primary and a replica that follows it. Args are added to
// the commands of both.
func StartReplicated(t testing.TB, r Redis, args ...string) *Replicated {
	t.Helper()
	primary, replica := newTopology(t, r, 2).startPair(t, args)
	return &Replicated{primary, replica}
}

// WaitLinked waits until the replica follows the primary.
func (s *Replicated) WaitLinked(t testing.TB) {
	t.Helper()
	waitLinked(t, s.Primary, s.Replica)
}

// waitLinked waits until both sides know of it: a primary counts a replica for
// WAIT a little later than the replica calls itself linked.
func waitLinked(t testing.TB, primary, replica *Node) {
	t.Helper()
	err := eventually(t.Context(), replica.Name+" follows its primary", func(ctx context.Context) error {
		link, err := replica.info(ctx, "master_link_status", "INFO", "replication")
		if err != nil || link != "up" {
			return notYet(err, "link is %q", link)
		}
		state, err := primary.info(ctx, "slave0", "INFO", "replication")
		if err != nil || !strings.Contains(state, "state=online") {
			return notYet(err, "primary says %q", state)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Sentinel is a primary and a replica that three Sentinels watch.
type Sentinel struct {
	// Name is what the Sentinels call the primary.
	Name string

	// Primary and Replica are what they were at the start.
	Primary, Replica *Node

	Sentinels []*Node
}

// StartSentinel starts a primary and a replica, and three Sentinels that need two
// votes and take a server for down that was silent for a second. Args are added to
// the commands of primary and replica.
func StartSentinel(t testing.TB, r Redis, args ...string) *Sentinel {
	t.Helper()
	const name = "locco"
	p := newTopology(t, r, 5)
	s := &Sentinel{Name: name}
	s.Primary, s.Replica = p.startPair(t, args)
	// A Sentinel asks for replicas when it starts, and then every ten seconds: these
	// come when there is something to see.
	ports := p.ports[2:]
	var ms []member
	for i, port := range ports {
		conf := strings.Join([]string{
			"port " + strconv.Itoa(port),
			"protected-mode no",
			"sentinel announce-ip " + host,
			"sentinel announce-port " + strconv.Itoa(port),
			fmt.Sprintf("sentinel monitor %s %s %d 2", name, host, p.ports[0]),
			"sentinel down-after-milliseconds " + name + " 1000",
			"sentinel failover-timeout " + name + " 3000",
			"",
		}, "\n")
		// A Sentinel writes to its configuration. It keeps it over a restart.
		script := `[ -e /tmp/sentinel.conf ] || printf '%s' "$0" >/tmp/sentinel.conf; exec "$1" /tmp/sentinel.conf --sentinel`
		ms = append(ms, member{
			name:       "sentinel " + strconv.Itoa(i+1),
			entrypoint: []string{"sh", "-c", script, conf, r.kind().command},
		})
	}
	s.Sentinels = p.start(t, ports, ms...)
	for _, sentinel := range s.Sentinels {
		err := eventually(t.Context(), sentinel.Name+" knows all others", func(ctx context.Context) error {
			m, err := sentinel.Do(ctx, "SENTINEL", "MASTER", name)
			if err != nil {
				return err
			}
			state, err := m.AsStrMap()
			if err != nil || state["flags"] != "master" || state["num-slaves"] != "1" || state["num-other-sentinels"] != "2" {
				return notYet(err, "it knows %s replicas, %s sentinels, flags %s",
					state["num-slaves"], state["num-other-sentinels"], state["flags"])
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// Addrs returns the addresses of the Sentinels.
func (s *Sentinel) Addrs() []string { return addrs(s.Sentinels) }

// Option returns what makes a client of rueidis ask the Sentinels.
func (s *Sentinel) Option() rueidis.ClientOption {
	return rueidis.ClientOption{
		InitAddress: s.Addrs(),
		Sentinel:    rueidis.SentinelOption{MasterSet: s.Name},
	}
}

// WaitFailover waits until all Sentinels have another primary than old and that one
// takes writes, and returns it. A primary that is paused or stopped is replaced
// after about a second.
func (s *Sentinel) WaitFailover(t testing.TB, old *Node) *Node {
	t.Helper()
	now := s.Primary
	if old == s.Primary {
		now = s.Replica
	}
	err := eventually(t.Context(), "failover to "+now.Name, func(ctx context.Context) error {
		for _, sentinel := range s.Sentinels {
			m, err := sentinel.Do(ctx, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", s.Name)
			if err != nil {
				return err
			}
			at, err := m.AsStrSlice()
			if err != nil || len(at) != 2 || at[1] != strconv.Itoa(now.port) {
				return notYet(err, "%s has the primary at %s", sentinel.Name, at)
			}
		}
		role, err := now.info(ctx, "role", "INFO", "replication")
		if err != nil || role != "master" {
			return notYet(err, "its role is %q", role)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return now
}

// Cluster is three masters that share the slots.
type Cluster struct {
	Nodes []*Node

	ids []string
}

const slots = 16384

// StartCluster starts a cluster of three masters. Args are added to the commands of
// all.
func StartCluster(t testing.TB, r Redis, args ...string) *Cluster {
	t.Helper()
	bus := func(i int) string { return strconv.Itoa(17000 + i) } // inside only, and below the range of freePorts
	p := newTopology(t, r, 3)
	var ms []member
	for i, port := range p.ports {
		ms = append(ms, member{name: "node " + strconv.Itoa(i+1), cmd: r.command(port, append([]string{
			"--cluster-enabled", "yes",
			"--cluster-node-timeout", "5000",
			"--cluster-port", bus(i),
			"--cluster-announce-ip", host,
			"--cluster-announce-port", strconv.Itoa(port),
			"--cluster-announce-bus-port", bus(i),
		}, args...)...)})
	}
	c := &Cluster{Nodes: p.start(t, p.ports, ms...)}
	for i, n := range c.Nodes {
		first, last := i*slots/len(c.Nodes), (i+1)*slots/len(c.Nodes)-1
		n.must(t, "CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(first), strconv.Itoa(last))
		n.must(t, "CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1))
		id := n.must(t, "CLUSTER", "MYID")
		text, err := id.ToString()
		if err != nil {
			t.Fatalf("CLUSTER MYID on %s: %v", n.Name, err)
		}
		c.ids = append(c.ids, text)
		if i > 0 {
			n.must(t, "CLUSTER", "MEET", host, strconv.Itoa(c.Nodes[0].port), bus(0))
		}
	}
	c.WaitOK(t)
	return c
}

// WaitOK waits until every node knows all others and who has which slot.
func (c *Cluster) WaitOK(t testing.TB) {
	t.Helper()
	for _, n := range c.Nodes {
		err := eventually(t.Context(), n.Name+" knows the cluster", func(ctx context.Context) error {
			m, err := n.Do(ctx, "CLUSTER", "INFO")
			if err != nil {
				return err
			}
			text, err := m.ToString()
			if err != nil {
				return err
			}
			if infoField(text, "cluster_state") != "ok" ||
				infoField(text, "cluster_known_nodes") != strconv.Itoa(len(c.Nodes)) ||
				infoField(text, "cluster_slots_ok") != strconv.Itoa(slots) {
				return notYet(nil, "it says %q", text)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Addrs returns the addresses of the nodes.
func (c *Cluster) Addrs() []string { return addrs(c.Nodes) }

// Option returns what makes a client of rueidis one of the cluster.
func (c *Cluster) Option() rueidis.ClientOption {
	return rueidis.ClientOption{InitAddress: c.Addrs()}
}

// Slot returns the slot of a key.
func (c *Cluster) Slot(t testing.TB, key string) int {
	t.Helper()
	m := c.Nodes[0].must(t, "CLUSTER", "KEYSLOT", key)
	slot, err := m.AsInt64()
	if err != nil {
		t.Fatalf("CLUSTER KEYSLOT %s: %v", key, err)
	}
	return int(slot)
}

// Owner returns the index of the node that has the slot of key.
func (c *Cluster) Owner(t testing.TB, key string) int {
	t.Helper()
	slot := c.Slot(t, key)
	m := c.Nodes[0].must(t, "CLUSTER", "SLOTS")
	ranges, err := m.ToArray()
	if err != nil {
		t.Fatalf("CLUSTER SLOTS: %v", err)
	}
	for _, r := range ranges {
		f, err := r.ToArray()
		if err != nil || len(f) < 3 {
			t.Fatalf("CLUSTER SLOTS has a range %v: %v", r, err)
		}
		first, _ := f[0].AsInt64()
		last, _ := f[1].AsInt64()
		at, _ := f[2].ToArray()
		port, _ := at[1].AsInt64()
		if slot < int(first) || slot > int(last) {
			continue
		}
		for i, n := range c.Nodes {
			if n.port == int(port) {
				return i
			}
		}
	}
	t.Fatalf("nobody has the slot %d of %s", slot, key)
	return -1
}

// MoveSlot moves the slot of key, with all keys in it, from the node that has it to
// the node with the index to, as a resharding does.
func (c *Cluster) MoveSlot(t testing.TB, key string, to int) {
	t.Helper()
	slot, from := strconv.Itoa(c.Slot(t, key)), c.Owner(t, key)
	if from == to {
		t.Fatalf("MoveSlot(%s, %d): it is there already", key, to)
	}
	source, target := c.Nodes[from], c.Nodes[to]
	target.must(t, "CLUSTER", "SETSLOT", slot, "IMPORTING", c.ids[from])
	source.must(t, "CLUSTER", "SETSLOT", slot, "MIGRATING", c.ids[to])
	for {
		m := source.must(t, "CLUSTER", "GETKEYSINSLOT", slot, "100")
		keys, err := m.AsStrSlice()
		if err != nil {
			t.Fatalf("CLUSTER GETKEYSINSLOT %s: %v", slot, err)
		}
		if len(keys) == 0 {
			break
		}
		source.must(t, append([]string{"MIGRATE", host, strconv.Itoa(target.port), "", "0", "5000", "KEYS"}, keys...)...)
	}
	// The target first: it must not take the news for wrong.
	for _, n := range []*Node{target, source} {
		n.must(t, "CLUSTER", "SETSLOT", slot, "NODE", c.ids[to])
	}
	for _, n := range c.Nodes {
		if n != target && n != source {
			n.must(t, "CLUSTER", "SETSLOT", slot, "NODE", c.ids[to])
		}
	}
	c.WaitOK(t)
}

func addrs(nodes []*Node) []string {
	list := make([]string, len(nodes))
	for i, n := range nodes {
		list[i] = n.Addr
	}
	return list
}

// infoField returns the value of a line "field:value".
func infoField(text, field string) string {
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// notYet returns err, or else an error that says what is still missing.
func notYet(err error, format string, args ...any) error {
	if err != nil {
		return err
	}
	return fmt.Errorf("%w: %s", errNotYet, fmt.Sprintf(format, args...))
}
