// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package keyhandover

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/apiclient"
	"github.com/fairlead-dev/fairlead/internal/operator/serviceaccounttoken"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// fixture is a Handover, an API server that publishes keys, and a service that trusts some of them:
// tokens and keys are the kids.
type fixture struct {
	*Handover
	t    *testing.T
	file string

	mu        sync.Mutex
	published []string
	refuses   int // the API server's status; 0 = it answers
	trusted   []string
	source    account.KeySource
	calls     []string // tokens that were presented
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	x := &fixture{t: t, file: filepath.Join(t.TempDir(), "token"), source: account.KeysFromCluster,
		published: []string{"one"}, trusted: []string{"one"}}
	srv := httptest.NewTLSServer(x)
	t.Cleanup(srv.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
	var err error
	x.Handover, err = New(&rest.Config{Host: srv.URL, TLSClientConfig: rest.TLSClientConfig{CAData: ca}},
		apiclient.Options{BaseURL: srv.URL, TLS: srv.Client().Transport.(*http.Transport).TLSClientConfig},
		serviceaccounttoken.New(x.file, slog.New(slog.DiscardHandler)), logr.Discard())
	must.Succeed(t, err)
	x.write("one")
	return x
}

// ServeHTTP is both the API server and the service.
func (x *fixture) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x.mu.Lock()
	defer x.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Path == jwksPath {
		if x.refuses != 0 {
			w.WriteHeader(x.refuses)
		}
		_ = json.NewEncoder(w).Encode(x.published)
		return
	}
	var payload struct {
		Kid string `json:"kid"`
	}
	raw, _ := base64.RawURLEncoding.DecodeString(strings.Split(r.Header.Get("Authorization"), ".")[1])
	_ = json.Unmarshal(raw, &payload)
	x.calls = append(x.calls, payload.Kid)
	if !slices.Contains(x.trusted, payload.Kid) {
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, `{"error_code":"ERR_FL_1002","msg":"no such key"}`)
		return
	}
	var body struct {
		JWKS []string `json:"jwks"`
	}
	_ = json.NewDecoder(r.Body).Decode(&body)
	result := account.KeyHandover{ClusterID: "cl-1", KeySource: x.source}
	for _, kid := range body.JWKS {
		switch {
		case slices.Contains(x.trusted, kid):
		case x.source == account.KeysFromCluster:
			x.trusted, result.Added = append(x.trusted, kid), append(result.Added, kid)
		default:
			result.Missing = append(result.Missing, kid)
		}
	}
	_ = json.NewEncoder(w).Encode(result)
}

// write replaces the token file by a token of a key.
func (x *fixture) write(kid string) {
	x.t.Helper()
	payload := base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"exp":%d,"kid":%q}`,
		time.Now().Add(time.Hour).Unix(), kid))
	must.Succeed(x.t, os.WriteFile(x.file, []byte("e30."+payload+".c2ln"), 0o600))
}

// expect hands over once and compares the tokens that were presented, and the condition.
func (x *fixture) expect(what, calls, condition string) {
	x.t.Helper()
	x.calls = nil
	x.handOver(x.t.Context())
	got := "unknown"
	if c := x.Condition(); c != nil {
		got = string(c.Status) + " " + c.Reason
	}
	if strings.Join(x.calls, " ") != calls || got != condition {
		x.t.Errorf("%s: presented %q, condition %s; want %q, %s (%v)", what, x.calls, got, calls, condition,
			x.Condition())
	}
}

func TestHandover_FollowsKeys(t *testing.T) {
	t.Parallel()
	x := newFixture(t)
	x.expect("start", "one", "True KeysKnown")
	x.expect("no change", "", "True KeysKnown")
	x.published = []string{"one", "two"}
	x.expect("a new key", "one", "True KeysKnown")
	x.write("two")
	x.expect("a token of the new key", "two", "True KeysKnown")
	x.due = time.Now()
	x.trusted = []string{"two"} // as after a restore
	x.expect("again after a while", "two", "True KeysKnown")
	if fmt.Sprint(x.trusted) != "[two one]" {
		t.Errorf("trusted: %v", x.trusted)
	}
}

// TestHandover_VouchesWithEarlierToken rotates keys between two reads: the kubelet's new token is of a
// key that the service does not know.
func TestHandover_VouchesWithEarlierToken(t *testing.T) {
	t.Parallel()
	x := newFixture(t)
	x.expect("start", "one", "True KeysKnown")
	x.published = []string{"two"}
	x.write("two")
	x.expect("rotated", "two one", "True KeysKnown")
	x.expect("next", "two", "True KeysKnown")
	x.published = []string{"three"}
	x.write("three")
	x.trusted = nil
	x.expect("nothing vouches", "three two", "False KeysMissing")
}

func TestHandover_TellsWhatIsMissing(t *testing.T) {
	t.Parallel()
	x := newFixture(t)
	x.refuses = http.StatusServiceUnavailable
	x.expect("no API server", "", "unknown")
	x.refuses = http.StatusForbidden
	x.expect("forbidden", "", "False KeysUnreadable")
	x.refuses, x.source = 0, account.KeysByHand
	x.expect("nothing is missing", "one", "True KeysKnown")
	x.published = []string{"one", "two"}
	x.expect("by hand", "one", "False KeysMissing")
	if message := x.Condition().Message; !strings.Contains(message, "two") ||
		!strings.Contains(message, "clusters update cl-1 --add-jwks-file -") {
		t.Errorf("message: %s", message)
	}
}
