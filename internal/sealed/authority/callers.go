// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package authority

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Callers has the authorities in a PEM file that sign the certificates of callers, and the clusters
// whose forwarders prove themselves by tokens. It reads both again when they change: at most every 10
// seconds, when it is asked. It is safe for concurrent use.
type Callers struct {
	File     string
	Clusters string // Clusters is the file of Root.SignClusters; "" = tokens prove nothing.
	Account  string // Account is that of the clusters.

	roots    followed[roots]
	clusters followed[Clusters]
}

type roots struct {
	all  []*x509.Certificate
	pool *x509.CertPool
}

// Pool returns the authorities of the last good file; none as long as there has been no good one.
func (c *Callers) Pool() *x509.CertPool {
	last, _ := c.loadRoots()
	return last.pool
}

// Problem returns why the files as they are cannot be used, or soon cannot; nil when all is well.
func (c *Callers) Problem() error {
	if _, err := c.loadRoots(); err != nil {
		return err
	}
	clusters, err := c.loadClusters()
	if err != nil || clusters == nil {
		return err
	}
	if err := checkLife("the file", clusters.SignedAt, clusters.EndsAt, time.Now()); err != nil {
		return fmt.Errorf("%s: %w", c.Clusters, err)
	}
	return nil
}

// VerifyToken returns the name of the cluster whose forwarders' token it is. Errors have nothing of
// a token that the cluster has not signed.
func (c *Callers) VerifyToken(raw string) (caller string, err error) {
	now := time.Now()
	clusters, err := c.loadClusters()
	switch last, _ := c.loadRoots(); {
	case clusters == nil && err == nil:
		return "", errors.New("its token counts for agents with --seal-clusters alone")
	case clusters == nil || !slices.ContainsFunc(last.all, clusters.signer.Equal):
		return "", errors.New("its token cannot be verified: no authority of the owner's has signed the clusters")
	case now.After(clusters.EndsAt):
		return "", fmt.Errorf("its token cannot be verified: the clusters have ended at %s", showTime(clusters.EndsAt))
	}
	if caller, err = clusters.callerOf(raw, now); err != nil {
		err = fmt.Errorf("its token: %w", err)
	}
	return caller, err
}

// loadRoots returns the authorities of the last good file, and why it cannot be used now.
func (c *Callers) loadRoots() (*roots, error) {
	last, err := c.roots.get(func() (*roots, error) {
		text, err := ReadFile(c.File)
		if err != nil {
			return nil, err
		}
		read := &roots{pool: x509.NewCertPool()}
		if read.all, err = ParseAuthorities(string(text)); err != nil {
			return nil, fmt.Errorf("%s: %w", c.File, err)
		}
		for _, cert := range read.all {
			read.pool.AddCert(cert)
		}
		return read, nil
	}, c.File)
	if last == nil {
		last = &roots{pool: x509.NewCertPool()}
	}
	return last, err
}

// loadClusters returns the clusters of the last good file, nil without a file, and why it cannot be
// used now. A good file may have ended since, or its authority may be gone.
func (c *Callers) loadClusters() (*Clusters, error) {
	if c.Clusters == "" {
		return nil, nil
	}
	trusted, _ := c.loadRoots()
	return c.clusters.get(func() (*Clusters, error) {
		read, err := ReadClusters(c.Clusters, c.Account, trusted.all)
		switch last := c.clusters.last; {
		case err != nil:
			return nil, err
		case last != nil && read.Version < last.Version:
			return nil, fmt.Errorf("%s: version %d is older than %d, which was here before", c.Clusters, read.Version,
				last.Version)
		}
		return read, checkDates("the file", read.SignedAt, read.EndsAt, time.Now())
	}, c.Clusters, c.File)
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
