// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/internal/operator"
)

const checkHelp = `Check that an installation works: the account knows it and answers, forwarders have a session with
the service's edge and, with --exporter, every exporter is ready. With --clusterset, Services of other clusters can be
imported.

It reads the release's KubernetesOperator and pods and changes nothing. ` + "`helm test`" + ` runs it in a pod.`

func newCheck(out io.Writer) *cobra.Command {
	o := operator.CheckOptions{Out: out}
	cmd := installationCommand(&o.Installation, func(ctx context.Context, kubernetes *rest.Config) error {
		o.Kubernetes = kubernetes
		return operator.Check(ctx, o)
	})
	cmd.Use, cmd.Short, cmd.Long = "check", "Check that an installation works", checkHelp
	cmd.Flags().BoolVar(&o.Exporter, "exporter", false, "check the release's exporters, too")
	cmd.Flags().BoolVar(&o.Clusterset, "clusterset", false, "check that ServiceImports can be made, too")
	cmd.Flags().DurationVar(&o.Timeout, "timeout", time.Minute, "how long the installation may take until it works")
	return cmd
}
