// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

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
		return nil, fmt.Errorf("finding the Kubernetes cluster (give --kubeconfig and --context, or run in a pod): %w", err)
	}
	return config, nil
}
