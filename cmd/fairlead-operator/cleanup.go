// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead-dev/fairlead/internal/operator"
)

func newCleanup(out io.Writer) *cobra.Command {
	var o operator.CleanupOptions
	rules, overrides := clientcmd.NewDefaultClientConfigLoadingRules(), &clientcmd.ConfigOverrides{}
	cmd := &cobra.Command{
		Use:   "cleanup",
		Short: "Delete what an installation made in the cluster, fast",
		Long: "Delete what an installation made in the cluster: its Services in every namespace, BoundEndpoints, KubernetesOperator and Lease.\n\n" +
			"`helm uninstall` needs no help: the cluster's garbage collector follows it, at about 20 objects a second. This is for installations with\n" +
			"thousands of endpoints, and for what is left where the collector has not done its work. The manager must not run. Objects that the\n" +
			"installation did not make are never touched, nor is the release itself, which is helm's.",
		Args: none,
		RunE: func(cmd *cobra.Command, _ []string) error {
			kubernetes, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides).ClientConfig()
			if err != nil {
				return fmt.Errorf("finding the Kubernetes cluster (give --kubeconfig and --context, or run in a pod): %w", err)
			}
			o.Kubernetes, o.Out = kubernetes, out
			return operator.Cleanup(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Namespace, "namespace", "", "`NAMESPACE` of the installation")
	f.StringVar(&o.Release, "release", "fairlead-operator", "`NAME` of the release")
	f.BoolVar(&o.DryRun, "dry-run", false, "list what would be deleted, and delete nothing")
	f.BoolVar(&o.Force, "force", false, "delete also while a manager works, which makes again what is deleted")
	f.StringVar(&rules.ExplicitPath, "kubeconfig", "", "`FILE` with the cluster's address; default as kubectl has it, or the pod's own")
	f.StringVar(&overrides.CurrentContext, "context", "", "`NAME` of the kubeconfig's context; default the current one")
	return cmd
}
