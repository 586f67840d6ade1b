// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"go.uber.org/goleak"

	"github.com/fairlead-dev/fairlead/internal/path"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRun_NamesBrokenHop(t *testing.T) {
	t.Parallel()
	for _, s := range slices.Concat(clusterScenarios(), serviceScenarios(), dnsScenarios(), forwarderScenarios(),
		forbiddenScenarios(), upstreamScenarios(), operatorScenarios(), endpointScenarios(), replicaScenarios(),
		exportScenarios(), accessScenarios(), sealScenarios()) {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			f := recorded(t)
			s.change(f)
			checkScenario(t, f, s)
		})
	}
}

// fitsTerminal checks that nothing but a command that is to be copied needs more than 80 columns,
// and that nothing controls the terminal.
func fitsTerminal(t *testing.T, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		command := strings.HasPrefix(line, "    kubectl ") || strings.HasPrefix(line, "    fairlead ") ||
			strings.HasPrefix(line, "    echo ")
		if n := utf8.RuneCountInString(line); n > columns && !command &&
			strings.ContainsRune(strings.TrimSpace(line[textColumn:]), ' ') {
			t.Errorf("%d columns: %s", n, line)
		}
		if strings.ContainsFunc(line, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			t.Errorf("a control character: %q", line)
		}
	}
}

// checkCalls checks that every call is bounded and goes to the right cluster.
func (f *fake) checkCalls() {
	f.t.Helper()
	for _, args := range f.calls {
		bounded := slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "--request-timeout=") })
		if args[0] == "get" && !bounded {
			f.t.Errorf("not bounded: %q", args)
		}
		if f.o.Context != "" && !slices.Contains(args, "--context="+f.o.Context) &&
			!slices.Contains(args, "--context="+f.o.ExportContext) || f.o.Kubeconfig != "" &&
			!slices.Contains(args, "--kubeconfig="+f.o.Kubeconfig) {
			f.t.Errorf("asks another cluster: %q", args)
		}
		if end := slices.Index(args, "--"); end >= 0 && slices.ContainsFunc(args[end:], func(a string) bool {
			return strings.HasPrefix(a, "--context=") || strings.HasPrefix(a, "--kubeconfig=")
		}) {
			f.t.Errorf("the pod gets kubectl's flags: %q", args)
		}
		if args[0] != "get" && args[0] != "exec" && args[0] != "config" {
			f.t.Errorf("does more than to look: %q", args)
		}
	}
}

func TestPrint_VerboseShowsEvidence(t *testing.T) {
	t.Parallel()
	f := recorded(t)
	r := Run(t.Context(), f.o)
	var b bytes.Buffer
	must.Succeed(t, Print(&b, r, PrintOptions{Verbose: true, Color: true}))
	golden(t, "verbose and colour.txt", b.Bytes())
}

func TestReport_JSON(t *testing.T) {
	t.Parallel()
	f := recorded(t)
	f.offline("no agent is connected for http://api.demo")
	out, err := json.MarshalIndent(Run(t.Context(), f.o), "", "  ")
	must.Succeed(t, err)
	golden(t, "agent offline.json", append(out, '\n'))
}

var invalidAnswers = []string{"", "{}", "null", "[]", `{"items":null}`, `{"items":[{}]}`, `{"items":[null]}`,
	`{"items":[{"status":{"conditions":7}}]}`, "\x00<html>", `{"metadata":{"name":"api"}}`, `{"listeners":[{}]}`,
	`{"listeners":[{"port":22240,"listening":true,"last_success":"","last_failure":{}}]}`}

// TestRun_SurvivesInvalidOutput: the report has every hop, whichever answer of kubectl is invalid.
func TestRun_SurvivesInvalidOutput(t *testing.T) {
	t.Parallel()
	asks := []string{askTarget, askOps, askBEP, askNS, askUpstream, askDNS, askPods, askSlices, askOne, askTwo,
		askManagers}
	for _, ask := range asks {
		for _, junk := range invalidAnswers {
			f := recorded(t)
			f.put(ask, junk)
			r := Run(t.Context(), f.o)
			if len(r.Hops) != 13 {
				t.Errorf("%s answers %q: %d hops", ask, junk, len(r.Hops))
			}
			for _, h := range r.Hops {
				if h.Status == "" || h.Detail == "" {
					t.Errorf("%s answers %q: %+v", ask, junk, h)
				}
			}
		}
		for _, words := range []string{"Unable to connect to the server: net/http: TLS handshake timeout", "boom",
			`Error from server (Forbidden): no`} {
			f := recorded(t)
			f.refuse(ask, words)
			r := Run(t.Context(), f.o)
			if len(r.Hops) != 13 || r.Broken != "" && ask != askTarget {
				t.Errorf("%s is refused with %q: broken is %q", ask, words, r.Broken)
			}
		}
	}
}

func TestRun_CommandsNameCluster(t *testing.T) {
	t.Parallel()
	f := recorded(t)
	f.o.Context, f.o.Kubeconfig = "a b", "/home/it's/config"
	f.none(askNS, askTarget)
	r := Run(t.Context(), f.o)
	h := r.Hop(path.HopNamespace)
	if want := `kubectl --kubeconfig '/home/it'\''s/config' --context 'a b' create namespace demo`; !strings.HasSuffix(
		h.Fix, "\n"+want) {
		t.Errorf("got %q, want %q", h.Fix, want)
	}
}
