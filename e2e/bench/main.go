//go:build linux

// Bench measures what a lock costs, and prints one table in Markdown: see
// docs/benchmarks.md. It needs the MinIO that e2e/minio.sh starts, restic and
// flock, and fails where one of them isn't there: make bench.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/repolock/repolock/internal/test/miniotest"
	"github.com/repolock/repolock/internal/test/proxy"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/open"
)

func main() {
	quick := flag.Bool("quick", false, "repeat little, only to check that the bench works")
	only := flag.String("only", "", "run one section alone: "+strings.Join(sectionNames(), ", "))
	flag.Parse()
	if flag.Arg(0) == holdArg {
		exit(holderMain(flag.Args()[1:]))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	exit(run(ctx, *quick, *only))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// bench is one run.
type bench struct {
	repeats
	work     string // a directory of its own
	repolock string // the command, built there as users build it
	start    time.Time
	table    table
	notes    []string // lines below the table
}

// repeats are the numbers of measurements.
type repeats struct {
	trips   func(added time.Duration) int // acquire and release
	command int                           // whole ones that lock
	crowd   int
	process int
	handed  int
	memory  int
	holding time.Duration
	live    []int // numbers of other flags, in ascending order
	holders int   // that refresh
	window  time.Duration
	besides int // acquires beside them, at least
}

var (
	thorough = repeats{
		trips:   func(added time.Duration) int { return map[time.Duration]int{0: 60, near: 20, far: 8}[added] },
		command: 5, crowd: 20, process: 150, handed: 100, memory: 10, holding: 10 * time.Second, live: []int{0, 100, 10_000},
		holders: 1000, window: time.Minute, besides: 200,
	}
	little = repeats{
		trips:   func(time.Duration) int { return 2 },
		command: 2, crowd: 3, process: 10, handed: 3, memory: 2, holding: 10 * time.Second, live: []int{0, 100, 1000},
		holders: 50, window: 5 * time.Second, besides: 3,
	}
)

// sections are the parts of the table.
var sections = []struct {
	name string
	run  func(*bench, context.Context) error
}{
	{"processes", (*bench).processes}, {"hand-over", (*bench).handOver}, {"held", (*bench).heldLocks},
	{"latencies", (*bench).latencies}, {"among", (*bench).amongOthers}, {"refreshing", (*bench).refreshing},
}

func sectionNames() (names []string) {
	for _, s := range sections {
		names = append(names, s.name)
	}
	return names
}

// run measures everything and prints it.
func run(ctx context.Context, quick bool, only string) error {
	if only != "" && !slices.Contains(sectionNames(), only) {
		return fmt.Errorf("-only %s: must be one of %s", only, strings.Join(sectionNames(), ", "))
	}
	if _, err := endpoint(); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "repolock-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	b := &bench{repeats: thorough, work: work, start: time.Now()}
	if quick {
		b.repeats = little
	}
	who, err := versions(ctx)
	if err != nil {
		return err
	}
	if err := b.build(ctx); err != nil {
		return err
	}
	for _, section := range sections {
		if only != "" && only != section.name {
			continue
		}
		if err := section.run(b, ctx); err != nil {
			return err
		}
	}
	fmt.Println(who)
	fmt.Println()
	fmt.Print(b.table.markdown())
	for _, note := range b.notes {
		fmt.Printf("\n- %s\n", note)
	}
	return nil
}

// build builds repolock as users do.
func (b *bench) build(ctx context.Context) error {
	b.say("building repolock")
	b.repolock = filepath.Join(b.work, "repolock")
	out, err := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", b.repolock, "./cmd/repolock").CombinedOutput()
	if err != nil {
		return fmt.Errorf("building repolock: %w: %s", err, out)
	}
	return nil
}

// note adds a line below the table.
func (b *bench) note(format string, args ...any) {
	b.notes = append(b.notes, fmt.Sprintf(format, args...))
}

// say prints progress on the terminal.
func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "bench: %3.0f s: %s\n", time.Since(b.start).Seconds(), fmt.Sprintf(format, args...))
}

// versions returns a line with the versions of the programs.
func versions(ctx context.Context) (string, error) {
	parts := []string{fmt.Sprintf("%s/%s, %d CPUs", runtime.GOOS, runtime.GOARCH, runtime.NumCPU()), runtime.Version()}
	for _, args := range [][]string{
		{"go", "list", "-C", "e2e/minio", "-m", "github.com/minio/minio"}, {"restic", "version"}, {"flock", "--version"},
	} {
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

// bucket is a bucket on MinIO, and a proxy in front of it.
type bucket struct {
	name  string
	host  string // MinIO's own
	proxy *proxy.Proxy
	api   *minio.Client
}

// endpoint is MinIO's URL.
func endpoint() (string, error) {
	endpoint := os.Getenv("REPOLOCK_E2E_MINIO")
	if endpoint == "" {
		return "", errors.New("REPOLOCK_E2E_MINIO isn't set: run this by make bench, which starts MinIO")
	}
	return endpoint, nil
}

// newBucket makes a bucket of the bench's own.
func newBucket(ctx context.Context) (*bucket, error) {
	endpoint, err := endpoint()
	if err != nil {
		return nil, err
	}
	for name, value := range environment {
		if err := os.Setenv(name, value); err != nil {
			return nil, err
		}
	}
	b := &bucket{name: "bench-" + strings.ToLower(rand.Text()[:16]), host: strings.TrimPrefix(endpoint, "http://")}
	b.api, err = minio.New(b.host, &minio.Options{Creds: credentials.NewStaticV4(miniotest.User, miniotest.Password, "")})
	if err != nil {
		return nil, err
	}
	if err := b.api.MakeBucket(ctx, b.name, minio.MakeBucketOptions{}); err != nil {
		return nil, fmt.Errorf("making a bucket on MinIO: %w", err)
	}
	if b.proxy, err = proxy.New(endpoint); err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

// environment has the credentials, and nothing else that drivers look for.
var environment = map[string]string{
	"AWS_ACCESS_KEY_ID": miniotest.User, "AWS_SECRET_ACCESS_KEY": miniotest.Password,
	"AWS_CONFIG_FILE": os.DevNull, "AWS_SHARED_CREDENTIALS_FILE": os.DevNull, "AWS_EC2_METADATA_DISABLED": "true",
	"MINIO_ACCESS_KEY": miniotest.User, "MINIO_SECRET_KEY": miniotest.Password,
}

// close removes the bucket with all objects.
func (b *bucket) close() {
	if b.proxy != nil {
		b.proxy.Close()
	}
	err := b.api.RemoveBucketWithOptions(context.Background(), b.name, minio.RemoveBucketOptions{ForceDelete: true})
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench: bucket %s is left over: %v\n", b.name, err)
	}
}

// s3 and minio name a repository in the bucket, for one of the two drivers.
func (b *bucket) s3(host, prefix string) string {
	return "s3://" + b.name + "/" + prefix + "?region=us-east-1&path-style=true&endpoint=http://" + host
}

func (b *bucket) minio(host, prefix string) string {
	return "minio://" + host + "/" + b.name + "/" + prefix + "?tls=false"
}

// warm opens a store, and makes it sign in and connect.
func warm(ctx context.Context, url string) (store.Store, error) {
	s, err := open.Store(ctx, url)
	if err != nil {
		return nil, err
	}
	_, err = s.List(ctx, "warm-up", "")
	return s, err
}
