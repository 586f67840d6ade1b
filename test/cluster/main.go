// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Command cluster is the test bed: it builds a real one-node Kubernetes from pinned Go modules and
// runs it in namespaces of its own. Sub-commands come in; a running node goes out, of which `down`
// leaves no trace. The work is done by internal/build (binaries), internal/lifecycle (up and down),
// internal/node (the node itself) and internal/enter (exec).
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/test/cluster/internal/build"
)

// exitError ends the program with a code, without a message of its own.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	err := rootCommand().ExecuteContext(ctx)
	interrupted := ctx.Err() != nil
	stop()
	var code exitError
	switch {
	case err == nil:
	case errors.As(err, &code):
		os.Exit(int(code))
	case interrupted && errors.Is(err, context.Canceled):
		fmt.Fprintln(os.Stderr, "cluster: interrupted; nothing was left behind")
		os.Exit(130)
	default:
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "cluster",
		Short:         "A real one-node Kubernetes for tests, built from Go modules",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(buildCommand(), saveCommand(), upCommand(), downCommand(), execCommand(), loadCommand(),
		statusCommand(), kubeconfigCommand(), initCommand(), helperCommand(), networkPoliciesCommand())
	return root
}

// kubernetesVariable names the minor version of Kubernetes, for all commands.
const kubernetesVariable = "FAIRLEAD_KUBERNETES"

func cache() (build.Cache, error) {
	dir, err := build.DefaultDir()
	if err != nil {
		return build.Cache{}, err
	}
	c, err := build.Cache{Dir: dir, Sources: sources}.ForKubernetes(os.Getenv(kubernetesVariable))
	if err != nil {
		return c, fmt.Errorf("%s: %w", kubernetesVariable, err)
	}
	return c, nil
}

func buildCommand() *cobra.Command {
	var only []string
	var from string
	var printDir bool
	cmd := &cobra.Command{
		Use: "build",
		Short: "Build what is not in the cache: Kubernetes, containerd, CoreDNS, helm (5 minutes on two " +
			"cores, once)",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := cache()
			if err != nil {
				return err
			}
			if len(only) == 0 {
				return errors.New("--only is empty: name a part, or leave the flag out")
			}
			if !printDir && from != "" {
				err = c.Load(cmd.Context(), os.Stderr, from, only...)
			}
			if err != nil {
				return err
			}
			if !printDir {
				return c.Build(cmd.Context(), os.Stderr, only...)
			}
			dir, err := c.PartDir(only[0])
			if err != nil {
				return err
			}
			fmt.Println(dir)
			return nil
		},
	}
	cmd.Flags().StringSliceVar(&only, "only", build.All(), "the parts to build; envtest needs only kubenode")
	cmd.Flags().StringVar(&from, "from", "",
		"take what is not in the cache from a file that `cluster save` wrote, as releases have it; compile the rest")
	cmd.Flags().BoolVar(&printDir, "print-dir", false,
		"build nothing; print the folder of the first part of --only: kubenode's is KUBEBUILDER_ASSETS")
	return cmd
}

func saveCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "save FILE",
		Short: "Write what `cluster build` made into a tar.gz, for `cluster build --from` on other machines",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := cache()
			if err != nil {
				return err
			}
			return c.Save(cmd.Context(), args[0])
		},
	}
}
