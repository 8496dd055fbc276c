package memory

import "time"

// lease is one lock as it is stored.
type lease struct {
	key   string
	token string
	ends  time.Duration // on the backend's clock; at that instant it is over
}

func (l *lease) ended(now time.Duration) bool { return now >= l.ends }

// leaseList keeps leases in a list without holes, which can be swept a step at
// a time, and finds them by key. An index is good until the next remove.
type leaseList struct {
	list  []lease
	index table[int] // where in list a key is

	// hand is where the sweep stands: it has yet to look at list[:hand]. It
	// goes down because remove fills a hole with the last lease: going up, the
	// sweep would miss a lease that moves to where it has been already.
	hand int
}

// find returns the index of key's lease, -1 if there is none.
func (l *leaseList) find(key string) int {
	if at, ok := l.index.entries[key]; ok {
		return at
	}
	return -1
}

// add stores the lease of a key that has none.
func (l *leaseList) add(key, token string, ends time.Duration) {
	l.index.set(key, len(l.list))
	l.list = append(l.list, lease{key: key, token: token, ends: ends})
}

// remove removes the lease at index at.
func (l *leaseList) remove(at int) {
	last := len(l.list) - 1
	l.index.remove(l.list[at].key)
	if at != last {
		l.list[at] = l.list[last]
		l.index.set(l.list[at].key, at)
	}
	l.list[last] = lease{} // lets go of the strings
	l.list = l.list[:last]
	l.hand = min(l.hand, last)
	if mostlyEmpty(last, cap(l.list)) {
		l.list = append(make([]lease, 0, 2*last), l.list...)
	}
}

// next returns the index of the lease that the sweep looks at next, -1 if there
// are none.
func (l *leaseList) next() int {
	if l.hand == 0 {
		l.hand = len(l.list)
	}
	l.hand--
	if l.hand < 0 {
		l.hand = 0
		return -1
	}
	return l.hand
}
