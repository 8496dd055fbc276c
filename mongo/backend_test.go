package mongo_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	locco "github.com/locco-go/locco/core"
	loccomongo "github.com/locco-go/locco/mongo"
)

// unreachable is a collection of a server that is not there.
func unreachable(t *testing.T) *mongo.Collection {
	t.Helper()
	client, err := mongo.Connect(options.Client().ApplyURI("mongodb://127.0.0.1:1/?directConnection=true"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Disconnect(context.Background()) })
	return client.Database("app").Collection(loccomongo.DefaultCollection)
}

// spec 1.9: what is wrong is said by New, before any I/O.
func TestValidate(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		backend *loccomongo.Backend
		field   string // "": none
	}{
		{"Sound", loccomongo.New(unreachable(t)), ""},
		{"NilOption", loccomongo.New(unreachable(t), nil), ""},
		{"NilBackend", nil, "backend"},
		{"ZeroBackend", &loccomongo.Backend{}, "mongo collection"},
		{"NilCollection", loccomongo.New(nil), "mongo collection"},
	} {
		_, err := locco.New(tc.backend)
		var invalid *locco.ValidationError
		switch {
		case tc.field == "" && err != nil:
			t.Errorf("%s: New error = %v; want none", tc.name, err)
		case tc.field != "" && (!errors.As(err, &invalid) || invalid.Field != tc.field):
			t.Errorf("%s: New error = %v; want a ValidationError of %q", tc.name, err, tc.field)
		}
	}
}

// spec 8: a call ends at its context's deadline where no server is to be had, by an error
// that neither says that nothing was stored nor turns an ability off.
func TestNoServer(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := loccomongo.New(unreachable(t)).Acquire(ctx, locco.Lease{Key: "k", Token: "t", TTL: time.Second})
	if err == nil || errors.Is(err, locco.ErrInvalid) || errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("Acquire = %v; want the driver's error", err)
	}
}

// spec 3.7: which errors pass by themselves.
func TestRetryable(t *testing.T) {
	t.Parallel()
	b := loccomongo.New(unreachable(t))
	for _, tc := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{errors.New("odd"), false},
		{context.Canceled, false},
		{&locco.ValidationError{Field: "f", Err: mongo.CommandError{Code: 91}}, false},
		{errors.ErrUnsupported, false},
		{mongo.CommandError{Code: 13}, false},
		{mongo.CommandError{Code: 91}, true},
		{mongo.CommandError{Code: 10107}, true},
		{mongo.CommandError{Code: 1, Labels: []string{"RetryableWriteError"}}, true},
		{mongo.CommandError{Code: 0, Labels: []string{"NetworkError"}}, true},
		{mongo.WriteException{WriteErrors: mongo.WriteErrors{{Code: 11000}}}, true},
		{mongo.WriteException{WriteErrors: mongo.WriteErrors{{Code: 16908292}}}, true},
		{mongo.WriteException{WriteErrors: mongo.WriteErrors{{Code: 121}}}, false},
		{mongo.WriteException{WriteConcernError: &mongo.WriteConcernError{Code: 64}}, true},
		{mongo.WriteException{WriteConcernError: &mongo.WriteConcernError{Code: 100}}, false},
		{fmt.Errorf("read: %w", io.EOF), true},
		{fmt.Errorf("dial: %w", syscall.ECONNREFUSED), true},
		{mongo.ErrClientDisconnected, false},
	} {
		if got := b.Retryable(tc.err); got != tc.want {
			t.Errorf("Retryable(%v) = %v; want %v", tc.err, got, tc.want)
		}
	}
}

// spec 6.5, 1.9: a bad argument is a validation error before any I/O.
func TestGuardArguments(t *testing.T) {
	t.Parallel()
	c := unreachable(t)
	set := bson.D{{Key: "$set", Value: bson.D{{Key: "v", Value: 1}}}}
	for name, call := range map[string]func(ctx context.Context) error{
		"NilCollection": func(ctx context.Context) error { return loccomongo.Guard(ctx, nil, 1, 1, set) },
		"NilID":         func(ctx context.Context) error { return loccomongo.Raise(ctx, c, nil, 1) },
		"NoFence":       func(ctx context.Context) error { return loccomongo.Raise(ctx, c, 1, 0) },
		"LargeFence":    func(ctx context.Context) error { return loccomongo.Raise(ctx, c, 1, 1<<53) },
		"NoOperator": func(ctx context.Context) error {
			return loccomongo.Guard(ctx, c, 1, 1, bson.D{{Key: "v", Value: 1}})
		},
		"SetOfAMap": func(ctx context.Context) error {
			return loccomongo.Guard(ctx, c, 1, 1, bson.D{{Key: "$set", Value: bson.M{"v": 1}}})
		},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // whatever is sent fails otherwise
		if err := call(ctx); !errors.Is(err, locco.ErrInvalid) {
			t.Errorf("%s = %v; want ErrInvalid", name, err)
		}
	}
	stale := &loccomongo.StaleError{ID: 1, Fence: 2, Seen: 3}
	if !errors.Is(stale, loccomongo.ErrStale) || stale.Error() == "" {
		t.Errorf("%v does not match ErrStale", stale)
	}
}

// spec 8.4: the indexes of the Node library.
func TestIndexes(t *testing.T) {
	t.Parallel()
	list := loccomongo.Indexes()
	if len(list) != 2 {
		t.Fatalf("%d indexes; want 2", len(list))
	}
	for i, want := range []string{"key", "expireAt"} {
		if keys, ok := list[i].Keys.(bson.D); !ok || len(keys) != 1 || keys[0].Key != want {
			t.Errorf("index %d is on %v; want %s", i, list[i].Keys, want)
		}
	}
}
