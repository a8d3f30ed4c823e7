// Sbom writes the bill of materials of a Go program, in CycloneDX's JSON: sbom PROGRAM FILE. It is what
// the program itself says that it is built of, as go version -m prints it, and depends on nothing else.
package main

import (
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
)

// bill is a document of CycloneDX 1.5. It has no serial number and no time: two builds of one commit have
// the same bill.
type bill struct {
	Format   string `json:"bomFormat"`
	Spec     string `json:"specVersion"`
	Version  int    `json:"version"`
	Metadata struct {
		Component component `json:"component"`
	} `json:"metadata"`
	Components   []component  `json:"components"`
	Dependencies []dependency `json:"dependencies"`
}

type component struct {
	Ref        string     `json:"bom-ref"`
	Type       string     `json:"type"`
	Name       string     `json:"name"`
	Version    string     `json:"version"`
	PURL       string     `json:"purl"`
	Properties []property `json:"properties,omitempty"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type dependency struct {
	Ref string   `json:"ref"`
	On  []string `json:"dependsOn"`
}

func main() {
	if len(os.Args) != 3 {
		fail(fmt.Errorf("sbom PROGRAM FILE"))
	}
	info, err := buildinfo.ReadFile(os.Args[1])
	if err != nil {
		fail(err)
	}
	text, err := json.MarshalIndent(billOf(info), "", "  ")
	if err != nil {
		fail(err)
	}
	if err := os.WriteFile(os.Args[2], append(text, '\n'), 0o644); err != nil {
		fail(err)
	}
}

func billOf(info *debug.BuildInfo) bill {
	b := bill{Format: "CycloneDX", Spec: "1.5", Version: 1}
	program := module("application", info.Main.Path, info.Main.Version, "")
	for _, s := range info.Settings {
		program.Properties = append(program.Properties, property{"go:" + s.Key, s.Value})
	}
	b.Metadata.Component = program
	b.Components = append(b.Components, module("library", "std", strings.TrimPrefix(info.GoVersion, "go"), ""))
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		b.Components = append(b.Components, module("library", m.Path, m.Version, m.Sum))
	}
	d := dependency{Ref: program.Ref}
	for _, c := range b.Components {
		d.On = append(d.On, c.Ref)
	}
	b.Dependencies = []dependency{d}
	return b
}

// module describes a module. sum is its hash in go.sum, which is no hash of a file.
func module(kind, path, version, sum string) component {
	purl := "pkg:golang/" + path + "@" + strings.ReplaceAll(version, "+", "%2B")
	c := component{Ref: purl, Type: kind, Name: path, Version: version, PURL: purl}
	if sum != "" {
		c.Properties = []property{{"go:sum", sum}}
	}
	return c
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "sbom:", err)
	os.Exit(1)
}
