package postgres

import (
	"context"
	"errors"

	locco "github.com/locco-go/locco/core"
)

// The tries of a set of which somebody else takes a key at the same moment. Each but
// the last is undone as a whole; the next one sees who has it.
const setTries = 3

// AcquireMany implements [locco.ManyAcquirer].
func (b *Backend) AcquireMany(ctx context.Context, ls []locco.Lease) (grants []locco.Grant, refused int, err error) {
	if len(ls) == 0 {
		return nil, -1, nil
	}
	keys, tokens, ms := columns(ls)
	again := make([]bool, len(ls))
	fenced := false
	for i := range ls {
		again[i] = ls[i].Again
		fenced = fenced || ls[i].Fenced
	}
	if err := b.ready(ctx, fenced); err != nil {
		return nil, -1, err
	}
	var (
		at     *int
		fences []int64
	)
	for try := 1; ; try++ {
		c := newCall(b.sql.acquireMany.of(fenced), keys, tokens, ms, again, lockTimeout(ctx))
		err = b.db.row(ctx, c.scan(&at, &fences, &c.synchronous, &c.answer))
		if !isCode(err, divisionByZero) {
			break
		}
		if try == setTries {
			return nil, -1, errRaced
		}
	}
	switch {
	case err != nil:
		return nil, -1, b.explain(err)
	case at != nil:
		return nil, *at - 1, nil
	}
	grants = make([]locco.Grant, len(ls))
	for i := range ls {
		grants[i].OK = true
		if ls[i].Fenced {
			grants[i].Fence = fences[i]
		}
	}
	return grants, -1, nil
}

// errRaced passes by itself.
var errRaced = errors.New("locco: others took the key, or one of the set, at the same moment, several times")

// ExtendMany implements [locco.ManyExtender]: one statement for all, and a second one
// if another transaction holds one of the rows for long.
func (b *Backend) ExtendMany(ctx context.Context, ls []locco.Lease) []locco.Verdict {
	verdicts := make([]locco.Verdict, len(ls))
	if len(ls) == 0 {
		return verdicts
	}
	err := b.ready(ctx, false)
	if err == nil {
		keys, tokens, ms := columns(ls)
		var at int
		c := newCall(b.sql.extendMany, keys, tokens, ms, lockTimeout(ctx))
		err = b.db.rows(ctx, c.scan(&at, &c.synchronous), func() { verdicts[at-1].OK = true })
		if isCode(err, lockNotAvailable) {
			c := newCall(b.sql.extendFree, keys, tokens, ms)
			err = b.db.rows(ctx, c.scan(&at, &c.done, &c.synchronous), func() {
				verdicts[at-1].OK = c.done
				if !c.done {
					verdicts[at-1].Err = errLocked
				}
			})
		}
	}
	if err != nil {
		err = b.explain(err)
		for i := range verdicts {
			verdicts[i] = locco.Verdict{Err: err}
		}
	}
	return verdicts
}

// errLocked passes by itself.
var errLocked = errors.New("locco: another transaction holds the row of the key")

// columns returns what is asked for, column by column.
func columns(ls []locco.Lease) (keys, tokens []string, ms []int64) {
	keys, tokens, ms = make([]string, len(ls)), make([]string, len(ls)), make([]int64, len(ls))
	for i := range ls {
		keys[i], tokens[i], ms[i] = ls[i].Key, ls[i].Token, milliseconds(ls[i].TTL)
	}
	return keys, tokens, ms
}
