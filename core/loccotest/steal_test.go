package loccotest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/core/loccotest"
)

// wrapped is a backend to wrap and its store.
type wrapped struct {
	name string
	make func() (locco.Backend, *plain)
}

// thieves are the ways to steal: in one step, in two, and in two because the
// backend says that it cannot do it in one.
var thieves = []wrapped{
	{"Transferrer", func() (locco.Backend, *plain) { f := &full{}; return f, &f.plain }},
	{"Plain", func() (locco.Backend, *plain) { p := &plain{}; return p, p }},
	{"Unsupported", func() (locco.Backend, *plain) {
		f := &full{atomicErr: errors.ErrUnsupported}
		return f, &f.plain
	}},
}

// eachThief runs fn in a bubble for each of them.
func eachThief(t *testing.T, fn func(t *testing.T, ctx context.Context, b *loccotest.Backend, inner *plain)) {
	t.Helper()
	for _, w := range thieves {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, ctx context.Context) {
				backend, inner := w.make()
				fn(t, ctx, loccotest.Wrap(backend), inner)
			})
		})
	}
}

func steal(t *testing.T, ctx context.Context, b *loccotest.Backend, key string) {
	t.Helper()
	if err := b.Steal(ctx, key, ttl); err != nil {
		t.Fatalf("Steal(%q) = %v; want no error", key, err)
	}
}

func TestSteal(t *testing.T) {
	t.Parallel()
	eachThief(t, func(t *testing.T, ctx context.Context, b *loccotest.Backend, inner *plain) {
		grant(t, b, lease("k", "t"))
		grant(t, b, lease("j", "t"))
		steal(t, ctx, b, "k")
		for name, call := range map[string]func() (bool, error){
			"Holds":   func() (bool, error) { return b.Holds(ctx, "k", "t") },
			"Extend":  func() (bool, error) { return b.Extend(ctx, lease("k", "t")) },
			"Release": func() (bool, error) { return b.Release(ctx, "k", "t") },
		} {
			if ours, err := call(); ours || err != nil {
				t.Errorf("%s of the robbed = %v, %v; want false, <nil>", name, ours, err)
			}
		}
		if g, err := b.Acquire(ctx, lease("k", "u")); g.OK || err != nil {
			t.Errorf("Acquire of a stolen key = %+v, %v; want a refusal", g, err)
		}
		wantHolds(t, inner, "j", "t")

		time.Sleep(ttl) // fake: the thief's lease ends
		grant(t, b, lease("k", "u"))
	})
}

func TestStealAFreeKey(t *testing.T) {
	t.Parallel()
	eachThief(t, func(t *testing.T, ctx context.Context, b *loccotest.Backend, _ *plain) {
		steal(t, ctx, b, "k")
		if g, err := b.Acquire(ctx, lease("k", "t")); g.OK || err != nil {
			t.Errorf("Acquire of a stolen key = %+v, %v; want a refusal", g, err)
		}
	})
}

func TestStealFromTheThief(t *testing.T) {
	t.Parallel()
	eachThief(t, func(t *testing.T, ctx context.Context, b *loccotest.Backend, inner *plain) {
		steal(t, ctx, b, "k")
		first := inner.rows["k"].token
		steal(t, ctx, b, "k")
		if second := inner.rows["k"].token; first == second {
			t.Errorf("both thieves have token %q; want one each", first)
		}
		if len(first) != 32 {
			t.Errorf("the thief's token is %q; want 32 hex digits", first)
		}
	})
}

// A holder is known, however it came to the key.
func TestStealFromWhomever(t *testing.T) {
	t.Parallel()
	for name, take := range map[string]func(t *testing.T, ctx context.Context, b *loccotest.Backend, inner *full){
		"AfterALostAnswer": func(t *testing.T, ctx context.Context, b *loccotest.Backend, _ *full) {
			inject(b, loccotest.Acquire, loccotest.DropAnswer())
			_, err := b.Acquire(ctx, lease("k", "t"))
			wantNoAnswer(t, err)
		},
		"AfterAnErrorBelow": func(_ *testing.T, ctx context.Context, b *loccotest.Backend, inner *full) {
			inner.err = errDriver
			b.Acquire(ctx, lease("k", "t"))
			inner.err = nil
			inner.Acquire(ctx, lease("k", "t")) // it was applied after all
		},
		"ByTransfer": func(t *testing.T, ctx context.Context, b *loccotest.Backend, _ *full) {
			grant(t, b, lease("k", "t"))
			b.Transfer(ctx, "t", lease("k", "u"))
		},
		"InASet": func(_ *testing.T, ctx context.Context, b *loccotest.Backend, _ *full) {
			b.AcquireMany(ctx, []locco.Lease{lease("j", "t"), lease("k", "t")})
		},
		"AttachedAndExtended": func(t *testing.T, ctx context.Context, b *loccotest.Backend, inner *full) {
			grant(t, inner, lease("k", "t"))
			b.Extend(ctx, lease("k", "t"))
		},
		"AttachedAndExtendedWithOthers": func(t *testing.T, ctx context.Context, b *loccotest.Backend, inner *full) {
			grant(t, inner, lease("k", "t"))
			b.ExtendMany(ctx, []locco.Lease{lease("k", "t")})
		},
		"Checked": func(t *testing.T, ctx context.Context, b *loccotest.Backend, inner *full) {
			grant(t, inner, lease("k", "t"))
			b.Holds(ctx, "k", "t")
		},
		"AfterOthersWereRefused": func(t *testing.T, ctx context.Context, b *loccotest.Backend, _ *full) {
			grant(t, b, lease("k", "t"))
			b.Acquire(ctx, lease("k", "u"))
			b.Extend(ctx, lease("k", "u"))
			b.Release(ctx, "k", "u")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, ctx context.Context) {
				inner := &full{}
				b := loccotest.Wrap(inner)
				take(t, ctx, b, inner)
				robbed := inner.rows["k"].token
				if robbed == "" {
					t.Fatal("nobody has the key; want somebody to steal from")
				}
				steal(t, t.Context(), b, "k")
				if inner.rows["k"].token == robbed {
					t.Errorf("%q still has the key; want a thief to have it", robbed)
				}
			})
		})
	}
}

func TestStealFails(t *testing.T) {
	t.Parallel()
	eachThief(t, func(t *testing.T, ctx context.Context, b *loccotest.Backend, inner *plain) {
		grant(t, inner, lease("k", "stranger"))
		if err := b.Steal(ctx, "k", ttl); err == nil {
			t.Error("Steal from a stranger = <nil>; want an error")
		}
		wantHolds(t, inner, "k", "stranger")

		inner.err = errDriver
		if err := b.Steal(ctx, "j", ttl); err != errDriver {
			t.Errorf("Steal = %v; want %v", err, errDriver)
		}
		if err := b.Free(ctx, "j"); err != errDriver {
			t.Errorf("Free = %v; want %v", err, errDriver)
		}
	})
}

func TestStealPassesTheFaults(t *testing.T) {
	t.Parallel()
	eachThief(t, func(t *testing.T, ctx context.Context, b *loccotest.Backend, inner *plain) {
		grant(t, b, lease("k", "t"))
		inject(b, 0, loccotest.FailRequest(errDriver))
		steal(t, ctx, b, "k")
		if err := b.Free(ctx, "k"); err != nil {
			t.Errorf("Free = %v; want no error", err)
		}
		wantHolds(t, inner, "k", "")
		all := loccotest.AnyAcquire | loccotest.Release | loccotest.Transfer
		if got := b.Calls(all); got != 1 {
			t.Errorf("Calls(%v) = %d; want 1, the test's own", all, got)
		}
	})
}

func TestFree(t *testing.T) {
	t.Parallel()
	eachThief(t, func(t *testing.T, ctx context.Context, b *loccotest.Backend, inner *plain) {
		if err := b.Free(ctx, "k"); err != nil {
			t.Errorf("Free of a free key = %v; want no error", err)
		}
		grant(t, b, lease("k", "t"))
		if err := b.Free(ctx, "k"); err != nil {
			t.Errorf("Free = %v; want no error", err)
		}
		wantHolds(t, inner, "k", "")
		if ours, err := b.Extend(ctx, lease("k", "t")); ours || err != nil {
			t.Errorf("Extend after Free = %v, %v; want false, <nil>", ours, err)
		}
		grant(t, b, lease("k", "u"))
	})
}
