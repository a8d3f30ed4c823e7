// Package server has what the locks in Redis and in PostgreSQL have in common: their URLs, the classes
// of a server's answers, and what doctor reports about a server.
package server
