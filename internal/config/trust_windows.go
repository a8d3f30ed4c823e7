package config

import "os"

// system: anybody may make directories in %ProgramData%, so there is none.
var system []string

// trusted: who may change a file is for the directory of the user to say.
func trusted(*os.File, string) error { return nil }
