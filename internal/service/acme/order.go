// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package acme

import (
	"cmp"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/mholt/acmez/v3"
	acmeclient "github.com/mholt/acmez/v3/acme"

	"github.com/fairlead-dev/fairlead/internal/printable"
	"github.com/fairlead-dev/fairlead/internal/service/store"
)

const (
	requestTimeout = 30 * time.Second
	adviceInterval = 6 * time.Hour // between questions for renewal information, unless the directory names another

	// minAge is how old a certificate is that is renewed because the directory advises it.
	minAge = 24 * time.Hour

	// An authority such as Let's Encrypt allows five failures an hour for an account and a host, and an
	// order has up to two, one for each kind of challenge.
	firstRetry = 5 * time.Minute
	maxRetry   = 3 * time.Hour
)

func (m *Manager) newClient() acmez.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = m.opt.TLS
	s := solver{m.opt.Store}
	solvers := map[string]acmez.Solver{acmeclient.ChallengeTypeTLSALPN01: s}
	if m.opt.HTTP01 {
		solvers[acmeclient.ChallengeTypeHTTP01] = s
	}
	return acmez.Client{ChallengeSolvers: solvers, Client: &acmeclient.Client{Directory: m.opt.Directory,
		UserAgent: m.opt.UserAgent, HTTPClient: &http.Client{Transport: transport, Timeout: requestTimeout}}}
}

// ariAdvice is when the directory wants a certificate renewed (RFC 9773), and when to ask again.
type ariAdvice struct {
	serial    string // serial is that of the certificate.
	renew, at time.Time
}

// isDue reports whether a host has work: there is no certificate, two thirds of its life are over, it
// is from another directory, or it is time to ask when to renew it.
func (m *Manager) isDue(host string, h *hostState, now time.Time) bool {
	return m.mustOrder(host, h, now) || now.After(m.adviceOf(host, h).at)
}

func (m *Manager) mustOrder(host string, h *hostState, now time.Time) bool {
	if h.cert == nil || h.Directory != m.opt.Directory {
		return true
	}
	leaf := h.cert.Leaf
	at := leaf.NotBefore.Add(leaf.NotAfter.Sub(leaf.NotBefore) * 2 / 3)
	if advised := m.adviceOf(host, h).renew; !advised.IsZero() && advised.Before(at) {
		at = advised
		if soonest := leaf.NotBefore.Add(min(leaf.NotAfter.Sub(leaf.NotBefore)/3, minAge)); at.Before(soonest) {
			at = soonest
		}
	}
	return now.After(at)
}

func (m *Manager) adviceOf(host string, h *hostState) ariAdvice {
	m.mu.Lock()
	defer m.mu.Unlock()
	if a := m.advice[host]; a.serial == h.cert.Leaf.SerialNumber.String() {
		return a
	}
	return ariAdvice{}
}

// renew asks the directory when to renew the certificate of a host, and orders one if that is due. It
// returns errors of the store only.
func (m *Manager) renew(ctx context.Context, host string) error {
	h, err := m.readHost(ctx, host) // another replica may have ordered
	if err != nil {
		return err
	}
	if h.cert != nil && h.Directory == m.opt.Directory && time.Now().After(m.adviceOf(host, h).at) {
		m.askAdvice(ctx, host, h.cert.Leaf)
	}
	if !m.mustOrder(host, h, time.Now()) {
		return nil
	}
	chain, key, err := m.order(ctx, host, h)
	if err != nil {
		if ctx.Err() != nil && errors.Is(ctx.Err(), context.Canceled) {
			return nil // the service stops
		}
		return m.recordFailure(context.WithoutCancel(ctx), host, &h.record, err)
	}
	m.opt.Logger.Info("a certificate was issued", "host", host, "directory", m.opt.Directory)
	return m.put(ctx, host, &record{Directory: m.opt.Directory, Chain: chain, Key: key})
}

func (m *Manager) put(ctx context.Context, host string, r *record) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return m.opt.Store.PutACME(ctx, store.ACMECertificate, host, string(text))
}

// recordFailure stores and logs why an order failed. The certificate before stays.
func (m *Manager) recordFailure(ctx context.Context, host string, r *record, why error) error {
	before := r.Problem
	r.Problem = describe(host, why)
	delay := maxRetry
	if r.Failures < 3 && problemType(why) != acmeclient.ProblemTypeRateLimited {
		delay = firstRetry << (2 * r.Failures)
	}
	r.Failures++
	r.Retry = time.Now().Add(min(delay, maxRetry))
	if r.Problem != before {
		m.opt.Logger.Error("a certificate could not be ordered", "host", host, "why", r.Problem, "directory",
			m.opt.Directory, "retry_at", r.Retry)
	}
	return m.put(ctx, host, r)
}

// askAdvice asks the directory when to renew a certificate. Not all directories know.
func (m *Manager) askAdvice(ctx context.Context, host string, leaf *x509.Certificate) {
	a := ariAdvice{serial: leaf.SerialNumber.String(), at: time.Now().Add(adviceInterval)}
	info, err := m.client.GetRenewalInfo(ctx, leaf)
	if err == nil {
		a.renew = info.SelectedTime
		if again := info.RetryAfter; again != nil {
			a.at = time.Now().Add(min(max(time.Until(*again), time.Minute), adviceInterval))
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.advice[host] = a
}

// order returns a certificate's chain and its key, PEM.
func (m *Manager) order(ctx context.Context, host string, h *hostState) (chain, key string, err error) {
	signer, key, err := newKey()
	if err != nil {
		return "", "", err
	}
	csr, err := acmez.NewCSR(signer, []string{host})
	if err != nil {
		return "", "", err
	}
	params, err := acmez.OrderParametersFromCSR(acmeclient.Account{}, csr)
	if err != nil {
		return "", "", err
	}
	if h.cert != nil && h.Failures == 0 && !m.adviceOf(host, h).renew.IsZero() {
		params.Replaces = h.cert.Leaf // exempt from limits, but refused for a certificate of another account
	}
	chains, err := m.obtain(ctx, params)
	if problemType(err) == acmeclient.ProblemTypeAccountDoesNotExist { // the directory lost it
		m.forgetAccount()
		chains, err = m.obtain(ctx, params)
	}
	if err != nil {
		return "", "", err
	}
	if len(chains) == 0 {
		return "", "", errors.New("the directory sent no certificate")
	}
	chain = string(chains[0].ChainPEM)
	if _, err := parsePair(host, chain, key); err != nil {
		return "", "", fmt.Errorf("the directory sent another certificate: %w", err)
	}
	return chain, key, nil
}

func (m *Manager) obtain(ctx context.Context, p acmez.OrderParameters) (chains []acmeclient.Certificate, err error) {
	if p.Account, err = m.register(ctx); err != nil {
		return nil, err
	}
	return m.client.ObtainCertificate(ctx, p)
}

func (m *Manager) forgetAccount() {
	m.accountMu.Lock()
	defer m.accountMu.Unlock()
	m.account = acmeclient.Account{}
}

// register returns the account at the directory, which is made by the first order of the process or,
// if the store has its key, found.
func (m *Manager) register(ctx context.Context) (acmeclient.Account, error) {
	m.accountMu.Lock()
	defer m.accountMu.Unlock()
	if m.account.Status != "" {
		return m.account, nil
	}
	signer, err := m.accountKey(ctx)
	if err != nil {
		return acmeclient.Account{}, err
	}
	a := acmeclient.Account{TermsOfServiceAgreed: true, PrivateKey: signer}
	if m.opt.Email != "" {
		a.Contact = []string{"mailto:" + m.opt.Email}
	}
	if a, err = m.client.NewAccount(ctx, a); err != nil {
		return a, fmt.Errorf("registering at the directory: %w", err)
	}
	m.account = a
	return a, nil
}

// accountKey returns the account's key from the store, or a new one that the store has from then on.
func (m *Manager) accountKey(ctx context.Context) (crypto.Signer, error) {
	text, err := m.opt.Store.ACMEValue(ctx, store.ACMEAccount, m.opt.Directory)
	if err != nil {
		return nil, err
	}
	if text == "" {
		signer, text, err := newKey()
		if err == nil {
			err = m.opt.Store.PutACME(ctx, store.ACMEAccount, m.opt.Directory, text)
		}
		return signer, err
	}
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return nil, errors.New("the account's key in the store is damaged")
	}
	return x509.ParseECPrivateKey(block.Bytes)
}

// newKey makes a key, and returns it as PEM, too.
func newKey() (signer crypto.Signer, text string, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, "", err
	}
	der, err := x509.MarshalECPrivateKey(key)
	return key, string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})), err
}

// maxDetail bounds what is shown of a directory's own words.
const maxDetail = 500

const reachable = "let port 80 of HOST lead to --public-http-addr of this service, or port 443 to " +
	"--public-https-addr, without another server or a proxy that ends TLS"

// remedies has what to do about problems of directories; HOST stands for the host.
var remedies = map[string]string{
	acmeclient.ProblemTypeConnection:   reachable,
	acmeclient.ProblemTypeUnauthorized: reachable,
	acmeclient.ProblemTypeTLS:          reachable,
	acmeclient.ProblemTypeDNS:          "make a DNS record for HOST that leads to the public listeners",
	acmeclient.ProblemTypeCAA:          "allow the authority in the CAA record of the domain",
	acmeclient.ProblemTypeRateLimited: "wait, the order is tried again; many hosts below one domain want a wildcard " +
		"certificate, with --public-tls-cert",
	acmeclient.ProblemTypeRejectedIdentifier: "the authority issues no certificate for this name: give one with " +
		"--public-tls-cert",
	acmeclient.ProblemTypeExternalAccountRequired: "choose another authority: this one wants an account bound to a " +
		"customer's, which is not supported",
	acmeclient.ProblemTypeInvalidContact: "correct --acme-email",
}

// problemType returns the type of a directory's problem, "" for other errors.
func problemType(err error) string {
	if p, ok := errors.AsType[acmeclient.Problem](err); ok {
		return p.Type
	}
	return ""
}

// describe returns why an order failed, with the directory's own sentence, and what to do.
func describe(host string, err error) string {
	why, remedy := err.Error(), "see that this server reaches the directory: proxy, firewall, and --acme-ca-file "+
		"for a private one"
	if p, ok := errors.AsType[acmeclient.Problem](err); ok {
		why, remedy = p.Detail, cmp.Or(remedies[p.Type], "the authority's documentation explains "+
			path.Base(strings.ReplaceAll(p.Type, ":", "/")))
		for _, sub := range p.Subproblems {
			why += "; " + sub.Detail
		}
	}
	return "the ACME directory did not issue a certificate for " + host + ": " +
		strings.TrimSuffix(printable.Escape(why, maxDetail), ".") + "; " + strings.ReplaceAll(remedy, "HOST", host)
}
