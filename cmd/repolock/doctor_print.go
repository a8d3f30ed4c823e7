package main

import (
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/repolock/repolock/internal/doctor"
)

// jsonReport is the report of doctor in JSON. Fields are only ever added.
type jsonReport struct {
	doctor.Report
	// SuggestedURL is what to give instead, if something is to be gained by it.
	SuggestedURL string `json:"suggested_url,omitempty"`
}

func printReport(r *reporter, report doctor.Report, repo string) error {
	better, says := advice(report, repo)
	if r.JSON {
		return r.result(jsonReport{report, better})
	}
	var b strings.Builder
	printChecks(&b, report)
	printLatency(&b, report.Latency)
	if report.Plan != nil {
		for _, line := range report.Plan.Says {
			fmt.Fprintln(&b, "-", escape(line))
		}
	}
	if says != "" {
		fmt.Fprintln(&b, "-", escape(says))
	}
	printLeft(&b, report)
	if report.Verdict.Fitness == doctor.LacksPermission {
		fmt.Fprintf(&b, "tried below %s, which rights below index/lock* are good for, and those below index/lock.* not\n", escape(report.Prefix))
	}
	fmt.Fprintln(&b, escape(report.Verdict.Summary))
	_, err := io.WriteString(r.stdout, b.String())
	return err
}

func printChecks(b *strings.Builder, report doctor.Report) {
	name := report.Store
	if report.Server != "" {
		name += ", " + report.Server
	}
	fmt.Fprintf(b, "store: %s\n\n", escape(name))
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "CHECK\tRESULT\tDETAIL")
	for _, c := range report.Checks {
		fmt.Fprintf(t, "%s\t%s\t%s\n", strings.ReplaceAll(c.Name, "_", " "), c.Result, escape(c.Detail))
	}
	t.Flush()
	fmt.Fprintln(b)
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

// maxLeft is how many keys are named.
const maxLeft = 10

func printLeft(b *strings.Builder, report doctor.Report) {
	if len(report.Left) == 0 {
		return
	}
	fmt.Fprintf(b, "%d objects below %s could not be deleted; remove them by hand:\n", len(report.Left), escape(report.Prefix))
	for i, key := range report.Left {
		if i == maxLeft {
			fmt.Fprintf(b, "  and %d more\n", len(report.Left)-i)
			break
		}
		fmt.Fprintf(b, "  %s\n", escape(key))
	}
}

// conditionsParameter of a URL says, if it is "kept", that the store keeps what
// conditional puts promise.
const conditionsParameter = "conditions"

// advice says whether conditions=kept belongs into the URL, and gives the URL if
// it does and isn't there.
func advice(report doctor.Report, repo string) (better, says string) {
	u, err := url.Parse(repo)
	if err != nil || u.Scheme != "s3" && u.Scheme != "minio" {
		return "", ""
	}
	asked := u.Query().Get(conditionsParameter)
	switch {
	case report.Plan != nil && report.Plan.Conditions == doctor.Proven:
		u.RawQuery = strings.TrimPrefix(without(u.RawQuery, conditionsParameter)+"&"+conditionsParameter+"=kept", "&")
		better = redact(u.String())
		return better, "conditional puts passed every test: with conditions=kept in the URL an exclusive lock is taken in 2 round trips, a lock is renewed in 1, and --fence can be had: " + better
	case report.Plan != nil && report.Plan.Conditions == doctor.Unreliable && asked != "none":
		return "", "conditional puts can't be relied on here, and repolock doesn't: conditions=kept must not be put into the URL"
	case asked == "kept" && report.Verdict.Fitness == doctor.Unfit:
		return "", "take conditions=kept out of the URL if a conditional put failed, and try again"
	default:
		return "", ""
	}
}

// without leaves a parameter out of a query, and the others as they are written.
func without(query, name string) string {
	return strings.Join(slices.DeleteFunc(strings.Split(query, "&"), func(pair string) bool {
		return strings.HasPrefix(pair, name+"=")
	}), "&")
}
