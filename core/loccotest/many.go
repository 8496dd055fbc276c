package loccotest

import (
	"context"
	"errors"

	locco "github.com/locco-go/locco/core"
)

// AcquireMany implements [locco.ManyAcquirer].
func (b *Backend) AcquireMany(ctx context.Context, ls []locco.Lease) (grants []locco.Grant, refused int, err error) {
	if b.manyAcquirer == nil {
		return nil, -1, errors.ErrUnsupported
	}
	type answer struct {
		grants  []locco.Grant
		refused int
	}
	a, err := call(ctx, b, Call{Op: AcquireMany, Leases: ls}, func() (answer, error) {
		b.sent(ls...)
		grants, refused, err := b.manyAcquirer.AcquireMany(ctx, ls)
		b.answered(refused < 0, err, ls...)
		return answer{grants, refused}, err
	})
	if err != nil {
		return nil, -1, err
	}
	return a.grants, a.refused, nil
}

// ExtendMany implements [locco.ManyExtender].
func (b *Backend) ExtendMany(ctx context.Context, ls []locco.Lease) []locco.Verdict {
	if b.manyExtender == nil {
		return failed(ls, errors.ErrUnsupported)
	}
	verdicts, err := call(ctx, b, Call{Op: ExtendMany, Leases: ls}, func() ([]locco.Verdict, error) {
		return b.extendMany(ctx, ls), nil
	})
	if err != nil {
		return failed(ls, err)
	}
	return verdicts
}

// extendMany makes the exchange with those leases that no fault singled out.
func (b *Backend) extendMany(ctx context.Context, ls []locco.Lease) []locco.Verdict {
	effects := make([]Effect, len(ls))
	sent := make([]locco.Lease, 0, len(ls))
	for i, l := range ls {
		effects[i] = b.singledOut(l)
		if effects[i].kind != failRequest {
			sent = append(sent, l)
		}
	}
	answers := b.manyExtender.ExtendMany(ctx, sent)
	if len(answers) != len(sent) {
		return answers // a broken backend is not ours to mend
	}
	verdicts := make([]locco.Verdict, len(ls))
	for i, l := range ls {
		if effects[i].kind != failRequest {
			verdicts[i], answers = answers[0], answers[1:]
			b.found(l.Key, l.Token, verdicts[i].OK, verdicts[i].Err)
		}
		if err := effects[i].err; err != nil {
			verdicts[i] = locco.Verdict{Err: err}
		}
	}
	return verdicts
}

// singledOut returns what is to happen to the verdict of l alone.
func (b *Backend) singledOut(l locco.Lease) Effect {
	c := Call{Op: ExtendMany, Leases: []locco.Lease{l}}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.faults.hit(func(f *Fault) bool { return f.singlesOut() && f.matches(c) })
}

// failed is the same error for every lease.
func failed(ls []locco.Lease, err error) []locco.Verdict {
	verdicts := make([]locco.Verdict, len(ls))
	for i := range verdicts {
		verdicts[i].Err = err
	}
	return verdicts
}
