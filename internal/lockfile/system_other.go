//go:build !unix

package lockfile

// noFollow is 0, because no backend supports these systems.
const noFollow = 0
