package protocol_test

import (
	"crypto/sha1"
	"encoding/hex"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/locco-go/locco/redis/protocol"
)

func TestSHA(t *testing.T) {
	t.Parallel()
	for _, s := range protocol.Scripts() {
		sum := sha1.Sum([]byte(s.Source))
		if want := hex.EncodeToString(sum[:]); s.SHA != want {
			t.Errorf("%s: SHA = %s; want %s", s.Name, s.SHA, want)
		}
		if !strings.HasPrefix(s.Source, "-- ") {
			t.Errorf("%s: the script does not begin with a comment", s.Name)
		}
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		key, fence, channel string
		shares              bool
	}{
		{"order:42", "{order:42}:locco-fence", "{order:42}:locco-free", true},
		{"{a}", "{a}:locco-fence", "{a}:locco-free", true},
		{"x{a}y", "x{a}y:locco-fence", "x{a}y:locco-free", true},
		{"x{a}{b}", "x{a}{b}:locco-fence", "x{a}{b}:locco-free", true},
		{"a{b", "{a{b}:locco-fence", "{a{b}:locco-free", true},
		{"{{a}}", "{{a}}:locco-fence", "{{a}}:locco-free", true}, // tag "{a"
		{"a}b", "{a}b}:locco-fence", "a}b", false},
		{"}", "{}}:locco-fence", "}", false},
		{"{}a", "{{}a}:locco-fence", "{}a", false}, // an empty tag is none
		{"{}{a}", "{{}{a}}:locco-fence", "{}{a}", false},
		{"a}{b", "{a}{b}:locco-fence", "a}{b", false},
	} {
		if got := protocol.FenceKey(tc.key); got != tc.fence {
			t.Errorf("FenceKey(%q) = %q; want %q", tc.key, got, tc.fence)
		}
		if got := protocol.Channel(tc.key); got != tc.channel {
			t.Errorf("Channel(%q) = %q; want %q", tc.key, got, tc.channel)
		}
		if got := protocol.SharesSlot(tc.key); got != tc.shares {
			t.Errorf("SharesSlot(%q) = %v; want %v", tc.key, got, tc.shares)
		}
		if same := protocol.Slot(tc.key) == protocol.Slot(tc.fence); same != tc.shares {
			t.Errorf("Slot(%q) == Slot(%q) is %v; want %v", tc.key, tc.fence, same, tc.shares)
		}
	}
}

// TestSlot has what CLUSTER KEYSLOT of a server answers.
func TestSlot(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]uint16{
		"": 0, "123456789": 12739, "foo": 12182, "bar": 5061, "{foo}bar": 12182, "foo{bar}": 5061, "foo{}{bar}": 8363, "foo{{bar}}zap": 4015,
	} {
		if got := protocol.Slot(key); got != want {
			t.Errorf("Slot(%q) = %d; want %d", key, got, want)
		}
	}
}

func FuzzNames(f *testing.F) {
	for _, key := range []string{"a", "{a}", "a}b", "{}a", "a{b", "}{"} {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, key string) {
		if key == "" {
			return
		}
		if channel := protocol.Channel(key); protocol.Slot(channel) != protocol.Slot(key) {
			t.Errorf("Slot(%q) = %d, Slot(%q) = %d; want the same", key, protocol.Slot(key), channel, protocol.Slot(channel))
		}
		for _, name := range []string{protocol.FenceKey(key), protocol.MarkKey(key)} {
			if protocol.SharesSlot(key) && protocol.Slot(name) != protocol.Slot(key) {
				t.Errorf("Slot(%q) = %d, Slot(%q) = %d; want the same", key, protocol.Slot(key), name, protocol.Slot(name))
			}
			if name == key {
				t.Errorf("the name beside %q is the key itself", key)
			}
		}
	})
}

func TestMilliseconds(t *testing.T) {
	t.Parallel()
	for ttl, want := range map[time.Duration]int64{
		time.Millisecond: 1, time.Second: 1000, time.Millisecond + 1: 2, 20 * 365 * 24 * time.Hour: 630720000000,
	} {
		if got := protocol.Milliseconds(ttl); got != want {
			t.Errorf("Milliseconds(%v) = %d; want %d", ttl, got, want)
		}
	}
}

func TestArguments(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		args protocol.Arguments
		want []string
	}{
		{"Acquire", protocol.AcquireArguments("t", time.Second, false), []string{"t", "1000"}},
		{"AcquireAgain", protocol.AcquireArguments("t", time.Second, true), []string{"t", "1000", "1"}},
		{"Extend", protocol.ExtendArguments("t", time.Second), []string{"t", "1000"}},
		{"Release", protocol.ReleaseArguments("t", "", "c"), []string{"t"}},
		{"ReleasePublish", protocol.ReleaseArguments("t", protocol.Publish, "c"), []string{"t", "c", "PUBLISH"}},
		{"Holds", protocol.HoldsArguments("t"), []string{"t"}},
		{"Transfer", protocol.TransferArguments("f", "t", time.Second, false), []string{"f", "t", "1000"}},
		{"TransferAgain", protocol.TransferArguments("f", "t", time.Second, true), []string{"f", "t", "1000", "1"}},
	} {
		if got := tc.args.Slice(); !slices.Equal(got, tc.want) {
			t.Errorf("%s: arguments = %q; want %q", tc.name, got, tc.want)
		}
	}
	many := protocol.AppendAcquireMany(nil, "t", time.Second, false)
	many = protocol.AppendAcquireMany(many, "u", time.Minute, true)
	if want := []string{"t", "1000", "0", "u", "60000", "1"}; !slices.Equal(many, want) {
		t.Errorf("AppendAcquireMany = %q; want %q", many, want)
	}
	many = protocol.AppendExtendMany(nil, "t", time.Second)
	if want := []string{"t", "1000"}; !slices.Equal(many, want) {
		t.Errorf("AppendExtendMany = %q; want %q", many, want)
	}
}

func TestGrant(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		answer  int64
		granted bool
		fence   int64
		left    time.Duration
	}{
		{1, true, 1, 0},
		{1<<53 - 1, true, 1<<53 - 1, 0},
		{0, false, 0, 0},
		{-1, false, 0, time.Millisecond},
		{-630720000000, false, 0, 20 * 365 * 24 * time.Hour},
		{math.MinInt64 + 1, false, 0, math.MaxInt64 - math.MaxInt64%time.Millisecond},
	} {
		granted, fence, left := protocol.Grant(tc.answer)
		if granted != tc.granted || fence != tc.fence || left != tc.left {
			t.Errorf("Grant(%d) = %v, %d, %v; want %v, %d, %v", tc.answer, granted, fence, left, tc.granted, tc.fence, tc.left)
		}
	}
	for answer, want := range map[int64]time.Duration{-2: 0, -1: 0, 0: 0, 5: 5 * time.Millisecond} {
		if got := protocol.Left(answer); got != want {
			t.Errorf("Left(%d) = %v; want %v", answer, got, want)
		}
	}
}

func TestGrants(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		answer  []int64
		fences  []int64
		refused int
		bad     bool
	}{
		{"Granted", []int64{0, 7, 8}, []int64{7, 8}, -1, false},
		{"FirstRefused", []int64{1}, nil, 0, false},
		{"LastRefused", []int64{2}, nil, 1, false},
		{"None", nil, nil, -1, true},
		{"TooFew", []int64{0, 7}, nil, -1, true},
		{"TooFar", []int64{3}, nil, -1, true},
		{"ZeroAlone", []int64{0}, nil, -1, true},
	} {
		fences, refused, err := protocol.Grants(tc.answer, 2)
		if !slices.Equal(fences, tc.fences) || refused != tc.refused || (err != nil) != tc.bad {
			t.Errorf("%s: Grants(%d, 2) = %d, %d, %v; want %d, %d, error %v",
				tc.name, tc.answer, fences, refused, err, tc.fences, tc.refused, tc.bad)
		}
	}
}
