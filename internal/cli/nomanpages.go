// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !manpages

package cli

import "github.com/spf13/cobra"

// addManpages adds nothing: the programs that people run hold no manual pages.
func addManpages(*cobra.Command) {}
