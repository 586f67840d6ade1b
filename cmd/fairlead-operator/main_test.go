// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
)

func TestRun_ExitCodes(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		args []string
		env  map[string]string
		code int
		want string
	}{
		{"version", []string{"version"}, nil, 0, "fairlead-operator 0."},
		{"help", nil, nil, 0, "manager"},
		{"unknown command", []string{"mangler"}, nil, exitUsage, `"mangler"`},
		{"unknown flag", []string{"manager", "--apiurl=x"}, nil, exitUsage, "--apiurl"},
		{"not a duration", []string{"manager", "--removal-delay=soon"}, nil, exitUsage, "soon"},
		{"an argument too many", []string{"forwarder", "x"}, nil, exitUsage, `"x"`},
		{"cleanup without a namespace", []string{"cleanup", "--kubeconfig=testdata/kubeconfig"}, nil, exitUsage,
			"--namespace"},
		{"cleanup without a cluster", []string{"cleanup", "--namespace=x", "--kubeconfig=/nowhere"}, nil, exitOther,
			"give --kubeconfig"},
		{"check without a namespace", []string{"check", "--kubeconfig=testdata/kubeconfig"}, nil, exitUsage,
			"--namespace"},
		{"check without a cluster", []string{"check", "--namespace=x", "--kubeconfig=/nowhere"}, nil, exitOther,
			"give --kubeconfig"},
		{"manager without flags", []string{"manager"}, nil, exitUsage, "--api-url"},
		{"forwarder without flags", []string{"forwarder"}, nil, exitUsage, "--edge-address"},
		{"exporter without flags", []string{"exporter"}, nil, exitUsage, "--api-key-file"},
		{"selector of the environment", []string{"manager"},
			map[string]string{"FAIRLEAD_ENDPOINT_SELECTOR": "true &&\n\tep.\"ä"}, exitUsage,
			"--endpoint-selector \"true &&\\n\\tep.\\\"ä\": line 2"},
		{"flag before environment", []string{"manager", "--endpoint-selector=ep.a"},
			map[string]string{"FAIRLEAD_ENDPOINT_SELECTOR": "ep.b"}, exitUsage, "undefined field 'a'"},
		{"description of the environment", []string{"manager"},
			map[string]string{"FAIRLEAD_DESCRIPTION": strings.Repeat("x", 300)}, exitUsage, "--description"},
		{"cluster name of the environment", []string{"manager"},
			map[string]string{"FAIRLEAD_CLUSTER_NAME": strings.Repeat("x", 300)}, exitUsage, "--cluster-name"},
	} {
		var out bytes.Buffer
		code := run(context.Background(), tc.args, func(name string) string { return tc.env[name] }, &out, &out)
		if code != tc.code || !strings.Contains(out.String(), tc.want) {
			t.Errorf("%s: got %d and %q, want %d and %q", tc.name, code, out.String(), tc.code, tc.want)
		}
	}
}
