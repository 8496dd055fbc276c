package contract

import (
	"errors"
	"strings"
	"testing"

	locco "github.com/locco-go/locco/core"
)

var keyCases = []testCase{
	{"Keys/Odd", 0, testKeysOdd},
	{"Keys/AreDistinct", 0, testKeysDistinct},
	{"Keys/Longest", 0, testKeysLongest},
	{"Keys/LongAreDistinct", 0, testKeysLongDistinct},
	{"Keys/OneByte", 0, testKeysOneByte},
	{"Keys/OddAndFenced", fencing, testKeysFenced},
	{"Keys/OddAndTransfer", transfer, testKeysTransfer},
	{"Keys/OddAndAcquireMany", manyAcquire, testKeysAcquireMany},
	{"Keys/OddAndExtendMany", manyExtend, testKeysExtendMany},
	{"Keys/OddAndWatched", watcher, testKeysWatched},
	{"Tokens/Odd", 0, testTokensOdd},
	{"Tokens/AreExact", 0, testTokensExact},
}

// oddities are texts that mean something to a server, a driver, a script or a
// collation: spaces, control characters, Unicode that looks or sorts alike,
// quotes, braces, patterns, operators.
var oddities = []string{
	"", "a", "A", "b", " a", "a ", " a ", "  a", "a  b", "a b", "a\tb", "a\nb", "a\r\nb", "\t", "\n", "\r", "a\n",
	"\x01", "\x1b[31m", "\x1f", "\x7f", "\u0085", "\u00a0", "\u2028", "\u200b", "a\u200b", "\ufeffa", "\u202e", "\u00ad",
	"\u00e9", "e\u0301", "\u00c9", "e", "ß", "ss", "SS", "ẞ", "İ", "I", "i", "ı", "i\u0307", "ﬁ", "fi", "Ａ", "\u00c5", "\u212b", "A\u030a",
	"ς", "σ", "Σ", "日本語", "日本", "ﷺ", "אב", "🔒", "👩‍👩‍👧", "👩", "\U0010ffff", "\ufffd", "\uffff", "\ud55c", "\u1112\u1161\u11ab",
	"{", "}", "{}", "}{", "{a}", "{a}b", "{a}{b}", "a}b", "a{b", "{{a}}", "{}a", "{a", "a}", "[", "]", "[a]", "[a-z]",
	"'", "''", `"`, `""`, "`", `\`, `\\`, `\n`, `\x00`, `\u0061`, `%`, "%%", "%s", "%d", "%25", "%61", "_", "*", "**", "?", "a*", "a?",
	"^", "^a", "$", "a$", "$1", "$a", "$$", "$ne", "$where", "$$NOW", "${a}", "{{.}}", ".", "..", "a.b", "a.", ".*", "(?i)a", "/a/i",
	"/", "//", "a/b", "../a", ":", "::", "a:b", ";", ",", "--", "/*", "*/", "#", "!", "@", "&", "&amp;", "|", "<", ">", "<a>", "=",
	"+", "~", "(", ")", "a=b&c=d", "a;b", "-", "-a", "0", "00", "1", "01", "1.0", "-1", "1e9", "0x10", "NaN", "true", "null", "NULL",
	"undefined", `{"$ne":null}`, `{"$gt":""}`, `["a"]`, "'; DROP TABLE locco_locks; --", "' OR '1'='1", "KEYS[1]", "return 1",
	"\r\nDEL a\r\n", "*1\r\n$4\r\nPING\r\n", "DEFAULT", "a::text", "E'a'", "$tag$a$tag$", "a\\", `a\'`,
}

// oddKeys returns keys that begin with, end with and contain each oddity, all of
// them distinct, without those that the harness says are refused.
func (s *subject) oddKeys(fenced bool) (keys []string) {
	id := s.key()
	for _, odd := range oddities {
		for _, key := range []string{odd + id, id + ":" + odd, id + "<" + odd + ">" + id} {
			if !s.h.InvalidKey(key, fenced) {
				keys = append(keys, key)
			}
		}
	}
	return keys
}

func testKeysOdd(t *testing.T, s *subject) {
	id := s.key()
	for _, odd := range oddities {
		for _, key := range []string{odd + id, id + odd} {
			s.wantKey(key)
		}
	}
}

// wantKey leads one key through its life.
func (s *subject) wantKey(key string) {
	s.t.Helper()
	name := "key " + show(key)
	l := newLease(key, long)
	if s.h.InvalidKey(key, false) {
		s.wantInvalid(l)
		return
	}
	s.wantAcquire(name, l, true, ruleKeys)
	s.wantAcquire(name+", held", newLease(key, long), false, ruleKeys)
	s.wantHolds(name, key, l.Token, true, ruleKeys)
	s.wantExtend(name, l, true, ruleKeys)
	s.wantExtend(name+", foreign token", newLease(key, long), false, ruleKeys)
	s.wantRelease(name+", foreign token", key, newToken(), false, ruleKeys)
	s.wantRelease(name, key, l.Token, true, ruleKeys)
	s.wantHolds(name+", released", key, l.Token, false, ruleKeys)
}

// wantInvalid checks that a key is refused as invalid, as the harness says.
func (s *subject) wantInvalid(l locco.Lease) {
	s.t.Helper()
	ctx, cancel := s.context()
	defer cancel()
	if g, err := s.b.Acquire(ctx, l); g.OK || !errors.Is(err, locco.ErrInvalid) {
		s.t.Errorf("Acquire(%s, fenced %v) = %+v, %v; want locco.ErrInvalid (Harness.InvalidKey)", show(l.Key), l.Fenced, g, err)
	}
}

// testKeysDistinct holds all odd keys at the same time.
func testKeysDistinct(t *testing.T, s *subject) {
	var leases []locco.Lease
	for _, key := range s.oddKeys(false) {
		l := newLease(key, long)
		s.wantAcquire("key "+show(key)+", which nobody holds", l, true, ruleKeys)
		leases = append(leases, l)
	}
	for _, l := range leases {
		s.wantRelease("key "+show(l.Key), l.Key, l.Token, true, ruleKeys)
	}
}

// longKey returns a key of exactly n bytes that ends with end.
func (s *subject) longKey(n int, fill, end string) string {
	key := s.key() + ":"
	rest := n - len(key) - len(end)
	return key + strings.Repeat("-", rest%len(fill)) + strings.Repeat(fill, rest/len(fill)) + end
}

// longest is the length of the longest key, in bytes.
const longest = 1024

func testKeysLongest(t *testing.T, s *subject) {
	for _, fill := range []string{"a", "é", "日", "🔒", " ", "\x01", `\`, "'", "%", "\t"} {
		for _, n := range []int{127, 128, 255, 256, 257, 511, 512, 513, 767, 768, longest - 1, longest} {
			s.wantKey(s.longKey(n, fill, "."))
		}
	}
}

// testKeysLongDistinct has long keys that differ in their last byte only, or
// in their length only.
func testKeysLongDistinct(t *testing.T, s *subject) {
	for _, n := range []int{64, 128, 250, 255, 256, 512, 767, longest - 1} {
		base := s.longKey(n, "k", "")
		var leases []locco.Lease
		for _, end := range []string{"", "a", "b", "A", " ", "k"} {
			l := newLease(base+end, long)
			s.wantAcquire("key "+show(l.Key)+", which nobody holds", l, true, ruleKeys)
			leases = append(leases, l)
		}
		for _, l := range leases {
			s.wantRelease("key "+show(l.Key), l.Key, l.Token, true, ruleKeys)
		}
	}
}

// testKeysOneByte may meet other runs on the same server, so it waits for the
// key.
func testKeysOneByte(t *testing.T, s *subject) {
	l := newLease(string('!'+s.unique[len(s.unique)-1]%90), 20*s.unit)
	if s.h.InvalidKey(l.Key, false) {
		s.wantInvalid(l)
		return
	}
	if !s.eventually(func() bool { return s.acquire(l).OK }) {
		t.Fatalf("Acquire(key %q) stays refused; want a grant (%s)", l.Key, ruleKeys)
	}
	s.release(l.Key, l.Token)
	s.wantHolds("released token", l.Key, l.Token, false, ruleKeys)
}

func testKeysFenced(t *testing.T, s *subject) {
	id := s.key()
	for _, odd := range oddities {
		for _, key := range []string{odd + id, id + odd} {
			l := newLease(key, long)
			l.Fenced = true
			if s.h.InvalidKey(key, true) {
				s.wantInvalid(l)
				continue
			}
			first := s.wantAcquire("key "+show(key), l, true, ruleKeys)
			s.wantRelease("key "+show(key), key, l.Token, true, ruleKeys)
			l.Token = newToken()
			s.wantFence(first.Fence, s.wantAcquire("key "+show(key), l, true, ruleKeys).Fence, "release")
			s.wantRelease("key "+show(key), key, l.Token, true, ruleKeys)
		}
	}
}

func testKeysTransfer(t *testing.T, s *subject) {
	for _, key := range s.oddKeys(false) {
		h := s.take(key, long)
		to := newLease(key, long)
		s.wantTransfer("key "+show(key), h.Token, to, true, ruleKeys)
		s.wantHolds("key "+show(key), key, to.Token, true, ruleKeys)
		s.wantRelease("key "+show(key), key, to.Token, true, ruleKeys)
	}
}

// testKeysAcquireMany takes keys one by one in sets of one, which every backend
// can take in one step, and all together, which some cannot.
func testKeysAcquireMany(t *testing.T, s *subject) {
	keys := sorted(s.oddKeys(false))
	for _, key := range keys {
		h := s.takeMany([]string{key}, long, false)[0]
		s.wantHolds("key "+show(key), key, h.Token, true, ruleKeys)
		s.wantRelease("key "+show(key), key, h.Token, true, ruleKeys)
	}
	leases := newLeases(keys, long)
	ctx, cancel := s.context()
	defer cancel()
	grants, refused, err := as[locco.ManyAcquirer](s.client).AcquireMany(ctx, leases)
	if errors.Is(err, errors.ErrUnsupported) {
		return
	}
	if err != nil || refused != -1 || len(grants) != len(leases) {
		t.Fatalf("AcquireMany(%d odd keys) = %d grants, %d, %v; want all of them (%s)", len(keys), len(grants), refused, err, ruleKeys)
	}
	for _, l := range leases {
		s.wantRelease("key "+show(l.Key), l.Key, l.Token, true, ruleKeys)
	}
}

func testKeysExtendMany(t *testing.T, s *subject) {
	var leases []locco.Lease
	for _, key := range s.oddKeys(false) {
		leases = append(leases, s.take(key, long).Lease)
	}
	for i, v := range s.extendMany(leases) {
		if !v.OK || v.Err != nil {
			t.Errorf("ExtendMany(key %s) = %+v; want OK (%s)", show(leases[i].Key), v, ruleKeys)
		}
	}
}

func testKeysWatched(t *testing.T, s *subject) {
	keys := s.oddKeys(false)
	watches := make([]*watch, len(keys))
	for i, key := range keys {
		watches[i] = s.watch(key)
	}
	for i, key := range keys {
		h := s.take(key, long)
		watches[i].drain()
		s.wantRelease("key "+show(key), key, h.Token, true, ruleKeys)
		watches[i].wantWake("release of the key "+show(key), ruleKeys)
		watches[i].stop()
	}
}

// testTokensOdd has tokens that a WithTokenFunc may return.
func testTokensOdd(t *testing.T, s *subject) {
	tokens := append([]string{strings.Repeat("t", 256), strings.Repeat("é", 128), strings.Repeat(" ", 256)}, oddities[1:]...)
	for _, token := range tokens {
		l := locco.Lease{Key: s.key(), Token: token, TTL: long}
		name := "token " + show(token)
		s.wantAcquire(name, l, true, ruleTokens)
		s.wantHolds(name, l.Key, token, true, ruleTokens)
		s.wantHolds("another than "+name, l.Key, token+".", false, ruleTokens)
		s.wantExtend(name, l, true, ruleTokens)
		s.wantRelease("another than "+name, l.Key, token+".", false, ruleTokens)
		s.wantRelease(name, l.Key, token, true, ruleTokens)
	}
}

// testTokensExact has tokens that only a loose comparison takes for the holder's.
func testTokensExact(t *testing.T, s *subject) {
	key := s.key()
	token := "ab" + newToken()[2:30] + "c\u00e9"
	h := s.takeLease(locco.Lease{Key: key, Token: token, TTL: long})
	for _, other := range []string{
		strings.ToUpper(token), token + " ", " " + token, token + "\n", token[:len(token)-2], token[:1], token + token,
		token[1:], "*", "%", "_", ".*", "?" + token[1:], "_" + token[1:], token[:len(token)-2] + "e\u0301", "null", "0", "true",
		`{"$ne":null}`, token + "\u200b", "ab%", "ab*", "^ab",
	} {
		name := "token " + show(other) + " of a key held by " + show(token)
		s.wantHolds(name, key, other, false, ruleTokens)
		s.wantExtend(name, locco.Lease{Key: key, Token: other, TTL: long}, false, ruleTokens)
		s.wantRelease(name, key, other, false, ruleTokens)
		l := locco.Lease{Key: key, Token: other, TTL: long, Again: true}
		s.wantAcquire(name+", Again", l, false, ruleTokens)
		if s.h.WithoutTransfer {
			continue
		}
		s.wantTransfer(name, other, newLease(key, long), false, ruleTokens)
	}
	s.wantHeld(h.Lease, ruleTokens)
}
