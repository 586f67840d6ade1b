// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// Setup adds version, --version, help and completion to a root command whose subcommands are
// complete. Help has lines of at most columns.
func Setup(root *cobra.Command, columns int) {
	info := currentBuild(root)
	root.Version = info.Version
	root.SetVersionTemplate(info.String())
	root.InitDefaultVersionFlag()
	root.Flags().Lookup("version").Usage = "print the version"
	root.AddCommand(newVersion(info))
	root.SetHelpCommand(newHelp(root))
	addManpages(root)
	root.InitDefaultCompletionCmd("completion")
	if completion, _, err := root.Find([]string{"completion"}); err == nil && completion != root {
		completion.Example = fmt.Sprintf("  source <(%s completion bash)", root.Name())
		for _, shell := range completion.Commands() {
			shell.Example = fmt.Sprintf("  %s completion %s", root.Name(), shell.Name())
		}
	}
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) { _, _ = fmt.Fprint(cmd.OutOrStdout(), help(cmd, columns)) })
	setUpGroups(root)
}

// setUpGroups makes the commands that only have subcommands print their help, and refuse arguments.
func setUpGroups(cmd *cobra.Command) {
	if cmd.HasSubCommands() && !cmd.Runnable() {
		cmd.Args, cmd.RunE = SubcommandsOnly, func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	}
	for _, sub := range cmd.Commands() {
		setUpGroups(sub)
	}
}

func newHelp(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Help about any command",
		RunE: func(_ *cobra.Command, args []string) error {
			at := root
			for _, name := range args {
				next, rest, err := at.Find([]string{name})
				if err != nil || next == at || len(rest) > 0 {
					return unknownName("help topic", at, name)
				}
				at = next
			}
			at.InitDefaultHelpFlag()
			return at.Help()
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, prefix string) ([]cobra.Completion,
			cobra.ShellCompDirective) {
			at, _, err := root.Find(args)
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			var names []cobra.Completion
			for _, sub := range at.Commands() {
				if sub.IsAvailableCommand() && strings.HasPrefix(sub.Name(), prefix) {
					names = append(names, cobra.CompletionWithDesc(sub.Name(), sub.Short))
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
	}
}

// CompleteValues registers values for the shell completion of a flag of cmd.
func CompleteValues(cmd *cobra.Command, flag string, values ...cobra.Completion) {
	CompleteFlag(cmd, flag,
		cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveKeepOrder))
}

// CompleteFlag registers the shell completion of a flag of cmd.
func CompleteFlag(cmd *cobra.Command, flag string, complete cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, complete); err != nil {
		panic(err) // there is no such flag: a mistake of the program
	}
}
