// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pki makes the keys, certificates and kubeconfigs of a one-node cluster. A folder comes
// in; files named as kubeadm names them go out, for internal/node to point the programs at. They
// are valid for a year and only for one run.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Config names the owners of the certificates.
type Config struct {
	Dir       string // made if absent, readable by its owner only
	Cluster   string // name of the cluster: of the context in each kubeconfig, and before its user's
	Node      string // name of the node
	NodeIP    string // address of the node and of the API server, which listens on port 6443
	ServiceIP string // ClusterIP of the Service kubernetes.default
}

type pair struct {
	cert     *x509.Certificate
	key      *ecdsa.PrivateKey
	certPEM  []byte
	keyPEM   []byte
	fileName string
}

// request describes one certificate.
type request struct {
	name, cn, org string
	usage         x509.ExtKeyUsage
	dns           []string
	ips           []net.IP
}

// Write makes everything anew.
func Write(c Config) error {
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return fmt.Errorf("creating the PKI folder: %w", err)
	}
	ca, err := issue(nil, request{name: "ca", cn: "kubernetes"})
	if err != nil {
		return err
	}
	front, err := issue(nil, request{name: "front-proxy-ca", cn: "front-proxy"})
	if err != nil {
		return err
	}
	pairs := []*pair{ca, front}
	const client, serve = x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth
	ips := []net.IP{net.ParseIP("127.0.0.1"), net.ParseIP(c.NodeIP), net.ParseIP(c.ServiceIP)}
	node := "system:node:" + c.Node
	for _, r := range []struct {
		ca *pair
		request
	}{
		{ca, request{name: "apiserver", cn: "kube-apiserver", usage: serve, ips: ips,
			dns: []string{"localhost", "kubernetes",
				"kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"}}},
		{ca, request{name: "kubelet-server", cn: node, org: "system:nodes", usage: serve, ips: ips,
			dns: []string{c.Node}}},
		{ca, request{name: "apiserver-kubelet-client", cn: "kube-apiserver-kubelet-client", org: "system:masters",
			usage: client}},
		{front, request{name: "front-proxy-client", cn: "front-proxy-client", usage: client}},
	} {
		p, err := issue(r.ca, r.request)
		if err != nil {
			return err
		}
		pairs = append(pairs, p)
	}
	for _, p := range pairs {
		if err := c.write(p.fileName+".crt", p.certPEM); err != nil {
			return err
		}
		if err := c.write(p.fileName+".key", p.keyPEM); err != nil {
			return err
		}
	}
	if err := c.serviceAccountKey(); err != nil {
		return err
	}
	return c.kubeconfigs(ca, node)
}

func (c Config) write(name string, data []byte) error {
	if err := os.WriteFile(filepath.Join(c.Dir, name), data, 0o600); err != nil {
		return fmt.Errorf("writing the PKI: %w", err)
	}
	return nil
}

func (c Config) serviceAccountKey() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return err
	}
	if err := c.write("sa.key", pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private})); err != nil {
		return err
	}
	return c.write("sa.pub", pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}))
}

func (c Config) kubeconfigs(ca *pair, node string) error {
	b64 := base64.StdEncoding.EncodeToString
	for _, r := range []request{
		{name: "admin", cn: "kubernetes-admin", org: "system:masters"},
		{name: "kube-controller-manager", cn: "system:kube-controller-manager"},
		{name: "kube-scheduler", cn: "system:kube-scheduler"},
		{name: "kube-proxy", cn: "system:kube-proxy"},
		{name: "kubelet", cn: node, org: "system:nodes"},
	} {
		r.usage = x509.ExtKeyUsageClientAuth
		p, err := issue(ca, r)
		if err != nil {
			return err
		}
		if err := c.write(r.name+".kubeconfig", fmt.Appendf(nil, `apiVersion: v1
kind: Config
current-context: %[6]q
contexts: [{name: %[6]q, context: {cluster: %[6]q, user: %[2]q}}]
clusters: [{name: %[6]q, cluster: {server: "https://%[1]s:6443", certificate-authority-data: %[3]s}}]
users: [{name: %[2]q, user: {client-certificate-data: %[4]s, client-key-data: %[5]s}}]
`, c.NodeIP, c.Cluster+"-"+r.name, b64(ca.certPEM), b64(p.certPEM), b64(p.keyPEM), c.Cluster)); err != nil {
			return err
		}
	}
	return nil
}

// issue makes a key and a certificate signed by ca; without a ca, an authority.
func issue(ca *pair, r request) (*pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	subject := pkix.Name{CommonName: r.cn}
	if r.org != "" {
		subject.Organization = []string{r.org}
	}
	t := &x509.Certificate{
		SerialNumber: serial, Subject: subject,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		DNSNames: r.dns, IPAddresses: r.ips,
		BasicConstraintsValid: true,
	}
	parent, signer := t, key
	if ca == nil {
		t.IsCA = true
		t.KeyUsage |= x509.KeyUsageCertSign
	} else {
		t.ExtKeyUsage = []x509.ExtKeyUsage{r.usage}
		parent, signer = ca.cert, ca.key
	}
	der, err := x509.CreateCertificate(rand.Reader, t, parent, key.Public(), signer)
	if err != nil {
		return nil, fmt.Errorf("issuing the certificate %s: %w", r.name, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return &pair{
		cert: cert, key: key, fileName: r.name,
		certPEM: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		keyPEM:  pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}),
	}, nil
}
