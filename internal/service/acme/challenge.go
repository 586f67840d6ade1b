// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package acme

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/mholt/acmez/v3"
	acmeclient "github.com/mholt/acmez/v3/acme"

	"github.com/fairlead-dev/fairlead/internal/service/store"
)

// Protocol is what the directory asks for, by ALPN, in a handshake that is a challenge.
const Protocol = acmez.ACMETLS1Protocol

const (
	challengePath  = "/.well-known/acme-challenge/"
	cleanUpTimeout = 10 * time.Second
)

// solver keeps the answers to challenges in the store, because the directory may ask any replica.
type solver struct{ store Store }

// Present implements acmez.Solver.
func (s solver) Present(ctx context.Context, c acmeclient.Challenge) error {
	kind, name := rowOf(c)
	return s.store.PutACME(ctx, kind, name, c.KeyAuthorization)
}

// CleanUp implements acmez.Solver.
func (s solver) CleanUp(ctx context.Context, c acmeclient.Challenge) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTimeout)
	defer cancel()
	kind, name := rowOf(c)
	return s.store.PutACME(ctx, kind, name, "")
}

func rowOf(c acmeclient.Challenge) (kind store.ACMEKind, name string) {
	if c.Type == acmeclient.ChallengeTypeHTTP01 {
		return store.ACMEHTTP01, c.Token
	}
	return store.ACMETLSALPN01, c.Identifier.Value
}

// ServeChallenge answers a request that is a challenge of the directory, and reports whether it was
// one. An upstream may have challenges of its own under the same path.
func (m *Manager) ServeChallenge(w http.ResponseWriter, r *http.Request) bool {
	token, ok := strings.CutPrefix(r.URL.Path, challengePath)
	if !ok || r.Method != http.MethodGet || token == "" || len(token) > 256 {
		return false
	}
	answer, err := m.opt.Store.ACMEValue(r.Context(), store.ACMEHTTP01, token)
	if err != nil || answer == "" {
		return false
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	_, _ = w.Write([]byte(answer))
	return true
}

// ChallengeConfig returns the configuration for a handshake that is a challenge of the directory; nil
// for others.
func (m *Manager) ChallengeConfig(hello *tls.ClientHelloInfo) (*tls.Config, error) {
	if !slices.Equal(hello.SupportedProtos, []string{Protocol}) {
		return nil, nil
	}
	host := strings.ToLower(hello.ServerName)
	answer, err := m.opt.Store.ACMEValue(hello.Context(), store.ACMETLSALPN01, host)
	if err != nil {
		return nil, err
	}
	if answer == "" {
		return nil, fmt.Errorf("no order for %q is under way", host)
	}
	cert, err := acmez.TLSALPN01ChallengeCert(acmeclient.Challenge{KeyAuthorization: answer,
		Identifier: acmeclient.Identifier{Type: "dns", Value: host}})
	if err != nil {
		return nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{Protocol},
		Certificates: []tls.Certificate{*cert}}, nil
}
