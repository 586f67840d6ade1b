// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

// valuesFile is a file of values in a page, whose first line is its name.
var valuesFile = regexp.MustCompile("(?s)```yaml\n(# (\\S+\\.yaml)\n.*?)```")

// TestServerChart_RendersTheValuesOfTheCloudPage renders the chart with the values of
// docs/start/cloud.md, each file on top of values.yaml as the page says, and starts the program with
// the result.
func TestServerChart_RendersTheValuesOfTheCloudPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/start/cloud.md")
	must.Succeed(t, err)
	dir, files := t.TempDir(), []string(nil)
	for _, block := range valuesFile.FindAllStringSubmatch(string(page), -1) {
		file := filepath.Join(dir, block[2])
		must.Succeed(t, os.WriteFile(file, []byte(block[1]), 0o600))
		files = append(files, file)
	}
	if len(files) != 3 {
		t.Fatalf("%d files of values, want 3: %v", len(files), files)
	}
	starts := &serverStarts{t: t}
	for _, file := range files {
		text, err := templateServer(t, nil, "--values", files[0], "--values", file)
		must.Succeed(t, err)
		all := parse(t, text)
		starts.check(t, all)
		service := get[corev1.Service](t, all, "Service", serverRelease)
		if service.Spec.Type != corev1.ServiceTypeLoadBalancer || service.Spec.Ports[0].Port != 443 ||
			service.Spec.ExternalTrafficPolicy != corev1.ServiceExternalTrafficPolicyLocal {
			t.Errorf("%s: the Service is %+v", filepath.Base(file), service.Spec)
		}
		for name := range service.Annotations {
			if strings.Contains(name, "proxy-protocol") {
				t.Errorf("%s: the API's port, which expects TLS, has the annotation %s", filepath.Base(file), name)
			}
		}
	}
}
