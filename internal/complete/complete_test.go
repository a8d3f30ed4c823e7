package complete

import (
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/repolock/repolock/internal/test/assert"
)

// TestWords: the completion knows commands, flags and values as kong parses them, in any
// order.
func TestWords(t *testing.T) {
	var cli struct {
		File   string `short:"f" predictor:"file"`
		Plain  string `short:"p"`
		Yes    bool   `short:"y"`
		Secret string `hidden:""`
		Do     struct {
			Level string `enum:",high,low" default:""`
			First string `arg:"" enum:"one,other"`
			Then  string `arg:"" predictor:"file"`
		} `cmd:""`
		Exec struct {
			Command []string `arg:"" passthrough:""`
		} `cmd:""`
		Hide struct{} `cmd:"" hidden:""`
	}
	app, err := kong.New(&cli)
	assert.OK(t, err)
	values := func(kind string) []string { return []string{":" + kind, "known"} }
	for line, want := range map[string]string{
		"":                     "do exec",
		"e":                    "exec",
		"hi":                   "",
		"-":                    "--file --help --plain --yes -f -h -p -y",
		"--p":                  "--plain",
		"do --":                "--file --help --level --plain --yes",
		"do --level ":          "high low",
		"do --level=l":         "low",
		"do --level=":          "high low",
		"--level=":             "", // not here
		"do ":                  "one other",
		"do one ":              ":file known",
		"do one x ":            "",
		"do do ":               ":file known", // the second is an argument
		"do -y --plain x one ": ":file known",
		"do --level low ot":    "other",
		"-f ":                  ":file known",
		"-f x":                 ":file",
		"-yf k":                ":file known",
		"-fx d":                "do",
		"-p do e":              "exec",
		"--plain=do e":         "exec",
		"--plain do e":         "exec",
		"--unknown e":          "exec",
		"--yes d":              "do",
		"--yes=":               "",
		"exec -":               "--file --help --plain --yes -f -h -p -y",
		"exec -y x -":          "",
		"exec -- -":            "",
		"exec -- -f ":          "",
		"exec -- --file=":      "",
		"hide ":                "do exec",

		strings.Repeat("--unknown ", most) + "e":   "exec",
		strings.Repeat("--unknown ", most+1) + "e": "", // too long to be parsed at each key
	} {
		got := Words(app, strings.Split(line, " "), values)
		for i, word := range got {
			got[i], _, _ = strings.Cut(word, "\t")
		}
		assert.Equal(t, got, strings.Fields(want), "%q", line)
	}
}

// TestDescribed: a flag and a command have a description: their brief text, or the first sentence of
// their help. Values have none.
func TestDescribed(t *testing.T) {
	var cli struct {
		Plain string   `short:"p" help:"A plain flag. It has more to say."`
		Brief bool     `brief:"In short" help:"At length: on and on."`
		Level string   `enum:"low,high" default:"low" help:"How much: low or high."`
		Do    struct{} `cmd:"" help:"Do it."`
		Mute  struct{} `cmd:""`
	}
	app, err := kong.New(&cli)
	assert.OK(t, err)
	for line, want := range map[string][]string{
		"":         {"do\tDo it", "mute"},
		"--p":      {"--plain\tA plain flag"},
		"-p":       {"-p\tA plain flag"},
		"--br":     {"--brief\tIn short"},
		"--lev":    {"--level\tHow much"},
		"--level ": {"high", "low"},
	} {
		assert.Equal(t, Words(app, strings.Split(line, " "), nil), want, "%q", line)
	}
}
