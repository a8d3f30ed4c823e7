package main

// lockingMutants are bugs of the locks of other systems.
var lockingMutants = []mutant{}
