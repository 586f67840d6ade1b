// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"github.com/fairlead-dev/fairlead/packaging/internal/license"
	"github.com/fairlead-dev/fairlead/packaging/internal/signature"
	"github.com/fairlead-dev/fairlead/packaging/internal/verify"
)

func runKey(_ context.Context, args []string) error {
	flags := flag.NewFlagSet("key", flag.ContinueOnError)
	file := flags.String("key", "", "the file of the private key to write; the public one is written to FILE.pub")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *file == "" {
		return fmt.Errorf("no file for the key: give it as KEY=FILE")
	}
	if err := signature.CreateKey(*file); err != nil {
		return err
	}
	fmt.Printf("wrote %s, the private key: keep it secret, it is not encrypted\n", *file)
	fmt.Printf("wrote %s.pub, the public key: publish it\n", *file)
	return nil
}

func runLicenses(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("licenses", flag.ContinueOnError)
	source := flags.String("source", "..", "the checkout")
	if err := flags.Parse(args); err != nil {
		return err
	}
	return license.Report(ctx, *source, os.Stdout)
}

func runVerify(ctx context.Context, args []string) error {
	o := verify.Options{Out: os.Stdout}
	flags := flag.NewFlagSet("verify", flag.ContinueOnError)
	flags.StringVar(&o.Dist, "dist", "../dist", "the folder of the release")
	flags.StringVar(&o.PublicKey, "public-key", "", "the file of the public key")
	flags.BoolVar(&o.Rebuild, "rebuild", false, "build the commit once more, and compare all bytes")
	flags.StringVar(&o.Source, "source", "..", "a checkout that knows the commit, for --rebuild")
	flags.StringVar(&o.Cache, "cache", "", "Go's build cache of the rebuild (default: a new one)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	return verify.Run(ctx, o)
}
