//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
)

// versions returns a line with the versions of the programs, and notes those that aren't
// installed.
func (b *bench) versions(ctx context.Context) (string, error) {
	parts := []string{fmt.Sprintf("%s/%s, %d CPUs", runtime.GOOS, runtime.GOARCH, runtime.NumCPU()), runtime.Version()}
	for _, args := range [][]string{
		{"go", "list", "-C", "e2e/minio", "-m", "github.com/minio/minio"}, {"restic", "version"}, {"flock", "--version"},
	} {
		if _, err := exec.LookPath(args[0]); err != nil {
			b.missing = append(b.missing, args[0])
			parts = append(parts, "no "+args[0])
			continue
		}
		out, err := exec.CommandContext(ctx, args[0], args[1:]...).Output()
		if err != nil {
			return "", fmt.Errorf("%v: %w", args, err)
		}
		line, _, _ := strings.Cut(string(out), "\n")
		parts = append(parts, line)
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "", errors.New("the program doesn't know its modules")
	}
	for _, m := range info.Deps {
		if m.Path == "github.com/aws/aws-sdk-go-v2/service/s3" || m.Path == "github.com/minio/minio-go/v7" {
			parts = append(parts, m.Path+" "+m.Version)
		}
	}
	return strings.Join(parts, "; ") + ".", nil
}

// lacks reports whether a program isn't installed.
func (b *bench) lacks(program string) bool { return slices.Contains(b.missing, program) }

// lacking returns the row of a missing program.
func lacking(name, program string) row {
	return row{name: fmt.Sprintf("%s: not measured, no %s is installed", name, program)}
}
