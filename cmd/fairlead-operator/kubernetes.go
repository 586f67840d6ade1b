// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"log/slog"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	clientconfig "sigs.k8s.io/controller-runtime/pkg/client/config"
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

// addressFlags adds the listen addresses of a process; healthPaths are those on the second.
func addressFlags(f *pflag.FlagSet, metrics, health *string, healthPaths string) {
	f.StringVar(metrics, "metrics-addr", ":8080", "`ADDRESS` for /metrics; empty for none")
	f.StringVar(health, "health-addr", ":8081", "`ADDRESS` for "+healthPaths+"; empty for none")
}

// kubernetesFlags select the cluster for commands that run outside of it.
type kubernetesFlags struct{ file, context string }

func (k *kubernetesFlags) add(f *pflag.FlagSet) {
	f.StringVar(&k.file, "kubeconfig", "",
		"`FILE` with the cluster's address; default as kubectl has it, or the pod's own")
	f.StringVar(&k.context, "context", "", "`NAME` of the kubeconfig's context; default the current one")
}

func (k *kubernetesFlags) config() (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = k.file
	overrides := &clientcmd.ConfigOverrides{CurrentContext: k.context}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("finding the Kubernetes cluster (give --kubeconfig and --context, or run in a pod): %w",
			err)
	}
	return config, nil
}
