//go:build !unix

package lockfile

// noFollow is 0: no backend uses these files here.
const noFollow = 0
