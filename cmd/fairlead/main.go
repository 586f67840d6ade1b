// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Command fairlead makes a port of this machine an endpoint that pods can call. Flags, environment
// and the config file come in; the subcommands hand them over as Options to internal/agent. It owns
// the wording of usage errors and the exit codes.
package main

import (
	"bufio"
	"context"
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
	ctx, stop := interrupt.Context(context.Background(), syscall.SIGHUP) // sent when a terminal is closed
	code := run(ctx, os.Args[1:], processConsole())
	stop()
	os.Exit(code)
}

func processConsole() console {
	out := int(os.Stdout.Fd())
	return console{
		plugin: isPlugin(os.Args[0]),
		in:     os.Stdin, out: os.Stdout, err: os.Stderr, env: os.Getenv,
		color:  term.IsTerminal(out) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb",
		secret: readSecret, asks: term.IsTerminal(int(os.Stdin.Fd())),
	}
}

// ask reads a line from the terminal.
func (c console) ask(prompt string) (string, error) {
	_, _ = io.WriteString(c.err, prompt)
	return bufio.NewReader(c.in).ReadString('\n')
}

func readSecret(prompt string) (string, bool, error) {
	fd := int(os.Stdin.Fd())
	if !term.IsTerminal(fd) {
		return "", false, nil
	}
	_, _ = io.WriteString(os.Stderr, prompt)
	text, err := term.ReadPassword(fd)
	_, _ = io.WriteString(os.Stderr, "\n")
	return string(text), true, err
}
