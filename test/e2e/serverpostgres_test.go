// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/postgrestest"
)

const serverPostgresPort = "31444"

// TestServerChart_OnPostgres runs the service without a volume: an agent outside and an operator
// inside work through it, and an upgrade that replaces the pod loses nothing.
func TestServerChart_OnPostgres(t *testing.T) {
	t.Parallel()
	c := Shared(t)
	if c.context != "" {
		t.Skip("PostgreSQL runs on this machine")
	}
	r := installOnPostgres(t, c)
	r.helmTest(t)
	c.StartUpstream(t, "web", "serve", "127.0.0.1:8231")
	ns := c.Namespace(t, "caller")
	operator := r.Install(t)
	r.Agent(t, "http", "8231", "http://web."+ns)
	operator.BoundEndpoint(t, "web."+ns, v1alpha1.ConditionReady, "True", v1alpha1.ReasonReady)
	caller := c.CurlPod(t, ns)
	c.CurlUntil(t, time.Minute, caller, "http://web."+ns+"/", 200)
	id, pod := r.endpoint(t), r.pod(t)
	c.Helm(t, r.args("upgrade", "--set", "metrics.enabled=true")...)
	r.checkReplaced(t, id, pod)
	c.CurlUntil(t, time.Minute, caller, "http://web."+ns+"/", 200)
	r.helmTest(t)
}

// installOnPostgres installs the chart with all that it needs in Secrets.
func installOnPostgres(t *testing.T, c *Cluster) *serverRelease {
	t.Helper()
	dir := t.TempDir()
	r := newPostgresRelease(t, c, "postgres", serverPostgresPort)
	r.CAFile = filepath.Join(dir, "tls.crt")
	r.extraFlags = append(r.extraFlags, "--set", "tls.existingSecret=tls")
	writeCertificate(t, dir, NodeIP)
	r.createSecret(t, "tls", "tls", "--cert="+r.CAFile, "--key="+filepath.Join(dir, "tls.key"))
	c.Helm(t, r.args("install")...)
	exec := func(command ...string) string {
		return c.Kubectl(t, append([]string{"--namespace", r.namespace, "exec", "deployment/fairlead-fairlead-server",
			"--", "/fairlead-server"}, command...)...)
	}
	secrets := exec("bootstrap", "--remove")
	r.APIKey, r.Authtoken = regexp.MustCompile(`flk_[\w-]+`).FindString(secrets), regexp.MustCompile(`flt_[\w-]+`).
		FindString(secrets)
	r.ForwarderToken = strings.TrimSpace(exec("authtoken", "create", "--connect", "*", "--database-url-file",
		"/etc/fairlead/database/url"))
	return r
}

// newPostgresRelease makes a namespace with Secrets of a database and of a secret key, and the flags
// that name them; nothing is installed yet.
func newPostgresRelease(t *testing.T, c *Cluster, namespace, nodePort string) *serverRelease {
	t.Helper()
	dir, database := t.TempDir(), startPostgres(t, c)
	c.Load(t, imageServer+"="+binary(t, "fairlead-server"))
	r := &serverRelease{Service: &Service{c: c, URL: "https://" + NodeIP + ":" + nodePort},
		namespace: c.Namespace(t, namespace), nodePort: nodePort}
	r.extraFlags = []string{"--set", "persistence.enabled=false", "--set", "database.urlSecret.name=database", "--set",
		"secretKey.name=sealing"}
	c.Kubectl(t, "label", "namespace", r.namespace, "pod-security.kubernetes.io/enforce=restricted")
	seal := make([]byte, 32)
	_, _ = rand.Read(seal)
	r.createSecret(t, "generic", "database", "--from-file=url="+writeFile(t, filepath.Join(dir, "url"), database))
	r.createSecret(t, "generic", "sealing", "--from-file=secret-key="+writeFile(t, filepath.Join(dir, "seal"),
		hex.EncodeToString(seal)))
	r.dumpOnFailure(t)
	return r
}

func (r *serverRelease) createSecret(t *testing.T, args ...string) {
	t.Helper()
	r.c.Kubectl(t, append([]string{"--namespace", r.namespace, "create", "secret"}, args...)...)
}

func writeFile(t *testing.T, path, text string) string {
	t.Helper()
	must.Succeed(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// writeCertificate writes a certificate for an address, and its key.
func writeCertificate(t *testing.T, dir, ip string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "fairlead-server"},
		IPAddresses: []net.IP{net.ParseIP(ip)},
		NotBefore:   time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must.Succeed(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	must.Succeed(t, err)
	writeFile(t, filepath.Join(dir, "tls.crt"), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	writeFile(t, filepath.Join(dir, "tls.key"),
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})))
}

// startPostgres runs PostgreSQL on this machine, with a port in the node's network that leads to
// it, and returns a URL for pods.
func startPostgres(t *testing.T, c *Cluster) string {
	t.Helper()
	server, err := postgrestest.Start("fsync=off", "synchronous_commit=off")
	postgrestest.SkipWithout(t, err)
	t.Cleanup(func() {
		if err := server.Remove(); err != nil {
			t.Error(err)
		}
	})
	u, err := url.Parse(server.URL(t))
	must.Succeed(t, err)
	addr, query := freeAddr(), u.Query()
	socket := filepath.Join(query.Get("host"), ".s.PGSQL.5432")
	l, err := c.listen(t.Context(), addr)
	must.Succeed(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { joinSocket(ctx, in, socket) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		cancel()
		serving.Wait()
	})
	query.Del("host")
	query.Set("sslmode", "disable")
	u.Host, u.RawQuery = addr, query.Encode()
	return u.String()
}

// joinSocket relays a connection to a socket until one side or ctx ends.
func joinSocket(ctx context.Context, in net.Conn, socket string) {
	defer in.Close()
	out, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return
	}
	defer out.Close()
	stop := context.AfterFunc(ctx, func() { _, _ = in.Close(), out.Close() })
	defer stop()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(out, in)
		_ = out.Close()
	}()
	_, _ = io.Copy(in, out)
	_ = in.Close()
	<-done
}
