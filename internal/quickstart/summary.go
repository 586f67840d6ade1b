// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package quickstart

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// summary is what a person needs who looks at a quick start.
type summary struct {
	took         time.Duration // took is from the start to the answer of the first call.
	target       string
	targetDown   bool   // targetDown is set when the first call was not answered by the target.
	forwarder    string // forwarder is the host:port that stands for the Service's.
	dashboard    string
	key          string // key is the API key for the dashboard.
	inspector    string
	temporaryDir string // temporaryDir is "" when the folder stays.
}

func (s *summary) print(out io.Writer, color bool) error {
	var b strings.Builder
	bold := func(text string) string {
		if !color {
			return text
		}
		return "\x1b[1m" + text + "\x1b[0m"
	}
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	p("%s: service, agent and forwarder, on this machine only.",
		bold(fmt.Sprintf("Fairlead is up after %.1f s", s.took.Seconds())))
	p("")
	p("%s leads to %s.", endpointURL, s.target)
	if s.targetDown {
		p("That does not answer yet: callers get a 502 until it does.")
	}
	p("")
	p("Call it as a pod would, from another terminal, at its address or by its name:")
	p("  %s", bold("curl http://"+s.forwarder+"/"))
	p("  %s", bold("curl --connect-to ::"+s.forwarder+" "+endpointURL+"/"))
	p("")
	p("Look at it in a browser:")
	p("  inspector   %s", s.inspector)
	p("  dashboard   %s  (accept its own certificate once)", s.dashboard)
	p("  API key     %s", s.key)
	p("")
	p("What next:")
	p("  your own server      fairlead-server quickstart 3000")
	p("  a throwaway cluster  make demo")
	p("  your own clusters    https://github.com/fairlead-dev/fairlead#install")
	p("")
	if s.temporaryDir == "" {
		p("Ctrl-C stops all.")
	} else {
		p("Ctrl-C stops all and removes %s.", s.temporaryDir)
	}
	p("Requests, as the agent sees them:")
	_, err := io.WriteString(out, b.String())
	return err
}
