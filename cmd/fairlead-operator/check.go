// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/internal/cli"
	"github.com/fairlead-dev/fairlead/internal/operator"
)

func newCheck(out io.Writer) *cobra.Command {
	var o operator.CheckOptions
	var k kubernetesFlags
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check that an installation works",
		Long: "Check that an installation works: the account knows it and answers, and forwarders have a session " +
			"with the\n" +
			"service's edge.\n\nIt reads the release's KubernetesOperator and changes nothing. `helm test` runs it " +
			"in a pod.",
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			kubernetes, err := k.config()
			if err != nil {
				return err
			}
			o.Kubernetes, o.Out = kubernetes, out
			return operator.Check(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	releaseFlags(f, &o.Namespace, &o.Release, "fairlead-operator")
	f.DurationVar(&o.Timeout, "timeout", time.Minute, "how long the installation may take until it works")
	k.add(f)
	return cmd
}
