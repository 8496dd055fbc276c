package redis

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/rueidis"

	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/redis/protocol"
)

// slotsError matches [errors.ErrUnsupported].
type slotsError struct{}

func (slotsError) Error() string { return "locco: the keys are in several slots of the Cluster" }

func (slotsError) Is(target error) bool { return target == errors.ErrUnsupported }

// AcquireMany implements [locco.ManyAcquirer]. On a Cluster client it answers
// [errors.ErrUnsupported] unless all keys share a slot.
func (b *Backend) AcquireMany(ctx context.Context, ls []locco.Lease) (grants []locco.Grant, refused int, err error) {
	if len(ls) == 0 {
		return nil, -1, nil
	}
	keys := make([]string, 0, 2*len(ls))
	var args []string
	fenced := false
	for i := range ls {
		if _, err := b.check(&ls[i]); err != nil {
			return nil, -1, err
		}
		if b.cluster && protocol.Slot(ls[i].Key) != protocol.Slot(ls[0].Key) {
			return nil, -1, slotsError{}
		}
		keys = append(keys, ls[i].Key)
		args = protocol.AppendAcquireMany(args, ls[i].Token, ls[i].TTL, ls[i].Again)
		fenced = fenced || ls[i].Fenced
	}
	for i := range ls {
		if fenced {
			keys = append(keys, protocol.FenceKey(ls[i].Key))
		}
	}
	if err := b.probe(ctx); err != nil {
		return nil, -1, err
	}
	r, waited := b.write(ctx, &protocol.AcquireMany, keys, args)
	answer, err := r.AsIntSlice()
	if err != nil {
		return nil, -1, explain(err)
	}
	fences, refused, err := protocol.Grants(answer, len(ls))
	if err != nil || refused >= 0 {
		return nil, refused, err
	}
	if waited != nil {
		return nil, -1, waited
	}
	grants = make([]locco.Grant, len(ls))
	for i := range grants {
		grants[i].OK = true
		if ls[i].Fenced {
			grants[i].Fence = fences[i]
		}
	}
	return grants, -1, nil
}

// extendAtOnce is how many leases one script extends: few enough not to keep the
// server from others for more than some ten microseconds.
const extendAtOnce = 32

// batch is the leases that one script extends.
type batch struct {
	at   []int // their indices
	keys []string
	args []string
}

// ExtendMany implements [locco.ManyExtender]. Leases whose keys may be in one script
// are extended together, and all scripts are sent at once.
func (b *Backend) ExtendMany(ctx context.Context, ls []locco.Lease) []locco.Verdict {
	verdicts := make([]locco.Verdict, len(ls))
	if err := b.probe(ctx); err != nil {
		for i := range verdicts {
			verdicts[i].Err = err
		}
		return verdicts
	}
	batches := b.batches(ls, verdicts)
	b.extendBatches(ctx, batches, verdicts, func(bad batch, err error) {
		// A right that is missing for one key, a slot that moved: the script did not
		// run. One by one each lease has the answer that is its own.
		if _, refused := redisError(err); !refused || len(bad.at) == 1 {
			for _, i := range bad.at {
				verdicts[i].Err = explain(err)
			}
			return
		}
		for _, i := range bad.at {
			verdicts[i].OK, verdicts[i].Err = b.Extend(ctx, ls[i])
		}
	})
	return verdicts
}

// batches groups what can be extended together.
func (b *Backend) batches(ls []locco.Lease, verdicts []locco.Verdict) []batch {
	var all []batch
	open := map[uint16]int{} // the batch of a slot that has room
	for i, l := range ls {
		l.Fenced = false
		if _, err := b.check(&l); err != nil {
			verdicts[i].Err = err
			continue
		}
		slot := uint16(0)
		if b.cluster {
			slot = protocol.Slot(l.Key)
		}
		at, found := open[slot]
		if !found || len(all[at].at) == extendAtOnce {
			at = len(all)
			all, open[slot] = append(all, batch{}), at
		}
		all[at].at = append(all[at].at, i)
		all[at].keys = append(all[at].keys, l.Key)
		all[at].args = protocol.AppendExtendMany(all[at].args, l.Token, l.TTL)
	}
	return all
}

// extendBatches runs the scripts and fills in the verdicts. failed gets what a
// script did not answer.
func (b *Backend) extendBatches(ctx context.Context, todo []batch, verdicts []locco.Verdict, failed func(batch, error)) {
	build := b.evalSHA
	for len(todo) > 0 {
		cmds := make([]rueidis.Completed, 0, len(todo)+1)
		for _, t := range todo {
			cmds = append(cmds, build(&protocol.ExtendMany, t.keys, t.args))
		}
		rs := b.doMulti(ctx, cmds...)
		var waited error
		if b.config.ack != ackNone {
			waited = b.acknowledged(rs[len(todo)])
		}
		var unknown, bad []batch
		var errs []error
		for n, t := range todo {
			answers, err := rs[n].ToArray()
			switch {
			case isNoScript(err):
				unknown = append(unknown, t)
			case err == nil && len(answers) != len(t.at):
				bad, errs = append(bad, t), append(errs, fmt.Errorf("locco: the script extendmany answered %d for %d keys", len(answers), len(t.at)))
			case err != nil:
				bad, errs = append(bad, t), append(errs, err)
			default:
				for k, i := range t.at {
					verdicts[i] = verdictOf(answers[k], waited)
				}
			}
		}
		for i, t := range bad {
			failed(t, errs[i])
		}
		todo, build = unknown, b.eval
	}
}

// verdictOf reads the answer for one lease.
func verdictOf(m rueidis.RedisMessage, waited error) locco.Verdict {
	if text, err := m.ToString(); err == nil {
		return locco.Verdict{Err: explain(&scriptError{text})}
	}
	n, err := m.AsInt64()
	switch {
	case err != nil:
		return locco.Verdict{Err: explain(err)}
	case n != 0 && waited != nil:
		return locco.Verdict{Err: waited}
	}
	return locco.Verdict{OK: n != 0}
}

// scriptError is the server's error about one key of a script.
type scriptError struct{ text string }

func (e *scriptError) Error() string { return e.text }
