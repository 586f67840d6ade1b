// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterset_test

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/mcs-api/config/crd"

	"github.com/fairlead-dev/fairlead/internal/clusterset"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// Suites with an API server install the CRDs of testdata: those of the module whose types are used.
func TestCRDs_AreTheModules(t *testing.T) {
	t.Parallel()
	for name, want := range map[string][]byte{
		"serviceexports": crd.ServiceExportCRD,
		"serviceimports": crd.ServiceImportCRD,
	} {
		file := "testdata/mcs-api-v0.5.2/multicluster.x-k8s.io_" + name + ".yaml"
		got, err := os.ReadFile(file)
		must.Succeed(t, err)
		if !bytes.Equal(got, want) {
			t.Errorf("%s is not that of sigs.k8s.io/mcs-api in go.mod: copy it from the module's config/crd, and name "+
				"the folder after its version", file)
		}
	}
}

// The command that people are given installs the CRDs of the same version.
func TestInstallCRDs_NamesTheModulesVersion(t *testing.T) {
	t.Parallel()
	mod, err := os.ReadFile("../../go.mod")
	must.Succeed(t, err)
	_, version, _ := strings.Cut(string(mod), "sigs.k8s.io/mcs-api ")
	version, _, _ = strings.Cut(version, "\n")
	for _, kind := range []string{"serviceexports", "serviceimports"} {
		if file := "/mcs-api/" + version + "/config/crd/multicluster.x-k8s.io_" + kind + ".yaml"; !strings.Contains(
			clusterset.InstallCRDs, file) {
			t.Errorf("%s: no %s", clusterset.InstallCRDs, file)
		}
	}
}
