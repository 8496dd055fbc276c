package postgres

import (
	"context"
	"errors"
	"strings"

	locco "github.com/locco-go/locco/core"
)

// setUpTries is how often the schema is looked at while others create it too.
const setUpTries = 5

// ready sees to it, at the first use, that the table is there, and the sequence if
// fenced. A failure is not kept: the next call looks again.
func (b *Backend) ready(ctx context.Context, fenced bool) error {
	if b.table.Load() && (!fenced || b.fences.Load()) {
		return nil
	}
	select {
	case b.setUp <- struct{}{}:
		defer func() { <-b.setUp }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if b.table.Load() && (!fenced || b.fences.Load()) {
		return nil // somebody else has seen to it meanwhile
	}
	for try := 1; ; try++ {
		s, err := b.db.look(ctx, b.config.table)
		if err != nil {
			return b.explain(err)
		}
		create, err := b.missing(&s, fenced)
		if err != nil {
			return err
		}
		if create == "" {
			if err := b.db.learn(ctx); err != nil {
				return b.explain(err)
			}
			b.table.Store(true)
			if fenced {
				b.fences.Store(true)
			}
			return nil
		}
		err = b.db.exec(ctx, create)
		if isCode(err, insufficientPrivilege) {
			return &locco.ValidationError{
				Field: "postgres table", Value: b.config.table.quoted(), Err: err,
				Rule: "must exist with its sequence, or the role must have CREATE on the schema: loccoddl postgres prints the statements",
			}
		}
		if err == nil && try == setUpTries {
			err = errNotSeen
		}
		if err != nil && (try == setUpTries || !createdMeanwhile(err)) {
			return b.explain(err)
		}
	}
}

// errNotSeen is for a table that is dropped as often as it is made.
var errNotSeen = errors.New("locco: what was created for the locks is not there a moment later")

// missing returns the statement that creates what is missing, "" if nothing is.
func (b *Backend) missing(l *layout, fenced bool) (create string, err error) {
	t := b.config.table
	want := lockShape(t)
	if problem := unusable(l.Table.compare(&want, len(t) > 1, "")); problem != "" {
		if l.Table != nil || b.config.keepSchema {
			return "", schemaError("postgres table", t.quoted(), problem)
		}
		return want.create, nil
	}
	if !fenced {
		return "", nil
	}
	if problem := unusable(l.Sequence.compareSequence(t, "")); problem != "" {
		if l.Sequence != nil || b.config.keepSchema {
			return "", schemaError("postgres sequence", t.fence(), problem)
		}
		return createSequence(t), nil
	}
	return "", nil
}

// unusable returns what makes it impossible to go on, "" if nothing does.
func unusable(found []finding) string {
	var problems []string
	for _, f := range found {
		if f.fatal {
			problems = append(problems, f.problem)
		}
	}
	return strings.Join(problems, "; ")
}

func schemaError(field, name, problem string) error {
	return &locco.ValidationError{Field: field, Value: name, Rule: problem + " (see loccoddl postgres)"}
}

// createdMeanwhile tells whether something could not be created because another
// process has just done so: IF NOT EXISTS is no help against one that does it at the
// same moment.
func createdMeanwhile(err error) bool {
	return isCode(err, duplicateTable) || isCode(err, duplicateObject) || isCode(err, uniqueViolation)
}
