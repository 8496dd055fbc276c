package locco

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// White-box: a backend sees this context only while its call runs; here it is
// looked at before, after, and without a call.

type (
	callKey  struct{}
	otherKey struct{}
)

// spec 2.6, 5.4
func TestCallContextDeadline(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		asked  bool // for Done, before the deadline
		finish bool
		at     time.Duration
		want   error
	}{
		{"Before", false, false, 3*s1 - 1, nil},
		{"BeforeWithDone", true, false, 3*s1 - 1, nil},
		{"After", false, false, 3 * s1, context.DeadlineExceeded},
		{"AfterWithDone", true, false, 3*s1 + 1, context.DeadlineExceeded},
		{"LongAfter", false, false, time.Hour, context.DeadlineExceeded},
		{"FinishedWithDone", true, true, s1, context.Canceled},
		{"FinishedAtDeadline", true, true, 4 * s1, context.Canceled},
		{"FinishedWithoutDone", false, true, s1, nil},
		{"FinishedWithoutDoneAfter", false, true, 3 * s1, context.DeadlineExceeded},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				c := newCallContext(t.Context(), start, 3*s1)
				if at, ok := c.Deadline(); !ok || !at.Equal(start.Add(3*s1)) {
					t.Errorf("Deadline = %v, %v; want 3s from now", at, ok)
				}
				if tc.asked {
					c.Done()
				}
				if tc.finish {
					c.finish()
				}
				time.Sleep(tc.at)
				synctest.Wait()
				if got := c.Err(); !errors.Is(got, tc.want) {
					t.Errorf("Err = %v; want %v", got, tc.want)
				}
				if got, want := c.expired(), tc.at >= 3*s1; got != want {
					t.Errorf("expired = %v; want %v", got, want)
				}
				if tc.asked {
					select {
					case <-c.Done():
						if tc.want == nil {
							t.Error("Done is closed; want it open")
						}
					default:
						if tc.want != nil {
							t.Error("Done is open; want it closed")
						}
					}
				}
				c.finish()
			})
		})
	}
}

// Who asks for Done only after the deadline, or after the call, gets it closed
// as soon as may be, and nothing stays behind: the bubble would not end.
//
// spec 2.6
func TestCallContextDoneLate(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		at   time.Duration
		wait time.Duration
	}{{"AfterFinish", s1, 2 * s1}, {"AfterDeadline", 5 * s1, 0}} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCallContext(t.Context(), time.Now(), 3*s1)
				c.finish()
				time.Sleep(tc.at)
				asked := time.Now()
				<-c.Done()
				if got := time.Since(asked); got != tc.wait {
					t.Errorf("Done closed after %v; want %v", got, tc.wait)
				}
				if err := c.Err(); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("Err = %v; want DeadlineExceeded", err)
				}
			})
		})
	}
}

// The caller's values are seen, its end is not: not through Done, not through
// Err, and not by context.Cause, which looks for it through Value.
//
// spec 2.6, 5.4
func TestCallContextValuesOnly(t *testing.T) {
	t.Parallel()
	mine := errors.New("the caller went away")
	for _, asked := range []bool{false, true} {
		name := "WithoutDone"
		if asked {
			name = "WithDone"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				parent, cancel := context.WithCancelCause(context.WithValue(context.Background(), callKey{}, "value"))
				cancel(mine)
				c := newCallContext(parent, time.Now(), 3*s1)
				defer c.finish()
				if asked {
					c.Done()
				}
				if got := c.Value(callKey{}); got != "value" {
					t.Errorf("Value = %v; want the caller's", got)
				}
				if got := c.Value(otherKey{}); got != nil {
					t.Errorf("Value of an unknown key = %v; want nil", got)
				}
				if err := c.Err(); err != nil {
					t.Errorf("Err = %v; want nil", err)
				}
				if cause := context.Cause(c); cause != nil {
					t.Errorf("Cause = %v; want nil", cause)
				}
				time.Sleep(3 * s1)
				<-c.Done()
				if cause := context.Cause(c); !errors.Is(cause, context.DeadlineExceeded) || errors.Is(cause, mine) {
					t.Errorf("Cause after the deadline = %v; want DeadlineExceeded", cause)
				}
			})
		})
	}
}

// Drivers derive contexts of their own from it. Those end with it, by its
// deadline or with the call, and cost no goroutine that stays.
//
// spec 2.6
func TestCallContextChildren(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		make func(*callContext) (context.Context, context.CancelFunc)
		end  func(*callContext)
		want error
	}{
		{"Deadline", func(c *callContext) (context.Context, context.CancelFunc) {
			return context.WithCancel(c)
		}, func(*callContext) { time.Sleep(3 * s1) }, context.DeadlineExceeded},
		{"Finish", func(c *callContext) (context.Context, context.CancelFunc) {
			return context.WithCancel(c)
		}, (*callContext).finish, context.Canceled},
		{"LongerTimeout", func(c *callContext) (context.Context, context.CancelFunc) {
			return context.WithTimeout(c, time.Hour)
		}, func(*callContext) { time.Sleep(3 * s1) }, context.DeadlineExceeded},
		{"ShorterTimeout", func(c *callContext) (context.Context, context.CancelFunc) {
			return context.WithTimeout(c, s1)
		}, func(*callContext) { time.Sleep(s1) }, context.DeadlineExceeded},
		{"WithValue", func(c *callContext) (context.Context, context.CancelFunc) {
			return context.WithCancel(context.WithValue(c, callKey{}, 1))
		}, (*callContext).finish, context.Canceled},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCallContext(t.Context(), time.Now(), 3*s1)
				child, cancel := tc.make(c)
				defer cancel()
				if err := child.Err(); err != nil {
					t.Fatalf("Err of the child = %v; want nil", err)
				}
				tc.end(c)
				synctest.Wait()
				if err := child.Err(); !errors.Is(err, tc.want) {
					t.Errorf("Err of the child = %v; want %v", err, tc.want)
				}
				c.finish()
			})
		})
	}
}

// spec 2.6
func TestCallContextConcurrentSafe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCallContext(t.Context(), time.Now(), 3*s1)
		var group sync.WaitGroup
		dones := make([]<-chan struct{}, 16)
		for i := range dones {
			group.Go(func() {
				dones[i] = c.Done()
				_ = c.Err()
				_ = c.Value(callKey{})
			})
		}
		group.Wait()
		for i, done := range dones {
			if done != dones[0] {
				t.Errorf("Done of goroutine %d is another channel than that of the first", i)
			}
		}
		c.finish()
		<-c.Done()
	})
}

// A call of a backend that asks for nothing costs nothing; one that asks for
// Done pays for a context.
//
// spec 2.6
func TestCallContextIsCheap(t *testing.T) {
	// Not parallel: it counts allocations.
	background := context.Background()
	valued := context.WithValue(background, callKey{}, 1)
	canceled, cancel := context.WithCancel(background)
	defer cancel()
	now := time.Now()
	for _, tc := range []struct {
		name string
		ctx  context.Context
		want float64
	}{
		{"Background", background, 0},
		{"Values", valued, 0},
		{"CanBeCanceled", canceled, 1}, // context.WithoutCancel
	} {
		t.Run(tc.name, func(t *testing.T) {
			var c callContext
			got := testing.AllocsPerRun(100, func() {
				c.init(tc.ctx, now, time.Hour)
				if c.Err() != nil {
					t.Fail()
				}
				c.finish()
			})
			if got != tc.want {
				t.Errorf("a call allocates %v times; want %v", got, tc.want)
			}
		})
	}
}
