// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package repo

import (
	"encoding/xml"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

// TestLaunchd checks that the file for launchd is a dictionary with the settings that a service
// needs.
func TestLaunchd(t *testing.T) {
	t.Parallel()
	const path = "packaging/launchd/dev.fairlead.agent.plist"
	var plist struct {
		Dict struct {
			Keys      []string `xml:"key"`
			Strings   []string `xml:"string"`
			Arguments []string `xml:"array>string"`
		} `xml:"dict"`
	}
	must.Succeed(t, xml.Unmarshal(read(t, path), &plist))
	d := plist.Dict
	for _, key := range []string{"Label", "UserName", "ProgramArguments", "RunAtLoad", "KeepAlive"} {
		if !slices.Contains(d.Keys, key) {
			t.Errorf("%s has no %s: %q", path, key, d.Keys)
		}
	}
	got := strings.Join(d.Arguments, " ")
	if !strings.HasPrefix(got, "/usr/local/bin/fairlead start --all --config /Users/me/") {
		t.Errorf("%s runs %q", path, got)
	}
	if !strings.HasSuffix(path, "/"+d.Strings[0]+".plist") {
		t.Errorf("launchd wants label and name of a file alike: %s has the label %q", path, d.Strings[0])
	}
}
