package locco_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	locco "github.com/locco-go/locco/core"
	"github.com/locco-go/locco/core/loccotest"
)

// spec 7.2, 3.7: a driver may end a call by a timeout that is not the call's, for
// example because a connection that calls share was given up for another one. That
// is no answer in time, and never looks like the end of the caller's context.
func TestTimeoutOfTheDriver(t *testing.T) {
	t.Parallel()
	for _, cause := range []error{context.DeadlineExceeded, context.Canceled} {
		t.Run(map[error]string{context.Canceled: "Canceled", context.DeadlineExceeded: "DeadlineExceeded"}[cause], func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				backend := loccotest.Wrap(newStore())
				l := newLocker(t, backend)
				late := func(what string, err error) {
					t.Helper()
					if !errors.Is(err, locco.ErrLate) || errors.Is(err, cause) || errors.Is(err, locco.ErrHeld) {
						t.Errorf("%s = %v; want ErrLate and nothing of a context", what, err)
					}
				}
				fail := func(op loccotest.Op) {
					backend.Inject(loccotest.Fault{Op: op, Times: 1, Effect: loccotest.FailRequest(cause)})
				}
				fail(loccotest.Acquire)
				_, err := l.TryAcquire(t.Context(), "k", time.Minute)
				late("TryAcquire", err)

				fail(loccotest.Acquire)
				lock, err := l.Acquire(t.Context(), "k", time.Minute)
				if err != nil {
					t.Fatalf("spec 3.7: Acquire = %v; want another look", err)
				}
				fail(loccotest.Extend)
				late("Extend", lock.Extend(t.Context(), time.Minute))
				fail(loccotest.Holds)
				late("Check", lock.Check(t.Context()))
				fail(loccotest.Release)
				late("Release", lock.Release(t.Context()))
				if err := lock.Release(t.Context()); err != nil {
					t.Errorf("the second Release = %v; want nil", err)
				}
			})
		})
	}
}
