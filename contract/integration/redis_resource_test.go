package integration_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/locco-go/locco/contract/integration"
	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/redis"
	"github.com/locco-go/locco/redis/protocol"
)

// spec 6.5: what is refused, whatever the reason, runs no command and leaves mark and
// data as they were.
func TestRedisResourceRefusals(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r integration.Redis) {
		client := integration.SharedRedis(t, r).Client(t)
		name := "{" + t.Name() + "}"
		mark, data := protocol.MarkKey(name), name+":data"
		res := redis.NewResource(client, name)
		for what, tc := range map[string]struct {
			put     []string // the mark
			invalid bool
			stale   int64 // the mark, if it is what refuses
			fence   int64
		}{
			"stale":      {put: []string{"SET", mark, "8"}, stale: 8, fence: 7},
			"digits":     {put: []string{"SET", mark, strconv.FormatInt(protocol.MaxFence, 10)}, stale: protocol.MaxFence, fence: protocol.MaxFence - 1},
			"no number":  {put: []string{"SET", mark, "soon"}, fence: 7},
			"wrong type": {put: []string{"LPUSH", mark, "x"}, fence: 7},
			"zero":       {put: []string{"SET", mark, "3"}, invalid: true, fence: 0},
			"negative":   {put: []string{"SET", mark, "3"}, invalid: true, fence: -1},
			"too large":  {put: []string{"SET", mark, "3"}, invalid: true, fence: protocol.MaxFence + 1},
		} {
			do(t, client, "DEL", mark, data)
			if err := do(t, client, tc.put...).Error(); err != nil {
				t.Fatalf("%v: %v", tc.put, err)
			}
			set(t, client, data, "before")
			before, err := do(t, client, "DUMP", mark).ToString()
			if err != nil {
				t.Fatalf("DUMP: %v", err)
			}
			raised := res.Raise(t.Context(), tc.fence)
			_, guarded := res.Guard(t.Context(), tc.fence, []string{data}, "SET", data, "after")
			for call, err := range map[string]error{"Raise": raised, "Guard": guarded} {
				var stale *redis.StaleError
				switch {
				case err == nil:
					t.Errorf("%s: %s = nil; want it refused", what, call)
				case errors.Is(err, locco.ErrInvalid) != tc.invalid:
					t.Errorf("%s: %s = %v; want ErrInvalid %v", what, call, err, tc.invalid)
				case errors.As(err, &stale) != (tc.stale != 0):
					t.Errorf("%s: %s = %v; want a StaleError %v", what, call, err, tc.stale != 0)
				case stale != nil && (stale.Seen != tc.stale || stale.Fence != tc.fence || stale.Resource != name):
					t.Errorf("%s: %s = %+v; want fence %d refused by %d", what, call, stale, tc.fence, tc.stale)
				}
			}
			if after, err := do(t, client, "DUMP", mark).ToString(); err != nil || after != before {
				t.Errorf("%s: the mark has changed (%v); want it as it was", what, err)
			}
			if v := get(t, client, data); v != "before" {
				t.Errorf("%s: the data is %q; want it as it was", what, v)
			}
		}
		do(t, client, "DEL", mark, data)
	})
}

// spec 6.5: a guarded command answers what it answers without a guard.
func TestRedisResourceAnswers(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r integration.Redis) {
		client := integration.SharedRedis(t, r).Client(t)
		name := "{" + t.Name() + "}"
		key := name + ":v"
		do(t, client, "DEL", key)
		res := redis.NewResource(client, name)
		guard := func(command ...string) rueidis.RedisMessage {
			t.Helper()
			m, err := res.Guard(t.Context(), 5, []string{key}, command...)
			if err != nil {
				t.Errorf("Guard of %q = %v", command, err)
			}
			return m
		}
		if m := guard("GET", key); !m.IsNil() {
			t.Errorf("GET of nothing = %v; want nil", m)
		}
		if n, err := asInt(guard("INCRBY", key, "41")); err != nil || n != 41 {
			t.Errorf("INCRBY = %d, %v; want 41", n, err)
		}
		if s, err := asText(guard("SET", key, "a\x00b")); err != nil || s != "OK" {
			t.Errorf("SET = %q, %v; want OK", s, err)
		}
		if s, err := asText(guard("GET", key)); err != nil || s != "a\x00b" {
			t.Errorf("GET = %q, %v; want what was set, byte by byte", s, err)
		}
		guard("DEL", key)
		guard("RPUSH", key, "x", "y")
		m := guard("LRANGE", key, "0", "-1")
		if list, err := m.AsStrSlice(); err != nil || !slices.Equal(list, []string{"x", "y"}) {
			t.Errorf("LRANGE = %q, %v; want both", list, err)
		}
		_, err := res.Guard(t.Context(), 6, []string{key}, "NOSUCHCOMMAND", key)
		if err == nil || errors.Is(err, redis.ErrStale) || errors.Is(err, locco.ErrInvalid) {
			t.Errorf("Guard of no command = %v; want the server's error", err)
		}
		if v := get(t, client, protocol.MarkKey(name)); v != "6" {
			t.Errorf("the mark is %q after a command that failed; want its claim, 6", v)
		}
		if ms, err := do(t, client, "PTTL", protocol.MarkKey(name)).AsInt64(); err != nil || ms != -1 {
			t.Errorf("PTTL of the mark = %d, %v; want no end", ms, err)
		}
	})
}

func asInt(m rueidis.RedisMessage) (int64, error)   { return m.AsInt64() }
func asText(m rueidis.RedisMessage) (string, error) { return m.ToString() }

// spec 6.5: whatever the order in which holders write at the same time, no write comes
// after that of a later holder.
func TestRedisResourceConcurrentSafe(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r integration.Redis) {
		client := integration.SharedRedis(t, r).Client(t)
		name := "{" + t.Name() + "}"
		list := name + ":writes"
		do(t, client, "DEL", protocol.MarkKey(name), list)
		const holders, writes = 8, 25
		var (
			wg       sync.WaitGroup
			mu       sync.Mutex // guards accepted
			accepted int
		)
		for i := range holders {
			wg.Go(func() {
				res := redis.NewResource(client, name)
				for k := range writes {
					fence := int64(1 + k*holders + i)
					_, err := res.Guard(t.Context(), fence, []string{list}, "RPUSH", list, strconv.FormatInt(fence, 10))
					var stale *redis.StaleError
					switch {
					case err == nil:
						mu.Lock()
						accepted++
						mu.Unlock()
					case !errors.As(err, &stale) || stale.Seen <= fence:
						t.Errorf("Guard with fence %d = %v; want a StaleError of a larger one", fence, err)
					}
				}
			})
		}
		wg.Wait()
		got, err := do(t, client, "LRANGE", list, "0", "-1").AsIntSlice()
		if err != nil || len(got) != accepted {
			t.Fatalf("%d writes are there, %v; want the %d that were accepted", len(got), err, accepted)
		}
		if !slices.IsSorted(got) {
			t.Errorf("the writes are %d; want none after that of a later holder", got)
		}
		if last := got[len(got)-1]; last != holders*writes {
			t.Errorf("the last write is %d; want that of the last holder, %d", last, holders*writes)
		}
	})
}

// spec 6.5, 1.5: two holders that read, change and write. The one that slept past its
// lease between its read and its write is refused, so no change is lost.
func TestRedisResourcePausedHolder(t *testing.T) {
	t.Parallel()
	eachDriver(t, func(t *testing.T, d driver, r integration.Redis) {
		n := integration.SharedRedis(t, r)
		client := n.Client(t)
		account := "{" + t.Name() + "}"
		balance := account + ":balance"
		set(t, client, balance, "100")
		res := redis.NewResource(client, account)
		read := func(lock *locco.Lock) int {
			t.Helper()
			if err := res.Raise(t.Context(), lock.Fence()); err != nil {
				t.Fatalf("Raise = %v", err)
			}
			v, err := strconv.Atoi(get(t, client, balance))
			if err != nil {
				t.Fatalf("the balance: %v", err)
			}
			return v
		}
		write := func(lock *locco.Lock, v int) error {
			_, err := res.Guard(t.Context(), lock.Fence(), []string{balance}, "SET", balance, strconv.Itoa(v))
			return err
		}
		w := &witness{}
		first, second := newLocker(t, d.open(t, at(n)), locco.WithFencing()), newLocker(t, d.open(t, at(n)), locco.WithFencing())
		slept := take(t, first, account, 200*time.Millisecond)
		w.granted(t, slept)
		seen := read(slept)
		waiter := await(t, second, account, time.Minute)
		lock := got(t, waiter) // after the end of the first one's lease
		w.granted(t, lock)
		if err := write(lock, read(lock)-30); err != nil {
			t.Errorf("the write of the holder = %v", err)
		}
		var stale *redis.StaleError
		if err := write(slept, seen-50); !errors.As(err, &stale) || stale.Fence != slept.Fence() || stale.Seen != lock.Fence() {
			t.Errorf("the write of the one that slept = %v; want a StaleError with both fences", err)
		}
		if err := write(lock, read(lock)-1); err != nil {
			t.Errorf("the second write of the holder = %v", err)
		}
		if v := get(t, client, balance); v != "69" {
			t.Errorf("the balance is %s; want 69", v)
		}
		release(t, lock)
	})
}

// spec 6.5, 1.9: a right that the guarded command or the guard lacks is a validation error.
func resourceRights(t *testing.T, n *integration.Node, admin rueidis.Client) {
	t.Helper()
	for right, claimed := range map[string]string{"+incr": "7", "+set": "", "+get": "", "+eval": ""} {
		do(t, admin, "DEL", protocol.MarkKey("r"), "{r}:v")
		n.FlushScripts(t)
		s := user(t, at(n), []*integration.Node{n}, "without"+right, []string{"~*", "&*", "+@all", "-" + strings.TrimPrefix(right, "+")})
		c := n.Client(t, func(o *rueidis.ClientOption) { o.Username, o.Password = s.user, s.password })
		_, err := redis.NewResource(c, "r").Guard(t.Context(), 7, []string{"{r}:v"}, "INCR", "{r}:v")
		if !errors.Is(err, locco.ErrInvalid) {
			t.Errorf("without %s: Guard = %v; want ErrInvalid", right, err)
		}
		if v := get(t, admin, "{r}:v"); v != "" {
			t.Errorf("without %s: the data is %q; want nothing written", right, v)
		}
		if v := get(t, admin, protocol.MarkKey("r")); v != claimed {
			t.Errorf("without %s: the mark is %q; want %q", right, v, claimed)
		}
	}
}

// resourceSlots checks that a command whose keys are not in the slot of the resource is
// refused before it has claimed anything.
func resourceSlots(t *testing.T, c *integration.Cluster, client rueidis.Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for i := range c.Nodes {
		name := keyOfEachNode(t, c, "resource")[i]
		res := redis.NewResource(client, name)
		if _, err := res.Guard(ctx, 5, []string{"{" + name + "}:v"}, "SET", "{"+name+"}:v", "x"); err != nil {
			t.Errorf("Guard in the slot of %s = %v", name, err)
		}
		other := fmt.Sprintf("elsewhere{%s-}", name)
		if _, err := res.Guard(ctx, 6, []string{other}, "SET", other, "x"); !errors.Is(err, locco.ErrInvalid) {
			t.Errorf("spec 1.9: Guard of a key of another slot = %v; want ErrInvalid", err)
		}
		if v := get(t, client, protocol.MarkKey(name)); v != "5" {
			t.Errorf("the mark is %q; want 5, as before the command that was refused", v)
		}
		if v := get(t, client, other); v != "" {
			t.Errorf("the key of another slot has %q; want nothing", v)
		}
	}
}
