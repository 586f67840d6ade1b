// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/cli"
	"github.com/fairlead-dev/fairlead/internal/path"
)

func newExplain(c console) *cobra.Command {
	var names []cobra.Completion
	for _, info := range account.Codes() {
		names = append(names, string(info.Code))
	}
	for _, e := range path.Explanations() {
		names = append(names, e.Name)
	}
	return &cobra.Command{
		Use:   "explain NAME",
		Short: "Explain an error code, or a condition or a reason of an object in a cluster",
		Long: "Explain an error code (ERR_FL_…), or a condition or a reason that kubectl shows of a BoundEndpoint, " +
			"KubernetesOperator, EndpointAccess, EndpointTrust, AgentEndpoint, CloudEndpoint or ServiceExport. " +
			"Connects to nothing.",
		Example:           "  fairlead explain ERR_FL_3001\n  fairlead explain NamespaceNotFound",
		ValidArgsFunction: cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp),
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return cli.Usagef("give one error code, condition or reason, such as ERR_FL_3001")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			text := explain(args[0])
			if text == "" {
				return cli.Usagef("%q is no error code, condition or reason of this version", account.Shorten(args[0]))
			}
			_, err := fmt.Fprintln(c.out, text)
			return err
		},
	}
}

// explain returns what is known of a name, whose case does not matter; "" for nothing.
func explain(name string) string {
	var found []string
	if info := account.Code(strings.ToUpper(name)).Info(); info.Code != "" {
		found = append(found, fmt.Sprintf("%s, HTTP status %d: %s\n%s\nRemedy: %s", info.Code, info.Status, info.Title,
			info.Cause, info.Remedy))
	}
	for _, e := range path.Explanations() {
		switch {
		case !strings.EqualFold(e.Name, name):
		case e.Remedy == "":
			found = append(found, fmt.Sprintf("%s, condition %s, is True while\n%s.", e.Kind, e.Name, e.Meaning))
		default:
			found = append(found, fmt.Sprintf("%s, reason %s:\n%s.\nRemedy: %s.", e.Kind, e.Name, e.Meaning, e.Remedy))
		}
	}
	return strings.Join(found, "\n\n")
}
