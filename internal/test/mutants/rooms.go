package main

// roomsMutants are bugs of cmd/internal and of small packages.
var roomsMutants = []mutant{}
