// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Command fairlead-operator runs in a Kubernetes cluster: its manager projects the account's
// endpoints as Services, its forwarder carries pods' connections to the service's edge, its exporter
// makes Services of this cluster endpoints of the account. It turns flags and environment into the
// Options of internal/operator and internal/operator/exporter.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/cli"
	"github.com/fairlead-dev/fairlead/internal/cli/interrupt"
)

// Exit codes.
const (
	exitOther = 1
	exitUsage = 2
)

func main() {
	ctx, stop := interrupt.Context(context.Background())
	code := run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run executes one command line and returns the exit code.
func run(ctx context.Context, args []string, getenv func(string) string, out, errOut io.Writer) int {
	root := newRoot(getenv, out, errOut)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintf(errOut, "fairlead-operator: %v\n", err)
	if errors.As(err, new(*cli.UsageError)) || account.CodeOf(err) == account.CodeInvalid {
		return exitUsage
	}
	return exitOther
}

func newRoot(getenv func(string) string, out, errOut io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use:   "fairlead-operator",
		Short: "Bind the private endpoints of a Fairlead account into this Kubernetes cluster",
		Long: "Bind the private endpoints of a Fairlead account into this Kubernetes cluster.\n\n" +
			"The chart fairlead-operator runs the manager, the forwarder and the exporter. You run check and " +
			"cleanup.\n" +
			"Exit codes: 1 failure, 2 a wrong flag.",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetFlagErrorFunc(cli.FlagError)
	root.AddCommand(newManager(getenv, errOut), newForwarder(getenv, errOut), newExporter(getenv, errOut),
		newCleanup(out), newCheck(out))
	cli.Setup(root, cli.TerminalColumns(out, getenv))
	root.SetOut(out)
	root.SetErr(errOut)
	return root
}
