// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/test/cluster/internal/enter"
	"github.com/fairlead-dev/fairlead/test/cluster/internal/node"
)

func kubeconfigCommand() *cobra.Command {
	var w which
	var listen string
	cmd := &cobra.Command{
		Use: "kubeconfig",
		Short: "Print a kubeconfig for programs of this machine, and keep its address open until interrupted (needs " +
			"root)",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			addr, err := netip.ParseAddrPort(listen)
			if err != nil || addr.Addr() != netip.AddrFrom4([4]byte{127, 0, 0, 1}) {
				return fmt.Errorf("--listen %q: want 127.0.0.1, which the API server's certificate names, and a port, "+
					"such as 127.0.0.1:0", listen)
			}
			c, err := w.running()
			if err != nil {
				return err
			}
			config, err := os.ReadFile(c.Kubeconfig())
			if err != nil {
				return err
			}
			l, err := (&net.ListenConfig{}).Listen(cmd.Context(), "tcp", listen)
			if err != nil {
				return err
			}
			defer func() { _ = l.Close() }()
			fmt.Print(strings.Replace(string(config), node.APIServer, l.Addr().String(), 1))
			err = enter.Forward(cmd.Context(), l, c, node.APIServer)
			if errors.Is(err, context.Canceled) {
				return nil // an interrupt is the usual end
			}
			return err
		},
	}
	w.flags(cmd)
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:0", "the address for the API server on this machine")
	return cmd
}
