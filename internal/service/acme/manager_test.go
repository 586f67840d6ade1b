// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package acme

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"log/slog"
	"math/big"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/service/store"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// records are the certificates' values in a store, by host.
type records map[string]string

func (r records) ACMEHosts(context.Context) ([]string, error) { return nil, nil }

func (r records) ACMEVersions(context.Context, store.ACMEKind) (map[string]int64, error) {
	versions := map[string]int64{}
	for host := range r {
		versions[host] = 1
	}
	return versions, nil
}

func (r records) ACMEValue(_ context.Context, _ store.ACMEKind, host string) (string, error) {
	return r[host], nil
}

func (r records) PutACME(context.Context, store.ACMEKind, string, string) error { return nil }
func (r records) Sweeps() bool                                                  { return false }

// TestManager_DamagedRecord holds that one record which cannot be used keeps no other host without its
// certificate, and counts as none.
func TestManager_DamagedRecord(t *testing.T) {
	t.Parallel()
	signer, key, err := newKey()
	must.Succeed(t, err)
	_, otherKey, err := newKey()
	must.Succeed(t, err)
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"good.example.com"},
		NotBefore: time.Now(), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, signer.Public(), signer)
	must.Succeed(t, err)
	chain := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	text := func(key string) string {
		b, err := json.Marshal(record{Directory: "d", Chain: chain, Key: key})
		must.Succeed(t, err)
		return string(b)
	}
	all := records{"no-json.example.com": "{", "another.example.com": text(key), "good.example.com": text(key)}
	for range 2 {
		m := New(Options{Directory: "d", Store: all, Logger: slog.New(slog.DiscardHandler)})
		must.Succeed(t, m.read(t.Context()))
		for host := range all {
			h := m.current.Load().byHost[host]
			usable := host == "good.example.com" && all[host] == text(key)
			if got := m.Certificate(host) != nil; got != usable || m.mustOrder(host, h, time.Now()) == usable {
				t.Errorf("%s has a certificate: %t, want %t, and an order without one", host, got, usable)
			}
		}
		all["good.example.com"] = text(otherKey)
	}
}
