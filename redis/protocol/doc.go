// Package protocol is what the Redis backends of locco have in common, whatever
// their driver: the scripts, the names of keys and channels, arguments and
// answers. Applications use package redis instead.
//
// # Stored data
//
// A lock is the key itself, a string with the holder's token as its value and the
// lease as its expiry: SET key token PX ttl NX. Beside it, only for fenced grants,
// is the counter of its fences, [FenceKey].
//
// On a Cluster a script sees the keys of one slot only. The counter of a key is
// therefore in its slot, which the name sees to: "{key}:locco-fence", or
// "key:locco-fence" when the key has a hash tag. A key with a "}" but without a
// hash tag cannot have a counter in its slot ([SharesSlot]).
//
// "x" and "{x}" are two locks with one counter; that makes gaps, which are normal.
package protocol
