// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/internal/service/pki"
	"github.com/fairlead-dev/fairlead/internal/trust"
)

func newCA(c console, at *dataLocation) *cobra.Command {
	return &cobra.Command{
		Use:   "ca",
		Short: "Print the certificate of the service's own authority",
		Long: `Print the certificate of the service's own authority in PEM form, for --ca-file of the agent and
api.caBundle of the chart. Its fingerprint, for --ca-sha256, goes to standard error.`,
		Example: `  fairlead-server ca > ca.crt
  fairlead-server ca --data-dir /srv/fairlead > ca.crt`,
		Args: arguments(),
		RunE: func(*cobra.Command, []string) error {
			ca, err := pki.LoadCA(at.dataDir)
			if errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf(
					"there is no authority in %s: give the server's directory with --data-dir, or start the server "+
						"once without --tls-cert, which makes one", at.dataDir)
			}
			if err != nil {
				return err
			}
			if _, err := c.out.Write(pki.EncodeCertificate(ca)); err != nil {
				return err
			}
			_, err = fmt.Fprintf(c.err, "ca-sha256 %s\n", trust.Fingerprint(ca))
			return err
		},
	}
}
