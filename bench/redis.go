package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/locco-go/locco/contract/integration"
	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/redis"
)

// lease is the TTL of what is taken and freed at once.
const lease = 30 * time.Second

func redisBackend(name string, kind integration.Redis) backend {
	return backend{
		name: name,
		launch: func(ctx context.Context) (string, func() error, error) {
			addr, end, err := integration.Launch(ctx, kind)
			return "redis://" + addr, end, err
		},
		open: openRedis,
	}
}

// redisStore is a server that speaks the protocol of Redis.
type redisStore struct {
	client rueidis.Client
	meter  rueidis.Client // reads the counters, so that it gets in nobody's way
	list   []*subject
}

func openRedis(_ context.Context, url string) (store, error) {
	option, err := rueidis.ParseURL(url)
	if err != nil {
		return nil, err
	}
	st := &redisStore{}
	if st.client, err = rueidis.NewClient(option); err != nil {
		return nil, err
	}
	if st.meter, err = rueidis.NewClient(option); err != nil {
		st.client.Close()
		return nil, err
	}
	if st.list, err = redisSubjects(st.client); err != nil {
		st.close()
		return nil, err
	}
	return st, nil
}

func (st *redisStore) close() {
	st.client.Close()
	st.meter.Close()
}

func (st *redisStore) subjects() []*subject { return st.list }

func (st *redisStore) info(ctx context.Context, sections ...string) (map[string]string, error) {
	text, err := st.meter.Do(ctx, st.meter.B().Info().Section(sections...).Build()).ToString()
	return infoFields(text), err
}

// infoFields reads an answer of INFO.
func infoFields(text string) map[string]string {
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields
}

func (st *redisStore) version(ctx context.Context) (string, error) {
	info, err := st.info(ctx, "server")
	if err != nil {
		return "", err
	}
	if v := info["valkey_version"]; v != "" {
		return "Valkey " + v, nil
	}
	return "Redis " + info["redis_version"], nil
}

func (st *redisStore) usage(ctx context.Context) (usage, error) {
	// Sections one by one, as Redis 6.2 takes no more than one.
	fields := map[string]string{}
	for _, section := range []string{"commandstats", "stats", "cpu"} {
		info, err := st.info(ctx, section)
		if err != nil {
			return usage{}, err
		}
		maps.Copy(fields, info)
	}
	return redisUsage(fields)
}

// redisUsage reads the fields of INFO.
func redisUsage(fields map[string]string) (usage, error) {
	u := usage{commands: map[string]command{}}
	var errs []error
	integer := func(text string) int64 {
		n, err := strconv.ParseInt(text, 10, 64)
		errs = append(errs, err)
		return n
	}
	for name, value := range fields {
		name, ok := strings.CutPrefix(name, "cmdstat_")
		if !ok {
			continue
		}
		var c command
		for part := range strings.SplitSeq(value, ",") {
			switch what, n, _ := strings.Cut(part, "="); what {
			case "calls":
				c.calls = integer(n)
			case "usec":
				c.took = time.Duration(integer(n)) * time.Microsecond
			}
		}
		u.commands[name] = c
	}
	if text := fields["total_reads_processed"]; text != "" {
		u.reads = integer(text)
	}
	for _, name := range []string{"used_cpu_user", "used_cpu_sys"} {
		seconds, err := strconv.ParseFloat(fields[name], 64)
		errs = append(errs, err)
		u.cpu += time.Duration(seconds * float64(time.Second))
	}
	return u, errors.Join(errs...)
}

// redisSubjects are the subjects on Redis.
func redisSubjects(c rueidis.Client) ([]*subject, error) {
	list := []*subject{
		{name: "raw", commands: []string{"set", "evalsha", "eval"}, cycle: rawRedisCycle(c)},
		{
			// A list with one element is the simplest thing that hands over: who pops
			// it has the key, and pushes it back.
			name: "BLPOP", commands: []string{"blpop", "lpush"},
			prepare: func(ctx context.Context, key string) error { return push(ctx, c, key) },
			hold: func(ctx context.Context, key string) (func(context.Context) error, error) {
				err := c.Do(ctx, c.B().Blpop().Key(key).Timeout(patience.Seconds()).Build()).Error()
				return func(ctx context.Context) error { return push(ctx, c, key) }, err
			},
		},
	}
	// Unfenced, SET is sent to take a free key; the scripts run it for all else. So
	// what an unfenced subject sends can be counted only where nobody waits.
	fenced := []string{"evalsha", "eval", "subscribe", "unsubscribe"}
	unfenced := append([]string{"set"}, fenced...)
	for _, v := range []struct {
		name     string
		commands []string
		redis    []redis.Option
		options  []locco.Option
		can      abilities
	}{
		{"locco, fenced", fenced, nil, []locco.Option{locco.WithFencing()}, abilities{wait: true, keep: true}},
		{"locco", unfenced, nil, nil, abilities{}},
		{"locco, fenced, no wake-ups", fenced, []redis.Option{redis.WithoutWakeUps()}, []locco.Option{locco.WithFencing()}, abilities{}},
		{"locco, no wake-ups", unfenced, []redis.Option{redis.WithoutWakeUps()}, nil, abilities{}},
		{
			"locco, fenced, hook, auto-extension", fenced, nil,
			[]locco.Option{locco.WithFencing(), locco.WithEvents(func(locco.Event) {}), locco.WithDefaults(locco.AutoExtend(time.Hour))},
			abilities{},
		},
	} {
		s, err := loccoSubject(v.name, redis.New(c, v.redis...), v.commands, v.can, v.options...)
		if err != nil {
			return nil, err
		}
		list = append(list, s)
	}
	return list, nil
}

func push(ctx context.Context, c rueidis.Client, key string) error {
	return c.Do(ctx, c.B().Lpush().Key(key).Element("x").Build()).Error()
}

// rawRedisCycle is what a program does that has no library: SET with NX, and a
// script that compares before it deletes.
func rawRedisCycle(c rueidis.Client) func(context.Context, string) error {
	script := rueidis.NewLuaScript(`if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0`)
	return func(ctx context.Context, key string) error {
		var random [16]byte
		_, _ = rand.Read(random[:]) // never fails
		token := hex.EncodeToString(random[:])
		if err := c.Do(ctx, c.B().Set().Key(key).Value(token).Nx().PxMilliseconds(lease.Milliseconds()).Build()).Error(); err != nil {
			return err
		}
		n, err := script.Exec(ctx, c, []string{key}, []string{token}).AsInt64()
		if err == nil && n != 1 {
			err = fmt.Errorf("deleting %q gave %d", key, n)
		}
		return err
	}
}
