//go:build unix

package dir

// anyName: a file's name can have every byte but a slash and NUL.
const anyName = true

// unfit says why a name that is a valid key can't be a file's; here all can.
func unfit(string) string { return "" }
