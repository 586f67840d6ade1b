// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"runtime/debug"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	clientconfig "sigs.k8s.io/controller-runtime/pkg/client/config"

	"github.com/fairlead-dev/fairlead/internal/cli"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
	"github.com/fairlead-dev/fairlead/internal/operator/options"
)

// gcPercent reduces the memory of a manager, which caches tens of thousands of objects and rarely
// allocates; GOGC overrides it.
const gcPercent = 40

// useCluster sets the cluster that the process runs in, or that of KUBECONFIG, and a JSON logger
// that also receives client-go's messages.
func useCluster(o *options.Process, errOut io.Writer) (err error) {
	if o.Kubernetes, err = clientconfig.GetConfig(); err != nil {
		return fmt.Errorf("finding the Kubernetes cluster (run in a pod, or set KUBECONFIG): %w", err)
	}
	o.Logger = slog.New(slog.NewJSONHandler(errOut, nil))
	klog.SetSlogLogger(o.Logger)
	return nil
}

// useControllers prepares a process with controllers: its cluster, its logs and its memory.
func useControllers(o *options.Process, errOut io.Writer, getenv func(string) string) error {
	if err := useCluster(o, errOut); err != nil {
		return err
	}
	if getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	ctrl.SetLogger(logr.FromSlogHandler(o.Logger.Handler()))
	return nil
}

// releaseFlags adds the flags that select an installation.
func releaseFlags(f *pflag.FlagSet, o *installation.Installation, defaultRelease string) {
	f.StringVar(&o.Namespace, "namespace", "", "`NAMESPACE` of the installation")
	f.StringVar(&o.Release, "release", defaultRelease, "`NAME` of the release")
}

// apiFlags adds the flags of the account's API, but for credentialFlags.
func apiFlags(f *pflag.FlagSet, o *options.API) {
	f.StringVar(&o.APIURL, "api-url", "", "`URL` of the account's API, https://HOST[:PORT]")
	f.StringVar(&o.VersionHeader, "version-header", "Service-Version",
		"`NAME` of the header that carries the API's version")
}

// credentialFlags adds the flag for a secret with its usage, that for a ServiceAccount token, which
// replaces it, and that for the authorities of the service's named part.
func credentialFlags(f *pflag.FlagSet, o *options.Credentials, secretFlag, secretUsage, part string) {
	f.StringVar(&o.SecretFile, secretFlag, "", secretUsage)
	f.StringVar(&o.ServiceAccountTokenFile, strings.TrimPrefix(options.ServiceAccountTokenFlag, "--"), "",
		"`FILE` with a ServiceAccount token for the account, instead of --"+secretFlag+
			"; read again when the kubelet renews it")
	f.StringVar(&o.CAFile, "ca-file", "", "PEM `FILE` of the authorities to trust for "+part+"; default the system's")
	f.StringVar(&o.AuthoritiesDir, "authorities-dir", "",
		"`DIRECTORY` with the ConfigMap in which the manager keeps the authorities that the server announced; "+
			"they are trusted beside those of --ca-file")
}

// sessionFlags adds the flags of a session with the service's edge.
func sessionFlags(f *pflag.FlagSet, o *options.Session) {
	f.StringVar(&o.EdgeAddress, "edge-address", "",
		"`HOST:PORT` of the service's edge, for example [fd00::1]:8443")
	f.DurationVar(&o.DrainTimeout, "drain-timeout", 15*time.Minute,
		"how long live connections may go on after the order to stop")
}

// addressFlags adds the listen addresses of a process; healthPaths are those on the second.
func addressFlags(f *pflag.FlagSet, o *options.Process, healthPaths string) {
	f.StringVar(&o.MetricsAddr, "metrics-addr", ":8080", "`ADDRESS` for /metrics; empty for none")
	f.StringVar(&o.HealthAddr, "health-addr", ":8081", "`ADDRESS` for "+healthPaths+"; empty for none")
}

// installationCommand returns a command that people run, on one installation of a cluster that they
// select; do gets the cluster.
func installationCommand(
	o *installation.Installation, do func(ctx context.Context, kubernetes *rest.Config) error,
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
	releaseFlags(f, o, "fairlead-operator")
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
