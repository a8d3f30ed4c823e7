package guard

// Argument is for the guards of tests. There is no guard.
var Argument = "__lock-guard"

// Main returns at once: there is no guard.
func Main() {}
