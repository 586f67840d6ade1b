// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/test/support/accounttest"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// securityTable reads the table below the heading of docs/secure/credentials.md: cells by the text
// of the row's first cell and of the column's head, without backquotes.
func securityTable(t testing.TB, heading string) map[string]map[string]string {
	t.Helper()
	page, err := os.ReadFile("../../docs/secure/credentials.md")
	must.Succeed(t, err)
	_, text, found := strings.Cut(string(page), "\n### "+heading+"\n")
	text, _, _ = strings.Cut(text, "\n#")
	rows, columns := map[string]map[string]string{}, []string(nil)
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "|--") {
			continue
		}
		cells := strings.Split(strings.Trim(strings.ReplaceAll(strings.TrimSpace(line), "`", ""), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if columns == nil {
			columns = cells
			continue
		}
		row := map[string]string{}
		for i, cell := range cells[1:] {
			row[columns[i+1]] = cell
		}
		rows[cells[0]] = row
	}
	if !found || len(rows) == 0 {
		t.Fatalf("docs/secure/credentials.md has no table below %q", heading)
	}
	return rows
}

// stolen are credentials of one account that a thief has, by the column of the page that has them,
// and what there is to be had.
type stolen struct {
	*servicetest.Server
	keys       map[string]string
	ids        map[string]string // of objects that are another's, by the path of their list
	own        map[string]map[string]string
	operatorID string // registered with the key of the scope operator
}

// callAs calls the API with the secret and returns status and body. A text is sent as it is.
func (s *stolen) callAs(secret, method, path, body string) (int, string) {
	s.T.Helper()
	var in any
	if body != "" {
		in = json.RawMessage(body)
	}
	res := callWith(s.Server, secret, method, path, in)
	return res.StatusCode, servicetest.ReadAll(s.T, res.Body)
}

// make creates an object with the secret and returns its id.
func (s *stolen) make(secret, path, body string) string {
	s.T.Helper()
	status, text := s.callAs(secret, "POST", path, body)
	var made struct{ ID string }
	if err := json.Unmarshal([]byte(text), &made); err != nil || status != http.StatusCreated || made.ID == "" {
		s.T.Fatalf("POST %s: %d %s", path, status, text)
	}
	return made.ID
}

const newOperator = `{"enabled_features":["bindings"]}`

// exportedBody is a new endpoint of an object in the exporter's cluster.
func exportedBody(url, cluster string) string {
	return fmt.Sprintf(`{"url":%q,"owner":{"cluster":%q,"kind":"CloudEndpoint","namespace":"team-a","name":"web",`+
		`"uid":"u"}}`, url, cluster)
}

// exporterRules are what the exporter's credential admits.
var exporterRules = []string{"export:team-a/*", "bind:http://*.team-a", "bind:tcp://*.team-a:*"}

// stealTokens replaces the secrets by tokens of ServiceAccounts of the same roles.
func (s *stolen) stealTokens() {
	c := newTrustedCluster(s.T, s.Server)
	uid := "one"
	c.patch(account.ClusterPatch{ClusterUID: &uid, Subjects: &[]account.SubjectPatch{
		{Namespace: "fairlead", ServiceAccount: "manager", Role: account.RoleOperator},
		{Namespace: "fairlead", ServiceAccount: "forwarder", Role: account.RoleForwarder},
		{Namespace: "fairlead", ServiceAccount: "exporter", Role: account.RoleExporter, ACL: &exporterRules},
	}})
	s.keys = map[string]string{"API key operator": c.token("manager", time.Hour),
		"API key exporter": c.token("exporter", time.Hour), "authtoken connect:*": c.token("forwarder", time.Hour)}
}

// startStolen runs a service of whose account the credentials are stolen: the secrets, or tokens of
// ServiceAccounts.
func startStolen(t *testing.T, tokens bool) *stolen {
	t.Helper()
	s := &stolen{Server: servicetest.Start(t), keys: map[string]string{}}
	for column, body := range map[string]map[string]any{
		"API key operator": {"scopes": []string{"operator"}},
		"API key exporter": {"scopes": []string{"exporter"}, "cluster_uid": "one",
			"acl": exporterRules},
	} {
		var key account.APIKey
		s.CreateObject("/api_keys", body, &key)
		s.keys[column] = *key.Token
	}
	s.keys["authtoken connect:*"] = *s.CreateAuthtoken("connect:*").Token
	if tokens {
		s.stealTokens()
	}
	s.operatorID = s.make(s.keys["API key operator"], "/kubernetes_operators", newOperator)
	if !tokens {
		s.keys["authtoken connect:OPERATOR"] = *s.CreateAuthtoken("connect:" + s.operatorID).Token
	}
	s.ids = map[string]string{
		"/kubernetes_operators": s.make(s.APIKey, "/kubernetes_operators", newOperator),
		"/endpoints":            s.Tenant().Cloud("kubernetes", "http://theirs.demo", "", "").EndpointID,
		"/api_keys":             s.make(s.APIKey, "/api_keys", `{}`),
	}
	var self struct{ Keys []account.APIKey }
	_, text := s.callAs(s.keys["API key operator"], "GET", "/api_keys", "")
	if json.Unmarshal([]byte(text), &self) != nil || len(self.Keys) != 1 {
		t.Fatalf("the key lists %s", text)
	}
	s.own = map[string]map[string]string{
		"API key operator": {"/kubernetes_operators": s.operatorID, "/api_keys": self.Keys[0].ID},
		"API key exporter": {"/endpoints": s.make(s.keys["API key exporter"], "/endpoints",
			exportedBody("http://web.team-a", "one"))},
	}
	return s
}

// answers returns what the page should say of a call with a key: "all" and "own" objects are
// answered, "new" ones made, and "–" is refused; otherwise what is neither.
func (s *stolen) answers(column, method, pattern string) string {
	s.T.Helper()
	key, list := s.keys[column], strings.Split(pattern, "/{")[0]
	body := map[string]string{"PATCH": `{"description":"x"}`, "POST": "{}"}[method]
	theirs, text := s.callAs(key, method, strings.ReplaceAll(pattern, "{id}", cmp.Or(s.ids[list], "none")), body)
	one := strings.Contains(pattern, "{id}")
	switch {
	case theirs == http.StatusForbidden && strings.Contains(text, string(account.CodeScope)):
		return "–"
	case method == "POST" && !one:
		return s.creates(key, list)
	case one && theirs == http.StatusNotFound:
		mine, answer := s.callAs(key, method, strings.ReplaceAll(pattern, "{id}", s.own[column][list]), body)
		switch mine / 100 {
		case 2:
			return "own"
		case 4:
			return "none"
		}
		return fmt.Sprintf("%d of another's, %d of its own: %s", theirs, mine, answer)
	case theirs/100 != 2:
		return fmt.Sprintf("%d: %s", theirs, text)
	case one || pattern == "/openapi.json" || strings.Contains(text, s.ids[list]):
		return "all"
	case strings.Contains(text, s.own[column][list]):
		return "own"
	}
	return "an answer without any object: " + text
}

// creates returns "new" for a list to which the key adds an object.
func (s *stolen) creates(key, list string) string {
	s.T.Helper()
	allowed, forbidden := newOperator, ""
	if list == "/endpoints" {
		allowed, forbidden = exportedBody("http://new.team-a", "one"), exportedBody("http://new.team-b", "one")
	}
	if list == "/cluster_keys" { // answered with the cluster that has them now
		keys, err := json.Marshal(accounttest.NewTokenSigner(s.T, "k-2", "ES256").KeySet(s.T))
		must.Succeed(s.T, err)
		status, text := s.callAs(key, "POST", list, fmt.Sprintf(`{"jwks":%s}`, keys))
		switch status {
		case http.StatusOK:
			return "new"
		case http.StatusForbidden:
			return "–"
		}
		return fmt.Sprintf("%d: %s", status, text)
	}
	if forbidden != "" {
		if status, text := s.callAs(key, "POST", list, forbidden); status != http.StatusForbidden {
			return fmt.Sprintf("beyond its rules: %d %s", status, text)
		}
	}
	status, text := s.callAs(key, "POST", list, allowed)
	if status != http.StatusCreated {
		return fmt.Sprintf("%d: %s", status, text)
	}
	return "new"
}

// TestSecurity_PageHasCallsOfKeys calls every operation of the API's description with stolen
// credentials, and compares with docs/secure/credentials.md.
func TestSecurity_PageHasCallsOfKeys(t *testing.T) {
	t.Parallel()
	startStolen(t, false).checkCalls(http.StatusUnauthorized, nil)
}

// TestSecurity_PageHasCallsOfTokens does the same with tokens of ServiceAccounts, which have the
// rights of their role's key, but are none.
func TestSecurity_PageHasCallsOfTokens(t *testing.T) {
	t.Parallel()
	startStolen(t, true).checkCalls(http.StatusForbidden, map[string]string{"GET /api_keys/{id}": "none",
		"POST /cluster_keys": "new"})
}

// checkCalls calls every operation. What the forwarders' credential is answered is always the status;
// other has cells for the operator's that the page has not.
func (s *stolen) checkCalls(forwarders int, other map[string]string) {
	t := s.T
	t.Helper()
	table := securityTable(t, "Calls of the API with a stolen credential")
	for call, cell := range other {
		if table[call] == nil {
			table[call] = map[string]string{}
		}
		table[call]["API key operator"] = cell
	}
	var d struct{ Paths map[string]map[string]any }
	_, text := s.callAs(s.APIKey, "GET", "/openapi.json", "")
	if err := json.Unmarshal([]byte(text), &d); err != nil || len(d.Paths) < 20 {
		t.Fatalf("%d paths, %v", len(d.Paths), err)
	}
	var calls []string
	for pattern, methods := range d.Paths {
		for method := range methods {
			calls = append(calls, strings.ToUpper(method)+" "+pattern)
		}
	}
	// What deletes comes last, for the others need the objects.
	slices.SortFunc(calls, func(a, b string) int {
		return cmp.Or(strings.Index(a, "DELETE")-strings.Index(b, "DELETE"), strings.Compare(a, b))
	})
	for _, call := range calls {
		method, pattern, _ := strings.Cut(call, " ")
		for _, column := range []string{"API key operator", "API key exporter"} {
			if got, want := s.answers(column, method, pattern), cmp.Or(table[call][column], "–"); got != want {
				t.Errorf("%s with %s: %s, and docs/secure/credentials.md says %s", call, column, got, want)
			}
		}
		status, _ := s.callAs(s.keys["authtoken connect:*"], method, pattern, "")
		if status != forwarders {
			t.Errorf("%s with the forwarders' credential: %d", call, status)
		}
		delete(table, call)
	}
	for call := range table {
		t.Errorf("docs/secure/credentials.md has %s, which the API does not", call)
	}
}

// TestSecurity_DeletedKeyIsRefused revokes keys as docs/secure/credentials.md says.
func TestSecurity_DeletedKeyIsRefused(t *testing.T) {
	t.Parallel()
	s := startStolen(t, false)
	for _, column := range []string{"API key operator", "API key exporter"} {
		if status, text := s.callAs(s.keys[column], "GET", "/endpoints", ""); status != http.StatusOK {
			t.Fatalf("%s: %d %s", column, status, text)
		}
	}
	var all struct{ Keys []account.APIKey }
	s.CallAPI("GET", "/api_keys", nil, &all)
	for _, key := range all.Keys {
		if !slices.Contains(key.Scopes, account.ScopeAdmin) {
			s.RequireStatus("DELETE", "/api_keys/"+key.ID, nil, http.StatusNoContent)
		}
	}
	deleted := time.Now()
	for _, column := range []string{"API key operator", "API key exporter"} {
		if status, _ := s.callAs(s.keys[column], "GET", "/endpoints", ""); status != http.StatusUnauthorized {
			t.Errorf("%s, %s after it was deleted: %d", column, time.Since(deleted), status)
		}
	}
}
