// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/internal/operator"
)

const cleanupHelp = `Delete what an installation made in the cluster: its Services in every namespace, BoundEndpoints,
KubernetesOperator and Lease.

After ` + "`helm uninstall`" +
	` the cluster's garbage collector deletes them, at about 20 objects a second. This command is
for installations with thousands of endpoints, and for objects that the collector has left. The manager must not
run. The command never touches objects that the installation did not make, nor the release itself, which is
helm's.`

func newCleanup(out io.Writer) *cobra.Command {
	o := operator.CleanupOptions{Out: out}
	cmd := installationCommand(&o.Installation, func(ctx context.Context, kubernetes *rest.Config) error {
		o.Kubernetes = kubernetes
		return operator.Cleanup(ctx, o)
	})
	cmd.Use, cmd.Short, cmd.Long = "cleanup", "Delete what an installation made in the cluster, fast", cleanupHelp
	f := cmd.Flags()
	f.BoolVar(&o.DryRun, "dry-run", false, "list what would be deleted, and delete nothing")
	f.BoolVar(&o.Force, "force", false, "delete even while a manager runs, which re-creates what is deleted")
	return cmd
}
