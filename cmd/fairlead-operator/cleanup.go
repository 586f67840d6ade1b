// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/internal/cli"
	"github.com/fairlead-dev/fairlead/internal/operator"
)

func newCleanup(out io.Writer) *cobra.Command {
	var o operator.CleanupOptions
	var k kubernetesFlags
	cmd := &cobra.Command{
		Use:   "cleanup",
		Short: "Delete what an installation made in the cluster, fast",
		Long: "Delete what an installation made in the cluster: its Services in every namespace, BoundEndpoints, " +
			"KubernetesOperator and Lease.\n\n" +
			"`helm uninstall` needs no help: the cluster's garbage collector follows it, at about 20 objects a " +
			"second. This " +
			"is for installations with\n" +
			"thousands of endpoints, and for what is left where the collector has not done its work. The manager " +
			"must not " +
			"run. Objects that the\n" +
			"installation did not make are never touched, nor is the release itself, which is helm's.",
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			kubernetes, err := k.config()
			if err != nil {
				return err
			}
			o.Kubernetes, o.Out = kubernetes, out
			return operator.Cleanup(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	releaseFlags(f, &o.Namespace, &o.Release, "fairlead-operator")
	f.BoolVar(&o.DryRun, "dry-run", false, "list what would be deleted, and delete nothing")
	f.BoolVar(&o.Force, "force", false, "delete also while a manager runs, which re-creates what is deleted")
	k.add(f)
	return cmd
}
