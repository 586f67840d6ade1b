// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"fmt"
	"html"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/test/support/accounttest"
)

// addExport adds the export of demo/hello, and, last, two endpoints of one of its ports.
func (f *fake) addExport() (record account.Endpoint) {
	owner := accounttest.ExportOwner("demo", "hello")
	add := func(n int, u account.EndpointURL, kind string) *account.Endpoint {
		e := account.Endpoint{ID: f.id(account.PrefixEndpoint, time.Duration(n)*time.Second, 2000+n), AccountID: mine,
			URL: u.String(), HostPort: u.HostPort(), Scheme: u.Scheme, Host: u.Host, Port: u.Port, Type: kind,
			Bindings: []string{account.BindingClusterset}, Status: account.StatusOnline, CreatedAt: f.now,
			UpdatedAt: f.now, Owner: owner}
		f.endpoints, f.owner[e.ID] = append(f.endpoints, e), mine
		return &f.endpoints[len(f.endpoints)-1]
	}
	made := add(1, account.ServiceExportURL("hello", "demo", "a"), account.TypeCloud)
	made.ServiceExport = accounttest.ServiceExport()
	record = *made
	for n := range 2 {
		port := add(2+n, account.ExportedPortURL("hello", "demo", "a", 42), account.TypeAgent)
		port.TunnelSession = &account.Ref{ID: f.agents[n].ID}
	}
	return record
}

var tags = regexp.MustCompile(`(?s)<style.*?</style>|<[^>]*>|\s+`)

// textOf is what a page says, in one line.
func textOf(page string) string {
	return strings.Join(strings.Fields(html.UnescapeString(tags.ReplaceAllString(page, " "))), " ")
}

func TestServiceExport_Shown(t *testing.T) {
	t.Parallel()
	f := newFake(testTime())
	record := f.addExport()
	b := signedInAs(t, dashboardOf(t, f, nil), "flk_read")
	page := b.get("/ui/endpoints/" + record.ID)
	text := textOf(page.body)
	for _, want := range []string{"service://hello.demo.a", "Binding clusterset", "Type cloud",
		"Object ServiceExport demo/hello in cluster c-1", "Cluster id a", "Service ClusterSetIP, ready",
		"Ports tcp 42/TCP udp 42/UDP", "Session affinity ClientIP, 10 s", "Labels example.com/team=a",
		"Annotations note=for everyone", "Its TCP ports"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not say %q: %s", want, text)
		}
	}
	for _, wrong := range []string{"Nowhere", "Traffic policy", "hello.demo.a:0", "&lt;nil&gt;", "map["} {
		if strings.Contains(page.body, wrong) {
			t.Errorf("the page says %q: %s", wrong, text)
		}
	}
	if n := strings.Count(page.body, `data-key="ep-`); page.status != http.StatusOK || n != 2 {
		t.Errorf("%d with %d ports, want 2", page.status, n)
	}
	text = textOf(b.get("/ui/endpoints?binding=clusterset").body)
	if strings.Count(text, "export of a Service demo/hello online") != 1 ||
		strings.Count(text, "clusterset agent demo/hello") != 2 {
		t.Errorf("the list says %s", text)
	}
	port := textOf(b.get("/ui/endpoints/" + f.endpoints[len(f.endpoints)-1].ID).body)
	if strings.Contains(port, "Traffic policy") || !strings.Contains(port, "Others of its object") {
		t.Errorf("the page of a port says %s", port)
	}
}

// TestServiceExport_ShownWithoutAnything shows an export of the fewest fields, whose Service has no
// pod that is ready.
func TestServiceExport_ShownWithoutAnything(t *testing.T) {
	t.Parallel()
	f := newFake(testTime())
	f.addExport()
	f.endpoints = f.endpoints[:len(f.endpoints)-2]
	record := &f.endpoints[len(f.endpoints)-1]
	record.ServiceExport = (&account.ServiceExport{Type: account.ExportHeadless, SessionAffinity: "None"}).Normal()
	b := signedInAs(t, dashboardOf(t, f, nil), "flk_read")
	text := textOf(b.get("/ui/endpoints/" + record.ID).body)
	for _, want := range []string{"Headless, none of its pods is ready", "Ports –", "Session affinity None",
		"No exporter carries a port of it"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not say %q: %s", want, text)
		}
	}
	if list := textOf(b.get("/ui/endpoints").body); !strings.Contains(list, "online not ready") {
		t.Errorf("the list says %s", list)
	}
	for i := range 3 { // what people of another cluster wrote stays text
		record.ServiceExport.Annotations[fmt.Sprint("a", i)] = "<script>alert(1)</script>"
	}
	if body := b.get("/ui/endpoints/" + record.ID).body; strings.Contains(body, "<script>alert") {
		t.Error("an annotation is no text")
	}
}
