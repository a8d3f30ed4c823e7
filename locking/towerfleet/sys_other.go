//go:build !unix

package towerfleet

import "os"

func owner(os.FileInfo) (uid int, known bool) { return 0, false }

func errno(error) (name, message string) { return "", "" }
