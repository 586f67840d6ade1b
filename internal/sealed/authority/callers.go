// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package authority

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
)

// Callers has the authorities in a PEM file that sign the certificates of callers, and reads it again
// when it changes: at most every 10 seconds, when it is asked. It is safe for concurrent use.
type Callers struct {
	File string

	followed followed[x509.CertPool]
}

// Pool returns the authorities of the last good file; none as long as there has been no good one.
func (c *Callers) Pool() *x509.CertPool {
	pool, _ := c.followed.get(c.load, c.File)
	if pool == nil {
		return x509.NewCertPool()
	}
	return pool
}

// Problem returns why the file as it is cannot be used; nil when all is well.
func (c *Callers) Problem() error {
	_, err := c.followed.get(c.load, c.File)
	return err
}

func (c *Callers) load() (*x509.CertPool, error) {
	text, err := ReadFile(c.File)
	if err != nil {
		return nil, err
	}
	all, err := ParseAuthorities(string(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.File, err)
	}
	pool := x509.NewCertPool()
	for _, cert := range all {
		pool.AddCert(cert)
	}
	return pool, nil
}

// ParseAuthorities reads PEM with one or more certificates of authorities, and nothing else.
func ParseAuthorities(text string) (all []*x509.Certificate, err error) {
	for block, rest := pem.Decode([]byte(text)); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("it has a PEM block %q: give certificates only", block.Type)
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate %d cannot be read: %w", len(all)+1, err)
		}
		if !c.IsCA {
			return nil, fmt.Errorf("certificate %d, %s, is not one of an authority", len(all)+1, c.Subject)
		}
		all = append(all, c)
	}
	if len(all) == 0 || len(all) != strings.Count(text, "-----BEGIN ") {
		return nil, errors.New("it is not the PEM text of certificates")
	}
	return all, nil
}
