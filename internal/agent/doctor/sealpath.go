// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// sealedPaths are what carries a forwarder's sealed connections towards the service.
type sealedPaths struct {
	Raw    int64          `json:"raw"`    // over connections of their own
	Mux    int64          `json:"mux"`    // inside those of the session
	Paused map[string]int `json:"paused"` // replicas of the service without raw connections, by reason
}

// whyInMux explains the reasons of tunnel.PairPause.
var whyInMux = map[string]string{
	"unsupported":        "the service is of an earlier version, or does not run on Linux",
	"websocket":          "WebSockets carry the session",
	"client_certificate": "forwarders show the service a client certificate",
	"no_address":         "a replica of the service has announced no address that forwarders reach (--replica-address)",
	"cut":                "something on the way cuts raw connections (next try after 6 hours)",
	"limit":              "the descriptors of the forwarder, or of the service for the account, allow no more",
	"failed":             "none can be made; the forwarders' logs have the error",
}

// carriers returns what carries the forwarders' sealed connections towards the service, as a sentence and
// for each forwarder; nothing where no forwarder has told it.
func (c *sealCheck) carriers() (sentence string, evidence []string) {
	if c.forwarders == nil {
		return "", nil
	}
	known, _ := c.forwarders.serving()
	var raw, all int64
	replicas, paused := 0, 0
	reasons := map[string]bool{}
	for _, f := range known {
		p := f.status.SealedPaths
		if p == nil { // The forwarder is of an earlier version.
			continue
		}
		raw, all, replicas = raw+p.Raw, all+p.Raw+p.Mux, replicas+max(1, len(f.status.Session.Legs))
		for why, n := range p.Paused {
			paused += n
			reasons[cmp.Or(whyInMux[why], why)] = true
		}
		evidence = append(evidence, fmt.Sprintf("%s: of its sealed connections, %d over a raw connection, %d "+
			"inside the multiplexer", f.pod.Metadata.Name, p.Raw, p.Mux))
	}
	switch {
	case evidence == nil:
		return "", nil
	case paused > 0:
		some := map[bool]string{true: "they", false: "some"}[paused >= replicas]
		sentence = fmt.Sprintf("%s run inside the multiplexer (%d of %d so far): %s", some, all-raw, all,
			strings.Join(slices.Sorted(maps.Keys(reasons)), "; "))
	case raw > 0:
		sentence = fmt.Sprintf("they are spliced over a raw connection (%d of %d so far), if the agent has one, too",
			raw, all)
	default:
		sentence = "the first runs inside the multiplexer, later ones are spliced over a raw connection"
	}
	return sentence, evidence
}
