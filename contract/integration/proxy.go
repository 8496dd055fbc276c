package integration

import (
	"bytes"
	"net"
	"sync"
	"testing"
)

// Proxy passes TCP connections on to a server, and breaks them in the ways in
// which networks do.
type Proxy struct {
	// Addr is where it listens.
	Addr string

	target   string
	listener net.Listener
	wg       sync.WaitGroup

	mu      sync.Mutex // guards what follows
	changed *sync.Cond // on mu
	silent  bool
	down    bool
	closed  bool
	links   map[*link]bool
	drops   []*drop
	holds   []*Held
}

// link is a connection of a client and the one to the server that belongs to it.
type link struct {
	client, server net.Conn
	drop           *drop // what comes next from the server is to get lost
	hold           *Held // what comes next from the server is to be kept back
	cut            bool
}

func (l *link) close() {
	_ = l.client.Close()
	_ = l.server.Close()
}

// drop is a reply that is to get lost.
type drop struct {
	request string
	done    chan struct{}
}

// Held is a reply that is kept back.
type Held struct {
	// Applied is closed when the server has answered.
	Applied <-chan struct{}

	// More is closed when the client, which has no answer, sends something else on the
	// same connection.
	More <-chan struct{}

	proxy         *Proxy
	request       string
	applied, more chan struct{}
	said          bool // more is closed
	link          *link
}

// Cut closes the connection. The reply is lost.
func (h *Held) Cut() {
	h.proxy.set(func() {
		if h.link != nil {
			h.link.cut = true
			h.link.close()
		}
	})
}

// StartProxy starts a proxy to the server at target, which ends with the test.
func StartProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatalf("start a proxy: %v", err)
	}
	p := &Proxy{Addr: l.Addr().String(), target: target, listener: l, links: map[*link]bool{}}
	p.changed = sync.NewCond(&p.mu)
	p.wg.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

// Silence stops to pass on anything, in either direction, without closing a
// connection. New connections are accepted and stay silent too.
func (p *Proxy) Silence() { p.set(func() { p.silent = true }) }

// Resume ends Silence. What was sent meanwhile arrives now.
func (p *Proxy) Resume() { p.set(func() { p.silent = false }) }

// Cut closes all connections. New ones work.
func (p *Proxy) Cut() {
	p.set(func() {
		for l := range p.links {
			l.cut = true
			l.close()
		}
	})
}

// Down closes all connections, and new ones at once, until Up.
func (p *Proxy) Down() {
	p.set(func() { p.down = true })
	p.Cut()
}

// Up ends Down.
func (p *Proxy) Up() { p.set(func() { p.down = false }) }

// DropReply waits for the next request that contains the given bytes, on any
// connection, passes it to the server, and cuts the connection in place of its
// reply: the command was applied and the client cannot know. The channel is closed
// when that has happened. Several calls are good for as many requests.
//
// What counts is what is read at once: the reply to a request that was sent right
// behind others, in a pipeline, may get lost together with theirs.
func (p *Proxy) DropReply(request string) <-chan struct{} {
	d := &drop{request: request, done: make(chan struct{})}
	p.set(func() { p.drops = append(p.drops, d) })
	return d.done
}

// HoldReply waits for the next request that contains the given bytes, on any
// connection, passes it to the server, and keeps its reply back for good.
func (p *Proxy) HoldReply(request string) *Held {
	h := &Held{proxy: p, request: request, applied: make(chan struct{}), more: make(chan struct{})}
	h.Applied, h.More = h.applied, h.more
	p.set(func() { p.holds = append(p.holds, h) })
	return h
}

// Connections returns how many there are.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

func (p *Proxy) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	p.changed.Broadcast()
}

func (p *Proxy) close() {
	p.set(func() { p.closed = true })
	_ = p.listener.Close()
	p.Cut()
	p.wg.Wait()
}

func (p *Proxy) accept() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.wg.Go(func() { p.serve(c) })
	}
}

func (p *Proxy) serve(c net.Conn) {
	p.mu.Lock()
	refused := p.down || p.closed
	p.mu.Unlock()
	if refused {
		_ = c.Close()
		return
	}
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		_ = c.Close()
		return
	}
	l := &link{client: c, server: server}
	p.mu.Lock()
	if p.down || p.closed {
		p.mu.Unlock()
		l.close()
		return
	}
	p.links[l] = true
	p.mu.Unlock()

	var both sync.WaitGroup
	both.Go(func() { p.pass(l, l.server, l.client, p.request) })
	both.Go(func() { p.pass(l, l.client, l.server, p.reply) })
	both.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}

// pass copies from src to dst until one of them ends. Each piece is shown to look,
// which tells whether it may pass.
func (p *Proxy) pass(l *link, dst, src net.Conn, look func(*link, []byte) bool) {
	defer l.close()
	buf := make([]byte, 64<<10)
	for {
		n, err := src.Read(buf)
		if n > 0 {
			p.mu.Lock()
			for p.silent && !l.cut {
				p.changed.Wait()
			}
			ok := look(l, buf[:n])
			p.mu.Unlock()
			if !ok {
				return
			}
			if _, err := dst.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// request is called with mu held.
func (p *Proxy) request(l *link, b []byte) bool {
	for i, d := range p.drops {
		if l.drop == nil && bytes.Contains(b, []byte(d.request)) {
			l.drop = d
			p.drops = append(p.drops[:i:i], p.drops[i+1:]...)
			break
		}
	}
	if h := l.hold; h != nil && !h.said {
		h.said = true
		close(h.more)
	}
	for i, h := range p.holds {
		if l.hold == nil && bytes.Contains(b, []byte(h.request)) {
			l.hold, h.link = h, l
			p.holds = append(p.holds[:i:i], p.holds[i+1:]...)
			break
		}
	}
	return true
}

// reply is called with mu held.
func (p *Proxy) reply(l *link, _ []byte) bool {
	if h := l.hold; h != nil {
		close(h.applied)
		for !l.cut {
			p.changed.Wait()
		}
		return false
	}
	if l.drop == nil {
		return true
	}
	close(l.drop.done)
	l.drop = nil
	return false
}
