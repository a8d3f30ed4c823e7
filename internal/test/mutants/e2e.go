package main

// e2eMutants are bugs that only real processes find.
var e2eMutants = []mutant{}
