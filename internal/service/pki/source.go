// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"
)

// How often a running Source checks whether its authority or its files have changed.
const (
	authorityEvery = 2 * time.Second
	filesEvery     = 10 * time.Second
)

// Options name the source of the certificate: either Dir and Names, or CertFile and KeyFile.
type Options struct {
	Dir string // Dir is the data directory, for the service's own CA and leaf.
	// Store has the CA in place of Dir, and the leaf is in memory only; nil = Dir has both. A CA
	// that Dir has is imported.
	Store    AuthorityStore
	Names    []string // Names has host names and IP addresses for the leaf, in any order.
	CertFile string   // CertFile has the PEM chain, leaf first.
	KeyFile  string   // KeyFile has the leaf's private key in PEM.
	Logger   *slog.Logger
}

// Source holds the certificate in service. It is safe for concurrent use.
type Source struct {
	log     *slog.Logger
	every   time.Duration
	current atomic.Pointer[tls.Certificate]
	leaves  leaves

	// What follows is not set with files.
	options     Options
	issuer      *leafStore
	authorities atomic.Pointer[Authorities]
}

// leaves loads leaves from files (filePair), or issues them (leafStore).
type leaves interface {
	// next returns current while nothing newer is due, nil as current for the first leaf.
	next(now time.Time, current *tls.Certificate) (*tls.Certificate, error)
}

// Open loads the certificate or makes it: a CA if there is none, and a leaf. Errors name the
// file, the store or the option, and what to do.
func Open(ctx context.Context, o Options) (*Source, error) {
	s := &Source{log: o.Logger}
	if o.CertFile != "" || o.KeyFile != "" {
		s.leaves, s.every = &filePair{certFile: o.CertFile, keyFile: o.KeyFile}, filesEvery
	} else {
		s.options, s.issuer = o, &leafStore{names: normalise(o.Names)}
		open := openStoredAuthority
		if o.Store == nil {
			s.issuer.dir, open = o.Dir, openAuthority
		}
		if err := s.loadAuthorities(ctx, time.Now(), open); err != nil {
			return nil, err
		}
		s.leaves, s.every = s.issuer, authorityEvery
	}
	cert, err := s.leaves.next(time.Now(), nil)
	if err != nil {
		return nil, err
	}
	s.current.Store(cert)
	return s, nil
}

// GetCertificate is the hook for tls.Config.
func (s *Source) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return s.current.Load(), nil
}

// Leaf returns the leaf in service.
func (s *Source) Leaf() *x509.Certificate { return s.current.Load().Leaf }

// CA returns the service's own CA; nil when the certificate comes from files. Clients pin it by
// trust.Fingerprint.
func (s *Source) CA() *x509.Certificate { return s.Authorities().Current }

// Authorities returns the service's own CA and those beside it; none when the certificate comes from
// files.
func (s *Source) Authorities() Authorities {
	if all := s.authorities.Load(); all != nil {
		return *all
	}
	return Authorities{}
}

// loadAuthorities loads the CA that issues the leaf, by open, and those beside it.
func (s *Source) loadAuthorities(
	ctx context.Context, now time.Time, open func(context.Context, Options, time.Time) (*authority, error),
) error {
	issuer, err := open(ctx, s.options, now)
	if err != nil {
		return err
	}
	all, err := NewRotation(s.options.Dir, s.options.Store).Read(ctx)
	if err == nil && !all.Current.Equal(issuer.cert) {
		err = errors.New("the certificate authority is being replaced") // the next look finds it done
	}
	if err == nil && s.options.Store != nil && all.Retiring != nil {
		err = removeImported(s.options.Dir, all.Retiring)
	}
	if err == nil {
		s.issuer.authority = issuer
		s.authorities.Store(&all)
	}
	return err
}

// Run renews the leaf at two thirds of its life or when another CA issues it, or reloads the files
// when they change, until ctx is done. It compares wall-clock times, so a machine that slept catches up.
func (s *Source) Run(ctx context.Context) {
	tick := time.NewTicker(s.every)
	defer tick.Stop()
	failing := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		failing = s.refresh(ctx, time.Now(), failing)
	}
}

// refresh swaps the certificate when a new one is due. It returns what failed, "" for nothing; a
// failure is logged once until it is over.
func (s *Source) refresh(ctx context.Context, now time.Time, failing string) string {
	old := s.current.Load()
	cert, err := s.next(ctx, now, old)
	switch {
	case err != nil:
		failed := "the certificate could not be renewed"
		if s.issuer != nil && s.issuer.usable(old.Leaf, now) { // none is due: the store is away, for instance
			failed = "the certificate authority could not be read"
		}
		if failed != failing {
			s.log.Error(failed+"; the old one stays in service", "err", err, "not_after", old.Leaf.NotAfter)
		}
		return failed
	case cert != old:
		s.current.Store(cert)
		s.log.Info("new certificate in service", "serial", cert.Leaf.SerialNumber.Text(16), "not_after",
			cert.Leaf.NotAfter)
	}
	return ""
}

func (s *Source) next(ctx context.Context, now time.Time, old *tls.Certificate) (*tls.Certificate, error) {
	if s.issuer != nil {
		open := readStoredAuthority
		if s.options.Store == nil {
			open = func(_ context.Context, o Options, now time.Time) (*authority, error) {
				return loadAuthority(o.Dir, now)
			}
		}
		if err := s.loadAuthorities(ctx, now, open); err != nil {
			return nil, err
		}
	}
	return s.leaves.next(now, old)
}
