package man

import (
	"testing"
	"time"

	"github.com/alecthomas/kong"

	"github.com/repolock/repolock/internal/test/assert"
)

// TestPage: a whole page is rendered. Text that roff would read as a request is printed
// unchanged.
func TestPage(t *testing.T) {
	var cli struct {
		Flag   string `short:"f" help:".TH isn't a request here, nor is \\fB a font, and ~ is no accent."`
		Secret string `hidden:""`
		Do     struct {
			What   []string `arg:""`
			Common bool     `help:"Twice."`
			Own    bool     `help:"Once."`
		} `cmd:"" help:"'do' something.\n\n  not  \\joined\n  -with this"`
		Again struct {
			Common bool `help:"Twice."`
		} `cmd:"" help:"Do it again."`
		Hide struct{} `cmd:"" hidden:""`
	}
	app, err := kong.New(&cli, kong.Name("prog"), kong.Description("A program."))
	assert.OK(t, err)
	got := Page{
		App:         app.Model,
		Date:        time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		Description: "One.\n\nTwo.",
		Usage:       func(n *kong.Node) string { return n.Name + " ..." },
		Shared:      app.Model.Children[1].Flags,
		Sections:    []Section{{"See also", "These:", []string{"other(1)", ".profile"}}},
	}.String()
	const want = `.TH PROG 1 "2026-01-02" "prog" "User Commands"
.SH NAME
prog \- A program
.SH SYNOPSIS
\fBprog\fP \fIcommand\fP [\fIflags\fP] [\fIargument\fP ...]
.SH DESCRIPTION
One.
.PP
Two.
.SH OPTIONS
.TP
\fB\-h, \-\-help\fP
Show context\-sensitive help.
.TP
\fB\-f, \-\-flag=STRING\fP
\&.TH isn't a request here, nor is \efB a font, and \(ti is no accent.
.SH COMMANDS
.SS do ...
\&'do' something.
.PP
.nf
  not  \ejoined
  \-with this
.fi
.TP
\fB\-\-own\fP
Once.
.PP
Also, described below: \-\-common.
.SS again ...
Do it again.
.PP
Also, described below: \-\-common.
.SH FLAGS OF SEVERAL COMMANDS
.TP
\fB\-\-common\fP
Twice.
.SH SEE ALSO
These:
.IP \(bu 3
other(1)
.IP \(bu 3
\&.profile
`
	assert.That(t, got == want, "got\n%s\nwant\n%s", got, want)
}
