package contract_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/locco-go/locco/contract"
	locco "github.com/locco-go/locco/core"
)

// remote is a reference at the other end of a slow line, as a server is: not
// immediate, and every call takes a while there and back.
type remote struct{ reference }

func (remote) Immediate() bool { return false }

// away runs call at the other end.
func away[T any](ctx context.Context, call func() (T, error)) (answer T, err error) {
	const oneWay = 2700 * time.Microsecond
	if err := ctx.Err(); err != nil {
		return answer, err
	}
	time.Sleep(oneWay)
	defer time.Sleep(oneWay)
	return call()
}

func (r remote) Acquire(ctx context.Context, l locco.Lease) (locco.Grant, error) {
	return away(ctx, func() (locco.Grant, error) { return r.reference.Acquire(ctx, l) })
}

func (r remote) Extend(ctx context.Context, l locco.Lease) (bool, error) {
	return away(ctx, func() (bool, error) { return r.reference.Extend(ctx, l) })
}

func (r remote) Release(ctx context.Context, key, token string) (bool, error) {
	return away(ctx, func() (bool, error) { return r.reference.Release(ctx, key, token) })
}

func (r remote) Holds(ctx context.Context, key, token string) (bool, error) {
	return away(ctx, func() (bool, error) { return r.reference.Holds(ctx, key, token) })
}

func (r remote) Transfer(ctx context.Context, from string, to locco.Lease) (locco.Grant, error) {
	return away(ctx, func() (locco.Grant, error) { return r.reference.Transfer(ctx, from, to) })
}

func (r remote) AcquireMany(ctx context.Context, ls []locco.Lease) (grants []locco.Grant, refused int, err error) {
	refused, err = away(ctx, func() (int, error) {
		var refused int
		var err error
		grants, refused, err = r.reference.AcquireMany(ctx, ls)
		return refused, err
	})
	return grants, refused, err
}

func (r remote) ExtendMany(ctx context.Context, ls []locco.Lease) []locco.Verdict {
	verdicts, err := away(ctx, func() ([]locco.Verdict, error) { return r.reference.ExtendMany(ctx, ls), nil })
	if err != nil {
		verdicts = make([]locco.Verdict, len(ls))
		for i := range verdicts {
			verdicts[i].Err = err
		}
	}
	return verdicts
}

// TestRemote shows that a correct backend passes however long its calls take.
func TestRemote(t *testing.T) {
	t.Parallel()
	h := harness()
	h.Immediate = false
	h.New = func(*testing.T) locco.Backend { return remote{newReference()} }
	h.Peer = func(_ *testing.T, b locco.Backend) locco.Backend { return remote{reference{b.(remote).store}} }
	contract.Run(t, h)
}

// picky is a reference with the limits of a cluster: keys without a hash tag
// cannot be fenced when they contain a brace, and only keys with the same tag are
// taken in one step.
type picky struct{ reference }

func tagOf(key string) string {
	_, tag, _ := strings.Cut(key, "{")
	tag, _, _ = strings.Cut(tag, "}")
	return tag
}

func invalid(key string, fenced bool) bool {
	return fenced && strings.Contains(key, "}") && tagOf(key) == ""
}

func (p picky) Acquire(ctx context.Context, l locco.Lease) (locco.Grant, error) {
	if invalid(l.Key, l.Fenced) {
		return locco.Grant{}, &locco.ValidationError{Field: "key", Value: l.Key, Rule: "must have a hash tag"}
	}
	return p.reference.Acquire(ctx, l)
}

func (p picky) AcquireMany(ctx context.Context, ls []locco.Lease) ([]locco.Grant, int, error) {
	for _, l := range ls {
		if len(ls) > 1 && (tagOf(l.Key) == "" || tagOf(l.Key) != tagOf(ls[0].Key)) {
			return nil, -1, errors.ErrUnsupported
		}
	}
	return p.reference.AcquireMany(ctx, ls)
}

// TestPicky shows that a backend with limits passes when its harness says so.
func TestPicky(t *testing.T) {
	t.Parallel()
	h := harness()
	h.New = func(*testing.T) locco.Backend { return picky{newReference()} }
	h.Peer = nil
	h.InvalidKey = invalid
	h.Keys = func(unique string, n int) []string {
		keys := make([]string, n)
		for i := range keys {
			keys[i] = fmt.Sprintf("{%s}:%d", unique, i)
		}
		return keys
	}
	contract.Run(t, h)
}
