// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package authority

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// LoadLeaf reads the certificate of an agent or a caller, perhaps with a chain, and its private key.
// The certificate has to be in force, and to have names of sealed endpoints or of a caller.
func LoadLeaf(certFile, keyFile string) (*tls.Certificate, error) {
	pair, err := loadPair(certFile, keyFile)
	if err != nil {
		return nil, err
	}
	if err := CheckLeaf(pair.Leaf, time.Now()); err != nil {
		return nil, fmt.Errorf("%s: %w", certFile, err)
	}
	return pair, nil
}

func loadPair(certFile, keyFile string) (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("%s and %s are not a certificate and its private key, both PEM: %s", certFile, keyFile,
			strings.TrimPrefix(err.Error(), "tls: "))
	}
	return &pair, nil
}

// CheckLeaf returns why a certificate is of no use to an agent or a caller; nil when it is good.
func CheckLeaf(c *x509.Certificate, now time.Time) error {
	names, err := ParseNames(c.URIs)
	usage := x509.ExtKeyUsageServerAuth
	if names.Caller != "" {
		usage = x509.ExtKeyUsageClientAuth
	}
	switch {
	case err != nil:
		return err
	case names.Account == "":
		return errors.New("the certificate has no name of a sealed endpoint, such as fairlead://ac-…/http/api.demo:80")
	case len(c.ExtKeyUsage) > 0 && !slices.Contains(c.ExtKeyUsage, usage):
		return errors.New("the certificate lacks an extended key usage: server auth for endpoints, " +
			"client auth for callers")
	}
	return CheckDates(c, now)
}

// CheckDates returns an error unless a certificate is in force, or will be within 5 minutes.
func CheckDates(c *x509.Certificate, now time.Time) error {
	if now.After(c.NotAfter) || now.Add(backdate).Before(c.NotBefore) {
		return fmt.Errorf("the certificate is in force from %s to %s: replace it, or set the clock",
			c.NotBefore.Format(time.RFC3339), c.NotAfter.Format(time.RFC3339))
	}
	return nil
}

// CheckLife returns an error unless a certificate is in force, and for longer than the last third of
// its life. What renews it then, as cert-manager does, has 10 minutes for that.
func CheckLife(c *x509.Certificate, now time.Time) error {
	if err := CheckDates(c, now); err != nil {
		return err
	}
	if c.NotAfter.Sub(now) < c.NotAfter.Sub(c.NotBefore)/3-10*time.Minute {
		return fmt.Errorf("less than a third of the certificate's life is left, until %s: replace it",
			c.NotAfter.Format(time.RFC3339))
	}
	return nil
}

// Source has the certificate of two files, and reads them again when they change: at most every
// 10 seconds, when it is asked. Its Certificate is a sealed.CertificateSource. It is safe for
// concurrent use.
type Source struct {
	CertFile, KeyFile string

	// CallerOf is the account of which the certificate has to name a caller; "" = it is an agent's.
	CallerOf string

	followed followed[tls.Certificate]
}

// Certificate returns the last good certificate of the files, also after its end: peers name that in
// their refusal. It returns an error as long as there has been no good one.
func (s *Source) Certificate() (*tls.Certificate, error) {
	pair, err := s.followed.get(s.load, s.CertFile, s.KeyFile)
	if pair != nil {
		return pair, nil
	}
	return nil, err
}

// Problem returns why the files have no better certificate than the one that Certificate returns, or
// that this one has ended or soon will; nil when all is well.
func (s *Source) Problem() error {
	pair, err := s.followed.get(s.load, s.CertFile, s.KeyFile)
	if err != nil {
		return err
	}
	if err := CheckLife(pair.Leaf, time.Now()); err != nil {
		return fmt.Errorf("%s: %w", s.CertFile, err)
	}
	return nil
}

func (s *Source) load() (*tls.Certificate, error) {
	pair, err := LoadLeaf(s.CertFile, s.KeyFile)
	if err != nil || s.CallerOf == "" {
		return pair, err
	}
	if n, _ := ParseNames(pair.Leaf.URIs); n.Caller == "" || n.Account != s.CallerOf { // LoadLeaf has the error
		return nil, fmt.Errorf("%s: the certificate is for %s of account %s, not for a caller of %s: have one signed "+
			"with --caller", s.CertFile, n, n.Account, s.CallerOf)
	}
	return pair, nil
}

// Caller returns the name that the certificate gives the caller; "" without one.
func (s *Source) Caller() string {
	pair, err := s.Certificate()
	if err != nil {
		return ""
	}
	n, _ := ParseNames(pair.Leaf.URIs) // load has checked them
	return n.Caller
}
