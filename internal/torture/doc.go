// Package torture has real processes contend for one lock for a while, kills and
// stops them, and has package history judge what their children did. What a lock is,
// and how one is taken, it doesn't know: it is given the commands.
//
// All that it writes into the store is below one prefix, and is deleted at the end.
package torture
