// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
)

func TestParse_FindsService(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"http://api:8080":                             "http demo/api 8080",
		"http://api:8080/":                            "http demo/api 8080",
		"http://api":                                  "http demo/api 80",
		"https://api":                                 "https demo/api 443",
		"http://API.Demo":                             "http demo/api 80",
		"http://api.demo.svc:1":                       "http demo/api 1",
		"http://api.demo.svc.:1":                      "http demo/api 1",
		"http://api.demo.svc.corp.example:65535":      "http demo/api 65535",
		"tcp://db:5432":                               "tcp demo/db 5432",
		"tcp://1db.demo:5432":                         "tcp demo/1db 5432",
		"http://" + strings.Repeat("a", 63) + ".demo": "http demo/" + strings.Repeat("a", 63) + " 80",
	} {
		ref, problem := Rules{ClusterDomain: "corp.example"}.Parse(raw, "demo")
		if problem != nil || describe(ref) != want {
			t.Errorf("%q: %s, %v; want %s", raw, describe(ref), problem, want)
		}
		if again, ok := parseAddress(hostPort(ref)); problem == nil && (!ok || again.Service != ref.Service ||
			again.Port != ref.Port) {
			t.Errorf("%q: the address %s is read as %+v", raw, hostPort(ref), again)
		}
	}
}

func TestParse_NamesBrokenRule(t *testing.T) {
	t.Parallel()
	for raw, names := range map[string]string{
		"api:8080":                         "no scheme",
		"ftp://api:80":                     "http, https or tcp",
		"tcp://db":                         "the port must be",
		"http://api:0":                     "the port must be",
		"http://api:65536":                 "the port must be",
		"http://api:080":                   "the port must be",
		"http://api:http":                  "the port must be",
		"http://api:":                      "the port must be",
		"http://10.0.0.1:80":               "is an address",
		"http://[::1]:80":                  "is an address",
		"http://[fd00::1]":                 "is an address",
		"http://example.com.":              "own namespace",
		"http://www.example.com":           "no Service of this cluster",
		"http://api.demo.pod:80":           "no Service of this cluster",
		"http://api.demo.svc.other.domain": "no Service of this cluster",
		"http://a_b:80":                    "not the name of a Service",
		"http://:80":                       "not the name of a Service",
		"http://api..svc":                  "not the name of a Service",
		"http://api.other:80":              "namespace other",
		"http://api.other.svc:80":          "export.crossNamespace",
	} {
		_, problem := Rules{ClusterDomain: "cluster.local"}.Parse(raw, "demo")
		if problem == nil || problem.Reason != v1alpha1.ReasonUpstreamNotAllowed ||
			!strings.Contains(problem.Message, names) {
			t.Errorf("%q: %v does not name %q", raw, problem, names)
		}
	}
}

func TestParse_CrossNamespace(t *testing.T) {
	t.Parallel()
	ref, problem := Rules{ClusterDomain: "cluster.local", CrossNamespace: true}.Parse("http://api.other.svc", "demo")
	if problem != nil || describe(ref) != "http other/api 80" {
		t.Errorf("%s, %v", describe(ref), problem)
	}
}
