// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Command fairlead-server runs the service, and administers its accounts and credentials. Flags and
// environment come in; they go as Options to internal/service, and the subcommands call
// internal/service/store beside a running server. It owns the wording of usage errors, the log's
// format and the exit codes.
package main

import (
	"context"
	"io"
	"os"

	"golang.org/x/term"

	"github.com/fairlead-dev/fairlead/internal/cli/interrupt"
)

// console is the process environment of a command.
type console struct {
	out, err    io.Writer
	outTerminal bool // out is a terminal
	errTerminal bool
	env         func(string) string
	forceStop   <-chan struct{} // closed at the second signal
}

func main() {
	ctx, forceStop, stop := interrupt.WithForceStop(context.Background())
	code := run(ctx, os.Args[1:], console{
		out: os.Stdout, err: os.Stderr, env: os.Getenv, forceStop: forceStop,
		outTerminal: term.IsTerminal(int(os.Stdout.Fd())), errTerminal: term.IsTerminal(int(os.Stderr.Fd())),
	})
	stop()
	os.Exit(code)
}
