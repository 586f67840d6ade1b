// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

func TestHealthcheck_ChecksCertificateAPIAndTunnels(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	log, _ := served(t, dir, "--base-url", "https://fairlead.example.net", "--log-format", "json")
	addr := regexp.MustCompile(`"addr":"([^"]+)"`).FindStringSubmatch(log.String())[1]
	_, port, err := net.SplitHostPort(addr)
	must.Succeed(t, err)
	ca, fingerprint := ok(t, "ca", "--data-dir", dir)
	caFile := filepath.Join(t.TempDir(), "ca.crt")
	must.Succeed(t, os.WriteFile(caFile, []byte(ca), 0o600))
	plain := httptest.NewTLSServer(http.NotFoundHandler())
	defer plain.Close()
	plainCA := filepath.Join(t.TempDir(), "plain.crt")
	if err := os.WriteFile(plainCA, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: plain.Certificate().Raw}),
		0o600); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]struct {
		code int
		text string
	}{
		"--url https://localhost:" + port + " --ca-file " + caFile: {0, "API and tunnels"},
		"--url https://fairlead.example.net --connect " + addr + " --ca-file " + caFile: {0,
			"https://fairlead.example.net answers"},
		"--url https://localhost:" + port + " --ca-presented": {0,
			"checked by fairlead-server"},
		"--url https://localhost:" + port + " --ca-sha256 " + strings.Fields(fingerprint)[1]: {0, "answers"},
		"--url https://localhost:" + port + " --ca-sha256 " + strings.Repeat("0", 64):        {1, "fingerprint"},
		"--url https://localhost:" + port: {1,
			"unknown authority; give its authority with --ca-file"},
		"--url https://other.example.net --ca-presented --connect " + addr: {1,
			"not other.example.net; ask it by a name"},
		"--url https://localhost:" + port + " --ca-file /nowhere":                 {2, "/nowhere"},
		"--url https://localhost:" + port + " --ca-presented --ca-file " + caFile: {2, "--ca-presented"},
		"--url ftp://localhost":                                      {2, "--url"},
		"--url https://localhost --connect localhost":                {2, "--connect"},
		"--timeout 1ms --ca-file " + plainCA + " --url " + plain.URL: {1, "accepts no tunnels"},
		"--timeout 1ms --url https://127.0.0.1:1":                    {1, "127.0.0.1:1"},
	} {
		code, out, errs := command(t, append([]string{"healthcheck"}, strings.Fields(line)...)...)
		if code != want.code || !strings.Contains(out+errs, want.text) {
			t.Errorf("%s: exit %d, want %d; %q lacks %q", line, code, want.code, out+errs, want.text)
		}
	}
}

func TestBootstrap_PrintsSecretsUntilRemoved(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	served(t, dir)
	first, _ := ok(t, "bootstrap", "--data-dir", dir)
	again, _ := ok(t, "bootstrap", "--remove", "--data-dir", dir)
	if !regexp.MustCompile(`flk_[\w-]+`).MatchString(first) || first != again {
		t.Errorf("it printed %q and %q", first, again)
	}
	if code, out, errs := command(t, "bootstrap", "--data-dir", dir); code != 1 || out != "" ||
		!strings.Contains(errs, "api-key create") {
		t.Errorf("after the removal: exit %d, %q, %q", code, out, errs)
	}
}
