// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// TestFirstStart_CommandsWork runs the commands that a server prints at its first start, with a
// kubectl and a helm that only print, and checks which rights the credentials have.
func TestFirstStart_CommandsWork(t *testing.T) {
	t.Parallel()
	s, dir := servicetest.Start(t), t.TempDir()
	text, err := os.ReadFile(filepath.Join(s.Options.DataDir, "bootstrap.txt"))
	must.Succeed(t, err)
	_, commands, _ := strings.Cut(string(text), "What to do next:")
	commands, _, _ = strings.Cut(commands, "# the dashboard")
	keys, err := os.ReadFile(jwksFile(t, "k1"))
	must.Succeed(t, err)
	for name, script := range map[string]string{
		"fairlead":        `[ "$1" = http ] || ` + asProcess + `=1 exec ` + os.Args[0] + ` "$@"`,
		"fairlead-server": "echo certificate",
		"helm":            `echo "$@" > helm.txt`,
		"kubectl": `case "$3" in
			/.well-known/openid-configuration) echo '{"issuer":"https://eks.example","jwks_uri":"x"}' ;;
			/openid/v1/jwks) echo '` + string(keys) + `' ;; *) exit 1 ;; esac`,
	} {
		must.Succeed(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o700))
	}
	sh := exec.CommandContext(servicetest.Context(t), "sh", "-ec", commands)
	sh.Dir, sh.Stdin = dir, strings.NewReader(s.Authtoken+"\n")
	sh.Env = []string{"PATH=" + dir + ":" + os.Getenv("PATH"), "HOME=" + dir, envAPIKey + "=" + s.APIKey,
		"FAIRLEAD_SERVER_URL=https://" + s.Addrs.Service.String()}
	if out, err := sh.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s\n%s", err, out, commands)
	}

	var clusters struct{ Clusters []account.Cluster }
	s.CallAPI("GET", "/clusters", nil, &clusters)
	if len(clusters.Clusters) != 1 || clusters.Clusters[0].Issuer != "https://eks.example" {
		t.Errorf("clusters: %+v", clusters)
	}
	helm, err := os.ReadFile(filepath.Join(dir, "helm.txt"))
	must.Succeed(t, err)
	given := func(value string) string {
		return string(regexp.MustCompile(`credentials\.` + value + `=(\S+)`).FindSubmatch(helm)[1])
	}
	st := s.OpenStore()
	for secret, want := range map[string]string{
		s.APIKey: "[admin]", given("apiKey"): "[operator]"} {
		key, err := st.APIKeyBySecret(t.Context(), secret)
		must.Succeed(t, err)
		if got := fmt.Sprint(key.Scopes); got != want {
			t.Errorf("scopes of an API key: %s, want %s", got, want)
		}
	}
	for secret, want := range map[string]string{
		s.Authtoken: "[bind:*]", given("authtoken"): "[connect:*]"} {
		token, err := st.TunnelCredential(t.Context(), secret)
		must.Succeed(t, err)
		if got := fmt.Sprint(token.ACL); got != want {
			t.Errorf("rules of an authtoken: %s, want %s", got, want)
		}
	}
}
