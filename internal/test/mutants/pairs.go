package main

// pairsMutants are bugs where two features of a lock meet.
var pairsMutants = []mutant{}
