// Package also holds the locks of other systems beside that of a repository, or alone: the
// locks of --also.
//
// A Set acquires all locks or none. It tries them in one order, that of their URLs, and holds
// nothing while it waits: it waits for the lock that was refused, and tries the others when it
// has that. So two sets never wait for each other, whatever the order in which a user names
// their locks, and neither do a set and another program.
//
// The loss of one lock is the loss of the set, and the set's deadline is the earliest.
package also
