package guard

// Argument is used only by tests, because Windows has no guard.
var Argument = "__lock-guard"

// Main does nothing, because Windows has no guard.
func Main() {}
