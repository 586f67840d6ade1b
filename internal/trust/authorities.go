// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package trust

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// maxAnnounced bounds the authorities of one announcement; the rest is ignored.
const maxAnnounced = 8

// behindTime is how long after a change an older announcement may be that of a server which is behind.
// Later it is the truth: what was announced by a thief of a server's key is forgotten.
const behindTime = time.Hour

// Authorities are those that a client trusts for one service: the ones that it was given, and the
// ones that the service has announced over connections that the former vouched for. It is safe for
// concurrent use.
type Authorities struct {
	host    string
	pin     []byte // pin is the fingerprint of the authority that was given; nil = roots.
	given   []*x509.Certificate
	file    string // file keeps what was learnt for the next process; "" = it is not kept.
	reads   bool   // reads is set when another process writes the file.
	tickets *ticketCache

	mu     sync.Mutex                    // mu serializes Learn and load.
	told   bool                          // told is set once the service has told this process.
	newest time.Time                     // newest is when the newest announced one was made.
	since  time.Time                     // since is when that one was learnt.
	learnt []*x509.Certificate           // learnt are those that were announced and not given.
	roots  atomic.Pointer[x509.CertPool] // roots are those that were given and learnt.
}

// Open returns a client configuration as ClientConfig does, of a client that learns the authorities
// which the service at o.Host announces, and what learns them. It learns none with the system's
// roots.
func (o Options) Open() (*tls.Config, *Authorities, error) {
	cfg, err := o.ClientConfig()
	if err != nil || o.isSystem() {
		return cfg, nil, err
	}
	a := &Authorities{host: o.Host, tickets: newTicketCache()}
	cfg.ClientSessionCache = a.tickets
	given := sha256.New()
	_, _ = given.Write([]byte(o.Host))
	if o.CASHA256 != "" {
		a.pin, _ = o.fingerprint() // ClientConfig has checked it
		_, _ = given.Write(a.pin)
	} else {
		text, _, err := o.readPEM()
		if err != nil {
			return nil, nil, err
		}
		a.given = parsePEM(text)
		_, _ = given.Write(text)
	}
	if dir := cmp.Or(o.Keep, o.Kept); dir != "" {
		a.file = filepath.Join(dir, "authorities-"+hex.EncodeToString(given.Sum(nil)[:8])+".pem")
		a.reads = o.Keep == ""
	}
	a.updateRoots()
	a.load()
	// VerifyConnection verifies chain and host name instead, with what is trusted by then.
	cfg.InsecureSkipVerify = true
	cfg.VerifyConnection = func(cs tls.ConnectionState) error {
		a.load()
		return verify(cs, a.host, a.roots.Load(), a.pin)
	}
	return cfg, a, nil
}

// load trusts what the file keeps, until the service itself has told this process: a process that has
// waited for its turn for weeks trusts what its predecessor was told last.
func (a *Authorities) load() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.file == "" || a.told {
		return
	}
	text, err := os.ReadFile(a.file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return
	}
	kept := parsePEM(text)
	if slices.EqualFunc(kept, a.learnt, (*x509.Certificate).Equal) {
		return
	}
	a.newest, a.since = newest(kept), time.Now()
	if info, err := os.Stat(a.file); err == nil {
		a.since = info.ModTime()
	}
	a.replace(kept)
}

// replace trusts these in place of those that were learnt before.
func (a *Authorities) replace(learnt []*x509.Certificate) {
	a.learnt = learnt
	a.updateRoots()
	a.tickets.clear() // the authority that vouched for their sessions may be trusted no more
}

// Told returns what the service has told this process, PEM without what was given, and the name of the
// file that keeps it. ok is false before the service has done so: what is kept may be newer then.
func (a *Authorities) Told() (file, text string, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return filepath.Base(a.file), string(a.encode()), a.told
}

// Learns reports whether the client learns authorities.
func (a *Authorities) Learns() bool { return a != nil }

// Learn trusts the announced authorities, DER, in place of those that were learnt before. Those that
// were given stay. An announcement of a server that does not know of the newest authority yet, within
// behindTime, is ignored. The error is that the next process will not know them.
func (a *Authorities) Learn(announced [][]byte) error {
	var all []*x509.Certificate
	for _, der := range announced[:min(len(announced), maxAnnounced)] {
		if c, err := x509.ParseCertificate(der); err == nil && c.IsCA {
			all = append(all, c)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	made := newest(all)
	if made.IsZero() || made.Before(a.newest) && time.Since(a.since) < behindTime {
		return nil
	}
	if !made.Equal(a.newest) {
		a.newest, a.since = made, time.Now()
	}
	a.told = true
	learnt := slices.DeleteFunc(all, a.isGiven)
	if slices.EqualFunc(learnt, a.learnt, (*x509.Certificate).Equal) {
		return nil
	}
	a.replace(learnt)
	return a.keep()
}

// authorityHeader has an authority that the service announces in each of its values, DER in Base64.
const authorityHeader = "Fairlead-Authority"

// Announce adds authorities to the header of an answer.
func Announce(h http.Header, all []*x509.Certificate) {
	for _, c := range all {
		h.Add(authorityHeader, base64.StdEncoding.EncodeToString(c.Raw))
	}
}

// LearnFrom learns the authorities in the header of an answer, if there are any. What cannot be kept
// is learnt again by the next process.
func (a *Authorities) LearnFrom(h http.Header) {
	if !a.Learns() || len(h.Values(authorityHeader)) == 0 {
		return
	}
	var all [][]byte
	for _, text := range h.Values(authorityHeader) {
		if der, err := base64.StdEncoding.DecodeString(text); err == nil {
			all = append(all, der)
		}
	}
	_ = a.Learn(all)
}

func newest(all []*x509.Certificate) (made time.Time) {
	for _, c := range all {
		if c.NotBefore.After(made) {
			made = c.NotBefore
		}
	}
	return made
}

func (a *Authorities) isGiven(c *x509.Certificate) bool {
	sum := sha256.Sum256(c.RawSubjectPublicKeyInfo)
	return bytes.Equal(sum[:], a.pin) || slices.ContainsFunc(a.given, c.Equal)
}

func (a *Authorities) updateRoots() {
	roots := x509.NewCertPool()
	for _, c := range slices.Concat(a.given, a.learnt) {
		roots.AddCert(c)
	}
	a.roots.Store(roots)
}

// keep writes what was learnt, or removes the file when that is nothing.
func (a *Authorities) keep() error {
	if a.file == "" || a.reads {
		return nil
	}
	if len(a.learnt) == 0 {
		if err := os.Remove(a.file); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(a.file), 0o700); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(a.file), ".authorities-*") // mode 0600
	if err != nil {
		return err
	}
	_, err = tmp.Write(a.encode())
	if err = errors.Join(err, tmp.Sync(), tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), a.file)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", a.file, errors.Join(err, os.Remove(tmp.Name())))
	}
	return nil
}

// encode returns what was learnt as PEM.
func (a *Authorities) encode() (text []byte) {
	for _, c := range a.learnt {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})...)
	}
	return text
}

// parsePEM returns the certificates of a PEM file that can be read, as x509.CertPool does.
func parsePEM(text []byte) (all []*x509.Certificate) {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" || len(block.Headers) != 0 {
			continue
		}
		if c, err := x509.ParseCertificate(block.Bytes); err == nil {
			all = append(all, c)
		}
	}
	return all
}
