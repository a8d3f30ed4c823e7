package main

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/repolock/repolock/internal/doctor"
	"github.com/repolock/repolock/internal/session"
	"github.com/repolock/repolock/internal/text"
)

// jsonReport is the report of doctor in JSON. Fields are only ever added.
type jsonReport struct {
	doctor.Report
	// SuggestedURL is a better URL of the repository, if there is one.
	SuggestedURL string `json:"suggested_url,omitempty"`
}

func printReport(r *reporter, report doctor.Report, repo string) error {
	better, says := advice(report, repo)
	var b strings.Builder
	printChecks(&b, report)
	printLatency(&b, report.Latency)
	if report.Plan != nil {
		for _, line := range report.Plan.Says {
			fmt.Fprintln(&b, "-", text.Escape(line))
		}
	}
	if says != "" {
		fmt.Fprintln(&b, "-", text.Escape(says))
	}
	printLeft(&b, report)
	if report.Verdict.Fitness == doctor.LacksPermission {
		fmt.Fprintf(&b, "tried below %s, which rights below index/lock* are good for, and those below index/lock.* not\n", text.Escape(report.Prefix))
	}
	fmt.Fprintln(&b, text.Escape(report.Verdict.Summary))
	return r.result(jsonReport{report, better}, b.String())
}

func printChecks(b *strings.Builder, report doctor.Report) {
	name := report.Store
	if report.Server != "" {
		name += ", " + report.Server
	}
	fmt.Fprintf(b, "store: %s\n\n", text.Escape(name))
	rows := []string{"CHECK\tRESULT\tDETAIL"}
	for _, c := range report.Checks {
		rows = append(rows, fmt.Sprintf("%s\t%s\t%s", strings.ReplaceAll(c.Name, "_", " "), c.Result, text.Escape(c.Detail)))
	}
	fmt.Fprintln(b, aligned(rows...))
}

func printLatency(b *strings.Builder, latency []doctor.Latency) {
	if len(latency) == 0 {
		return
	}
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "REQUEST\tN\tMEDIAN\tP99\t")
	for _, l := range latency {
		fmt.Fprintf(t, "%s\t%d\t%.1f ms\t%.1f ms\t\n", l.Request, l.N, l.MedianMS, l.P99MS)
	}
	t.Flush()
	fmt.Fprintln(b)
}

func printLeft(b *strings.Builder, report doctor.Report) {
	if len(report.Left) == 0 {
		return
	}
	fmt.Fprintf(b, "%d objects below %s could not be deleted; remove them by hand:\n", len(report.Left), text.Escape(report.Prefix))
	list(b, "  ", report.Left)
}

// conditionsParameter of a URL is "kept" if conditional puts of the store can be relied on.
const conditionsParameter = "conditions"

// advice says whether conditions=kept belongs into the URL, and returns the URL with it if
// it is missing.
func advice(report doctor.Report, repo string) (better, says string) {
	u, err := url.Parse(repo)
	if err != nil || u.Scheme != "s3" && u.Scheme != "minio" {
		return "", ""
	}
	asked := u.Query().Get(conditionsParameter)
	switch {
	case report.Plan != nil && report.Plan.Conditions == doctor.Proven:
		u.RawQuery = strings.TrimPrefix(without(u.RawQuery, conditionsParameter)+"&"+conditionsParameter+"=kept", "&")
		better = session.Redact(u.String())
		return better, "conditional puts passed every test: with conditions=kept in the URL an exclusive lock is taken in 2 round trips, a lock is renewed in 1, and --fence can be had: " + better
	case report.Plan != nil && report.Plan.Conditions == doctor.Unreliable && asked != "none":
		return "", "conditional puts can't be relied on here, and repolock doesn't: conditions=kept must not be put into the URL"
	case asked == "kept" && report.Verdict.Fitness == doctor.Unfit:
		return "", "take conditions=kept out of the URL if a conditional put failed, and try again"
	default:
		return "", ""
	}
}

// without removes a parameter from a query. It leaves the others as they are written.
func without(query, name string) string {
	return strings.Join(slices.DeleteFunc(strings.Split(query, "&"), func(pair string) bool {
		return strings.HasPrefix(pair, name+"=")
	}), "&")
}
