// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Command mkimage packs static binaries or root folders into an OCI archive, without a container
// engine:
//
//	mkimage -o images.tar --user 65532:65532 registry.test/tool:1=./tool registry.test/other:1=./folder
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/fairlead-dev/fairlead/test/cluster/mkimage"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "mkimage:", err)
		os.Exit(1)
	}
}

func run() error {
	out := flag.String("o", "images.tar", "the archive to write")
	opts := mkimage.Options{}
	flag.StringVar(&opts.User, "user", "65532:65532", "the numeric user and group that the images run as")
	flag.StringVar(&opts.Arch, "arch", "", "architecture of the binaries (GOARCH; default this machine's)")
	entrypoint := flag.String("entrypoint", "",
		"the program that a folder's image starts; a binary's image starts the binary")
	flag.Func("label", "a `NAME=VALUE` that the images carry; may be repeated", func(arg string) error {
		name, value, ok := strings.Cut(arg, "=")
		if !ok || name == "" {
			return errors.New("want NAME=VALUE")
		}
		if opts.Labels == nil {
			opts.Labels = map[string]string{}
		}
		opts.Labels[name] = value
		return nil
	})
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "Usage: mkimage [flags] NAME=BINARY_OR_FOLDER…")
		flag.PrintDefaults()
	}
	flag.Parse()
	if *entrypoint != "" {
		opts.Entrypoint = []string{*entrypoint}
	}
	var images []mkimage.Image
	for _, arg := range flag.Args() {
		img, err := mkimage.ParseImage(arg)
		if err != nil {
			return err
		}
		images = append(images, img)
	}
	f, err := os.CreateTemp(filepath.Dir(*out), ".mkimage-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // after the rename there is nothing left to remove
	if err := mkimage.Write(f, opts, images...); err != nil {
		_ = f.Close()
		return err
	}
	if err := f.Chmod(0o644); err != nil {
		_ = f.Close()
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), *out)
}
