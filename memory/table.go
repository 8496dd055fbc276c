package memory

import "maps"

// table is a map that gives its memory back. A Go map keeps the buckets of its
// largest size for ever; this one is copied to a smaller one when few entries
// are left. Its fields are read directly and changed by its methods. The zero
// value is an empty table.
type table[V any] struct {
	entries map[string]V
	peak    int // the most entries since the map was made
}

// set stores value under key.
func (t *table[V]) set(key string, value V) {
	if t.entries == nil {
		t.entries = make(map[string]V)
	}
	t.entries[key] = value
	t.peak = max(t.peak, len(t.entries))
}

// remove deletes key.
func (t *table[V]) remove(key string) {
	delete(t.entries, key)
	if left := len(t.entries); mostlyEmpty(left, t.peak) {
		smaller := make(map[string]V, left)
		maps.Copy(smaller, t.entries)
		t.entries, t.peak = smaller, left
	}
}

// mostlyEmpty tells whether a container that had room for size entries is worth
// copying to a smaller one now that it has used. A copy moves an eighth of what
// was removed before it, so removing stays cheap on average; and one that is
// empty every now and then, as in acquire and release of few keys, is not copied.
func mostlyEmpty(used, size int) bool {
	const small = 32 // 64 shards of this size keep a few hundred kilobytes
	return size > small && used < size/8
}
