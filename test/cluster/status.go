// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/test/cluster/internal/enter"
	"github.com/fairlead-dev/fairlead/test/cluster/internal/node"
	"github.com/fairlead-dev/fairlead/test/cluster/internal/state"
)

// exitNotRunning is the exit code of status where no cluster runs.
const exitNotRunning = exitError(3)

// status is what `status --output json` prints.
type status struct {
	*state.Cluster
	Running    bool   `json:"running"`
	Ready      bool   `json:"ready"`
	Kubeconfig string `json:"kubeconfig,omitempty"`
}

func statusCommand() *cobra.Command {
	var w which
	var output string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show a cluster; the exit code is 3 where it does not run",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "table" && output != "json" {
				return fmt.Errorf("--output %q: want table or json", output)
			}
			want, err := w.cluster()
			if err != nil {
				return err
			}
			have, err := state.Load(want.Dir)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			s := status{Cluster: &want}
			if have.Alive() {
				s = status{Cluster: have, Running: true, Ready: node.ReadProgress(have).Ready,
					Kubeconfig: have.Kubeconfig()}
			}
			if output == "json" {
				e := json.NewEncoder(os.Stdout)
				e.SetIndent("", "  ")
				err = e.Encode(s)
			} else {
				err = s.table(cmd.Context(), os.Stdout)
			}
			if err == nil && !s.Running {
				err = exitNotRunning
			}
			return err
		},
	}
	w.flags(cmd)
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	return cmd
}

func (s status) table(ctx context.Context, w io.Writer) error {
	if !s.Running {
		_, err := fmt.Fprintf(w, "cluster     %s, not running\n", s.Name)
		return err
	}
	phase := "starting"
	if s.Ready {
		phase = "running"
	}
	_, err := fmt.Fprintf(w, `cluster     %s, %s for %v, process %d
options     %s
kubeconfig  %s (for cluster exec; cluster kubeconfig prints one for this machine)
logs        %s
`, s.Name, phase, time.Since(s.Started).Round(time.Second), s.PID, s.Options, s.Kubeconfig, s.Path("log"))
	if err != nil || os.Geteuid() != 0 {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var said bytes.Buffer
	exit, err := enter.Run(ctx, s.Cluster, enter.Command{Args: []string{"kubectl", "get", "nodes"}, Stdout: &said,
		Stderr: &said})
	if err == nil && exit != 0 {
		_, err = fmt.Fprintf(w, "the API server does not answer: %s\n", strings.TrimSpace(said.String()))
		return err
	}
	_, err = fmt.Fprintf(w, "\n%s", said.String())
	return err
}
