// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package carrier_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/test/support/freeaddr"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// squidConfig is the configuration, after the ports, of a Squid that keeps everything in one
// directory.
const squidConfig = `
http_access allow all
http_upgrade_request_protocols websocket allow all
pid_filename none
cache deny all
cache_mem 8 MB
cache_log stdio:%[1]s/cache.log
access_log none
coredump_dir %[1]s
shutdown_lifetime 0 seconds
pinger_enable off
logfile_rotate 0
`

// inspects makes Squid end the TLS of connections, with certificates of its own.
const inspects = `
sslcrtd_program /usr/lib/squid/security_file_certgen -s %[1]s/certificates -M 4MB
sslcrtd_children 2 startup=1
acl hello at_step SslBump1
ssl_bump peek hello
ssl_bump bump all
tls_outgoing_options min-version=1.2
sslproxy_cert_error allow all
sslproxy_cert_sign signTrusted all
`

// startSquid starts a Squid and returns its address, which port has a verb for.
func startSquid(t *testing.T, port, more string) string {
	t.Helper()
	program := find(t, "squid")
	dir, address := unprivilegedDir(t), freeAddress(t)
	writeAuthority(t, filepath.Join(dir, "ca.pem"))
	args := []any{address}
	if strings.Count(port, "%s") == 2 {
		args = append(args, dir)
	}
	config := fmt.Sprintf(port, args...) + fmt.Sprintf(squidConfig, dir)
	if more != "" {
		config += fmt.Sprintf(more, dir)
		make := unprivileged(exec.Command("/usr/lib/squid/security_file_certgen", "-c", "-s", dir+"/certificates",
			"-M", "4MB"))
		if out, err := make.CombinedOutput(); err != nil {
			t.Fatalf("making the directory of certificates: %v: %s", err, out)
		}
	}
	file := filepath.Join(dir, "squid.conf")
	must.Succeed(t, os.WriteFile(file, []byte(config), 0o644))
	run(t, dir, address, program, "-N", "-f", file)
	return address
}

func startTinyproxy(t *testing.T) string {
	t.Helper()
	program := find(t, "tinyproxy")
	dir, address := unprivilegedDir(t), freeAddress(t)
	_, port, _ := net.SplitHostPort(address)
	file := filepath.Join(dir, "tinyproxy.conf")
	must.Succeed(t, os.WriteFile(file, []byte("Port "+port+"\nListen 127.0.0.1\nTimeout 600\nBasicAuth user secret\n"),
		0o644))
	run(t, dir, address, program, "-d", "-c", file)
	return address
}

func startMicrosocks(t *testing.T) string {
	t.Helper()
	program := find(t, "microsocks")
	address := freeAddress(t)
	_, port, _ := net.SplitHostPort(address)
	run(t, unprivilegedDir(t), address, program, "-i", "127.0.0.1", "-p", port, "-u", "user", "-P", "secret")
	return address
}

// find returns the path of a program of hack/deps.sh.
func find(t *testing.T, name string) string {
	t.Helper()
	for _, dir := range append(filepath.SplitList(os.Getenv("PATH")), "/usr/sbin") {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path
		}
	}
	if os.Getenv("FAIRLEAD_REQUIRE_PROXIES") != "" {
		t.Fatalf("%s is not there, but FAIRLEAD_REQUIRE_PROXIES is set", name)
	}
	t.Skipf("%s is not there: hack/deps.sh installs it", name)
	return ""
}

func freeAddress(t *testing.T) string {
	t.Helper()
	address, err := freeaddr.Find()
	must.Succeed(t, err)
	return address
}

// unprivilegedID is the user and group of proxies.
const unprivilegedID = 65534

// unprivilegedDir returns a directory of the user that proxies run as.
func unprivilegedDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "fairlead-carrier-") //nolint:usetesting // that of t is its user's alone
	must.Succeed(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if os.Getuid() == 0 {
		must.Succeed(t, os.Chown(dir, unprivilegedID, unprivilegedID))
	}
	return dir
}

// unprivileged makes a command run without rights when the test runs as root.
func unprivileged(c *exec.Cmd) *exec.Cmd {
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if os.Getuid() == 0 {
		c.SysProcAttr.Credential = &syscall.Credential{Uid: unprivilegedID, Gid: unprivilegedID}
	}
	return c
}

// run runs a program until the test ends, and waits until it listens.
func run(t *testing.T, dir, address, program string, args ...string) {
	t.Helper()
	var output bytes.Buffer
	c := unprivileged(exec.Command(program, args...))
	c.Dir, c.Stdout, c.Stderr = dir, &output, &output
	must.Succeed(t, c.Start())
	ended := make(chan struct{})
	go func() { _ = c.Wait(); close(ended) }()
	t.Cleanup(func() {
		_ = c.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(20 * time.Second):
			_ = c.Process.Kill()
			<-ended
		}
		if log, _ := os.ReadFile(filepath.Join(dir, "cache.log")); t.Failed() {
			t.Logf("%s: %s%s", program, &output, log)
		}
	})
	servicetest.Eventually(t, program+" to listen", func() bool {
		select {
		case <-ended:
			t.Fatalf("%s ended: %s", program, &output)
		default:
		}
		conn, err := net.Dial("tcp", address)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
}

// authority returns a PEM file with the certificate and key of the proxies' authority, which is for
// 127.0.0.1, too.
var authority = sync.OnceValues(func() ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "The Proxies' Authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	return append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})...), err
})

func writeAuthority(t *testing.T, file string) {
	t.Helper()
	both, err := authority()
	must.Succeed(t, err)
	must.Succeed(t, os.WriteFile(file, both, 0o644)) // a key of this test alone
}

// trusted returns the proxies' authority.
func trusted(t *testing.T) *x509.CertPool {
	t.Helper()
	both, err := authority()
	must.Succeed(t, err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(both)
	return pool
}
