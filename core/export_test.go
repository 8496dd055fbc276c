package locco

// Rooms returns how many keys the locker still has state for. When nobody holds
// or waits for anything there is none.
func Rooms(lr *Locker) int {
	n := 0
	for i := range lr.e.shards {
		sh := &lr.e.shards[i]
		sh.mu.Lock()
		n += len(sh.rooms)
		sh.mu.Unlock()
	}
	return n
}

// InBackground returns how many calls run that nobody waits for.
func InBackground(lr *Locker) int {
	lr.e.background.mu.Lock()
	defer lr.e.background.mu.Unlock()
	return lr.e.background.n
}
