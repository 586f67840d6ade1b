// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package clustertoken_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/clustertoken"
	"github.com/fairlead-dev/fairlead/test/support/accounttest"
	"github.com/fairlead-dev/fairlead/test/support/storetest"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// issuer publishes keys over TLS, as the issuer of a cloud's cluster does.
type issuer struct {
	*httptest.Server
	mu       sync.Mutex
	signers  []*accounttest.TokenSigner
	readings int
	broken   bool
}

func newIssuer(t *testing.T, signers ...*accounttest.TokenSigner) *issuer {
	i := &issuer{signers: signers}
	mux := http.NewServeMux()
	mux.HandleFunc("/id/1/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]string{"issuer": i.url(), "jwks_uri": i.URL + "/keys"})
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		i.mu.Lock()
		defer i.mu.Unlock()
		if i.readings++; i.broken {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		var set account.KeySet
		for _, s := range i.signers {
			set.Keys = append(set.Keys, s.KeySet(t).Keys...)
		}
		_ = json.NewEncoder(w).Encode(set)
	})
	i.Server = httptest.NewTLSServer(mux)
	t.Cleanup(i.Close)
	return i
}

func (i *issuer) url() string { return i.URL + "/id/1" }

func (i *issuer) publish(broken bool, signers ...*accounttest.TokenSigner) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.broken, i.signers = broken, signers
}

func (i *issuer) reads() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.readings
}

// issuerFixture is a fixture with the cluster eks, whose keys its issuer publishes.
type issuerFixture struct {
	*fixture
	issuer  *issuer
	issuers *clustertoken.Issuers
	checker *clustertoken.Checker
	eks     *account.Cluster
}

func newIssuerFixture(t *testing.T, f *fixture, signers ...*accounttest.TokenSigner) *issuerFixture {
	i := newIssuer(t, signers...)
	p := storetest.ClusterPatch(t, "eks", "unused")
	source, url := account.KeysFromIssuer, i.url()
	p.JWKS, p.KeySource, p.Issuer = nil, &source, &url
	eks, err := f.Store.CreateCluster(t.Context(), f.by(), p)
	storetest.Must(t, err)
	log := slog.New(slog.DiscardHandler)
	issuers := clustertoken.NewIssuers(f.Store, i.Client(), log)
	return &issuerFixture{f, i, issuers, clustertoken.New(clustertoken.Options{Store: f.Store, Issuers: issuers,
		BaseURL: baseURL, Clock: f.Clock.Now, Logger: log}), eks}
}

// use presents a token of the signer, with the issuer's URL.
func (f *issuerFixture) use(signer *accounttest.TokenSigner) error {
	claims := f.claims()
	claims["iss"] = f.issuer.url()
	_, err := f.checker.APIKey(f.T.Context(), signer.Token(f.T, claims))
	return err
}

func TestIssuers_LearnKeys(t *testing.T) {
	t.Parallel()
	onBoth(t, "ES256", func(t *testing.T, plain *fixture) {
		first := accounttest.NewTokenSigner(t, "eks-1", "ES256")
		second := accounttest.NewTokenSigner(t, "eks-2", "ES256")
		f := newIssuerFixture(t, plain, first)
		var uses sync.WaitGroup
		for range 4 {
			uses.Go(func() {
				if err := f.use(first); err != nil {
					t.Errorf("the first key: %v", err)
				}
			})
		}
		uses.Wait()
		for range 3 { // tokens of keys that are not published
			if err := f.use(second); account.CodeOf(err) != account.CodeUnknownKey {
				t.Errorf("an unpublished key: %v", err)
			}
		}
		storetest.Equal(t, "readings in one minute", f.issuer.reads(), 1)

		f.issuer.publish(true)
		f.Clock.Step(time.Minute)
		err := f.use(second)
		if account.CodeOf(err) != account.CodeUnknownKey || !strings.Contains(err.Error(), "could not be read") {
			t.Errorf("an issuer that is down: %v", err)
		}
		storetest.Must(t, f.use(first))

		f.issuer.publish(false, second)
		f.Clock.Step(time.Hour)
		storetest.Must(t, f.use(second))
		if err := f.use(first); account.CodeOf(err) != account.CodeUnknownKey {
			t.Errorf("a key that is withdrawn: %v", err)
		}
		c, err := f.Store.Cluster(t.Context(), f.AccountID, f.eks.ID)
		storetest.Must(t, err)
		storetest.Equal(t, "keys", len(c.JWKS.Keys), 1)

		reads := f.issuer.reads()
		f.Clock.Step(time.Hour)
		if err := plain.uses(f.neighbour.Token(t, f.claims()))["API"]; err == nil {
			t.Error("a token of a cluster without subjects was accepted")
		}
		unknown := accounttest.NewTokenSigner(t, "k-9", "ES256").Token(t, f.claims())
		if _, err := f.checker.APIKey(t.Context(), unknown); account.CodeOf(err) != account.CodeUnknownKey {
			t.Errorf("an unknown key of a cluster whose manager hands keys over: %v", err)
		}
		storetest.Equal(t, "readings for other clusters", f.issuer.reads()-reads, 0)
	})
}

func TestIssuers_RunReadsAtOnce(t *testing.T) {
	t.Parallel()
	onBoth(t, "ES256", func(t *testing.T, plain *fixture) {
		f := newIssuerFixture(t, plain, accounttest.NewTokenSigner(t, "eks-1", "ES256"))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); f.issuers.Run(ctx) }()
		wait.Until(t, "keys of the issuer", func() bool {
			c, err := f.Store.Cluster(t.Context(), f.AccountID, f.eks.ID)
			storetest.Must(t, err)
			return len(c.JWKS.Keys) == 1
		})
		cancel()
		<-done
	})
}

func TestIssuers_NeedURL(t *testing.T) {
	t.Parallel()
	source := account.KeysFromIssuer
	for _, issuer := range []string{account.DefaultIssuer, "http://oidc.example.com", "https://", "oidc.example.com",
		"https://a:b@oidc.example.com", "https://oidc.example.com/?x"} {
		patch := account.ClusterPatch{Issuer: &issuer, KeySource: &source}
		_, err := patch.Apply(account.Cluster{Name: "a"}, time.Time{})
		if fields := account.FieldsOf(err); len(fields) != 1 || fields[0].Field != "issuer" {
			t.Errorf("%s: %v", issuer, err)
		}
	}
}
