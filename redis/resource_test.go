package redis_test

import (
	"errors"
	"testing"

	"github.com/redis/rueidis"

	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/redis"
)

// What is refused is a typed error with both fences.
func TestResource(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name         string
		raise, guard string // the server's answers
		seen         int64  // 0 if they pass
	}{
		{"Passes", ":0\r\n", "*2\r\n:0\r\n+OK\r\n", 0},
		{"Stale", ":9\r\n", "*1\r\n:9\r\n", 9},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := newStub(t, func(args []string) string {
				if len(args) > 5 {
					return tc.guard
				}
				return tc.raise
			})
			r := redis.NewResource(s.client(rueidis.ClientOption{}), "account:1")
			m, err := r.Guard(t.Context(), 7, []string{"k"}, "SET", "k", "v")
			if text, _ := m.ToString(); tc.seen == 0 && text != "OK" {
				t.Errorf("Guard = %q, %v; want the command's answer", text, err)
			}
			for _, err := range []error{r.Raise(t.Context(), 7), err} {
				var stale *redis.StaleError
				switch {
				case tc.seen == 0 && err != nil:
					t.Errorf("error = %v; want none", err)
				case tc.seen != 0 && (!errors.Is(err, redis.ErrStale) || !errors.As(err, &stale) || stale.Seen != 9 || stale.Fence != 7):
					t.Errorf("error = %v; want a StaleError of 7 and 9", err)
				}
			}
		})
	}
}

// spec 1.9: bad arguments are found before any I/O.
func TestResourceArguments(t *testing.T) {
	t.Parallel()
	s := newStub(t, func([]string) string { return ":0\r\n" })
	client := s.client(rueidis.ClientOption{})
	good := redis.NewResource(client, "r")
	_, noCommand := good.Guard(t.Context(), 1, nil)
	for name, err := range map[string]error{
		"NoFence":   good.Raise(t.Context(), 0),
		"HugeFence": good.Raise(t.Context(), 1<<53),
		"NoName":    redis.NewResource(client, "").Raise(t.Context(), 1),
		"Nil":       (*redis.Resource)(nil).Raise(t.Context(), 1),
		"NilClient": redis.NewResource(nil, "r").Raise(t.Context(), 1),
		"NoCommand": noCommand,
	} {
		if !errors.Is(err, locco.ErrInvalid) {
			t.Errorf("%s: error = %v; want ErrInvalid", name, err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.commands) != 0 {
		t.Errorf("the server was sent %q; want nothing", s.commands)
	}
}
