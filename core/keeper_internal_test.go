package locco

// What tests from outside cannot see: what is left behind in memory.

// KeptLocks returns how many locks the keeper of lr looks after.
func KeptLocks(lr *Locker) int { return len(lr.e.keeper.held()) }

// BoundContexts returns how many contexts and sets are to end with l.
func BoundContexts(l *Lock) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for b := l.bound; b != nil; b = b.next {
		n++
	}
	return n
}
