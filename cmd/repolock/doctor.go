package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/repolock/repolock/cmd/internal/also"
	"github.com/repolock/repolock/cmd/internal/doctor"
	"github.com/repolock/repolock/cmd/internal/programs"
	"github.com/repolock/repolock/cmd/internal/session"
	"github.com/repolock/repolock/cmd/internal/show"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/open"
)

type doctorCmd struct {
	URL    string   `predictor:"repository" arg:"" optional:"" name:"url" help:"Repository, in place of --repo."`
	Also   []string `predictor:"repository or lock" sep:"none" placeholder:"URL" help:"Another URL of the same repository, such as a second gateway's. doctor then checks that each URL lists at once the objects that are written through the other URL. Or the URL of another system's lock, repeatable: ${also}. doctor examines that system too, or it alone if no repository is given."`
	Prefix string   `placeholder:"KEY" help:"Write the scratch objects below this prefix, where no locks are."`

	after
}

// run examines the repository, if there is one, and then the systems of --also. If one examination fails, it still
// makes the others.
func (c doctorCmd) run(r *show.Reporter, g global) (code int, err error) {
	if len(c.Program) > 0 {
		return c.program(r, g)
	}
	if c.URL != "" && g.Unknown != nil {
		if hint := programs.Alone(r.Command, []string{c.URL}); hint != "" {
			g.Unknown = fault.Advise(g.Unknown, fault.Expand(hint, nil)) // without the argument as --repo
		}
	}
	var gateways, urls []string
	for _, raw := range c.Also {
		if also.Known(raw) {
			urls = append(urls, raw)
		} else {
			gateways = append(gateways, raw)
		}
	}
	targets, err := also.Parse(urls)
	switch {
	case c.URL != "" && g.OnLine("repo"):
		return 0, twoRepositories
	case err != nil:
		return 0, err
	case len(gateways) > 0 && g.alone(targets):
		return 0, fault.New(fault.Usage, "--also: another URL of a repository needs --repo; nothing was examined")
	case len(gateways) > 1:
		return 0, fault.New(fault.Usage, "--also: doctor takes one more URL of the same repository; nothing was examined")
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	// The first signal ends the examination, which then deletes its scratch objects. The second one ends the process.
	defer onSignals(func(sig os.Signal, stop func()) { stop(); cancel(session.Signalled(sig)) })()

	if !g.alone(targets) {
		c.Also = gateways
		code, err = c.repository(ctx, r, g)
	}
	c.Also = nil
	for _, t := range targets {
		if errors.Is(err, fault.Interrupted) {
			break
		}
		one, failed := c.other(ctx, r, g, t)
		code, err = max(code, one), fault.Join(err, failed)
	}
	return code, err
}

func (c doctorCmd) repository(ctx context.Context, r *show.Reporter, g global) (int, error) {
	base, err := c.base(g.Name)
	if err != nil {
		return 0, fault.As(fault.Usage, err)
	}
	s, err := g.store(ctx)
	if err != nil {
		return 0, err
	}
	other, err := g.store(ctx)
	if err != nil {
		return 0, err
	}
	report, err := c.examine(replock.Skipping(ctx, g.place().Prefix()), g, s, doctor.Options{
		Prefix: base, Locks: g.place().Prefix() + "lock.", IsLock: func(key string) bool { return replock.IsLock(g.place().Prefix(), key) }, Others: []store.Store{other}, Progress: func(what string) { examining(r, what) }, Failed: r.Retrying,
	})
	r.EndWait()
	if err != nil && !worthPrinting(report, err) {
		return 0, err
	}
	if perr := c.print(r, g, report); perr != nil {
		return 0, perr
	}
	return exitCode(report), err
}

// other examines the system that keeps a lock of --also.
func (c doctorCmd) other(ctx context.Context, r *show.Reporter, g global, t also.Target) (int, error) {
	if t.Repository() {
		return c.repository(ctx, r, g.at(t.Place))
	}
	l, err := t.Open(also.Request{Purpose: also.Look})
	if err != nil {
		return 0, err
	}
	defer l.Close()
	examining(r, t.Place.URL)
	report, err := l.Examine(ctx)
	r.EndWait()
	if err != nil {
		return 0, fault.Errorf("%s: %w", t.Place.URL, err)
	}
	return exitCode(report), printReport(r, report, "", "")
}

func examining(r *show.Reporter, what string) { r.Step("doctor", what) }

// examine tries out the store, through both URLs of the repository if there are two.
func (c doctorCmd) examine(ctx context.Context, g global, s store.Store, opts doctor.Options) (doctor.Report, error) {
	if len(c.Also) == 0 {
		return doctor.Run(ctx, s, opts)
	}
	g.Repo = c.Also[0]
	also, err := g.store(ctx)
	if err != nil {
		return doctor.Report{}, fault.Errorf("--also: %w", err)
	}
	return doctor.Both(ctx, s, also, opts)
}

// print prints the report, or the reports of both URLs.
func (c doctorCmd) print(r *show.Reporter, g global, report doctor.Report) error {
	if report.Also == nil || r.JSON {
		return printReport(r, report, g.place().Where(), g.Repo)
	}
	other := g
	other.Repo = c.Also[0]
	for _, way := range []struct {
		report   doctor.Report
		from, to global
	}{{report, g, other}, {*report.Also, other, g}} {
		if _, err := fmt.Fprintf(r.Stdout, "written through %s, listed through %s too\n", text.Escape(way.from.place().Where()), text.Escape(way.to.place().Where())); err != nil {
			return err
		}
		if err := printReport(r, way.report, "", way.from.Repo); err != nil {
			return err
		}
	}
	return nil
}

// base returns the prefix below which doctor makes its scratch prefix. No element of it may look like "lock.shared",
// because other programs would treat the scratch objects as locks.
func (c doctorCmd) base(name string) (string, error) {
	if name != "" {
		if err := replock.CheckName(name); err != nil {
			return "", err
		}
	}
	if c.Prefix == "" {
		if name == "" {
			return replock.DefaultPrefix + "locks/", nil
		}
		return session.Place{Name: name}.Prefix(), nil
	}
	base := strings.TrimSuffix(c.Prefix, "/")
	if err := store.CheckKey(base); err != nil || path.Clean(base) != base {
		return "", fmt.Errorf("--prefix %q: must be the beginning of a valid key", c.Prefix)
	}
	for element := range strings.SplitSeq(base, "/") {
		if strings.HasPrefix(element, "lock.") {
			return "", fmt.Errorf("--prefix %q: other programs would treat objects there as locks: name another prefix", c.Prefix)
		}
	}
	return base + "/", nil
}

// worthPrinting reports whether a report is useful although err ended the examination.
func worthPrinting(report doctor.Report, err error) bool {
	reached, _ := report.Check(doctor.Reachable)
	interrupted := errors.Is(err, fault.Interrupted)
	return len(report.Left) > 0 || reached.Result == doctor.OK && !interrupted
}

func exitCode(report doctor.Report) int {
	switch report.Fitness() {
	case doctor.Fit:
		return 0
	case doctor.LacksPermission:
		return fault.ExitPermission
	default:
		return fault.ExitUnfit
	}
}

// jsonReport is the result of doctor in JSON. Fields are only ever added.
type jsonReport struct {
	Repository string `json:"repository,omitempty"`
	doctor.Report
	// SuggestedURL is a better URL of the repository, if there is one.
	SuggestedURL string `json:"suggested_url,omitempty"`
}

// printReport prints the report on a repository. If where and repo are "", it prints the report on another system.
func printReport(r *show.Reporter, report doctor.Report, where, repo string) error {
	better, says := advice(report, repo)
	return r.Result(jsonReport{where, report, better}, reportText(report, where, says, show.TerminalWidth(os.Stdout)))
}

// reportText is a report for people, in lines of at most width columns. If width is 0, lines have any length.
func reportText(report doctor.Report, where, says string, width int) string {
	var b strings.Builder
	if where != "" {
		fmt.Fprintln(&b, show.Hanging("repository: "+text.Escape(where), width))
	}
	name := report.Store
	if report.Server != "" {
		name += ", " + report.Server
	}
	fmt.Fprintf(&b, "store: %s\n\n", text.Escape(name))
	b.WriteString(checkTable(report.Checks, width) + latencyTable(report.Latency))
	item := func(words string) { fmt.Fprintln(&b, show.Hanging("- "+text.Escape(words), width)) }
	if report.Plan != nil {
		for _, line := range report.Plan.Says {
			item(line)
		}
	}
	if says != "" {
		item(says)
	}
	if len(report.Left) > 0 {
		fmt.Fprintf(&b, "%d objects below %s could not be deleted; remove them by hand:\n", len(report.Left), text.Escape(report.Prefix))
		show.Lines(&b, "  ", report.Left)
	}
	if report.Verdict.Fitness == doctor.LacksPermission && !report.Verdict.Credentials {
		fmt.Fprintln(&b, show.Hanging(fmt.Sprintf("tried below %s: permissions for index/lock* apply there, and permissions for index/lock.* don't", text.Escape(report.Prefix)), width))
	}
	fmt.Fprintln(&b, show.Hanging(text.Escape(report.Verdict.Summary), width))
	return b.String()
}

// checkTable returns a line for each check, or several lines if the detail is long.
func checkTable(checks []doctor.Check, width int) string {
	columns := []show.Column{{Name: "CHECK"}, {Name: "RESULT"}, {Name: "DETAIL", Wrap: true}}
	for _, c := range checks {
		for i, cell := range []string{strings.ReplaceAll(c.Name, "_", " "), fmt.Sprint(c.Result), text.Escape(c.Detail)} {
			columns[i].Cells = append(columns[i].Cells, cell)
		}
	}
	return show.Table(columns, width) + "\n"
}

func latencyTable(latency []doctor.Latency) string {
	if len(latency) == 0 {
		return ""
	}
	rows := []string{"REQUEST\t>N\t>MEDIAN\t>P99"}
	for _, l := range latency {
		rows = append(rows, fmt.Sprintf("%s\t%d\t%.1f ms\t%.1f ms", l.Request, l.N, l.MedianMS, l.P99MS))
	}
	return show.Aligned(rows...) + "\n"
}

// conditionsParameter is a parameter of a repository's URL. Its value "kept" declares that the store honours
// conditional puts.
const conditionsParameter = "conditions"

// advice advises for or against conditions=kept in the URL. better is the URL with this parameter if the advice is to
// add it, else "".
func advice(report doctor.Report, repo string) (better, says string) {
	l, err := open.Parse(repo)
	if err != nil || l.Scheme != "s3" && l.Scheme != "minio" {
		return "", ""
	}
	u := l.URL
	asked := u.Query().Get(conditionsParameter)
	switch {
	case report.Plan != nil && report.Plan.Conditions == doctor.Proven:
		u.RawQuery = strings.TrimPrefix(without(u.RawQuery, conditionsParameter)+"&"+conditionsParameter+"=kept", "&")
		better = session.Redact(u.String())
		return better, "conditional puts passed every test, but each run tests them anew, because another server might answer then; with conditions=kept in the URL a run skips that: an exclusive lock takes 2 round trips, a renewal takes 1, and --fence works: " + better
	case report.Plan != nil && report.Plan.Conditions == doctor.Unreliable && asked != "none":
		return "", "conditional puts aren't reliable here, and repolock doesn't rely on them: conditions=kept must not be in the URL"
	case asked == "kept" && report.Verdict.Fitness == doctor.Unfit:
		return "", "take conditions=kept out of the URL if a conditional put failed, and try again"
	default:
		return "", ""
	}
}

// without removes a parameter from a query, and leaves the spelling of the others unchanged.
func without(query, name string) string {
	return strings.Join(slices.DeleteFunc(strings.Split(query, "&"), func(pair string) bool {
		return strings.HasPrefix(pair, name+"=")
	}), "&")
}
