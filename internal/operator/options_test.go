// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/endpointaccess"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
	"github.com/fairlead-dev/fairlead/internal/operator/options"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

func file(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	must.Succeed(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

func validManagerOptions(apiKeyFile string) ManagerOptions {
	return ManagerOptions{API: options.API{APIURL: "https://s:8443",
		Credentials: options.Credentials{SecretFile: apiKeyFile}, VersionHeader: "Service-Version"},
		Installation: installation.Installation{Namespace: "fairlead", Release: "fairlead"},
		ProjectionOptions: ProjectionOptions{RemovalDelay: 30 * time.Second, PortRange: "10000-32767",
			Projection: v1alpha1.ProjectionExternalName},
		Roles: installation.Roles{ClusterRole: "fairlead.fairlead-operator-anchor", Role: "anchor"},
		ForwarderPods: installation.ForwarderPods{ForwarderName: "fairlead-forwarder",
			ForwarderInstance: "fairlead", ForwarderService: "fairlead-forwarders"},
		Process: options.Process{MetricsAddr: ":8080"},
		Access:  options.Access{DefaultAccess: endpointaccess.Allow}}
}

// invalidManagerOption is a change of valid options, and what the error about it contains.
type invalidManagerOption struct {
	flag, value, remedy string
	set                 func(*ManagerOptions)
}

func invalidManagerOptions(t *testing.T) []invalidManagerOption {
	t.Helper()
	return []invalidManagerOption{
		{"--api-url", "http://s", "https", func(o *ManagerOptions) { o.APIURL = "http://s" }},
		{"--api-url", "https://s/path", "https://HOST", func(o *ManagerOptions) { o.APIURL = "https://s/path" }},
		{"--api-key-file", "/nowhere", "can be read", func(o *ManagerOptions) { o.SecretFile = "/nowhere" }},
		{"--api-key-file", "", "empty", func(o *ManagerOptions) { o.SecretFile = file(t, " \n") }},
		{"--api-key-file", "", "or give --service-account-token-file", func(o *ManagerOptions) { o.SecretFile = "" }},
		{"--service-account-token-file", "/token", "either it or --api-key-file", func(o *ManagerOptions) {
			o.ServiceAccountTokenFile = "/token"
		}},
		{"--service-account-token-file", "", "no ServiceAccount token", func(o *ManagerOptions) {
			o.SecretFile, o.ServiceAccountTokenFile = "", file(t, "flk_x")
		}},
		{"--ca-file", "", "PEM", func(o *ManagerOptions) { o.CAFile = file(t, "no certificate") }},
		{"--authorities-configmap", "a/b", "name", func(o *ManagerOptions) {
			o.AuthoritiesConfigMap, o.AuthoritiesDir = "a/b", "/kept"
		}},
		{"--authorities-dir", "", "mounted", func(o *ManagerOptions) { o.AuthoritiesConfigMap = "a" }},
		{"--version-header", "a b", "Service-Version", func(o *ManagerOptions) { o.VersionHeader = "a b" }},
		{"--namespace", "Fair Lead", "lower case", func(o *ManagerOptions) { o.Namespace = "Fair Lead" }},
		{"--release", "", "lower case", func(o *ManagerOptions) { o.Release = "" }},
		{"--anchor-cluster-role", "a/b", "name", func(o *ManagerOptions) { o.Roles.ClusterRole = "a/b" }},
		{"--cluster-role", "a/b", "name", func(o *ManagerOptions) { o.Roles.Rights = "a/b" }},
		{"--anchor-role", "", "name", func(o *ManagerOptions) { o.Roles.Role = "" }},
		{"--forwarder-name", "a b", "label", func(o *ManagerOptions) { o.ForwarderName = "a b" }},
		{"--default-access", "none", "allow or deny", func(o *ManagerOptions) { o.DefaultAccess = "none" }},
		{"--sealed", "on", "off or require", func(o *ManagerOptions) { o.Sealed = "on" }},
		{"--seal-account", "", "id of the account", func(o *ManagerOptions) { o.Sealed = "require" }},
		{"--seal-account", "a/b", "id of the account", func(o *ManagerOptions) { o.SealAccount = "a/b" }},
		{"--seal-authority-file", "", "PEM", func(o *ManagerOptions) { o.SealAuthorityFile = file(t, "flk_x") }},
		{"--seal-caller-dir", "/seal", "--seal-account, too", func(o *ManagerOptions) { o.SealCallerDir = "/seal" }},
		{"--seal-caller-token-file", "/token", "--seal-account, too", func(o *ManagerOptions) {
			o.SealCallerTokenFile = "/token"
		}},
		{"--projection", "slices", "externalName or", func(o *ManagerOptions) { o.Projection = "slices" }},
		{"--forwarder-service", "a.b", "name", func(o *ManagerOptions) { o.ForwarderService = "a.b" }},
		{"--forwarder-service", "", "projection=externalName", func(o *ManagerOptions) {
			o.ForwarderService, o.Projection = "", v1alpha1.ProjectionEndpointSlice
		}},
		{"--forwarder-service", "", "leave out --clusterset", func(o *ManagerOptions) {
			o.ForwarderService, o.Clusterset = "", true
		}},
		{"--clusterset", "true", "either --clusterset or --allow-namespaces", func(o *ManagerOptions) {
			o.AllowNamespaces, o.Clusterset = []string{"team-a"}, true
		}},
		{"--clusterset-domain", "_", "clusterset.local", func(o *ManagerOptions) {
			o.ClustersetDomain, o.Clusterset = "_", true
		}},
		{"--forwarder-instance", "", "label", func(o *ManagerOptions) { o.ForwarderInstance = "" }},
		{"--description", "", "255", func(o *ManagerOptions) { o.Description = strings.Repeat("ä", 128) }},
		{"--cluster-name", "", "253", func(o *ManagerOptions) { o.ClusterName = strings.Repeat("x", 254) }},
		{"--accept-account", "ac 2", "AccountChanged", func(o *ManagerOptions) { o.AcceptAccount = "ac 2" }},
		{"--removal-delay", "-1s", "0s to 24h", func(o *ManagerOptions) { o.RemovalDelay = -time.Second }},
		{"--service-label", "team", "KEY=VALUE of a label",
			func(o *ManagerOptions) { o.ServiceLabels = []string{"team"} }},
		{"--service-label", "a=b c", "63 letters", func(o *ManagerOptions) { o.ServiceLabels = []string{"a=b c"} }},
		{"--service-label", "app.kubernetes.io/managed-by=x", "another key", func(o *ManagerOptions) {
			o.ServiceLabels = []string{"app.kubernetes.io/managed-by=x"}
		}},
		{"--service-annotation", "bindings.fairlead.dev/place=a/b", "another key", func(o *ManagerOptions) {
			o.ServiceAnnotations = []string{"bindings.fairlead.dev/place=a/b"}
		}},
		{"--takeover-delay", "-1s", "0s to 24h", func(o *ManagerOptions) { o.TakeoverDelay = -time.Second }},
		{"--allow-namespaces", "kube-public", "deny has kube-*", func(o *ManagerOptions) {
			o.AllowNamespaces, o.DenyNamespaces = []string{"kube-public"}, []string{"kube-*"}
		}},
		{"--deny-namespaces", "*-prod", "kube-*", func(o *ManagerOptions) { o.DenyNamespaces = []string{"*-prod"} }},
		{"--namespace-selector", "a in b", "label selector", func(o *ManagerOptions) {
			o.NamespaceSelector = "a in b"
		}},
		{"--namespace-selector", "a=b", "either --allow-namespaces or", func(o *ManagerOptions) {
			o.AllowNamespaces, o.NamespaceSelector = []string{"team-a"}, "a=b"
		}},
		{"--metrics-addr", "8080", ":PORT", func(o *ManagerOptions) { o.MetricsAddr = "8080" }},
		{"--health-addr", ":99999", ":PORT", func(o *ManagerOptions) { o.HealthAddr = ":99999" }},
		{"--port-range", "5", "FIRST-LAST", func(o *ManagerOptions) { o.PortRange = "5" }},
		{"--cluster-domain", "_", "cluster.local", func(o *ManagerOptions) { o.ClusterDomain = "_" }},
		{"--endpoint-selector", "ep.port == 1 &&\n ep.color == ''", "line 2, column 4", func(o *ManagerOptions) {
			o.EndpointSelector = "ep.port == 1 &&\n ep.color == ''"
		}},
	}
}

func TestManagerOptions_ErrorsNameFlagValueAndRemedy(t *testing.T) {
	t.Parallel()
	key := file(t, "flk_x\n")
	o := validManagerOptions(key)
	if err := o.Validate(); err != nil {
		t.Fatalf("valid options: %v", err)
	}
	o.SecretFile, o.ServiceAccountTokenFile = "", "/not/there/yet"
	if err := o.Validate(); err != nil {
		t.Errorf("a token that is not there yet: %v", err)
	}
	for _, tc := range invalidManagerOptions(t) {
		o := validManagerOptions(key)
		tc.set(&o)
		var e *account.Error
		if err := o.Validate(); !errors.As(err, &e) || len(e.Fields) != 1 {
			t.Errorf("%s %q: got %v", tc.flag, tc.value, err)
			continue
		}
		if f := e.Fields[0]; f.Field != tc.flag || !strings.Contains(f.Value, tc.value) ||
			!strings.Contains(f.Rule, tc.remedy) {
			t.Errorf("%s %q: got %s", tc.flag, tc.value, f)
		}
	}
}

func TestForwarderOptions_ErrorsNameFlag(t *testing.T) {
	t.Parallel()
	o := ForwarderOptions{Session: options.Session{EdgeAddress: "s:8443"},
		Credentials:  options.Credentials{SecretFile: file(t, "flt_x")},
		Installation: installation.Installation{Namespace: "fairlead", Release: "fairlead"},
		PodIPs:       "fd00::1,10.0.0.7"}
	if err := o.Validate(); err != nil {
		t.Fatalf("valid options: %v", err)
	}
	for addr, want := range map[string]bool{"[::1]:443": true, "[2001:db8::1]:8443": true, "10.0.0.1:443": true,
		"::1:443": false, "[::1]": false, "2001:db8::1": false, ":443": false, "s:0": false} {
		o.EdgeAddress = addr
		if err := o.Validate(); (err == nil) != want {
			t.Errorf("--edge-address %s: %v", addr, err)
		}
	}
	o.EdgeAddress, o.PodIdentity, o.PodAnnotations = "s:8443", true, []string{"example.com/*", "team"}
	if err := o.Validate(); err != nil {
		t.Errorf("annotations: %v", err)
	}
	for name, change := range map[string]func(){"all of them": func() {
		o.PodAnnotations = []string{"*"}
	}, "without pod identity": func() { o.PodIdentity, o.PodAnnotations = false, []string{"team"} }} {
		if change(); o.Validate() == nil || !strings.Contains(o.Validate().Error(), "--pod-annotations") {
			t.Errorf("annotations %s: %v", name, o.Validate())
		}
	}
	o = ForwarderOptions{Session: options.Session{EdgeAddress: "s", DrainTimeout: -1},
		Credentials: options.Credentials{SecretFile: "", CAFile: "/nowhere"}, PodIPs: "10.0.0.7,x",
		Process: options.Process{MetricsAddr: "x", HealthAddr: "x"}}
	err := o.Validate()
	for _, flag := range []string{"--edge-address", "--authtoken-file", "--ca-file", "--namespace", "--release",
		"POD_IPS",
		"--metrics-addr", "--health-addr", "--drain-timeout"} {
		if err == nil || !strings.Contains(err.Error(), flag) {
			t.Errorf("%s is not named: %v", flag, err)
		}
	}
}
