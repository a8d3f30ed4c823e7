package config

import "os"

// system is empty: every user can make directories in %ProgramData%.
var system []string

// trusted accepts every file: the rights of the user's directory protect it.
func trusted(*os.File, string) error { return nil }
