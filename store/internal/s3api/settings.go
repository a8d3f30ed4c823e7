package s3api

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"slices"
	"strings"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/lazyregexp"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/internal/httptransport"
)

// signable returns the keys that sign the next request, or an error if there are none. The error is temporary if an
// earlier request was signed, or if only the service of credentials failed. Otherwise it is an ErrConfig.
func (s *Store) signable(ctx context.Context) (Keys, error) {
	keys, err := s.client.Signable(ctx)
	switch {
	case err == nil:
		s.signed.Store(true)
		return keys, nil
	case ctx.Err() != nil:
		return Keys{}, fmt.Errorf("looking for credentials: %w", ctx.Err())
	case s.signed.Load():
		return Keys{}, fault.New(fault.CredentialsLater, "the credentials that were used until now can't be renewed: %v", err)
	case errors.Is(err, fault.CredentialsLater):
		return Keys{}, err
	default:
		return Keys{}, fmt.Errorf("%w: %w", store.ErrConfig, err)
	}
}

// expired and unknown are the error codes for credentials that the server no longer accepts, or doesn't know.
// XAdminUserNotFound is versitygw's, with the status 404.
var (
	expired = []string{"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "RequestExpired"}
	unknown = []string{
		"InvalidAccessKeyId", "InvalidClientTokenId", "InvalidToken", "InvalidTokenId", "InvalidSecurity", "XAdminUserNotFound",
	}
)

// renewed reports whether other keys than the used ones sign the next request. It looks for them if the server has
// refused the credentials. A server can also answer 401 or 403 to keys that were replaced.
func (s *Store) renewed(ctx context.Context, r *request, used Keys) bool {
	code := r.refusal().Code
	refused := slices.Contains(expired, code) || slices.Contains(unknown, code)
	if status := r.answer.Status(); !refused && status != http.StatusUnauthorized && status != http.StatusForbidden {
		return false
	}
	select {
	case s.renewing <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	defer func() { <-s.renewing }()
	keys, err := s.client.Signable(ctx)
	if err == nil && keys == used { // else a concurrent request has renewed them
		keys, err = s.client.Renew(ctx, refused)
	}
	return err == nil && keys != used
}

// CredentialsLater returns a fault.CredentialsLater if a service of credentials has failed, and that might be
// temporary. Otherwise it returns nil. The error is no store.ErrUnreachable, because it shows nothing about the store.
//
// status is the status of the service's answer, or 0. err is the error of the request, or of the program that should
// print credentials. guessed is set if no setting names a service.
func CredentialsLater(status int, guessed bool, err error) error {
	var dns *net.DNSError
	var exit *exec.ExitError
	why := ""
	switch {
	case status >= 300:
		if httptransport.Passing(status) {
			why = fmt.Sprintf("their service answers %d %s", status, http.StatusText(status))
		}
	case guessed:
	case errors.Is(err, context.DeadlineExceeded):
		why = "no answer from their service in time"
	case errors.As(err, &exit):
		if !slices.Contains([]int{126, 127}, exit.ExitCode()) { // a shell returns these codes if there is no such program
			why = fmt.Sprintf("their program fails: %s", exit)
		}
	case errors.As(err, &dns), httptransport.NoAnswer(err):
		why = fmt.Sprintf("no answer from their service: %s", httptransport.Innermost(err))
	}
	if why == "" {
		return nil
	}
	return fmt.Errorf("%w: %s", fault.CredentialsLater, why)
}

// Options parses the options that s3 and minio URLs share: the path, which is the prefix of keys, and conditions=.
func Options(path, conditions string, byDefault store.Condition) (prefix string, _ store.Condition, err error) {
	if prefix = strings.Trim(path, "/"); prefix != "" {
		if err := store.CheckKey(prefix); err != nil {
			return "", 0, fmt.Errorf("%w: its prefix isn't a valid key: %w", store.ErrURL, err)
		}
		prefix += "/"
	}
	known := map[string]store.Condition{"": byDefault, "auto": store.Claimed, "kept": store.Kept, "none": store.Unsupported}
	condition, ok := known[conditions]
	if !ok {
		return "", 0, fmt.Errorf("%w: conditions= is auto, kept or none", store.ErrURL)
	}
	return prefix, condition, nil
}

// PutHeaders are headers of each put that a bucket's policy can demand. An empty one isn't sent.
type PutHeaders struct {
	SSE    string // x-amz-server-side-encryption
	SSEKey string // x-amz-server-side-encryption-aws-kms-key-id
	ACL    string // x-amz-acl
}

// Parameters are the names of the URL's parameters that set PutHeaders.
var Parameters = []string{"sse", "sse-key", "acl"}

// acls are Amazon's canned ACLs, without public-read-write, with which every stranger can write.
var acls = []string{"private", "bucket-owner-full-control", "bucket-owner-read", "authenticated-read", "aws-exec-read", "public-read"}

var keySyntax = lazyregexp.New(`^[A-Za-z0-9:/_.-]{1,1000}$`)

// Check returns a store.ErrURL for a header that S3 doesn't have, or nil.
func (h PutHeaders) Check() error {
	kms := strings.HasPrefix(h.SSE, "aws:kms")
	switch {
	case !slices.Contains([]string{"", "AES256", "aws:kms", "aws:kms:dsse"}, h.SSE):
		return fmt.Errorf("%w: sse= is AES256, aws:kms or aws:kms:dsse", store.ErrURL)
	case h.SSEKey != "" && !kms:
		return fmt.Errorf("%w: sse-key= names a key for sse=aws:kms: add sse=aws:kms", store.ErrURL)
	case h.SSEKey != "" && !keySyntax.MatchString(h.SSEKey):
		return fmt.Errorf("%w: sse-key= is the id, the ARN or the alias of a KMS key", store.ErrURL)
	case h.ACL == "public-read-write":
		return fmt.Errorf("%w: with acl=public-read-write everybody could write the locks", store.ErrURL)
	case h.ACL != "" && !slices.Contains(acls, h.ACL):
		return fmt.Errorf("%w: acl= is %s or %s", store.ErrURL, strings.Join(acls[:len(acls)-1], ", "), acls[len(acls)-1])
	}
	return nil
}

var regionSyntax = lazyregexp.New(`^[A-Za-z0-9._-]{1,63}$`)

// CheckRegion returns an error for a region that neither a host's name nor a signature can contain, or nil. An empty
// region is the default one.
func CheckRegion(region string) error {
	if region != "" && !regionSyntax.MatchString(region) {
		return fmt.Errorf("the region %q has other characters than letters, digits, dots, hyphens and underscores", region)
	}
	return nil
}

// Fresh parses the parameter listings=, and reports whether the user vouches for the server's listings.
func Fresh(value string) (bool, error) {
	if value != "" && value != "fresh" {
		return false, fmt.Errorf("%w: listings= is fresh, or left out", store.ErrURL)
	}
	return value == "fresh", nil
}

// Bool parses a parameter that must be true or false.
func Bool(name, value string, byDefault bool) (bool, error) {
	switch value {
	case "":
		return byDefault, nil
	case "true":
		return true, nil
	case "false":
		return false, nil
	default:
		return false, fmt.Errorf("%w: %s= is true or false", store.ErrURL, name)
	}
}
