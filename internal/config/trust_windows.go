package config

import "os"

// system is empty, because every user can make directories in %ProgramData%.
var system []string

// trusted accepts every file, because the permissions of the user's directory protect it.
func trusted(*os.File, string) error { return nil }
