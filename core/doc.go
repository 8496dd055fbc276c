// Package locco takes distributed locks: leases with a token and a TTL in a
// store that a team already runs.
package locco
