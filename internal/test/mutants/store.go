package main

// storeMutants are bugs of the stores.
var storeMutants = []mutant{}
