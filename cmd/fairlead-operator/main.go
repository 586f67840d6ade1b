// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Command fairlead-operator runs in a Kubernetes cluster: its manager projects the account's endpoints as Services, its forwarder carries pods'
// connections to the service's edge. Flags and environment come in; they go out as Options to internal/operator.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/flagwords"
	"github.com/fairlead-dev/fairlead/internal/interrupt"
	"github.com/fairlead-dev/fairlead/internal/version"
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

// errUsage marks errors of the command line.
var errUsage = errors.New("usage")

// run executes one command line and returns the exit code.
func run(ctx context.Context, args []string, getenv func(string) string, out, errOut io.Writer) int {
	root := &cobra.Command{
		Use:           "fairlead-operator",
		Short:         "Bind the private endpoints of a Fairlead account into this Kubernetes cluster",
		Long:          "Bind the private endpoints of a Fairlead account into this Kubernetes cluster.\n\nThe chart fairlead-operator runs both parts; nobody has to run them by hand.\nExit codes: 1 failure, 2 a wrong flag.",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          none,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%w: %s; `%s --help` lists the flags", errUsage, flagwords.Of(err), cmd.CommandPath())
	})
	root.AddCommand(newManager(getenv, errOut), newForwarder(getenv, errOut), newCleanup(out), newVersion(out))
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(errOut)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintf(errOut, "fairlead-operator: %v\n", err)
	if errors.Is(err, errUsage) || account.CodeOf(err) == account.CodeInvalid {
		return exitUsage
	}
	return exitOther
}

func none(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s takes no argument %q; `%s --help` says what there is", errUsage, cmd.CommandPath(), args[0], cmd.CommandPath())
}

func newVersion(out io.Writer) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  none,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintf(out, "fairlead-operator %s (revision %s, %s, %s/%s)\n",
				version.String(), version.Revision(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}
