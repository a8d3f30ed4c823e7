package locking

// GuardAt is Guard with another clock than the machine's.
var GuardAt = guardAt
