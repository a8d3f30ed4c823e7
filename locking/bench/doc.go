// Package bench measures what a lock costs in other systems, beside other libraries for the same
// system. It is a module of its own, so that these libraries are no dependencies of repolock.
//
//	go test -tags programs -bench=. -count=5
//
// The benchmarks of Redis and PostgreSQL start a server of their own (Debian's). Each benchmark reports the median of
// acquire and release together as p50-ns.
package bench
