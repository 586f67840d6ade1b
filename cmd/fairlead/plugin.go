// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fairlead-dev/fairlead/internal/path"
)

// isPlugin reports whether the program was started by the name of kubectl's plugin. krew installs it
// by this name alone, so that there is no command fairlead.
func isPlugin(program string) bool {
	return strings.TrimSuffix(filepath.Base(program), ".exe") == "kubectl-fairlead"
}

// ownCommand matches the program's name where one of its commands or a flag of its own comes after
// it, as neither does after a namespace of this name.
var ownCommand = regexp.MustCompile(`(?m)(?:kubectl |(^|[^-\w/.]))fairlead( (?:api|completion|config|connect|` +
	`doctor|explain|help|http|login|logout|policy|seal|start|status|tcp|tunnel|version|--help|--version)\b)`)

// pluginText makes a text name `kubectl fairlead`.
func pluginText(text string) string {
	return ownCommand.ReplaceAllString(text, "${1}kubectl fairlead$2")
}

// pluginWriter makes messages name `kubectl fairlead`, at their beginning, too. Each Write is a
// message.
type pluginWriter struct{ io.Writer }

func (w pluginWriter) Write(p []byte) (int, error) {
	text := pluginText(string(p))
	if strings.HasPrefix(text, "fairlead: ") {
		text = "kubectl " + text
	}
	if _, err := io.WriteString(w.Writer, text); err != nil {
		return 0, err
	}
	return len(p), nil
}

// ownNames makes the remedies of a report name `kubectl fairlead` in kubectl's plugin.
func (c console) ownNames(r path.Report) path.Report {
	if !c.plugin {
		return r
	}
	r.Hops = slices.Clone(r.Hops)
	for i := range r.Hops {
		h := &r.Hops[i]
		h.Detail, h.Fix = pluginText(h.Detail), pluginText(h.Fix)
	}
	return r
}

// describePlugin makes the help of cmd and of all commands below it name `kubectl fairlead`.
func describePlugin(cmd *cobra.Command) {
	if !cmd.HasParent() {
		cmd.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl fairlead"}
	}
	cmd.Long, cmd.Example = pluginText(cmd.Long), pluginText(cmd.Example)
	cmd.Flags().VisitAll(func(f *pflag.Flag) { f.Usage = pluginText(f.Usage) })
	for _, sub := range cmd.Commands() {
		describePlugin(sub)
	}
}
