package integration_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/locco-go/locco/contract/integration"
)

// nodeEnv turns the tests against the Node library off if it is "off".
const nodeEnv = "LOCCO_TEST_NODE"

const nodeWanted = "the tests against the Node library need node and npm: install Node.js with npm " +
	"(scripts/backends does so on Debian), or set " + nodeEnv + "=off to do without these tests"

// nodeModules returns a folder with what testdata/node/package-lock.json names. It
// is installed once for that file, outside of the source tree.
var nodeModules = sync.OnceValues(func() (string, error) {
	for _, command := range []string{"node", "npm"} {
		if _, err := exec.LookPath(command); err != nil {
			return "", fmt.Errorf("%s: %w", nodeWanted, err)
		}
	}
	cache, err := os.UserCacheDir()
	if err != nil { // no home
		cache = os.TempDir()
	}
	sum := sha256.New()
	files := map[string][]byte{}
	for _, name := range []string{"package.json", "package-lock.json"} {
		if files[name], err = os.ReadFile(filepath.Join("testdata", "node", name)); err != nil {
			return "", err
		}
		sum.Write(files[name])
	}
	installed := filepath.Join(cache, "locco-test", "node-"+hex.EncodeToString(sum.Sum(nil))[:16])
	modules := filepath.Join(installed, "node_modules")
	if _, err := os.Stat(modules); err == nil {
		return modules, nil
	}
	// Another process may be at it too: whole or not at all.
	if err := os.MkdirAll(filepath.Dir(installed), 0o755); err != nil {
		return "", err
	}
	partial, err := os.MkdirTemp(filepath.Dir(installed), "partial-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(partial) }()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(partial, name), content, 0o600); err != nil {
			return "", err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	npm := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier")
	npm.Dir = partial
	npm.WaitDelay = time.Second
	if output, err := npm.CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm ci could not install what testdata/node/package-lock.json names (%w); "+
			"give npm a registry that it reaches, or set %s=off to do without the tests against the Node library:\n%s", err, nodeEnv, output)
	}
	if err := os.Rename(partial, installed); err != nil {
		if _, there := os.Stat(modules); there != nil {
			return "", err
		}
	}
	return modules, nil
})

// nodePeer is the Node library of the same name (@kontsedal/locco), with ioredis, in
// a process of its own. It has no fences and no wake-ups: its waiters poll, and its
// releases publish nothing.
type nodePeer struct {
	stdin io.WriteCloser

	mu      sync.Mutex // guards what follows
	calls   int
	waiting map[int]chan nodeAnswer
	gone    error // why there are no more answers
}

type nodeAnswer struct {
	ID      int    `json:"id"`
	OK      bool   `json:"ok"`
	Refused bool   `json:"refused"`
	Hold    int    `json:"hold"`
	Token   string `json:"token"`
	Rounds  []int  `json:"rounds"`
	Error   string `json:"error"`
}

func joinNode(t *testing.T, n *integration.Node) peer {
	t.Helper()
	if os.Getenv(nodeEnv) == "off" {
		t.Skip(nodeEnv + "=off")
	}
	modules, err := nodeModules()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("node", filepath.Join("testdata", "node", "peer.cjs"))
	cmd.Env = append(os.Environ(), "NODE_PATH="+modules)
	var talk bytes.Buffer
	cmd.Stderr = &talk
	p := &nodePeer{waiting: map[int]chan nodeAnswer{}}
	if p.stdin, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("start node: %v", err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		p.read(stdout)
	}()
	t.Cleanup(func() {
		_ = p.stdin.Close()
		kill := time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() })
		defer kill.Stop()
		<-read
		if err := cmd.Wait(); err != nil || talk.Len() > 0 {
			t.Errorf("node ended: %v\n%s", err, talk.String())
		}
	})
	if _, err := p.call(t.Context(), nil, map[string]any{"op": "connect", "server": nodeServer, "addr": n.Addr}); err != nil {
		t.Fatal(err)
	}
	return p
}

// nodeServer is the name of the one connection of a process.
const nodeServer = "redis"

func (p *nodePeer) read(stdout io.Reader) {
	lines := bufio.NewScanner(stdout)
	var failed error
	for failed == nil && lines.Scan() {
		var a nodeAnswer
		if failed = json.Unmarshal(lines.Bytes(), &a); failed != nil {
			failed = fmt.Errorf("node said %q: %w", lines.Text(), failed)
			break
		}
		p.mu.Lock()
		c := p.waiting[a.ID]
		if !a.Refused {
			delete(p.waiting, a.ID)
		}
		p.mu.Unlock()
		if c != nil {
			c <- a // it has room for a refusal and an answer
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone = errors.Join(failed, lines.Err()); p.gone == nil {
		p.gone = errors.New("node has ended")
	}
	for _, c := range p.waiting {
		close(c)
	}
	p.waiting = nil
	_, _ = io.Copy(io.Discard, stdout)
}

// call asks the process. Refused, if there is one, is called before the answer.
func (p *nodePeer) call(ctx context.Context, refused func(), request map[string]any) (nodeAnswer, error) {
	c := make(chan nodeAnswer, 2)
	p.mu.Lock()
	if p.gone != nil {
		defer p.mu.Unlock()
		return nodeAnswer{}, p.gone
	}
	p.calls++
	request["id"] = p.calls
	p.waiting[p.calls] = c
	line, err := json.Marshal(request)
	if err == nil {
		_, err = p.stdin.Write(append(line, '\n'))
	}
	p.mu.Unlock()
	if err != nil {
		return nodeAnswer{}, err
	}
	for {
		select {
		case <-ctx.Done():
			return nodeAnswer{}, ctx.Err()
		case a, ok := <-c:
			switch {
			case !ok:
				return a, p.ended()
			case a.Refused:
				refused()
			case a.Error != "":
				return a, fmt.Errorf("node, %s: %s", request["op"], a.Error)
			default:
				return a, nil
			}
		}
	}
}

// ended returns why there are no more answers.
func (p *nodePeer) ended() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.gone
}

// take is acquire or adopt.
func (p *nodePeer) take(ctx context.Context, refused func(), ttl time.Duration, request map[string]any) (hold, error) {
	request["server"] = nodeServer
	request["ttl"] = ttl.Milliseconds()
	a, err := p.call(ctx, refused, request)
	if err != nil || !a.OK {
		return nil, err
	}
	return nodeHold{p, a.Hold, a.Token, ttl}, nil
}

func (p *nodePeer) try(ctx context.Context, key string, ttl time.Duration) (hold, error) {
	return p.take(ctx, nil, ttl, map[string]any{"op": "acquire", "key": key})
}

func (p *nodePeer) wait(ctx context.Context, key string, ttl time.Duration, refused func()) (hold, error) {
	return p.take(ctx, refused, ttl, map[string]any{"op": "acquire", "key": key, "delay": pollDelay.Milliseconds()})
}

func (p *nodePeer) adopt(ctx context.Context, key, token string, ttl time.Duration) (hold, error) {
	return p.take(ctx, nil, ttl, map[string]any{"op": "adopt", "key": key, "token": token})
}

func (p *nodePeer) hammer(ctx context.Context, h hammering) ([]int, error) {
	a, err := p.call(ctx, nil, map[string]any{
		"op": "hammer", "server": nodeServer, "key": h.key, "counter": h.counter, "log": h.log, "name": h.name,
		"ttl": h.ttl.Milliseconds(), "workers": h.workers, "ms": h.long.Milliseconds(), "rounds": h.rounds,
		"delay": pollDelay.Milliseconds(),
	})
	return a.Rounds, err
}

type nodeHold struct {
	peer  *nodePeer
	id    int
	value string
	ttl   time.Duration
}

func (h nodeHold) token() string { return h.value }

func (h nodeHold) ask(ctx context.Context, op string) (bool, error) {
	a, err := h.peer.call(ctx, nil, map[string]any{"op": op, "hold": h.id, "ttl": h.ttl.Milliseconds()})
	return a.OK, err
}

func (h nodeHold) extend(ctx context.Context) (bool, error)  { return h.ask(ctx, "extend") }
func (h nodeHold) release(ctx context.Context) (bool, error) { return h.ask(ctx, "release") }
func (h nodeHold) held(ctx context.Context) (bool, error)    { return h.ask(ctx, "isLocked") }

// A lock file is for every registry: it has the checksums of the packages, and no
// addresses.
func TestNodeLockHasNoAddresses(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("testdata", "node", "package-lock.json"))
	if err != nil {
		t.Fatal(err)
	}
	var lock struct {
		Packages map[string]struct{ Version, Resolved, Integrity string }
	}
	if err := json.Unmarshal(text, &lock); err != nil {
		t.Fatal(err)
	}
	var names []string
	for path, p := range lock.Packages {
		if path == "" {
			continue
		}
		names = append(names, strings.TrimPrefix(path, "node_modules/")+"@"+p.Version)
		if p.Resolved != "" || p.Integrity == "" {
			t.Errorf("%s has resolved %q and integrity %q; want only the second", path, p.Resolved, p.Integrity)
		}
	}
	if want := "@kontsedal/locco@0.1.0"; !slices.Contains(names, want) {
		t.Errorf("package-lock.json has %q; want %s among them", names, want)
	}
}
