// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Command packaging makes a release of Fairlead from a clean checkout, offline but for package
// registries: it takes a version, and writes dist/ by the steps below, each a package of its own.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/fairlead-dev/fairlead/packaging/internal/airgap"
	"github.com/fairlead-dev/fairlead/packaging/internal/archive"
	"github.com/fairlead-dev/fairlead/packaging/internal/binaries"
	"github.com/fairlead-dev/fairlead/packaging/internal/chart"
	"github.com/fairlead-dev/fairlead/packaging/internal/checksums"
	"github.com/fairlead-dev/fairlead/packaging/internal/images"
	"github.com/fairlead-dev/fairlead/packaging/internal/license"
	"github.com/fairlead-dev/fairlead/packaging/internal/linuxpackage"
	"github.com/fairlead-dev/fairlead/packaging/internal/manifest"
	"github.com/fairlead-dev/fairlead/packaging/internal/manual"
	"github.com/fairlead-dev/fairlead/packaging/internal/notes"
	"github.com/fairlead-dev/fairlead/packaging/internal/release"
	"github.com/fairlead-dev/fairlead/packaging/internal/sbom"
	"github.com/fairlead-dev/fairlead/packaging/internal/signature"
	"github.com/fairlead-dev/fairlead/packaging/internal/testcluster"
)

// step writes some files of a release. It finds those of the steps before it.
type step struct {
	name  string
	write func(context.Context, *release.Release) error
}

// steps returns the steps of a release in their order.
func steps() []step {
	return []step{
		{"binaries", binaries.Write},
		{"manual", manual.Write},
		{"license", license.Write},
		{"archive", archive.Write},
		{"images", images.Write},
		{"chart", chart.Write},
		{"linuxpackage", linuxpackage.Write},
		{"manifest", manifest.Write},
		{"sbom", sbom.Write},
		{"airgap", airgap.Write},
		{"testcluster", testcluster.Write},
		{"notes", notes.Write},
		{"checksums", checksums.Write},
	}
}

// command is a subcommand of the program.
type command struct {
	name  string
	usage string
	run   func(ctx context.Context, args []string) error
}

func commands() []command {
	return []command{
		{"build", "write a release into a folder", runBuild},
		{"check", "make a release, verify it, and tamper with it", runCheck},
		{"key", "write a new key pair for signatures", runKey},
		{"licenses", "list the licences of all modules", runLicenses},
		{"verify", "check a release as a stranger would", runVerify},
		{"draft", "run some steps on the checkout as it is", runDraft},
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "release: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	var usage strings.Builder
	for _, c := range commands() {
		if len(args) > 0 && args[0] == c.name {
			return c.run(ctx, args[1:])
		}
		fmt.Fprintf(&usage, "\n  %-8s %s", c.name, c.usage)
	}
	return fmt.Errorf("give one of these commands, and -h for its flags:%s", usage.String())
}

func runBuild(ctx context.Context, args []string) error {
	var o release.Options
	flags := flag.NewFlagSet("build", flag.ContinueOnError)
	flags.StringVar(&o.Version, "version", "", "the version, with v: v0.2.0")
	flags.StringVar(&o.Source, "source", "..", "the checkout")
	flags.StringVar(&o.Dist, "dist", "../dist", "the folder to write")
	flags.StringVar(&o.Platforms, "platform", "", "OS/ARCH, separated by commas (default: all)")
	flags.StringVar(&o.Key, "key", "", "the file of the private key that signs")
	flags.BoolVar(&o.Unreleased, "unreleased", false, "take the changelog's section Unreleased for the version's")
	flags.BoolVar(&o.Cluster, "cluster", false, "add the test cluster that `make cluster-build` built on this machine")
	if err := flags.Parse(args); err != nil {
		return err
	}
	r, err := release.Open(ctx, o)
	if err := errors.Join(err, signature.CheckKey(o.Key)); err != nil {
		return err
	}
	return build(ctx, r)
}

// build runs every step, signs what they wrote, and prints how long each took.
func build(ctx context.Context, r *release.Release) error {
	if _, err := notes.Changes(r); err != nil {
		return err
	}
	if err := r.Begin(); err != nil {
		return err
	}
	if err := runSteps(ctx, r, steps()); err != nil {
		return err
	}
	if err := r.Finish(); err != nil {
		return err
	}
	return runSteps(ctx, r, []step{{"signature", signature.Write}})
}

func runSteps(ctx context.Context, r *release.Release, steps []step) error {
	for _, s := range steps {
		start := time.Now()
		if err := s.write(ctx, r); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		fmt.Fprintf(os.Stderr, "%-12s %6.1fs\n", s.name, time.Since(start).Seconds())
	}
	return nil
}
