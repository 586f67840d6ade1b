// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The environment of a child process: this test binary, told to be a part of the chain.
const (
	envRole = "FAIRLEAD_BENCH_ROLE" // "<variant> <part>"
	envNext = "FAIRLEAD_BENCH_NEXT" // the address of the next part
	envKey  = "FAIRLEAD_BENCH_KEY"  // certificate and key of every hop
)

func TestMain(m *testing.M) {
	role := os.Getenv(envRole)
	if role == "" {
		os.Exit(m.Run())
	}
	if err := child(role, os.Getenv(envNext)); err != nil {
		_, _ = fmt.Fprintf(os.Stderr, "%s: %v\n", role, err)
		os.Exit(1)
	}
}

// child runs a part of the chain: it prints its address, then its CPU time for every line it reads, and ends with its input.
func child(role, next string) error {
	start, ok := roles[role]
	if !ok {
		return errors.New("unknown role")
	}
	keys, err := loadKeys()
	if err != nil {
		return err
	}
	addr, err := start(keys, next)
	if err != nil {
		return err
	}
	fmt.Println(addr)
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			return err
		}
		fmt.Println(u.Utime.Nano() + u.Stime.Nano())
	}
	return nil
}

// process is a child as its parent sees it.
type process struct {
	addr string
	in   io.WriteCloser
	out  *bufio.Reader
}

func spawn(b *testing.B, role, next, keys string) *process {
	b.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), envRole+"="+role, envNext+"="+next, envKey+"="+keys)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	p := &process{in: in, out: bufio.NewReader(out)}
	p.addr = p.line(b)
	return p
}

func (p *process) line(b *testing.B) string {
	b.Helper()
	s, err := p.out.ReadString('\n')
	if err != nil {
		b.Fatalf("reading from a child: %v", err)
	}
	return strings.TrimSpace(s)
}

// cpu returns the CPU time that the process has used.
func (p *process) cpu(b *testing.B) time.Duration {
	b.Helper()
	if _, err := io.WriteString(p.in, "\n"); err != nil {
		b.Fatal(err)
	}
	n, err := strconv.ParseInt(p.line(b), 10, 64)
	if err != nil {
		b.Fatal(err)
	}
	return time.Duration(n)
}

// keyring is what a hop needs for TLS.
type keyring struct{ server, client *tls.Config }

func makeKeys() (string, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "bench"}, DNSNames: []string{"bench"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return "", err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return "", err
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})) +
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})), nil
}

func loadKeys() (keyring, error) {
	both := []byte(os.Getenv(envKey))
	cert, err := tls.X509KeyPair(both, both)
	if err != nil {
		return keyring{}, err
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert.Leaf)
	return keyring{
		server: &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS13, DynamicRecordSizingDisabled: true},
		client: &tls.Config{RootCAs: pool, ServerName: "bench", MinVersion: tls.VersionTLS13, DynamicRecordSizingDisabled: true,
			ClientSessionCache: tls.NewLRUClientSessionCache(0)},
	}, nil
}
