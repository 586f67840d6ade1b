// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/test/cluster/internal/enter"
	"github.com/fairlead-dev/fairlead/test/cluster/internal/lifecycle"
	"github.com/fairlead-dev/fairlead/test/cluster/internal/networkpolicy"
	"github.com/fairlead-dev/fairlead/test/cluster/internal/node"
	"github.com/fairlead-dev/fairlead/test/cluster/internal/state"
	"github.com/fairlead-dev/fairlead/test/cluster/mkimage"
)

// which chooses a cluster by its flags.
type which struct{ name, dir string }

func (w *which) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&w.name, "name", "dev", "name of the cluster; several can run side by side")
	cmd.Flags().StringVar(&w.dir, "state-dir", "", "the cluster's folder (default FAIRLEAD_CACHE/clusters/NAME)")
}

func (w *which) cluster() (state.Cluster, error) {
	if err := state.CheckName(w.name); err != nil {
		return state.Cluster{}, err
	}
	dir := w.dir
	if dir == "" {
		c, err := cache()
		if err != nil {
			return state.Cluster{}, err
		}
		dir = filepath.Join(filepath.Dir(c.Dir), "clusters", w.name)
	}
	dir, err := filepath.Abs(dir)
	return state.Cluster{Name: w.name, Dir: dir}, err
}

// running loads the cluster, which must run.
func (w *which) running() (*state.Cluster, error) {
	want, err := w.cluster()
	if err != nil {
		return nil, err
	}
	have, err := state.Load(want.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if !have.Alive() {
		return nil, fmt.Errorf("the cluster %s is not running: start it with `cluster up --name %s`", want.Name,
			want.Name)
	}
	return have, nil
}

func upCommand() *cobra.Command {
	var w which
	var opts state.Options
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start a cluster, or leave it alone where it runs (needs root; 15 seconds when everything is built)",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := w.cluster()
			if err != nil {
				return err
			}
			if opts.KubeProxyMinSync < 0 {
				return fmt.Errorf("--kube-proxy-min-sync %v: want 0s or more", opts.KubeProxyMinSync)
			}
			binaries, err := cache()
			if err != nil {
				return err
			}
			opts.Kubernetes = binaries.Kubernetes
			c.Options = opts
			return lifecycle.Up(cmd.Context(), os.Stderr, binaries, c)
		},
	}
	w.flags(cmd)
	cmd.Flags().DurationVar(&opts.KubeProxyMinSync, "kube-proxy-min-sync", time.Second,
		"least time between two updates of kube-proxy's rules")
	cmd.Flags().BoolVar(&opts.DNSCache, "dns-cache", false,
		"let CoreDNS cache as distributions ship it (cache 30, ttl 30)")
	cmd.Flags().BoolVar(&opts.DualStack, "dual-stack", false, "give node, pods and Services IPv6 addresses beside IPv4")
	cmd.Flags().BoolVar(&opts.MultiCluster, "multicluster", false,
		"serve the kinds of the Multi-Cluster Services API and its DNS domain clusterset.local, and load what stands "+
			"in for the images of its conformance suite")
	cmd.Flags().BoolVar(&opts.NetworkPolicies, "network-policies", false,
		"enforce NetworkPolicies with nftables: test equipment of this project, see test/cluster/README.md")
	return cmd
}

func downCommand() *cobra.Command {
	var w which
	cmd := &cobra.Command{
		Use:   "down",
		Short: "End a cluster and remove every trace of it; binaries stay in the cache",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := w.cluster()
			if err != nil {
				return err
			}
			if err := lifecycle.Down(cmd.Context(), os.Stderr, c); err != nil {
				return err
			}
			if w.dir == "" {
				_ = os.Remove(filepath.Dir(c.Dir)) // the folder of all clusters, if this was the last
			}
			return nil
		},
	}
	w.flags(cmd)
	return cmd
}

func execCommand() *cobra.Command {
	var w which
	cmd := &cobra.Command{
		Use: "exec [flags] [--] COMMAND [ARG…]",
		Short: "Run a command in the node: its network and processes, KUBECONFIG set, kubectl, helm and nettool " +
			"in PATH",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := w.running()
			if err != nil {
				return err
			}
			// Signals are the command's to answer, so they do not end the context.
			exit, err := enter.Run(context.WithoutCancel(cmd.Context()), c, enter.Command{
				Args: args, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Signals: true,
			})
			if err == nil && exit != 0 {
				err = exitError(exit)
			}
			return err
		},
	}
	w.flags(cmd)
	cmd.Flags().SetInterspersed(false) // flags after the command are the command's
	return cmd
}

func loadCommand() *cobra.Command {
	var w which
	opts := mkimage.Options{}
	cmd := &cobra.Command{
		Use:   "load [flags] NAME=BINARY_OR_FOLDER… | ARCHIVE…",
		Short: "Give images to the node: packed from static binaries or root folders, or OCI archives as they are",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := w.running()
			if err != nil {
				return err
			}
			var images []mkimage.Image
			for _, arg := range args {
				if strings.Contains(arg, "=") {
					img, err := mkimage.ParseImage(arg)
					if err != nil {
						return err
					}
					images = append(images, img)
					continue
				}
				if err := loadArchive(cmd.Context(), c, arg); err != nil {
					return err
				}
			}
			if len(images) == 0 {
				return nil
			}
			var packed bytes.Buffer
			if err := mkimage.Write(&packed, opts, images...); err != nil {
				return err
			}
			return importImages(cmd.Context(), c, &packed)
		},
	}
	w.flags(cmd)
	cmd.Flags().StringVar(&opts.User, "user", "65532:65532", "the numeric user and group that packed images run as")
	return cmd
}

func loadArchive(ctx context.Context, c *state.Cluster, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	return importImages(ctx, c, f)
}

func importImages(ctx context.Context, c *state.Cluster, archive io.Reader) error {
	var said bytes.Buffer
	exit, err := enter.Run(ctx, c, enter.Command{Args: node.ImportCommand("-"), Stdin: archive, Stdout: &said,
		Stderr: &said})
	if err == nil && exit != 0 {
		err = fmt.Errorf("ctr: exit code %d: %s", exit, bytes.TrimSpace(said.Bytes()))
	}
	if err != nil {
		return fmt.Errorf("importing images: %w", err)
	}
	return nil
}

func helperCommand() *cobra.Command {
	return &cobra.Command{
		Use:    enter.HelperCommand + " COMMAND [ARG…]",
		Hidden: true,
		Args:   cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			exit, err := enter.Helper(args)
			fmt.Fprintln(os.Stderr, "cluster exec:", err)
			return exitError(exit)
		},
	}
}

func networkPoliciesCommand() *cobra.Command {
	return &cobra.Command{
		Use:    node.NetworkPoliciesCommand + " KUBECONFIG FILE",
		Hidden: true,
		Args:   cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return networkpolicy.Run(cmd.Context(), args[0], args[1])
		},
	}
}

func initCommand() *cobra.Command {
	return &cobra.Command{
		Use:    node.InitCommand + " DIR",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE:   func(_ *cobra.Command, args []string) error { return node.Main(args[0]) },
	}
}
