// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"bytes"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

func TestStart_RefusesSecondServerOnSameStore(t *testing.T) {
	t.Parallel()
	first := servicetest.Start(t)
	err := servicetest.StartError(t, func(o *service.Options) { o.DataDir = first.Options.DataDir })
	if err == nil || !strings.Contains(err.Error(), "in use by another fairlead-server") {
		t.Errorf("error %v", err)
	}
	if status, _ := first.GetHealth("/readyz"); status != 200 {
		t.Errorf("the first server is not ready any more: %d", status)
	}
}

// refusedStart changes the options so that the service refuses to start, with texts of the error.
type refusedStart struct {
	change func(*service.Options)
	texts  []string
}

// invalidAddresses are addresses and URLs that the service refuses.
var invalidAddresses = map[string]refusedStart{
	"address": {func(o *service.Options) { o.Addr = "8443" }, []string{"--addr", `"8443"`, ":8443"}},
	"port":    {func(o *service.Options) { o.Addr = ":99999" }, []string{"--addr", "65535"}},
	"foreign address": {func(o *service.Options) { o.Addr = "192.0.2.1:0" },
		[]string{"--addr", "no network interface"}},
	"health address": {func(o *service.Options) { o.HealthAddr = "8081" }, []string{"--health-addr", `"8081"`}},
	"base URL": {func(o *service.Options) { o.BaseURL = "http://plain" },
		[]string{"--base-url", "http://plain", "https"}},
	"base URL of a flag": {func(o *service.Options) { o.BaseURL = "--metrics-addr" },
		[]string{"--base-url", "host name"}},
	"tunnel URL's host": {func(o *service.Options) { o.TunnelURL = "https://*.example.com" },
		[]string{"--tunnel-url", "host name"}},
	"base URL with path": {func(o *service.Options) { o.BaseURL = "https://a/b" }, []string{"--base-url"}},
	"tunnel URL":         {func(o *service.Options) { o.TunnelURL = "https://" }, []string{"--tunnel-url"}},
	"two at once": {func(o *service.Options) {
		o.Addr, o.BaseURL = "x", "y://z"
	}, []string{"--addr", "--base-url"}},
}

// invalidSettings are certificates, durations and paths that the service refuses.
var invalidSettings = map[string]refusedStart{
	"SAN": {func(o *service.Options) { o.TLSNames = []string{"a b"} }, []string{"--tls-san", "a b"}},
	"version header": {func(o *service.Options) { o.VersionHeaders = []string{"Host"} },
		[]string{"--version-header", "Host"}},
	"half a pair": {func(o *service.Options) { o.TLSCert = "x" }, []string{"--tls-cert", "--tls-key"}},
	"no certificate": {func(o *service.Options) { o.TLSCert, o.TLSKey = "/nowhere", "/nowhere" },
		[]string{"--tls-cert", "/nowhere"}},
	"drain": {func(o *service.Options) { o.DrainTimeout = -time.Second }, []string{"--drain-timeout", "-1s"}},
	"grace": {func(o *service.Options) { o.EndpointGrace = 0 }, []string{"--endpoint-grace"}},
	"operator retention": {func(o *service.Options) { o.OperatorRetention = time.Hour },
		[]string{"--operator-retention", "24h"}},
	"retention": {func(o *service.Options) { o.IdentityRetention = time.Hour },
		[]string{"--identity-retention", "24h"}},
	"no data dir":  {func(o *service.Options) { o.DataDir = "" }, []string{"--data-dir"}},
	"API key file": {func(o *service.Options) { o.APIKeyFile = "/nowhere/key" }, []string{"API key", "/nowhere/key"}},
}

// checkRefusedStarts starts a service for each case, and checks the error's texts.
func checkRefusedStarts(t *testing.T, cases map[string]refusedStart) {
	t.Helper()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := servicetest.StartError(t, c.change)
			if err == nil {
				t.Fatal("it started")
			}
			for _, text := range c.texts {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("error %q lacks %q", err, text)
				}
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("error %q has several lines", err)
			}
		})
	}
}

func TestStart_RefusesInvalidAddresses(t *testing.T) {
	t.Parallel()
	checkRefusedStarts(t, invalidAddresses)
}

func TestStart_RefusesInvalidSettings(t *testing.T) {
	t.Parallel()
	checkRefusedStarts(t, invalidSettings)
}

func TestStart_RefusesPortInUse(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	t.Cleanup(func() { _ = taken.Close() })
	addr := taken.Addr().String()
	checkRefusedStarts(t, map[string]refusedStart{
		"API":     {func(o *service.Options) { o.Addr = addr }, []string{"--addr", "in use"}},
		"metrics": {func(o *service.Options) { o.MetricsAddr = addr }, []string{"--metrics-addr", "in use"}},
		"health":  {func(o *service.Options) { o.HealthAddr = addr }, []string{"--health-addr", "in use"}},
	})
}

func TestStart_RefusesFileInPlaceOfDirectory(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	must.Succeed(t, os.WriteFile(file, nil, 0o600))
	checkRefusedStarts(t, map[string]refusedStart{
		"data directory": {func(o *service.Options) { o.DataDir = file }, []string{file}},
		"bootstrap file": {func(o *service.Options) { o.BootstrapFile = filepath.Join(file, "secrets") },
			[]string{"--bootstrap-file", file}},
	})
}

func TestBootstrap_ShowsFirstSecretsOnce(t *testing.T) {
	t.Parallel()
	t.Run("file of the data directory", func(t *testing.T) {
		t.Parallel()
		r := servicetest.Start(t)
		file := filepath.Join(r.Options.DataDir, service.BootstrapFileName)
		info, err := os.Stat(file)
		if err != nil || info.Mode() != 0o600 {
			t.Errorf("%v %v", info, err)
		}
		b, err := os.ReadFile(file)
		remove := "\nfairlead-server bootstrap --remove --data-dir " + r.Options.DataDir + "\n"
		if err != nil || !strings.Contains(string(b), remove) {
			t.Errorf("it does not tell how to remove it: %q, %v", b, err)
		}
	})
	t.Run("named file, even with a terminal", func(t *testing.T) {
		t.Parallel()
		var terminal bytes.Buffer
		file := filepath.Join(t.TempDir(), "secrets")
		r := servicetest.Start(t, func(o *service.Options) { o.BootstrapFile, o.Terminal = file, &terminal })
		b, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(b), "\nrm "+file+"\n") || terminal.Len() > 0 {
			t.Errorf("file %q, terminal %q, %v", b, terminal.String(), err)
		}
		must.Succeed(t, r.StopAndWait())
		must.Succeed(t, os.Remove(file))
		servicetest.Start(t, func(o *service.Options) { o.BootstrapFile, o.DataDir = file, r.Options.DataDir })
		if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the second start wrote secrets again: %v", err)
		}
	})
	t.Run("terminal", func(t *testing.T) {
		t.Parallel()
		var terminal bytes.Buffer
		r := servicetest.Start(t, func(o *service.Options) { o.Terminal = &terminal })
		for _, text := range []string{"flk_", "flt_", "no file has the secrets", "helm install", "fairlead-server ca",
			"fairlead http 8080", r.Addrs.BaseURL, r.Addrs.CAFingerprint} {
			if !strings.Contains(terminal.String(), text) {
				t.Errorf("the terminal shows no %q:\n%s", text, terminal.String())
			}
		}
		if entries, _ := filepath.Glob(filepath.Join(r.Options.DataDir, "*bootstrap*")); len(entries) > 0 {
			t.Errorf("files %v were left", entries)
		}
	})
}

func TestBootstrap_EnsuresSecretsOfFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	key, token := account.NewSecret(account.APIKeyPrefix), account.NewSecret(account.AuthtokenPrefix)
	for file, secret := range map[string]string{"key": key, "token": token} {
		must.Succeed(t, os.WriteFile(filepath.Join(dir, file), []byte(secret+"\n"), 0o600))
	}
	files := func(o *service.Options) {
		o.APIKeyFile, o.AuthtokenFile = filepath.Join(dir, "key"), filepath.Join(dir, "token")
	}
	var data string
	for range 2 {
		r := servicetest.Start(t, files, func(o *service.Options) {
			if data != "" {
				o.DataDir = data
			}
		})
		data, r.APIKey, r.Authtoken = r.Options.DataDir, key, token
		if status := r.CallAPI("GET", "/endpoints", nil, nil); status != 200 {
			t.Errorf("the key of the file: status %d", status)
		}
		openSession(r, token)
		if _, err := os.Stat(filepath.Join(data, service.BootstrapFileName)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("other secrets were made: %v", err)
		}
		must.Succeed(t, r.StopAndWait())
	}
}

func TestTLSListener_DispatchesByALPN(t *testing.T) {
	t.Parallel()
	r := servicetest.Start(t)
	silent, err := net.Dial("tcp", r.Addrs.Service.String()) // it never begins its handshake
	must.Succeed(t, err)
	defer silent.Close()
	tlsConfig := r.ClientTLS()
	tlsConfig.ServerName = "localhost"
	for _, c := range []struct {
		offer []string
		got   string
		ok    bool
	}{
		{nil, "", true}, {[]string{"http/1.1"}, "http/1.1", true}, {[]string{"h2", "http/1.1"}, "h2", true},
		{[]string{tunnel.ALPN}, tunnel.ALPN, true},
		{[]string{"fairlead/2", tunnel.ALPN}, tunnel.ALPN, true}, {[]string{"fairlead/2"}, "", false},
	} {
		cfg := tlsConfig.Clone()
		cfg.NextProtos = c.offer
		conn, err := tls.Dial("tcp", r.Addrs.Service.String(), cfg)
		if (err == nil) != c.ok {
			t.Errorf("offering %v: %v", c.offer, err)
		}
		if err != nil {
			continue
		}
		if got := conn.ConnectionState().NegotiatedProtocol; got != c.got {
			t.Errorf("offering %v: chose %q", c.offer, got)
		}
		_ = conn.Close()
	}
	old := tlsConfig.Clone()
	old.MinVersion, old.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	if conn, err := tls.Dial("tcp", r.Addrs.Service.String(), old); err == nil {
		_ = conn.Close()
		t.Error("TLS 1.2 was accepted")
	}
	if err := r.StopAndWait(); err != nil {
		t.Error(err)
	}
}
