// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"crypto/tls"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/service"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/postgrestest"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// resumes opens a connection to the service and reports whether it resumed a session that the
// client had.
func resumes(r *servicetest.Server, client *tls.Config) bool {
	r.T.Helper()
	tr := &http.Transport{TLSClientConfig: client.Clone(), DisableKeepAlives: true}
	answer, err := tr.RoundTrip(r.NewAPIRequest("GET", "/endpoints", nil))
	must.Succeed(r.T, err)
	servicetest.ReadAll(r.T, answer.Body)
	if err := answer.Body.Close(); err != nil {
		r.T.Error(err)
	}
	return answer.TLS.DidResume
}

// writeSecretKey writes the file of a secret key.
func writeSecretKey(t *testing.T, digits string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "key")
	must.Succeed(t, os.WriteFile(path, []byte(strings.Repeat(digits, 32)), 0o600))
	return path
}

func stopService(r *servicetest.Server) {
	r.T.Helper()
	must.Succeed(r.T, r.StopAndWait())
}

func TestServer_ResumesSessionsAfterRestart(t *testing.T) {
	t.Parallel()
	first := servicetest.Start(t)
	client := first.ClientTLS()
	if resumes(first, client) {
		t.Error("the first connection resumed a session")
	}
	stopService(first)
	again := func(keyFile string) *servicetest.Server {
		return servicetest.Start(t, func(o *service.Options) {
			o.DataDir, o.SecretKeyFile = first.Options.DataDir, keyFile
		})
	}
	restarted := again("")
	if !resumes(restarted, client) {
		t.Error("no session was resumed after a restart")
	}
	stopService(restarted)
	if resumes(again(writeSecretKey(t, "2b")), client) {
		t.Error("a server with another secret key resumed a session")
	}
}

// TestServer_KeepsAuthorityInPostgres starts a server without the files of the one before.
func TestServer_KeepsAuthorityInPostgres(t *testing.T) {
	t.Parallel()
	postgres, err := postgrestest.Start("fsync=off")
	postgrestest.SkipWithout(t, err)
	t.Cleanup(func() { // after the services have ended
		if err := postgres.Remove(); err != nil {
			t.Error(err)
		}
	})
	key, databaseURL := writeSecretKey(t, "0f"), postgres.URL(t)
	start := func() *servicetest.Server {
		return servicetest.Start(t, func(o *service.Options) { o.DatabaseURL, o.SecretKeyFile = databaseURL, key })
	}
	first := start()
	client := first.ClientTLS()
	resumes(first, client)
	stopService(first)
	second := start()
	if second.Addrs.CAFingerprint != first.Addrs.CAFingerprint {
		t.Errorf("the second server has the authority %s, the first had %s", second.Addrs.CAFingerprint,
			first.Addrs.CAFingerprint)
	}
	if !resumes(second, client) {
		t.Error("the second server did not resume a session of the first")
	}
	for _, r := range []*servicetest.Server{first, second} {
		if keys, err := filepath.Glob(filepath.Join(r.Options.DataDir, "ca.*")); err != nil || len(keys) > 0 {
			t.Errorf("the authority lies in files: %v, %v", keys, err)
		}
	}
	shown, err := os.ReadFile(filepath.Join(first.Options.DataDir, service.BootstrapFileName))
	if err != nil || !strings.Contains(string(shown), "fairlead-server ca --database-url-file FILE") {
		t.Errorf("the message of the first start does not show where the authority is: %v\n%s", err, shown)
	}
	stopService(second)
	err = servicetest.StartError(t, func(o *service.Options) {
		o.DatabaseURL, o.SecretKeyFile = databaseURL, writeSecretKey(t, "2b")
	})
	if err == nil || !strings.Contains(err.Error(), "certificate authority is sealed") {
		t.Errorf("another secret key: %v", err)
	}
}
