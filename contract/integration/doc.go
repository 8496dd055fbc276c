// Package integration starts real servers for the tests of the backends, in
// containers, and does to them what a backend has to live with. The tests of this
// folder run the contract suite and the failure tests on them.
//
//	eval "$(scripts/backends)"
//	cd contract/integration && go test -race ./...
//
// # Servers
//
// A [Redis] is a kind of server. Its image comes from the environment
// (LOCCO_TEST_REDIS_IMAGE, LOCCO_TEST_REDIS7_IMAGE, LOCCO_TEST_VALKEY_IMAGE), and
// is the public one by default. [SharedRedis] is one server for all tests of a
// run that do it no harm; LOCCO_TEST_REDIS_URL and so on name a running one
// instead. [StartRedis], [StartReplicated], [StartSentinel] and [StartCluster]
// start servers that one test has for itself, and may pause, restart or kill.
//
// [Postgres] and [Mongo] are other kinds, with functions of their own. Where MongoDB
// cannot be had, the environment names FerretDB instead (LOCCO_TEST_FERRETDB_IMAGE),
// which speaks its protocol, but has no replica set ([MongoNode.ReplicaSet]).
//
// A server that cannot be had fails the test, which is never skipped.
//
// All servers keep their data in memory, and listen on ports of 127.0.0.1 that
// stay the same over a restart. The servers of one topology share a network of
// their own, in which they have the addresses that they have for the test: what
// a Sentinel or a cluster node announces is good for both.
//
// # Other libraries
//
// Some tests have another library as the other party. That of Node needs node and
// npm, which scripts/backends installs on Debian, and installs what
// testdata/node/package-lock.json names into the user's cache folder, with npm ci. A
// machine that cannot have it fails those tests; LOCCO_TEST_NODE=off turns them off.
//
// # Cleaning up
//
// [Main] is for TestMain. A server ends with its test, and all of them with the
// run, however it ends: a second process waits for the end of the first one and
// removes what it has left. What even that has left, because it was killed too,
// the next run removes.
//
// # Faults
//
// The methods of [Node] work on the server: Pause, Restart, Stop, KillClients,
// FlushScripts. A [Proxy] works on the connection: it goes silent without closing,
// loses the reply to a command that was applied, or cuts.
package integration
