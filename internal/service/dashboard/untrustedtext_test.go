// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"net/url"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// setTexts sets every text that clients, agents and identity providers choose.
func (f *fake) setTexts(text string) {
	f.setIdentityTexts(text)
	f.setEndpointTexts(text)
	f.setBackendTexts(text)
	f.setClusterTexts(text)
	for i := range f.agents {
		a := &f.agents[i]
		a.IP, a.OS, a.AgentVersion, a.Metadata, a.Region, a.Transport = text, text, text, text, text, text
	}
	for i := range f.tunnels {
		f.tunnels[i].Labels, f.tunnels[i].ForwardsTo = map[string]string{"app": "api", text: text}, text
	}
	for i := range f.keys {
		f.keys[i].Description = text
	}
	for _, list := range f.requests {
		for i := range list {
			r := &list[i]
			r.ID, r.Method, r.Path, r.Proto, r.Caller, r.Replica = text, text, text, text, text, text
			r.Code = account.Code(text)
		}
	}
	for i := range f.tokens {
		f.tokens[i].Description, f.tokens[i].ACL = text, []string{text}
	}
	for i := range f.events {
		f.events[i].Type, f.events[i].Details = account.AuditType(text), map[string]string{text: text}
	}
}

func (f *fake) setIdentityTexts(text string) {
	for i := range f.users {
		u := &f.users[i]
		u.Name, u.Username, u.Email, u.ProviderUserID = text, text, text, text
		u.Provider = account.IdentityProvider{Name: text, URL: "javascript:alert(4)"}
		f.visited[u.ID] = []account.AccessedEndpoint{{URL: text}, {URL: "javascript:alert(5)"}}
	}
	for i := range f.sessions {
		s := &f.sessions[i]
		s.PublicURL, s.Device.IPAddress = text, text
		s.Device.UserAgent = account.UserAgent{Raw: text, BrowserName: text, BrowserVersion: text, DeviceType: text,
			OSName: text, OSVersion: text}
		s.Device.Location = &account.Location{CountryCode: &text}
		s.Device.Network = &account.Network{Organization: text}
	}
}

func (f *fake) setEndpointTexts(text string) {
	for i := range f.endpoints {
		e := &f.endpoints[i]
		e.URL, e.Host, e.Name, e.Description, e.Metadata = text, text, text, text, text
		if e.Owner != nil {
			e.Owner = &account.Owner{Cluster: text, Namespace: text, Name: text}
		}
		e.UpstreamURL, e.Status, e.Type, e.Bindings = text, text, text, []string{text}
		e.TrafficPolicy = "a: '" + strings.ReplaceAll(text, "'", "") + "'"
	}
	for i := range f.ops {
		o := &f.ops[i]
		o.Description, o.Metadata, o.Region, o.ClusterUID = text, text, text, text
		o.Deployment = account.OperatorDeployment{Name: text, Namespace: text, Version: text, ClusterName: text}
		o.Binding.EndpointSelectors = []string{text}
	}
}

func (f *fake) setBackendTexts(text string) {
	for i := range f.backends {
		b := &f.backends[i]
		b.Description, b.Metadata = text, text
		if b.Response != nil {
			b.Response = &account.HTTPResponse{StatusCode: 200, Headers: map[string]string{text: text}, Body: text}
		}
		if b.Static != nil {
			b.Static = &account.StaticAddress{Address: text}
		}
	}
}

func (f *fake) setClusterTexts(text string) {
	for i := range f.clusters {
		c := &f.clusters[i]
		c.Name, c.Issuer, c.Description, c.Metadata, c.ClusterUID = text, text, text, text, text
		c.JWKS.Keys = []account.ClusterKey{{KeyID: text, Algorithm: text}}
		c.Subjects = []account.ClusterSubject{{Namespace: text, ServiceAccount: text, ACL: account.ACL{text},
			UID: text}}
	}
}

// everyPath returns the paths of all pages, some with text as a parameter.
func everyPath(f *fake, text string) []string {
	paths := []string{"/ui/events", "/ui/sign-in?return=" + url.QueryEscape("/ui/endpoints?q="+text),
		"/ui/endpoints?q=" + url.QueryEscape(text), identitiesPath + "?q=" + url.QueryEscape(text),
		identitiesPath + "?provider=" + url.QueryEscape(text+"x"),
		"/ui/traffic-policy/sessions/" + f.sessions[0].ID + "/revoke", "/ui/api-keys/" + f.keys[0].ID + "/delete",
		"/ui/authtokens/" + f.tokens[0].ID + "/delete", "/ui/clusters/" + f.clusters[0].ID + "/delete",
		"/ui/agents/" + f.agents[0].ID + "/stop",
		"/ui/backends?kind=static", "/ui/backends/" + f.backends[1].ID}
	for _, p := range shownPages(f) {
		paths = append(paths, p.path)
	}
	return paths
}

func TestPages_EscapeHTML(t *testing.T) {
	t.Parallel()
	f := newFake(testTime())
	evil := `"><script>alert(1)</script><img src=x onerror=alert(2)> javascript:alert(3) {{.Key}}`
	f.setTexts(evil)
	b := signedInAs(t, dashboardOf(t, f, nil), "flk_admin")
	for _, path := range everyPath(f, evil) {
		a := b.get(path)
		low := strings.ToLower(a.body)
		if strings.Contains(low, "<script>") || strings.Contains(low, "<img") ||
			strings.Contains(low, `href="javascript:`) || strings.Contains(a.body, "ZgotmplZ") {
			t.Errorf("%s (%d) shows a name as HTML", path, a.status)
		}
	}
}

// TestPages_EscapeHiddenCharacters requires that characters that are invisible or change the
// direction of text are escaped on every page.
func TestPages_EscapeHiddenCharacters(t *testing.T) {
	t.Parallel()
	f := newFake(testTime())
	evil := "Alice\u202e\u2066\u061c\u200eecilA\u200b\u00ad\u3164"
	f.setTexts(evil)
	f.users[7].Name = "עלי כהן"
	b := signedInAs(t, dashboardOf(t, f, nil), "flk_admin")
	for _, path := range everyPath(f, evil) {
		if strings.ContainsAny(b.get(path).body, "\u202e\u2066\u061c\u200e\u200b\u00ad\u3164") {
			t.Errorf("%s has an invisible character", path)
		}
	}
	if body := b.get(identitiesPath).body; !strings.Contains(body,
		`Alice\u202e\u2066\u061c\u200eecilA\u200b\u00ad\u3164`) || !strings.Contains(body, "עלי כהן") {
		t.Error("the list hides what is in a name, or right-to-left text")
	}
}
