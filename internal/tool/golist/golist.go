// Package golist asks go list for the packages of another system.
package golist

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// Packages returns what go list -json prints with these arguments for the module at root on a system (GOOS/GOARCH), in
// its order. P has the fields that are read.
func Packages[P any](root, system string, args ...string) (packages []P, err error) {
	goos, goarch, _ := strings.Cut(system, "/")
	cmd := exec.Command("go", append([]string{"list"}, args...)...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "GOOS="+goos, "GOARCH="+goarch, "CGO_ENABLED=0", "GOFLAGS=-mod=readonly", "GOWORK=off")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list for %s: %w: %s", system, err, &stderr)
	}
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p P
		switch err := decoder.Decode(&p); {
		case errors.Is(err, io.EOF):
			return packages, nil
		case err != nil:
			return nil, err
		}
		packages = append(packages, p)
	}
}
