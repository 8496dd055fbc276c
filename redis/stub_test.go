package redis_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/redis/rueidis"
)

// hangUp as an answer closes the connection instead.
const hangUp = ""

// stub is a server that answers what the test says. It records the commands that
// are not the driver's own.
type stub struct {
	t      *testing.T
	listen net.Listener
	answer func(args []string) string // in the protocol: "+OK\r\n"

	mu       sync.Mutex // guards commands
	commands [][]string
}

func newStub(t *testing.T, answer func(args []string) string) *stub {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &stub{t: t, listen: l, answer: answer}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { s.serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		wg.Wait()
	})
	return s
}

func (s *stub) client(opt rueidis.ClientOption) rueidis.Client {
	s.t.Helper()
	opt.InitAddress, opt.ForceSingleClient, opt.DisableCache = []string{s.listen.Addr().String()}, true, true
	c, err := rueidis.NewClient(opt)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(c.Close)
	return c
}

// sent returns the names of the commands so far.
func (s *stub) sent() (names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.commands {
		names = append(names, c[0])
	}
	return names
}

func (s *stub) serve(conn net.Conn) {
	defer conn.Close()
	for r := bufio.NewReader(conn); ; {
		args, err := readCommand(r)
		if err != nil {
			return
		}
		answer := "+OK\r\n"
		switch args[0] {
		case "HELLO":
			answer = "%2\r\n$6\r\nserver\r\n$5\r\nredis\r\n$5\r\nproto\r\n:3\r\n"
		case "CLIENT", "PING":
		default:
			s.mu.Lock()
			s.commands = append(s.commands, args)
			s.mu.Unlock()
			if answer = s.answer(args); answer == hangUp {
				return
			}
		}
		if _, err := io.WriteString(conn, answer); err != nil {
			return
		}
	}
}

func readCommand(r *bufio.Reader) (args []string, err error) {
	n, err := readNumber(r, '*')
	for range n {
		size, err := readNumber(r, '$')
		if err != nil {
			return nil, err
		}
		text := make([]byte, size+2)
		if _, err := io.ReadFull(r, text); err != nil {
			return nil, err
		}
		args = append(args, string(text[:size]))
	}
	return args, err
}

func readNumber(r *bufio.Reader, kind byte) (int, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return 0, err
	}
	if line[0] != kind {
		return 0, fmt.Errorf("got %q; want a line with %q", line, kind)
	}
	return strconv.Atoi(strings.TrimSpace(line[1:]))
}
