// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Command fairlead makes a port of this machine an endpoint that pods can call. Flags, environment
// and the config file come in; the subcommands hand them over as Options to internal/agent. It owns
// the wording of usage errors and the exit codes.
package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"syscall"

	"golang.org/x/term"

	"github.com/fairlead-dev/fairlead/internal/agent/agentconfig"
	"github.com/fairlead-dev/fairlead/internal/cli/interrupt"
)

// console is the process environment of a command.
type console struct {
	plugin bool // kubectl runs the program, as its plugin kubectl-fairlead
	in     io.Reader
	out    io.Writer // status
	err    io.Writer // errors, warnings and diagnostics
	env    agentconfig.Getenv
	color  bool
	secret func(prompt string) (text string, typed bool, err error) // reads a line without echo when in is a terminal
	asks   bool                                                     // in is a terminal, where a person answers
}

func main() {
	os.Exit(underServiceManager(func(parent context.Context) int {
		ctx, stop := interrupt.Context(parent, syscall.SIGHUP) // sent when a terminal is closed
		defer stop()
		return run(ctx, os.Args[1:], processConsole(ctx))
	}))
}

func processConsole(ctx context.Context) console {
	out := int(os.Stdout.Fd())
	return console{
		plugin: isPlugin(os.Args[0]),
		in:     os.Stdin, out: os.Stdout, err: os.Stderr, env: os.Getenv,
		color:  term.IsTerminal(out) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb",
		secret: func(prompt string) (string, bool, error) { return readSecret(ctx, prompt) },
		asks:   term.IsTerminal(int(os.Stdin.Fd())),
	}
}

// ask reads a line from the terminal.
func (c console) ask(prompt string) (string, error) {
	_, _ = io.WriteString(c.err, prompt)
	return bufio.NewReader(c.in).ReadString('\n')
}

// readSecret reads a line without echo. The end of ctx, which is Ctrl-C, gives the terminal its
// echo back.
func readSecret(ctx context.Context, prompt string) (text string, typed bool, err error) {
	fd := int(os.Stdin.Fd())
	before, err := term.GetState(fd)
	if err != nil {
		return "", false, nil //nolint:nilerr // standard input is no terminal
	}
	_, _ = io.WriteString(os.Stderr, prompt)
	read := make(chan error, 1)
	var line []byte
	go func() { // reading from a terminal cannot be cancelled
		var err error
		line, err = term.ReadPassword(fd)
		read <- err
	}()
	select {
	case err = <-read:
		text = string(line)
	case <-ctx.Done():
		err = errors.Join(errors.New("interrupted"), term.Restore(fd, before))
	}
	_, _ = io.WriteString(os.Stderr, "\n")
	return text, true, err
}
