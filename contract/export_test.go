package contract

// RunOnly is Run with the named cases only.
var RunOnly = run

// NeedsEngine tells whether a case is about a Locker on top of the backend.
func NeedsEngine(name string) bool {
	for _, tc := range engineCases {
		if tc.name == name {
			return true
		}
	}
	return false
}
