// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Command fairlead-server runs the service, and administers its accounts and credentials. Flags and environment come in; they go as Options
// to internal/server, and the subcommands call internal/store beside a running server. It owns the wording of usage errors, the log's format
// and the exit codes.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"
)

// console is what a command sees of the process around it.
type console struct {
	out, err    io.Writer
	outTerminal bool // a person looks at out
	errTerminal bool
	env         func(string) string
	hurry       <-chan struct{} // closed at the second signal
}

// exitKilled is the exit code of a process that a third signal ends.
const exitKilled = 130

func main() {
	ctx, cancel := context.WithCancel(context.Background())
	hurry := make(chan struct{})
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		cancel()
		<-signals
		close(hurry)
		<-signals
		os.Exit(exitKilled) // giving the signals back would not do: a background process inherits an ignored SIGINT
	}()
	code := run(ctx, os.Args[1:], console{
		out: os.Stdout, err: os.Stderr, env: os.Getenv, hurry: hurry,
		outTerminal: term.IsTerminal(int(os.Stdout.Fd())), errTerminal: term.IsTerminal(int(os.Stderr.Fd())),
	})
	cancel()
	os.Exit(code)
}
