// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func load(t *testing.T, path string) *x509.Certificate {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(b)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func TestWrite_CertificatesServeTheirPurpose(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "pki")
	if err := Write(Config{Dir: dir, Cluster: "x", Node: "node", NodeIP: "10.99.0.2",
		ServiceIP: "10.96.0.1"}); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, ca, cn, org string
		hosts             []string
		usage             x509.ExtKeyUsage
	}{
		{"apiserver", "ca", "kube-apiserver", "",
			[]string{"10.99.0.2", "10.96.0.1", "127.0.0.1", "kubernetes.default.svc",
				"localhost"}, x509.ExtKeyUsageServerAuth},
		{"kubelet-server", "ca", "system:node:node", "system:nodes", []string{"10.99.0.2", "node"},
			x509.ExtKeyUsageServerAuth},
		{"apiserver-kubelet-client", "ca", "kube-apiserver-kubelet-client", "system:masters", nil,
			x509.ExtKeyUsageClientAuth},
		{"front-proxy-client", "front-proxy-ca", "front-proxy-client", "", nil, x509.ExtKeyUsageClientAuth},
	} {
		roots := x509.NewCertPool()
		roots.AddCert(load(t, filepath.Join(dir, tc.ca+".crt")))
		cert := load(t, filepath.Join(dir, tc.name+".crt"))
		if _, err := cert.Verify(x509.VerifyOptions{Roots: roots,
			KeyUsages: []x509.ExtKeyUsage{tc.usage}}); err != nil {
			t.Errorf("%s: %v", tc.name, err)
		}
		for _, h := range tc.hosts {
			if err := cert.VerifyHostname(h); err != nil {
				t.Errorf("%s: %v", tc.name, err)
			}
		}
		if cert.Subject.CommonName != tc.cn || strings.Join(cert.Subject.Organization, "") != tc.org {
			t.Errorf("%s is for %s", tc.name, cert.Subject)
		}
		if _, err := tls.LoadX509KeyPair(filepath.Join(dir, tc.name+".crt"),
			filepath.Join(dir, tc.name+".key")); err != nil {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}

func TestWrite_OnlyOwnerReadsKeys(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "pki")
	if err := Write(Config{Dir: dir, Cluster: "x", Node: "node", NodeIP: "10.99.0.2",
		ServiceIP: "10.96.0.1"}); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var kubeconfigs []string
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", e.Name(), info.Mode())
		}
		if name, ok := strings.CutSuffix(e.Name(), ".kubeconfig"); ok {
			kubeconfigs = append(kubeconfigs, name)
		}
	}
	if want := []string{"admin", "kube-controller-manager", "kube-proxy", "kube-scheduler",
		"kubelet"}; !slices.Equal(kubeconfigs, want) {
		t.Errorf("kubeconfigs %q, want %q", kubeconfigs, want)
	}
}

// TestWrite_KubeconfigsNameCluster looks for what two clusters' kubeconfigs, merged, would confuse.
// The name is one that YAML would read as a number.
func TestWrite_KubeconfigsNameCluster(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "pki")
	if err := Write(Config{Dir: dir, Cluster: "1e3", Node: "node", NodeIP: "10.99.0.2",
		ServiceIP: "10.96.0.1"}); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, "admin.kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"current-context: \"1e3\"\n",
		`contexts: [{name: "1e3", context: {cluster: "1e3", user: "1e3-admin"}}]`,
		`clusters: [{name: "1e3", cluster: {server: "https://10.99.0.2:6443"`,
		`users: [{name: "1e3-admin", `,
	} {
		if !strings.Contains(string(b), want) {
			t.Errorf("no %s in\n%s", want, b)
		}
	}
}
