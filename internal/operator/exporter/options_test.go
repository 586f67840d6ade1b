// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
	"github.com/fairlead-dev/fairlead/internal/operator/options"
)

func TestOptions_NameWrongFlags(t *testing.T) {
	t.Parallel()
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte("flk_x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		flag   string
		change func(*Options)
	}{
		{"", func(*Options) {}},
		{"", func(o *Options) { o.URLPatterns = []string{"http://*.shared", "tcp://db.*:5432", "tcp://*.x:*", "*"} }},
		{"", func(o *Options) { o.AllowNamespaces = []string{"a", "b"} }},
		{"--api-url", func(o *Options) { o.APIURL = "http://s" }},
		{"--edge-address", func(o *Options) { o.EdgeAddress = "s" }},
		{"--api-key-file", func(o *Options) { o.SecretFile = "/nowhere" }},
		{"--service-account-token-file", func(o *Options) { o.ServiceAccountTokenFile = "/token" }},
		{"", func(o *Options) { o.SecretFile, o.ServiceAccountTokenFile = "", "/not/there/yet" }},
		{"--api-key-file", func(o *Options) { o.SecretFile = "" }},
		{"--ca-file", func(o *Options) { o.CAFile = "/nowhere" }},
		{"--version-header", func(o *Options) { o.VersionHeader = "a b" }},
		{"--namespace", func(o *Options) { o.Namespace = "" }},
		{"--release", func(o *Options) { o.Release = "A" }},
		{"--deployment", func(o *Options) { o.Deployment = "" }},
		{"--allow-namespaces", func(o *Options) { o.AllowNamespaces = []string{"a", "B"} }},
		{"--url-pattern", func(o *Options) { o.URLPatterns = []string{"https://*.example.com"} }},
		{"--url-pattern", func(o *Options) { o.URLPatterns = []string{"http://*.shared/path"} }},
		{"--cluster-domain", func(o *Options) { o.ClusterDomain = "_" }},
		{"--metrics-addr", func(o *Options) { o.MetricsAddr = "x" }},
		{"--health-addr", func(o *Options) { o.HealthAddr = ":x" }},
		{"--drain-timeout", func(o *Options) { o.DrainTimeout = -1 }},
	} {
		o := Options{API: options.API{APIURL: "https://s:8443",
			Credentials: options.Credentials{SecretFile: key}, VersionHeader: "Service-Version"},
			Session:      options.Session{EdgeAddress: "s:8443"},
			Installation: installation.Installation{Namespace: "fairlead", Release: "fairlead"},
			Deployment:   "fairlead-operator-exporter",
			Process:      options.Process{MetricsAddr: ":8080", HealthAddr: ""}}
		tt.change(&o)
		err := o.Validate()
		var e *account.Error
		switch {
		case tt.flag == "" && err != nil:
			t.Errorf("refused: %v", err)
		case tt.flag != "" && (!errors.As(err, &e) || len(e.Fields) != 1 || e.Fields[0].Field != tt.flag):
			t.Errorf("%s: %v", tt.flag, err)
		}
	}
	if err := (&Options{}).Validate(); err == nil || strings.Count(err.Error(), "--") < 6 {
		t.Errorf("no flag at all: %v", err)
	}
}
