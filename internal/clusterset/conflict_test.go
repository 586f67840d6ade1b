// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterset_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/clusterset"
)

const oldest = "The export of cluster a is the oldest and takes precedence. The clusters differ in "

type conflictCase struct {
	name            string
	exports         []clusterset.Export
	reason, message string // the message without its beginning
}

func conflictCases() []conflictCase {
	tcp := port("tcp", 42, "TCP")
	seconds := func(n int32) func(*account.ServiceExport) {
		return func(s *account.ServiceExport) { s.SessionAffinity, s.SessionAffinitySeconds = "ClientIP", &n }
	}
	set := func(change func(*account.ServiceExport)) []clusterset.Export {
		return []clusterset.Export{export(0, nil, tcp), export(1, change, tcp)}
	}
	return []conflictCase{
		{"none", set(nil), "", ""},
		{"families are none", set(func(s *account.ServiceExport) { s.IPFamilies = []string{"IPv6"} }), "", ""},
		{"readiness is none", set(func(s *account.ServiceExport) { s.Ready = true }), "", ""},
		{"an empty policy is Cluster", set(func(s *account.ServiceExport) { s.InternalTrafficPolicy = "" }), "", ""},
		{"no labels are no labels", set(func(s *account.ServiceExport) { s.Labels = map[string]string{} }), "", ""},
		{"order of ports", []clusterset.Export{export(0, nil, tcp, port("udp", 42, "UDP")),
			export(1, nil, port("udp", 42, "UDP"), tcp)}, "", ""},
		{"annotation", set(func(s *account.ServiceExport) { s.Annotations = map[string]string{"n": "x"} }),
			"AnnotationsConflict", `annotation n: none (a), "x" (b)`},
		{"empty annotation", set(func(s *account.ServiceExport) { s.Annotations = map[string]string{"n": ""} }),
			"AnnotationsConflict", `annotation n: none (a), "" (b)`},
		{"long annotation", set(func(s *account.ServiceExport) {
			s.Annotations = map[string]string{"n": strings.Repeat("x", 1000)}
		}), "AnnotationsConflict", `annotation n: none (a), "` + strings.Repeat("x", 63) + "… (b)"},
		{"internal policy", set(func(s *account.ServiceExport) { s.InternalTrafficPolicy = "Local" }),
			"InternalTrafficPolicyConflict", "internalTrafficPolicy: Cluster (a), Local (b)"},
		{"label", set(func(s *account.ServiceExport) { s.Labels = map[string]string{"tier": "gold"} }),
			"LabelsConflict", `label tier: none (a), "gold" (b)`},
		{"port of another number", []clusterset.Export{export(0, nil, tcp), export(1, nil, port("tcp", 43, "TCP"))},
			"PortConflict", "port tcp: 42/TCP (a), 43/TCP (b); left out: tcp 43/TCP of b"},
		{"port of another name", []clusterset.Export{export(0, nil, tcp), export(1, nil, port("x", 42, "TCP"))},
			"PortConflict", "port tcp: 42/TCP (a), none (b); port x: none (a), 42/TCP (b); left out: x 42/TCP of b"},
		{"port without a name", []clusterset.Export{export(0, nil, tcp), export(1, nil, port("", 80, "TCP"))},
			"PortConflict", "port tcp: 42/TCP (a), none (b); port without a name: none (a), 80/TCP (b); " +
				"left out: 80/TCP of b"},
		{"more ports", []clusterset.Export{export(0, nil, tcp), export(1, nil, tcp, port("s", 142, "SCTP"))},
			"PortConflict", "port s: none (a), 142/SCTP (b)"},
		{"application protocol", []clusterset.Export{export(0, nil, tcp), export(1, nil, tcp), export(2, nil,
			account.ServiceExportPort{Name: "tcp", Protocol: "TCP", Port: 42, AppProtocol: "http"})},
			"PortConflict", "port tcp: 42/TCP (a, b), 42/TCP http (c)"},
		{"affinity alone", set(seconds(10)), "SessionAffinityConflict", "sessionAffinity: None (a), ClientIP (b)"},
		{"affinity's time", []clusterset.Export{export(0, seconds(10)), export(1, seconds(20)), export(2, func(
			s *account.ServiceExport) {
			s.SessionAffinity = "ClientIP"
		})}, "SessionAffinityConfigConflict",
			"sessionAffinityConfig: clientIP.timeoutSeconds 10 (a), clientIP.timeoutSeconds 20 (b), none (c)"},
		{"distribution", set(func(s *account.ServiceExport) { s.TrafficDistribution = "PreferClose" }),
			"TrafficDistributionConflict", "trafficDistribution: none (a), PreferClose (b)"},
		{"type", set(func(s *account.ServiceExport) { s.Type = account.ExportHeadless }),
			"TypeConflict", "type: ClusterSetIP (a), Headless (b); only exports of type ClusterSetIP are served"},
		{"ports of another type", []clusterset.Export{export(0, nil, tcp), export(1, func(s *account.ServiceExport) {
			s.Type = account.ExportHeadless
		}, port("tcp", 43, "TCP"))}, "PortConflict,TypeConflict", "port tcp: 42/TCP (a), 43/TCP (b); " +
			"type: ClusterSetIP (a), Headless (b); only exports of type ClusterSetIP are served"},
		{"labels and annotations", set(func(s *account.ServiceExport) {
			s.Labels, s.Annotations = map[string]string{"k": "v"}, map[string]string{"k": "v"}
		}), "AnnotationsConflict,LabelsConflict", `annotation k: none (a), "v" (b); label k: none (a), "v" (b)`},
	}
}

func TestConflict(t *testing.T) {
	t.Parallel()
	for _, c := range conflictCases() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			i := clusterset.Merge(c.exports)
			reason, message := i.Conflict()
			want := ""
			if c.message != "" {
				want = oldest + c.message + "."
			}
			if reason != c.reason || message != want {
				t.Errorf("%s: %s\nwant %s: %s", reason, message, c.reason, want)
			}
		})
	}
}

// A condition holds 32 KiB, and people read its beginning.
func TestConflict_MessageIsBounded(t *testing.T) {
	t.Parallel()
	var exports []clusterset.Export
	for n := range 20 {
		e := export(n, func(s *account.ServiceExport) {
			s.Labels, s.Annotations = map[string]string{}, map[string]string{}
			for k := range 100 {
				key := fmt.Sprintf("%s/%s-%02d", strings.Repeat("d", 253), strings.Repeat("k", 60), k)
				s.Labels[key], s.Annotations[key] = fmt.Sprint(n/5), fmt.Sprint(n/5)+strings.Repeat("é", 100)
				s.Ports = append(s.Ports, port(key[len(key)-63:], int32(1000*n+k+1), "TCP"))
			}
		})
		e.ClusterID += strings.Repeat("c", 62)
		exports = append(exports, e)
	}
	i := clusterset.Merge(exports)
	if _, message := i.Conflict(); len(message) > 9<<10 || !strings.HasSuffix(message, "…") {
		t.Errorf("the message has %d bytes", len(message))
	}
}

func TestConflict_ListsAreShort(t *testing.T) {
	t.Parallel()
	var exports []clusterset.Export
	for n := range 9 {
		exports = append(exports, export(n, func(s *account.ServiceExport) {
			s.Labels = map[string]string{"tier": fmt.Sprint(n)}
			for k := range 20 {
				s.Ports = append(s.Ports, port(fmt.Sprintf("p%02d", k), int32(1000*n+k+1), "TCP"))
			}
			if n > 1 {
				s.TrafficDistribution = "PreferClose"
			}
		}))
	}
	i := clusterset.Merge(exports)
	_, message := i.Conflict()
	for _, part := range []string{`label tier: "0" (a), "1" (b), "2" (c), "3" (d) and 5 more values; port p00:`,
		"and 5 more values and 12 more; left out: p00 1001/TCP of b,", "p07 1008/TCP of b and 152 more;",
		"trafficDistribution: none (a, b), PreferClose (c, d, e, f and 3 more)."} {
		if !strings.Contains(message, part) {
			t.Errorf("%q is not in %s", part, message)
		}
	}
}
