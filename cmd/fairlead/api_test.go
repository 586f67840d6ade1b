// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/apiserver"
	"github.com/fairlead-dev/fairlead/internal/service/httpkit"
	"github.com/fairlead-dev/fairlead/internal/service/store"
	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
	"github.com/fairlead-dev/fairlead/test/support/storetest"
)

// accountAPI is the API of a real store.
type accountAPI struct {
	*storetest.Fixture
	t     *testing.T
	env   map[string]string
	ended []string
}

func newAccountAPI(t *testing.T) *accountAPI {
	t.Helper()
	dir := t.TempDir()
	a := &accountAPI{t: t, Fixture: storetest.NewFixture(t, func(opt store.Options) (*store.Store, error) {
		opt.DataDir = dir
		return store.Open(context.WithoutCancel(t.Context()), opt)
	}, func(o *store.Options) { o.Clock = time.Now })}
	_, key, err := a.Store.IssueAPIKey(t.Context(), a.AccountID, "first", nil, nil)
	storetest.Must(t, err)
	srv := httptest.NewUnstartedServer(nil)
	srv.Config.Handler = apiserver.New(apiserver.Options{Store: a.Store, CheckPolicy: checkPolicy,
		SharedOptions: httpkit.SharedOptions{SessionEnder: a, Revoker: a.Store, Redactor: a, Backends: a,
			BaseURL: "https://fairlead.example.com", Logger: slog.New(slog.DiscardHandler),
			MatchSelectors: func([]string) (func(*account.Endpoint) bool, error) {
				return func(*account.Endpoint) bool { return true }, nil
			}}})
	srv.StartTLS()
	t.Cleanup(func() { srv.CloseClientConnections(); srv.Close() })
	a.env = map[string]string{"HOME": t.TempDir(), envAPIKey: key, "FAIRLEAD_SERVER_URL": srv.URL,
		"FAIRLEAD_CA_FILE": writeCA(t)}
	return a
}

// RedactionMark implements httpkit.Redactor.
func (a *accountAPI) RedactionMark(string, string) string { return "redacted:00000000" }

// ActiveChild implements httpkit.Backends.
func (a *accountAPI) ActiveChild(string, string) string { return "" }

// CheckStaticAddress implements httpkit.Backends.
func (a *accountAPI) CheckStaticAddress(string) error { return nil }

func (a *accountAPI) StopSession(_ context.Context, _ account.Caller, id string) error {
	a.ended = append(a.ended, "stop "+id)
	return nil
}

func (a *accountAPI) RestartSession(_ context.Context, _ account.Caller, id string) error {
	a.ended = append(a.ended, "restart "+id)
	return nil
}

// api runs `fairlead api` and wants the exit code.
func (a *accountAPI) api(code int, args ...string) result {
	a.t.Helper()
	r := fairlead(a.t, a.env, "", append([]string{"api"}, args...)...)
	if r.code != code {
		a.t.Fatalf("%q: exit code %d, want %d\n%s%s", args, r.code, code, r.out, r.err)
	}
	return r
}

// object runs a command with -o json and decodes what it prints.
func (a *accountAPI) object(args ...string) map[string]any {
	a.t.Helper()
	var o map[string]any
	storetest.Must(a.t, json.Unmarshal([]byte(a.api(0, append(args, "-o", "json")...).out), &o))
	return o
}

func TestAPI_Credentials(t *testing.T) {
	t.Parallel()
	a := newAccountAPI(t)
	made := a.api(0, "credentials", "create", "--description", "alice", "--acl", "bind:http://*.demo", "--acl",
		"connect:*", "--expires", "24h")
	secret := strings.TrimSpace(made.out)
	if !strings.HasPrefix(secret, account.AuthtokenPrefix) || strings.Contains(made.err, secret) ||
		!strings.Contains(made.err, "only this once") {
		t.Errorf("create prints %+v", made)
	}
	id := regexp.MustCompile(`cr-[0-9a-v]+`).FindString(made.err)
	changed := a.object("credentials", "update", id, "--metadata", "7", "--expires", "never", "--acl", "")
	storetest.Equal(t, "changed",
		changed["metadata"].(string)+changed["description"].(string)+strings.Join(asTexts(changed["acl"]), " "),
		"7alicebind:*")
	if changed["expires_at"] != nil || changed["token"] != nil {
		t.Errorf("changed %v", changed)
	}
	if table := a.api(0, "credentials", "list", "-o", "wide").out; !regexp.MustCompile(
		`(?m)^ID +LAST USED +DESCRIPTION +RULES +CREATED +EXPIRES\n` + id + ` +- +alice +bind:\* +` + tableTime +
			` +-\n`).
		MatchString(table) {
		t.Errorf("table:\n%s", table)
	}
	var one struct{ ID, Metadata string }
	text := a.api(0, "credentials", "get", id, "-o", "yaml").out
	storetest.Must(t, yaml.Unmarshal([]byte(text), &one))
	if one.ID != id || !strings.HasPrefix(text, "id: ") || !strings.Contains(text, `metadata: "7"`) {
		t.Errorf("yaml:\n%s", text)
	}
	if text := a.api(0, "credentials", "get", id).out; !regexp.MustCompile(`(?m)^description +alice$`).
		MatchString(text) {
		t.Errorf("get:\n%s", text)
	}
	if r := a.api(0, "credentials", "delete", id); r.out != "" || !strings.Contains(r.err, id+" deleted") {
		t.Errorf("delete prints %+v", r)
	}
	a.api(1, "credentials", "get", id)
}

func TestAPI_Keys(t *testing.T) {
	t.Parallel()
	a := newAccountAPI(t)
	made := a.object("api-keys", "create", "--scope", "read", "--expires", "2100-01-01T00:00:00Z")
	if made["expires_at"] != "2100-01-01T00:00:00Z" || strings.Join(asTexts(made["scopes"]), " ") != "read" {
		t.Errorf("made %v", made)
	}
	var all []map[string]any
	storetest.Must(t, json.Unmarshal([]byte(a.api(0, "api_keys", "list", "-o", "json").out), &all))
	storetest.Equal(t, "keys", len(all), 2)
	if r := a.api(1, "api-keys", "delete", all[1]["id"].(string)); !strings.Contains(r.err, "last admin key") {
		t.Errorf("delete prints %+v", r)
	}
	if r := a.api(exitUsage, "api-keys", "create", "--scope", "root"); !strings.Contains(r.err,
		"must be admin, read, operator, identities or exporter") {
		t.Errorf("a bad scope: %+v", r)
	}
	a.env[envAPIKey] = made["token"].(string)
	a.api(1, "api-keys", "create")
	a.env[envAPIKey] = "flk_unknown"
	a.api(exitCredentials, "api-keys", "list")
}

func TestAPI_ExporterKeys(t *testing.T) {
	t.Parallel()
	a := newAccountAPI(t)
	made := a.object("api-keys", "create", "--scope", "exporter", "--acl", "export:team-a/*", "--acl", "bind:*")
	id := made["id"].(string)
	a.api(0, "api-keys", "update", id, "--cluster-uid", "1f0c")
	table := a.api(0, "api-keys", "list", "-o", "wide").out
	for _, want := range []string{"RULES", "CLUSTER", "export:team-a/*,bind:*", "1f0c"} {
		if !strings.Contains(table, want) {
			t.Errorf("the table lacks %q:\n%s", want, table)
		}
	}
	for want, args := range map[string][]string{
		"make a key for each cluster": {"update", id, "--cluster-uid", "2a"},
		"export:team-a/*":             {"update", id, "--acl", "bind:*", "--acl", "export:team-a"},
		"goes with no other scope":    {"create", "--scope", "exporter", "--scope", "read"},
		"only a key with the scope":   {"create", "--acl", "export:*"},
	} {
		if r := a.api(exitUsage, append([]string{"api-keys"}, args...)...); !strings.Contains(r.err, want) {
			t.Errorf("%v: %s, want %q", args, r.err, want)
		}
	}
}

func TestAPI_OperatorsFromFileAndFlags(t *testing.T) {
	t.Parallel()
	a := newAccountAPI(t)
	file := filepath.Join(t.TempDir(), "operator.yaml")
	storetest.Must(t,
		os.WriteFile(file, []byte("description: eu\nenabled_features: [bindings]\nbinding:\n  ingress_endpoint: x\n"),
			0o600))
	made := a.object("kubernetes-operators", "create", "-f", file, "--description", "eu-1", "--endpoint-selector",
		"ep.port == 80", "--deployment-name", "f",
		"--deployment-namespace", "n", "--cluster-uid", "u")
	binding := made["binding"].(map[string]any)
	storetest.Equal(t, "made", made["description"].(string)+binding["ingress_endpoint"].(string)+strings.Join(
		asTexts(binding["endpoint_selectors"]), " "), "eu-1xep.port == 80")
	session := a.Session()
	bound := a.Bind(session, "http://a.demo").Endpoint
	if table := a.api(0, "kubernetes-operators", "bound-endpoints", made["id"].(string)).out; !strings.Contains(table,
		bound.ID) {
		t.Errorf("bound endpoints:\n%s", table)
	}
	a.api(0, "tunnel-sessions", "restart", session)
	a.api(0, "tunnel-sessions", "stop", session)
	storetest.Equal(t, "ended", strings.Join(a.ended, ","), "restart "+session+",stop "+session)
	if table := a.api(0, "tunnel-sessions", "list").out; !regexp.MustCompile(
		session + ` +203.0.113.9 +cr-`).
		MatchString(table) {
		t.Errorf("sessions:\n%s", table)
	}
}

func TestAPI_PagesAndFilters(t *testing.T) {
	t.Parallel()
	a := newAccountAPI(t)
	session := a.Session()
	a.Bind(session, "http://a.demo")
	a.Bind(session, "tcp://b.demo:1")
	table := a.api(0, "endpoints", "list", "--url", "HTTP://A.demo").out
	if strings.Count(table, "\n") != 2 || !strings.Contains(table, "http://a.demo") {
		t.Errorf("table:\n%s", table)
	}
	storetest.Equal(t, "an empty list", a.api(0, "endpoints", "list", "--binding", "public", "-o", "json").out, "[]\n")
	storetest.Equal(t, "an empty list", a.api(0, "endpoints", "list", "--binding", "public", "-o", "yaml").out, "[]\n")
}

func TestAPI_OwnersOfEndpoints(t *testing.T) {
	t.Parallel()
	a := newAccountAPI(t)
	session := a.Session()
	a.Bind(session, "http://plain.demo")
	owned := a.BindFor(session, storetest.Owner("api")).Endpoint
	table := a.api(0, "endpoints", "list", "-o", "wide").out
	for _, want := range []string{`(?m)^URL .* OWNER +CREATED$`,
		owned.ID + ` .* +AgentEndpoint team-a/api +` + tableTime, `http://plain.demo .* - +` + tableTime} {
		if !regexp.MustCompile(want).MatchString(table) {
			t.Errorf("table has no %q:\n%s", want, table)
		}
	}
	table = a.api(0, "endpoints", "list", "--owner-cluster", owned.Owner.Cluster).out
	if strings.Count(table, "\n") != 2 || !strings.Contains(table, owned.ID) {
		t.Errorf("of the cluster:\n%s", table)
	}
	text := a.api(0, "endpoints", "get", owned.ID).out
	if !regexp.MustCompile(`(?m)^owner +AgentEndpoint team-a/api of cluster ` + owned.Owner.Cluster +
		`, uid uid-1$`).MatchString(text) {
		t.Errorf("get:\n%s", text)
	}
	a.api(exitUsage, "endpoints", "list", "--watch", "--owner-cluster", "c-1")
}

func TestAPIWatch_SurvivesOutages(t *testing.T) {
	t.Parallel()
	for format, pattern := range map[string]string{"table": `^%s +ep-\S+ +\S+ +http://%s$`,
		"json": `^{"type":"%s",.*"url":"http://%s"`, `jsonpath={.url}{"\n"}`: `^(?:%s)?http://%s$`} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			a := newAccountAPI(t)
			session := a.Session()
			a.Bind(session, "http://old.demo")
			ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
			defer stop()
			r, w := io.Pipe()
			ended := make(chan int, 1)
			go func() {
				code := run(ctx, []string{"api", "endpoints", "list", "--watch", "-o", format},
					console{in: strings.NewReader(""), out: w, err: io.Discard, env: func(k string) string {
						return a.env[k]
					}})
				_ = w.Close()
				ended <- code
			}()
			lines := bufio.NewScanner(r)
			next := func(event, host string) {
				t.Helper()
				want := regexp.MustCompile(strings.Replace(strings.Replace(pattern, "%s", event, 1), "%s", host, 1))
				for lines.Scan() {
					if want.MatchString(lines.Text()) {
						return
					}
				}
				t.Fatalf("the watch ended without %s of %s", event, host)
			}
			next("ADDED", "old.demo")
			a.Bind(session, "http://new.demo")
			next("ADDED", "new.demo")
			a.EndSession(session)
			next("MODIFIED", "old.demo")
			stop()
			go func() { _, _ = io.Copy(io.Discard, r) }()
			storetest.Equal(t, "exit code", <-ended, 0)
		})
	}
}

func TestAPI_WrongUsage(t *testing.T) {
	t.Parallel()
	a := newAccountAPI(t)
	bad := filepath.Join(t.TempDir(), "bad")
	storetest.Must(t, os.WriteFile(bad, []byte("[1]"), 0o600))
	for want, args := range map[string][]string{
		"needs one argument, the ID or URL of an": {"endpoints", "get"},
		"takes no argument":                       {"endpoints", "list", "x"},
		`--output "xml"`:                          {"endpoints", "list", "-o", "xml"},
		"did you mean":                            {"endpoint"},
		"nothing to change is given":              {"api-keys", "update", "ak-1"},
		"must be a duration such as 720h":         {"api-keys", "create", "--expires", "soon"},
		"must hold one JSON or YAML object":       {"credentials", "create", "-f", bad},
		"--file: open":                            {"credentials", "create", "-f", bad + "x"},
		"unknown flag: --cluster-uid":             {"kubernetes-operators", "update", "op-1", "--cluster-uid", "x"},
		"unknown command \"create\"":              {"tunnel-sessions", "create"},
		`--backend "x": must be NAME=VALUE`:       {"backends", "weighted", "create", "--backend", "x"},
		`--backend "x=y": must be a whole number`: {"backends", "weighted", "create", "--backend", "x=y"},
		`x is given twice`: {"backends", "weighted", "create", "--backend", "x=1", "--backend",
			"x=2"},
		"--traffic-policy-file: open":     {"endpoints", "create", "--traffic-policy-file", bad + "x"},
		"backends failover update --help": {"backends", "failover", "update", "bkdfo-1"},
		"the ID of a static backend":      {"backends", "static", "get"},
	} {
		if r := a.api(exitUsage, args...); !strings.Contains(r.err, want) || strings.Count(r.err, "\n") != 1 ||
			r.out != "" {
			t.Errorf("%q: %+v, want %q", args, r, want)
		}
	}
	if r := a.api(0, "endpoints", "--help"); strings.Contains(r.out, "Aliases:") {
		t.Errorf("an alias that is the name:\n%s", r.out)
	}
	trusted := a.env["FAIRLEAD_CA_FILE"]
	delete(a.env, "FAIRLEAD_CA_FILE")
	a.env["FAIRLEAD_AUTHTOKEN"] = "malformed, and not used"
	if r := a.api(exitIdentity, "endpoints", "list"); !strings.Contains(r.err,
		"give the server's authority with --ca-file") {
		t.Errorf("an authority that is not trusted: %+v", r)
	}
	a.env["FAIRLEAD_CA_FILE"] = trusted
	a.env[envAPIKey] = ""
	if r := a.api(exitUsage, "endpoints", "list"); !strings.Contains(r.err, "no API key is given") {
		t.Errorf("without a key: %+v", r)
	}
}

func asTexts(v any) (all []string) {
	list, _ := v.([]any)
	for _, one := range list {
		all = append(all, one.(string))
	}
	return all
}

// TestAPI_ErrorsHaveTheirCode: a refusal of the service can be looked up by its code.
func TestAPI_ErrorsHaveTheirCode(t *testing.T) {
	t.Parallel()
	a := newAccountAPI(t)
	if got := a.api(exitOther, "endpoints", "get", "ep-none").err; !strings.HasSuffix(got, " (ERR_FL_1050)\n") {
		t.Errorf("%q", got)
	}
}

// checkPolicy takes what is no policy as it is, so that tests see it again.
func checkPolicy(text, scheme, binding string) (account.PolicyFacts, error) {
	if !strings.HasPrefix(text, "on_") {
		return account.PolicyFacts{Digest: text}, nil
	}
	p, err := trafficpolicy.Compile(text, trafficpolicy.Options{Scheme: scheme, Binding: binding})
	if err != nil {
		return account.PolicyFacts{}, err
	}
	return p.Facts(), nil
}
