package contract_test

import (
	"context"
	"path"
	"strings"
	"unicode"

	locco "github.com/locco-go/locco/core"
)

// keyDefects are about odd keys and tokens.
var keyDefects = []defect{
	{
		name:     "KeysAreTrimmed",
		caughtBy: []string{"Keys/AreDistinct"},
		seed:     key(strings.TrimSpace),
	},
	{
		name:     "KeysAreLowerCased",
		caughtBy: []string{"Keys/AreDistinct", "Keys/LongAreDistinct"},
		seed:     key(strings.ToLower),
	},
	{
		name:     "KeysAreCutAt255Bytes",
		caughtBy: []string{"Keys/LongAreDistinct"},
		seed:     key(func(key string) string { return key[:min(len(key), 255)] }),
	},
	{
		name:     "KeysAreTheirHashTag",
		caughtBy: []string{"Keys/AreDistinct"},
		seed: key(func(key string) string {
			_, tag, _ := strings.Cut(key, "{")
			if tag, _, tagged := strings.Cut(tag, "}"); tagged && tag != "" {
				return tag
			}
			return key
		}),
	},
	{
		name:     "KeysAreNormalized",
		caughtBy: []string{"Keys/AreDistinct"},
		seed:     key(strings.NewReplacer("e\u0301", "\u00e9", "\u212b", "\u00c5").Replace),
	},
	{
		name:     "KeysLoseControlCharacters",
		caughtBy: []string{"Keys/AreDistinct"},
		seed: key(func(key string) string {
			return strings.Map(func(r rune) rune {
				if unicode.IsControl(r) {
					return -1
				}
				return r
			}, key)
		}),
	},
	{
		name:     "KeysArePatterns",
		caughtBy: []string{"Keys/Odd"},
		seed: func(r reference, f *faulty) {
			f.release = func(ctx context.Context, key, token string) (bool, error) {
				if match, err := path.Match(key, key); err != nil || !match {
					return false, err
				}
				return r.Release(ctx, key, token)
			}
		},
	},
	{
		name:     "OddKeysPanic",
		caughtBy: []string{"Keys/Odd"},
		seed: key(func(key string) string {
			if strings.Contains(key, "'") {
				panic("unterminated string in " + key)
			}
			return key
		}),
	},
	{
		name: "OddKeysAreRefusedByOneMethodEach",
		caughtBy: []string{
			"Keys/OddAndFenced", "Keys/OddAndTransfer", "Keys/OddAndAcquireMany", "Keys/OddAndExtendMany",
		},
		seed: func(r reference, f *faulty) {
			odd := func(key string) bool { return strings.ContainsAny(key, `'"{}\`) }
			f.acquire = func(ctx context.Context, l locco.Lease) (locco.Grant, error) {
				if l.Fenced && odd(l.Key) {
					return locco.Grant{}, errDefect
				}
				return r.Acquire(ctx, l)
			}
			f.transfer = func(ctx context.Context, from string, to locco.Lease) (locco.Grant, error) {
				if odd(to.Key) {
					return locco.Grant{}, errDefect
				}
				return r.Transfer(ctx, from, to)
			}
			f.acquireMany = func(ctx context.Context, ls []locco.Lease) ([]locco.Grant, int, error) {
				for _, l := range ls {
					if odd(l.Key) {
						return nil, -1, errDefect
					}
				}
				return r.AcquireMany(ctx, ls)
			}
			f.extend = func(ctx context.Context, l locco.Lease) (bool, error) {
				if odd(l.Key) {
					return false, errDefect
				}
				return r.Extend(ctx, l)
			}
		},
	},
	{
		name:     "WatchedKeysAreEscaped",
		caughtBy: []string{"Keys/OddAndWatched"},
		seed: func(r reference, f *faulty) {
			f.watch = func(ctx context.Context, key string) (<-chan struct{}, func(), error) {
				return r.Watch(ctx, strings.ReplaceAll(key, "%", "%25"))
			}
		},
	},
	{
		name:     "LongestKeyIsTooLong",
		caughtBy: []string{"Keys/Longest"},
		seed: func(r reference, f *faulty) {
			f.acquire = func(ctx context.Context, l locco.Lease) (locco.Grant, error) {
				if len(l.Key) > 1023 {
					return locco.Grant{}, errDefect
				}
				return r.Acquire(ctx, l)
			}
		},
	},
	{
		name:     "ShortestKeyIsTooShort",
		caughtBy: []string{"Keys/OneByte"},
		seed: func(r reference, f *faulty) {
			f.acquire = func(ctx context.Context, l locco.Lease) (locco.Grant, error) {
				if len(l.Key) < 2 {
					return locco.Grant{}, errDefect
				}
				return r.Acquire(ctx, l)
			}
		},
	},
	{
		name:     "TokensAreComparedWithoutCase",
		caughtBy: []string{"Tokens/AreExact"},
		seed:     token(strings.ToUpper),
	},
	{
		name:     "TokensArePatterns",
		caughtBy: []string{"Tokens/AreExact"},
		seed: func(r reference, f *faulty) {
			f.holds = func(ctx context.Context, key, token string) (bool, error) {
				return do(ctx, r.store, func() bool {
					present := r.live(key)
					if present == nil {
						return false
					}
					match, err := path.Match(token, present.token)
					return err == nil && match
				})
			}
		},
	},
	{
		name:     "TokensAreCutAt64Bytes",
		caughtBy: []string{"Tokens/Odd"},
		seed:     token(func(token string) string { return token[:min(len(token), 64)] }),
	},
}

// key and token seed a defect in what is stored.
func key(change func(string) string) func(reference, *faulty) {
	return func(_ reference, f *faulty) { f.rewrite(func(l *locco.Lease) { l.Key = change(l.Key) }) }
}

func token(change func(string) string) func(reference, *faulty) {
	return func(_ reference, f *faulty) { f.rewrite(func(l *locco.Lease) { l.Token = change(l.Token) }) }
}
