// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/cli"
)

const rootHelp = `fairlead-server is the service of Fairlead: the account API, the listener for agents and forwarders,
and the edge that carries their traffic. All of it uses one TLS port. Its data is in --data-dir.

First time:
  fairlead-server quickstart           # all of Fairlead in one process, for a first look
  fairlead-server --base-url https://fairlead.example.net:8443
                                       # makes an API key and an authtoken, and shows how to use them
  fairlead-server ca > ca.crt          # the authority for agents and operators to trust

The other commands administer accounts and credentials in the same data directory. A running server
applies their changes within a second.

Exit codes:
  0  done, or stopped by SIGINT or SIGTERM
  1  any failure
  2  wrong usage: a flag or an argument`

// run executes one command line and returns the exit code.
func run(ctx context.Context, args []string, c console) int {
	root := newRoot(c)
	root.SetArgs(args)
	root.SetOut(c.out)
	root.SetErr(c.err)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	_, _ = fmt.Fprintf(c.err, "fairlead-server: %s\n", oneLine(err.Error()))
	if errors.As(err, new(*cli.UsageError)) || account.CodeOf(err) == account.CodeInvalid {
		return 2
	}
	return 1
}

// oneLine replaces line breaks and repeated spaces by one space.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

func newRoot(c console) *cobra.Command {
	at := &dataLocation{}
	serve := newServe(c, at)
	root := &cobra.Command{
		Use:           "fairlead-server",
		Short:         "The service of Fairlead: private endpoints, bound into your Kubernetes clusters",
		Long:          rootHelp,
		Example:       serve.Example,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cli.SubcommandsOnly,
		RunE:          serve.RunE,
	}
	root.Flags().AddFlagSet(serve.Flags())
	at.addFlags(root.PersistentFlags(), c.env)
	root.SetFlagErrorFunc(cli.FlagError)
	root.AddCommand(serve, newAccount(c, at), newAPIKey(c, at), newAuthtoken(c, at), newDomain(c, at), newBackup(c, at),
		newRestore(c, at), newStore(c, at), newCA(c, at), newBootstrap(c, at), newHealthcheck(c), newQuickstart(c, at))
	cli.Setup(root, cli.TerminalColumns(c.out, c.env))
	return root
}

// defaultDataDir returns the system's directory for root and the user's own for other users.
func defaultDataDir(env func(string) string, euid int) string {
	if dir := env("XDG_DATA_HOME"); euid != 0 && filepath.IsAbs(dir) {
		return filepath.Join(dir, "fairlead")
	}
	if home := env("HOME"); euid != 0 && filepath.IsAbs(home) {
		return filepath.Join(home, ".local", "share", "fairlead")
	}
	return "/var/lib/fairlead"
}

// newGroup makes a command that only has subcommands.
func newGroup(use, short string, commands ...*cobra.Command) *cobra.Command {
	g := &cobra.Command{Use: use, Short: short}
	g.AddCommand(commands...)
	return g
}

// arguments makes an Args that requires exactly the named arguments.
func arguments(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) == len(names):
			return nil
		case len(names) == 0:
			return cli.NoArguments(cmd, args)
		case len(args) < len(names):
			return cli.Usagef("`%s` needs %s; see `%s --help`", cmd.CommandPath(), names[len(args)], cmd.CommandPath())
		}
		return cli.Usagef("`%s` takes %s only, and got %q too", cmd.CommandPath(), strings.Join(names, " and "),
			args[len(names)])
	}
}
