package main

// commandMutants are bugs of the command.
var commandMutants = []mutant{}
