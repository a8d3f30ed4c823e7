// Package pgtest starts Debian's PostgreSQL and pgbouncer for tests. Tests that use it carry the
// build tag programs, and fail if there is none.
package pgtest
