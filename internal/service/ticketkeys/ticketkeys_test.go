// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package ticketkeys_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/big"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-dev/fairlead/internal/service/seal"
	"github.com/fairlead-dev/fairlead/internal/service/ticketkeys"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// secret returns a secret key.
func secret(t *testing.T, fill byte) *seal.Key {
	t.Helper()
	k, err := seal.New(bytes.Repeat([]byte{fill}, seal.KeySize))
	must.Succeed(t, err)
	return k
}

// pair is a certificate for a week and who trusts it.
type pair struct {
	certificate tls.Certificate
	roots       *x509.CertPool
}

func newPair(t *testing.T) pair {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"localhost"}, IsCA: true,
		BasicConstraintsValid: true, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(0, 0, 7)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must.Succeed(t, err)
	leaf, err := x509.ParseCertificate(der)
	must.Succeed(t, err)
	roots := x509.NewCertPool()
	roots.AddCert(leaf)
	return pair{tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, roots}
}

// server returns the config of a listener, as a new process has it; nil keys are crypto/tls' own.
func (p pair) server(keys *ticketkeys.Keys, name string) *tls.Config {
	c := &tls.Config{Certificates: []tls.Certificate{p.certificate}, MinVersion: tls.VersionTLS12}
	keys.Install(name, c)
	return c
}

// client returns the config of a client without tickets. 0 is the newest version of TLS.
func (p pair) client(version uint16) *tls.Config {
	return &tls.Config{RootCAs: p.roots, ServerName: "localhost", MaxVersion: version,
		ClientSessionCache: tls.NewLRUClientSessionCache(1)}
}

// resumes connects and reports whether the session was resumed. The client has a new ticket then.
func resumes(t *testing.T, server, client *tls.Config) bool {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", server)
	must.Succeed(t, err)
	defer func() { _ = l.Close() }()
	go func() {
		far, err := l.Accept()
		if err != nil {
			return
		}
		_, _ = far.Write([]byte("x")) // an error reaches the client as one
		_ = far.Close()
	}()
	c, err := tls.Dial("tcp", l.Addr().String(), client)
	must.Succeed(t, err)
	defer func() { _ = c.Close() }()
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil { // with what comes before it: the ticket
		t.Fatal(err)
	}
	return c.ConnectionState().DidResume
}

func TestKeys_ResumeOnOtherServerWithSameSecretKey(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	one := secret(t, 1)
	for _, c := range []struct {
		what          string
		first, second *tls.Config
		want          bool
	}{
		{"same key", p.server(ticketkeys.New(one), "api"), p.server(ticketkeys.New(one), "api"), true},
		{"another key", p.server(ticketkeys.New(one), "api"), p.server(ticketkeys.New(secret(t, 2)), "api"), false},
		{"another listener", p.server(ticketkeys.New(one), "api"), p.server(ticketkeys.New(one), "public"), false},
		{"no key", p.server(nil, "api"), p.server(nil, "api"), false},
	} {
		client := p.client(0)
		if resumes(t, c.first, client) {
			t.Fatalf("%s: the first connection was resumed", c.what)
		}
		if got := resumes(t, c.second, client); got != c.want {
			t.Errorf("%s: resumed %t, want %t", c.what, got, c.want)
		}
		if !resumes(t, c.second, client) {
			t.Errorf("%s: not resumed where the ticket is from", c.what)
		}
	}
}

// TestKeys_KeepTLS12InProcess holds that no key derived from the secret key opens a recorded
// connection: those of TLS 1.2 resume in their process only.
func TestKeys_KeepTLS12InProcess(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	first := p.server(ticketkeys.New(secret(t, 1)), "public")
	second := p.server(ticketkeys.New(secret(t, 1)), "public")
	client := p.client(tls.VersionTLS12)
	if resumes(t, first, client) || !resumes(t, first, client) {
		t.Error("not resumed in the process of the ticket")
	}
	if resumes(t, second, client) {
		t.Error("resumed in another process")
	}
}

// TestKeys_ExpireAfterNextDay begins in the afternoon of one day; a server that was started then
// takes its tickets until the end of the next.
func TestKeys_ExpireAfterNextDay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		time.Sleep(15 * time.Hour) // bubbles begin at midnight
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		keys := ticketkeys.New(secret(t, 1))
		server := p.server(keys, "api")
		go keys.Run(ctx)
		tomorrow, later := p.client(0), p.client(0)
		resumes(t, server, tomorrow)
		resumes(t, server, later)

		time.Sleep(24*time.Hour + 2*time.Minute) // 15:02 of the next day
		if !resumes(t, server, tomorrow) {
			t.Error("a ticket of yesterday is not accepted")
		}
		started := p.server(ticketkeys.New(secret(t, 1)), "api")
		if !resumes(t, started, tomorrow) {
			t.Error("a server that has just started does not accept a ticket of one that runs")
		}
		time.Sleep(9 * time.Hour) // 0:02 of the third day
		if resumes(t, server, later) {
			t.Error("a ticket of two days ago is accepted")
		}
		cancel()
		synctest.Wait()
	})
}

// TestKeys_AcceptTomorrowBeforeMidnight holds that a server resumes a session of one whose clock
// is ahead.
func TestKeys_AcceptTomorrowBeforeMidnight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		early := p.server(ticketkeys.New(secret(t, 1)), "api") // its clock stands still
		time.Sleep(22*time.Hour + 30*time.Minute)
		behind := p.server(ticketkeys.New(secret(t, 1)), "api")
		time.Sleep(time.Hour)
		behindByLess := p.server(ticketkeys.New(secret(t, 1)), "api")
		time.Sleep(time.Hour)
		ahead := p.server(ticketkeys.New(secret(t, 1)), "api")
		for _, c := range []struct {
			what   string
			server *tls.Config
			want   bool
		}{{"a day", early, false}, {"two hours", behind, false}, {"an hour", behindByLess, true}} {
			client := p.client(0)
			resumes(t, ahead, client)
			if got := resumes(t, c.server, client); got != c.want {
				t.Errorf("%s behind: resumed %t, want %t", c.what, got, c.want)
			}
		}
	})
}

// TestKeys_EndWithScope checks that no ticket leads out of a scope, not even that of a session which is
// being resumed while the scope changes.
func TestKeys_EndWithScope(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	keys := ticketkeys.New(secret(t, 1))
	server, client := p.server(keys, "api"), p.client(0)
	keys.SetScope("api", "first")
	resumes(t, server, client)
	if !resumes(t, server, client) {
		t.Fatal("a session was not resumed in its scope")
	}
	unwrap := server.UnwrapSession
	server.UnwrapSession = func(ticket []byte, state tls.ConnectionState) (*tls.SessionState, error) {
		session, err := unwrap(ticket, state)
		keys.SetScope("api", "second")
		return session, err
	}
	if !resumes(t, server, client) {
		t.Fatal("a session was not resumed that began in its scope")
	}
	server.UnwrapSession = unwrap
	if resumes(t, server, client) {
		t.Error("a ticket leads from one scope into the next")
	}
	if !resumes(t, server, client) {
		t.Error("a session of the new scope was not resumed")
	}
}
