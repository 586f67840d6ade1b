// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package public

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/internal/service/acme"
)

const (
	reloadInterval = 10 * time.Second
	expiryWarning  = 7 * 24 * time.Hour // before a certificate's end
)

// CertFiles names a certificate: two PEM files, the chain (leaf first) and its private key; or,
// without Key, a directory with NAME.crt and NAME.key for each certificate, or with directories
// that hold tls.crt and tls.key, as Kubernetes mounts Secrets.
type CertFiles struct{ Cert, Key string }

// Certificates are those of the public listeners: from files, which are reloaded when they change,
// and, for hosts that these do not cover, ordered ones. It is safe for concurrent use.
type Certificates struct {
	sources []CertFiles
	ordered *acme.Manager // nil = none
	log     *slog.Logger
	current atomic.Pointer[certSet]

	// Only Open and Run use what follows.
	loaded     map[CertFiles]loadedPair
	lastErrors map[CertFiles]string // last error of each pair, which is logged once
	warned     map[string]bool      // warnings that were logged, by serial number and state
}

type loadedPair struct {
	cert, key []byte
	pair      *tls.Certificate
}

// certSet is an index of certificates by name: "app.example.com" or "*.example.com".
type certSet struct{ byName map[string][]*tls.Certificate }

// OpenCertificates loads all files. A missing or invalid file is an error that names it; an expired
// certificate is only logged.
func OpenCertificates(sources []CertFiles, log *slog.Logger) (*Certificates, error) {
	c := &Certificates{sources: sources, log: log, loaded: make(map[CertFiles]loadedPair),
		lastErrors: make(map[CertFiles]string), warned: make(map[string]bool)}
	if errs := c.reload(time.Now()); len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	if len(sources) > 0 && len(c.current.Load().byName) == 0 {
		return nil, fmt.Errorf("--public-tls-cert %s: there is no certificate with a DNS name", sources[0].Cert)
	}
	return c, nil
}

// Order adds the certificates of a directory. It is called before any other method.
func (c *Certificates) Order(m *acme.Manager) { c.ordered = m }

// Run reloads changed files until ctx is done. Where files cannot be read or are invalid, the
// certificate loaded before stays in use.
func (c *Certificates) Run(ctx context.Context) {
	tick := time.NewTicker(reloadInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			c.refresh(time.Now())
		}
	}
}

func (c *Certificates) refresh(now time.Time) {
	before := c.current.Load().names()
	for _, err := range c.reload(now) {
		c.log.Error("a public certificate could not be reloaded; the old one, where there is one, stays in service",
			"err", err)
	}
	if after := c.current.Load().names(); !slices.Equal(before, after) {
		c.log.Info("names of public certificates", "names", after)
	}
}

// reload loads the files again. It returns the errors that are new.
func (c *Certificates) reload(now time.Time) (errs []error) {
	note := func(at CertFiles, err error) {
		if c.lastErrors[at] != err.Error() {
			c.lastErrors[at] = err.Error()
			errs = append(errs, err)
		}
	}
	pairs := make([]*tls.Certificate, 0, len(c.sources))
	live := make(map[CertFiles]loadedPair)
	for _, given := range c.sources {
		files, err := listPairs(given)
		if err != nil {
			note(given, err)
			for at, l := range c.loaded { // a directory that cannot be read has lost nothing
				if strings.HasPrefix(at.Cert, given.Cert+string(filepath.Separator)) {
					pairs, live[at] = append(pairs, l.pair), l
				}
			}
			continue
		}
		for _, at := range files {
			l, err := c.load(at)
			if err != nil {
				note(at, err)
			} else {
				delete(c.lastErrors, at)
			}
			if l.pair != nil {
				pairs, live[at] = append(pairs, l.pair), l
			}
		}
		delete(c.lastErrors, given)
	}
	c.loaded = live
	c.current.Store(newCertSet(pairs))
	c.warnExpiry(pairs, now)
	return errs
}

// load returns the pair in the files, or with an error the one loaded before.
func (c *Certificates) load(at CertFiles) (loadedPair, error) {
	old := c.loaded[at]
	cert, err := os.ReadFile(at.Cert)
	if err != nil {
		return old, fmt.Errorf("reading --public-tls-cert: %w", err)
	}
	key, err := os.ReadFile(at.Key)
	if err != nil {
		return old, fmt.Errorf("reading --public-tls-key: %w", err)
	}
	if old.pair != nil && bytes.Equal(cert, old.cert) && bytes.Equal(key, old.key) {
		return old, nil
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return old,
			fmt.Errorf(
				"loading --public-tls-cert %s and its key %s (PEM, the certificate's chain leaf first, and its "+
					"private key): %w",
				at.Cert, at.Key, err)
	}
	if len(pair.Leaf.DNSNames) == 0 {
		return old, fmt.Errorf("--public-tls-cert %s: the certificate has no DNS name (subject alternative name)",
			at.Cert)
	}
	return loadedPair{cert, key, &pair}, nil
}

// listPairs lists the pairs of a directory; two files are one pair.
func listPairs(given CertFiles) ([]CertFiles, error) {
	if given.Key != "" {
		return []CertFiles{given}, nil
	}
	entries, err := os.ReadDir(given.Cert)
	if err != nil {
		return nil, fmt.Errorf("reading the directory of --public-tls-cert: %w", err)
	}
	var found []CertFiles
	for _, entry := range entries {
		path := filepath.Join(given.Cert, entry.Name())
		if strings.HasPrefix(entry.Name(), ".") { // as Kubernetes' own bookkeeping in mounted volumes
			continue
		}
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			if _, err := os.Stat(filepath.Join(path, "tls.crt")); err == nil {
				found = append(found, CertFiles{filepath.Join(path, "tls.crt"), filepath.Join(path, "tls.key")})
			}
			continue
		}
		if base, ok := strings.CutSuffix(path, ".crt"); ok {
			found = append(found, CertFiles{path, base + ".key"})
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("--public-tls-cert %s: the directory holds no NAME.crt, and no directory with tls.crt",
			given.Cert)
	}
	return found, nil
}

// warnExpiry logs once of each certificate that it has expired, or soon will.
func (c *Certificates) warnExpiry(pairs []*tls.Certificate, now time.Time) {
	for _, p := range pairs {
		state := ""
		switch {
		case now.After(p.Leaf.NotAfter):
			state = "a public certificate has expired"
		case now.Before(p.Leaf.NotBefore):
			state = "a public certificate is not valid yet"
		case endsSoon(p.Leaf, now):
			state = "a public certificate expires soon"
		}
		id := p.Leaf.SerialNumber.String() + state
		if state != "" && !c.warned[id] {
			c.warned[id] = true
			c.log.Warn(state, "names", p.Leaf.DNSNames, "not_before", p.Leaf.NotBefore, "not_after", p.Leaf.NotAfter)
		}
	}
}

// endsSoon reports whether a certificate has expired, or will within expiryWarning; of one that lives
// too short for that, only the former.
func endsSoon(leaf *x509.Certificate, now time.Time) bool {
	return now.After(leaf.NotAfter) ||
		now.After(leaf.NotAfter.Add(-expiryWarning)) && leaf.NotAfter.Sub(leaf.NotBefore) > 2*expiryWarning
}

func newCertSet(pairs []*tls.Certificate) *certSet {
	s := &certSet{byName: make(map[string][]*tls.Certificate)}
	for _, p := range pairs {
		for _, name := range p.Leaf.DNSNames {
			name = strings.ToLower(name)
			s.byName[name] = append(s.byName[name], p)
		}
	}
	for _, same := range s.byName { // the longest-lived of a name is first
		slices.SortStableFunc(same, func(a, b *tls.Certificate) int { return b.Leaf.NotAfter.Compare(a.Leaf.NotAfter) })
	}
	return s
}

func (s *certSet) names() []string {
	names := make([]string, 0, len(s.byName))
	for n := range s.byName {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// forHost returns the certificates for a host, best first. A wildcard covers one label, as for
// clients.
func (s *certSet) forHost(host string) []*tls.Certificate {
	if exact := s.byName[host]; len(exact) > 0 {
		return exact
	}
	_, parent, _ := strings.Cut(host, ".")
	return s.byName["*."+parent]
}

// forHost returns the certificates for a host, best first.
func (c *Certificates) forHost(host string) []*tls.Certificate {
	fit := c.current.Load().forHost(host)
	if len(fit) == 0 && c.ordered != nil {
		if cert := c.ordered.Certificate(host); cert != nil {
			return []*tls.Certificate{cert}
		}
	}
	return fit
}

// Missing returns why clients get no certificate for the host, a sentence; "" when they do, or one is
// being ordered.
func (c *Certificates) Missing(host string) string {
	switch {
	case len(c.forHost(host)) > 0:
		return ""
	case c.ordered != nil:
		return c.ordered.Problem(host)
	}
	return "no certificate of the service covers " + host + ": give it one with --public-tls-cert, or let it order " +
		"one with --acme-directory"
}

// HasFile implements acme.Files.
func (c *Certificates) HasFile(host string) bool { return len(c.current.Load().forHost(host)) > 0 }

// FirstExpiry returns when the first name loses its certificate from a file: of several certificates
// for one name the one counts that lives longest.
func (c *Certificates) FirstExpiry() (first time.Time) {
	for _, same := range c.current.Load().byName {
		if end := same[0].Leaf.NotAfter; first.IsZero() || end.Before(first) {
			first = end
		}
	}
	return first
}

// EndingSoon returns the certificate for a host if it expires within a week or has expired, else nil.
func (c *Certificates) EndingSoon(host string, now time.Time) *x509.Certificate {
	if fit := c.forHost(host); len(fit) > 0 && endsSoon(fit[0].Leaf, now) {
		return fit[0].Leaf
	}
	return nil
}

// getCertificate is the hook for tls.Config. Without a certificate for the name crypto/tls answers
// with the alert unrecognized_name.
func (c *Certificates) getCertificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	fit := c.forHost(strings.ToLower(strings.TrimSuffix(hello.ServerName, ".")))
	for _, p := range fit {
		if hello.SupportsCertificate(p) == nil {
			return p, nil
		}
	}
	if len(fit) > 0 {
		return fit[0], nil // crypto/tls reports what does not fit
	}
	return nil, nil
}

// coversBoth reports whether a connection that was opened for name may carry requests for the host:
// clients do that where its certificate covers both.
func (c *Certificates) coversBoth(name, host string) bool {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if name == host {
		return true
	}
	fit := c.forHost(name)
	return len(fit) > 0 && fit[0].Leaf.VerifyHostname(host) == nil
}
