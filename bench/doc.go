// Command bench measures locco against the raw driver on a real server, both in
// the same run, and prints tables in Markdown.
//
//	eval "$(scripts/backends)"
//	go run ./bench -backend=redis -case=latency,handover
//
// Without -url it starts the server itself, in a container, and talks to it over
// the container's own address. docs/benchmarks.md says what the figures mean.
//
// # Subjects
//
// What is compared is a [subject]: a name, and functions that take and free a key.
// A backend has a list of them; the first that can do what a case asks for is what
// the others are compared with. Another library to compare with is one more
// subject, another store one more [backend].
//
// # Cases
//
// A case lets its subjects take turns, -rounds times, so that what else the machine
// does meets all of them. -duration is the time that each of them gets in all.
package main
