package main

// processMutants are bugs of the processes under a lock, and of torture's judge.
var processMutants = []mutant{}
