// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/store"
	"github.com/fairlead-dev/fairlead/test/support/accounttest"
)

// Export describes the export of the Service demo/NAME by a cluster, in the first account.
func (f *Fixture) Export(name, clusterID, clusterUID string) account.Endpoint {
	u := account.ServiceExportURL(name, "demo", clusterID)
	e := account.Endpoint{AccountID: f.AccountID, URL: u.String(), Scheme: u.Scheme, Host: u.Host, Port: u.Port,
		Bindings: []string{account.BindingClusterset}, ServiceExport: accounttest.ServiceExport(),
		Owner: accounttest.ExportOwner("demo", name)}
	e.Owner.Cluster = clusterUID
	return e
}

// ExportedPort is a bind of a port of what Export describes.
func (f *Fixture) ExportedPort(session string, export account.Endpoint, port int) account.BindRequest {
	f.T.Helper()
	r := f.RequestIn(account.BindingClusterset, session, fmt.Sprintf("tcp://%s:%d", export.Host, port))
	r.UpstreamProtocol, r.HostMode, r.Owner = "", "", export.Owner
	return r
}

func (f *Fixture) bindPort(session string, export account.Endpoint, port int) error {
	f.T.Helper()
	_, err := f.Store.Bind(f.ctx(), f.ExportedPort(session, export, port))
	return err
}

// records are the exports of Services in the first account, newest first.
func (f *Fixture) records() []account.Endpoint {
	f.T.Helper()
	page, err := f.Store.ListEndpoints(f.ctx(), f.AccountID, recordsOnly, account.Page{})
	Must(f.T, err)
	return page.Endpoints
}

var recordsOnly = account.EndpointFilter{Bindings: []string{account.BindingClusterset}, Type: account.TypeCloud}

// serviceExports tests the exports of Services: as endpoints of type cloud, in the event log, and
// whose a cluster id is.
var serviceExports = map[string]func(*testing.T, Open){
	"service export: create, read, list, event": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		before := f.List().Version
		made := f.MakeCloud(f.Export("hello", "a", "one"))
		event := f.Expect(before, account.Added)[0].Endpoint
		f.Restart()
		want := accounttest.ServiceExport()
		for where, e := range map[string]*account.Endpoint{"made": made, "event": event, "read": f.Endpoint(made.ID),
			"listed": &f.records()[0]} {
			if !reflect.DeepEqual(e.ServiceExport, want) {
				t.Errorf("%s: %+v, want %+v", where, e.ServiceExport, want)
			}
			Equal(t, where+" address", fmt.Sprint(e.URL, " ", e.HostPort, " ", e.Port, " ", e.Status, " ", e.Type),
				"service://hello.demo.a hello.demo.a 0 online cloud")
		}
		Equal(t, "others", f.Bind(f.Session(), "http://plain.demo").Endpoint.ServiceExport, nil)
	},
	"service export: empty lists are no nil": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		e := f.Export("hello", "a", "one")
		e.ServiceExport = &account.ServiceExport{Type: account.ExportHeadless, SessionAffinity: "None"}
		made := f.MakeCloud(e)
		for _, got := range []*account.Endpoint{made, f.Endpoint(made.ID)} {
			if !reflect.DeepEqual(got.ServiceExport, e.ServiceExport.Normal()) {
				t.Errorf("%+v", got.ServiceExport)
			}
		}
		at := f.List().Version
		_, err := f.patchCloud(made.ID, account.EndpointPatch{ServiceExport: e.ServiceExport})
		Must(t, err)
		f.Expect(at)
	},
	"service export: patch replaces it": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		made := f.MakeCloud(f.Export("hello", "a", "one"))
		changed := accounttest.ServiceExport()
		changed.Ports, changed.Labels = changed.Ports[:1], nil
		f.Clock.Step(time.Minute)
		for _, c := range []struct {
			p     account.EndpointPatch
			types []account.EventType
		}{
			{account.EndpointPatch{ServiceExport: accounttest.ServiceExport(), OwnerUID: new("u-1")}, nil},
			{account.EndpointPatch{ServiceExport: changed}, []account.EventType{account.Modified}},
			{account.EndpointPatch{OwnerUID: new("u-2")}, []account.EventType{account.Modified}},
			{account.EndpointPatch{ServiceExport: changed, Description: new("")}, nil},
		} {
			at := f.List().Version
			_, err := f.patchCloud(made.ID, c.p)
			Must(t, err)
			f.Expect(at, c.types...)
		}
		got := f.Endpoint(made.ID)
		if !reflect.DeepEqual(got.ServiceExport, changed.Normal()) || got.Owner.UID != "u-2" ||
			!got.CreatedAt.Equal(made.CreatedAt) {
			t.Errorf("patched %+v of %+v", got.ServiceExport, got.Owner)
		}
		wrong := accounttest.ServiceExport()
		wrong.Type = "x"
		_, err := f.patchCloud(made.ID, account.EndpointPatch{ServiceExport: wrong})
		mustSay(t, err, account.CodeInvalid, "service_export.type")
		plain := f.MakeCloud(f.Cloud("http://plain.demo"))
		_, err = f.patchCloud(plain.ID, account.EndpointPatch{ServiceExport: changed})
		mustSay(t, err, account.CodeInvalid, "goes with the binding clusterset")
	},
	"service export: readiness is no audit event": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		made := f.MakeCloud(f.Export("hello", "a", "one"))
		count := func() int {
			page, err := f.Store.AuditEvents(t.Context(), f.AccountID,
				account.AuditFilter{Type: account.AuditEndpointUpdated}, account.Page{})
			Must(t, err)
			return len(page.Events)
		}
		at, export := f.List().Version, accounttest.ServiceExport()
		export.Ready = false
		_, err := f.patchCloud(made.ID, account.EndpointPatch{ServiceExport: export})
		Must(t, err)
		f.Expect(at, account.Modified)
		Equal(t, "audit events of readiness", count(), 0)
		Equal(t, "ready", f.Endpoint(made.ID).ServiceExport.Ready, false)
		export.Ready, export.Type = true, account.ExportHeadless
		_, err = f.patchCloud(made.ID, account.EndpointPatch{ServiceExport: export})
		Must(t, err)
		Equal(t, "audit events", count(), 1)
	},
	"service export: made again, it is the youngest": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		first := f.MakeCloud(f.Export("hello", "a", "one"))
		f.Clock.Step(time.Second)
		second := f.MakeCloud(f.Export("hello", "b", "two"))
		f.Clock.Step(time.Second)
		mustSay(t, f.createCloud(f.Export("hello", "a", "one")), account.CodeURLTaken, first.ID)
		Must(t, f.Store.DeleteEndpoint(t.Context(), account.Caller{AccountID: f.AccountID}, first.ID))
		again := f.MakeCloud(f.Export("hello", "a", "one"))
		Equal(t, "id", again.ID, first.ID) // within its reservation
		Equal(t, "younger", again.CreatedAt.After(second.CreatedAt), true)
	},
	"service export: its ports have rows of their own": func(t *testing.T, open Open) {
		f := NewFixture(t, open, func(o *store.Options) { o.MaxEndpoints = 4 })
		export := f.Export("hello", "a", "one")
		first, second := f.Session(), f.Session()
		Must(t, f.bindPort(first, export, 42)) // the port may be first
		f.Clock.Step(time.Millisecond)
		f.MakeCloud(export)
		Must(t, f.bindPort(second, export, 42)) // another replica of the exporter
		Must(t, f.bindPort(first, export, 43))
		Equal(t, "records", len(f.records()), 1)
		MustCode(t, f.bindPort(second, export, 43), account.CodeLimit)
		MustCode(t, f.createCloud(f.Export("other", "a", "one")), account.CodeLimit)
		for _, e := range f.List().Endpoints {
			Equal(t, "export of "+e.URL, e.ServiceExport != nil, e.Type == account.TypeCloud)
			Equal(t, "projection", e.ProjectionID, f.List().Endpoints[3].ID)
		}
	},
	"service export: watch of a type": watchOfType,
}

// watchOfType reads the log of records among changes of other endpoints: what is dropped counts as
// read, and fewer events than the limit are the end of the log.
func watchOfType(t *testing.T, open Open) {
	f := NewFixture(t, open)
	start, session := f.List().Version, f.Session()
	var want []string
	for i := range 12 {
		export := f.Export(fmt.Sprintf("s%d", i), "a", "one")
		if i%5 == 0 {
			want = append(want, f.MakeCloud(export).ID)
			continue
		}
		for port := range 3 {
			Must(t, f.bindPort(session, export, port+1))
		}
		f.Bind(session, fmt.Sprintf("http://e%d.demo", i))
	}
	end := f.List().Version
	for limit := 1; limit < 8; limit++ {
		var got []string
		v := start
		for {
			events, upTo, err := f.Store.EndpointEvents(t.Context(), f.AccountID, v, recordsOnly, limit)
			Must(t, err)
			for _, e := range events {
				got = append(got, e.Endpoint.ID)
			}
			if v = upTo; len(events) < limit {
				break
			}
			Equal(t, "read to", upTo, events[limit-1].ResourceVersion)
		}
		Equal(t, fmt.Sprintf("end with the limit %d", limit), v, end)
		Equal(t, fmt.Sprintf("events with the limit %d", limit), fmt.Sprint(got), fmt.Sprint(want))
	}
	Must(t, f.bindPort(session, f.Export("last", "a", "one"), 1))
	events, upTo, err := f.Store.EndpointEvents(t.Context(), f.AccountID, end, recordsOnly, 1)
	Must(t, err)
	Equal(t, "only others", fmt.Sprint(len(events), upTo), fmt.Sprint(0, f.List().Version))
	events, _, err = f.Store.EndpointEvents(t.Context(), f.AccountID, start,
		account.EndpointFilter{Bindings: []string{account.BindingKubernetes}}, 0)
	Must(t, err)
	for _, e := range events {
		Equal(t, "what operators see that ask for kubernetes", e.Endpoint.Bindings[0], account.BindingKubernetes)
	}
}
