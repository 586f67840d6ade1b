// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	clientconfig "sigs.k8s.io/controller-runtime/pkg/client/config"

	"github.com/fairlead-dev/fairlead/internal/cli"
	"github.com/fairlead-dev/fairlead/internal/operator/optioncheck"
)

// podConfig returns the configuration of the cluster that the process runs in, or of KUBECONFIG,
// and a JSON logger that also receives client-go's messages.
func podConfig(errOut io.Writer) (*rest.Config, *slog.Logger, error) {
	kubernetes, err := clientconfig.GetConfig()
	if err != nil {
		return nil, nil, fmt.Errorf("finding the Kubernetes cluster (run in a pod, or set KUBECONFIG): %w", err)
	}
	logger := slog.New(slog.NewJSONHandler(errOut, nil))
	klog.SetSlogLogger(logger)
	return kubernetes, logger, nil
}

// releaseFlags adds the flags that select an installation.
func releaseFlags(f *pflag.FlagSet, namespace, release *string, defaultRelease string) {
	f.StringVar(namespace, "namespace", "", "`NAMESPACE` of the installation")
	f.StringVar(release, "release", defaultRelease, "`NAME` of the release")
}

// tokenFlag adds the flag for a ServiceAccount token, which replaces that for a secret.
func tokenFlag(f *pflag.FlagSet, file *string, secretFlag string) {
	f.StringVar(file, strings.TrimPrefix(optioncheck.ServiceAccountTokenFlag, "--"), "",
		"`FILE` with a ServiceAccount token for the account, instead of "+secretFlag+
			"; read again when the kubelet renews it")
}

// addressFlags adds the listen addresses of a process; healthPaths are those on the second.
func addressFlags(f *pflag.FlagSet, metrics, health *string, healthPaths string) {
	f.StringVar(metrics, "metrics-addr", ":8080", "`ADDRESS` for /metrics; empty for none")
	f.StringVar(health, "health-addr", ":8081", "`ADDRESS` for "+healthPaths+"; empty for none")
}

// installationCommand returns a command that people run, on one installation of a cluster that they
// select; do gets the cluster.
func installationCommand(
	namespace, release *string, do func(ctx context.Context, kubernetes *rest.Config) error,
) *cobra.Command {
	var file, contextName string
	cmd := &cobra.Command{Args: cli.NoArguments, RunE: func(cmd *cobra.Command, _ []string) error {
		kubernetes, err := kubeconfig(file, contextName)
		if err != nil {
			return err
		}
		return do(cmd.Context(), kubernetes)
	}}
	f := cmd.Flags()
	releaseFlags(f, namespace, release, "fairlead-operator")
	f.StringVar(&file, "kubeconfig", "", "kubeconfig `FILE`; default kubectl's, or the pod's own cluster")
	f.StringVar(&contextName, "context", "", "`NAME` of the kubeconfig's context; default the current one")
	return cmd
}

// kubeconfig returns the configuration of a context of a file; "" are kubectl's defaults.
func kubeconfig(file, contextName string) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = file
	overrides := &clientcmd.ConfigOverrides{CurrentContext: contextName}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("finding the Kubernetes cluster (give --kubeconfig and --context, or run in a pod): %w",
			err)
	}
	return config, nil
}
