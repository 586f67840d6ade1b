// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package license

import (
	"bytes"
	"cmp"
	"context"
	"debug/buildinfo"
	"encoding/csv"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"

	"github.com/fairlead-dev/fairlead/packaging/internal/release"
)

const tableFile = "licenses.csv"

// report is the modules of the programs with their terms.
type report struct {
	programs map[Module][]string // names of programs, each once
	finder   *Finder
}

func newReport(ctx context.Context, source string) (*report, error) {
	finder, err := NewFinder(ctx, source)
	return &report{programs: map[Module][]string{}, finder: finder}, err
}

func (r *report) add(program string, modules []Module) {
	for _, m := range modules {
		m.Sum = "" // go list does not print it
		if !slices.Contains(r.programs[m], program) {
			r.programs[m] = append(r.programs[m], program)
		}
	}
}

// modules returns all modules, sorted.
func (r *report) modules() []Module {
	return slices.SortedFunc(maps.Keys(r.programs), func(a, b Module) int {
		return cmp.Or(strings.Compare(a.Path, b.Path), strings.Compare(a.Version, b.Version))
	})
}

// Write writes licenses.csv and THIRD_PARTY_LICENSES.txt for the modules of the built programs.
func Write(ctx context.Context, r *release.Release) error {
	found, err := newReport(ctx, r.Source)
	if err != nil {
		return err
	}
	for _, program := range release.Programs() {
		for _, p := range r.PlatformsOf(program) {
			info, err := buildinfo.ReadFile(r.Binary(program, p))
			if err != nil {
				return err
			}
			found.add(program, Modules(info))
		}
	}
	var table, texts bytes.Buffer
	if err := found.writeTable(&table); err != nil {
		return err
	}
	if err := found.writeTexts(&texts); err != nil {
		return err
	}
	if err := os.WriteFile(r.Path(tableFile), table.Bytes(), 0o644); err != nil {
		return err
	}
	return os.WriteFile(r.Path(release.ThirdPartyLicenses), texts.Bytes(), 0o644)
}

// Report writes the table of licenses.csv for the sources in a checkout, on all platforms, without
// building them.
func Report(ctx context.Context, source string, out io.Writer) error {
	found, err := newReport(ctx, source)
	if err != nil {
		return err
	}
	all := release.Release{Platforms: release.Platforms()}
	for _, program := range release.Programs() {
		for _, p := range all.PlatformsOf(program) {
			modules, err := list(ctx, source, p, "./cmd/"+program)
			if err != nil {
				return err
			}
			found.add(program, modules)
		}
	}
	return found.writeTable(out)
}

// WriteTexts writes the licences of the modules that packages of the module in a folder are built
// from on a platform, as THIRD_PARTY_LICENSES.txt has those of the programs of a release.
func WriteTexts(ctx context.Context, out io.Writer, module string, p release.Platform, packages ...string) error {
	found, err := newReport(ctx, module)
	if err != nil {
		return err
	}
	modules, err := list(ctx, module, p, packages...)
	if err != nil {
		return err
	}
	found.add("", append(modules, Module{Path: Standard, Version: runtime.Version()}))
	return found.writeTexts(out)
}

// list asks the go command for the modules of packages on a platform.
func list(ctx context.Context, source string, p release.Platform, packages ...string) ([]Module, error) {
	cmd := exec.CommandContext(ctx, "go", append([]string{"list", "-deps",
		"-f", "{{with .Module}}{{if not .Main}}{{with or .Replace .}}{{.Path}} {{.Version}}{{end}}{{end}}{{end}}"},
		packages...)...)
	cmd.Dir = source
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+p.OS, "GOARCH="+p.Arch)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("listing the modules of %s for %s: %w: %s",
			strings.Join(packages, ", "), p, err, bytes.TrimSpace(stderr.Bytes()))
	}
	var modules []Module
	for line := range strings.Lines(string(out)) {
		path, version, ok := strings.Cut(strings.TrimSpace(line), " ")
		if ok {
			modules = append(modules, Module{Path: path, Version: version})
		}
	}
	return modules, nil
}

// writeTable writes a line for each module: its path, version, licences as an SPDX expression, and
// the programs that it is part of.
func (r *report) writeTable(out io.Writer) error {
	w := csv.NewWriter(out)
	if err := w.Write([]string{"module", "version", "licenses", "programs"}); err != nil {
		return err
	}
	for _, m := range r.modules() {
		terms, err := r.finder.Licenses(m)
		if err != nil {
			return err
		}
		line := []string{m.Path, m.Version, terms.Expression(), strings.Join(r.programs[m], " ")}
		if err := w.Write(line); err != nil {
			return err
		}
	}
	w.Flush()
	return w.Error()
}

// writeTexts writes every file that must be passed on, each text once below the names of the
// modules that it is of.
func (r *report) writeTexts(out io.Writer) error {
	files := map[string][]string{}
	var order []string
	for _, m := range r.modules() {
		terms, err := r.finder.Licenses(m)
		if err != nil {
			return err
		}
		for _, text := range terms.Texts {
			content := string(text.Content)
			if _, seen := files[content]; !seen {
				order = append(order, content)
			}
			files[content] = append(files[content], m.Path+" "+m.Version+" "+text.Name)
		}
	}
	line := strings.Repeat("=", 80)
	_, err := fmt.Fprintf(out, "The programs contain the modules named below, under these terms.\n")
	if err != nil {
		return err
	}
	for _, content := range order {
		_, err := fmt.Fprintf(out, "\n%s\n%s\n%s\n\n%s\n", line, strings.Join(files[content], "\n"), line,
			strings.TrimSpace(content))
		if err != nil {
			return err
		}
	}
	return nil
}
