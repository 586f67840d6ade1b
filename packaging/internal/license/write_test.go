// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package license_test

import (
	"os"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/packaging/internal/binaries"
	"github.com/fairlead-dev/fairlead/packaging/internal/license"
	"github.com/fairlead-dev/fairlead/packaging/internal/releasetest"
)

func TestWrite_ListsTheModulesOfThePrograms(t *testing.T) {
	t.Parallel()
	r := releasetest.Begin(t, "linux/amd64")
	if err := binaries.Write(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if err := license.Write(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	table, err := os.ReadFile(r.Path("licenses.csv"))
	if err != nil {
		t.Fatal(err)
	}
	module := strings.ReplaceAll(releasetest.Module, " ", ",") +
		",BSD-3-Clause,fairlead fairlead-server fairlead-operator\n"
	for _, want := range []string{"module,version,licenses,programs\n" + module + "std,go1."} {
		if !strings.HasPrefix(string(table), want) {
			t.Errorf("no %q in\n%s", want, table)
		}
	}
	texts, err := os.ReadFile(r.Path("THIRD_PARTY_LICENSES.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		releasetest.Module + " LICENSE\n", releasetest.Module + " PATENTS\n", "The Go Authors",
	} {
		if !strings.Contains(string(texts), want) {
			t.Errorf("no %q in %s", want, texts)
		}
	}
}

func TestReport_CoversEveryProgramOfTheRepository(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	if err := license.Report(t.Context(), "../../..", &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"\ngithub.com/spf13/cobra,v", "\nmodernc.org/sqlite,v", "LicenseRef-SQLite-Public-Domain",
		"\nk8s.io/client-go,v", ",MIT,fairlead-server\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}
