// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointsync

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/sealed"
	"github.com/fairlead-dev/fairlead/internal/trust"
)

// admitFunc is an Admitter.
type admitFunc func(*account.Endpoint) (bool, error)

func (f admitFunc) Matches(e *account.Endpoint, _ account.EndpointURL) (bool, error) { return f(e) }

func newSet(selector Admitter) *Set {
	return NewSet(SetOptions{Selector: selector, Clock: clock.RealClock{}})
}

func listed(endpoints ...account.Endpoint) Snapshot {
	return Snapshot{Endpoints: endpoints, AccountID: "ac-1", StoreID: "st-1"}
}

func all(*account.Endpoint) (bool, error) { return true, nil }

func version(seq int64) account.ResourceVersion { return account.ResourceVersion{Epoch: 1, Seq: seq} }

func agentEndpoint(id, url string) account.Endpoint {
	return account.Endpoint{ID: id, URL: url, Type: account.TypeAgent, Status: account.StatusOnline,
		Bindings: []string{account.BindingKubernetes}}
}

func event(typ account.EventType, seq int64, e account.Endpoint) account.EndpointEvent {
	return account.EndpointEvent{Type: typ, ResourceVersion: version(seq), Endpoint: &e}
}

func TestSet_InvalidEndpointAffectsNoOther(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 64)
	urls := []string{
		"a.b:8080", "tcp://a.b", "tcp://a.b:0", "http://a.b:70000", "http://a.b:99999999999", "http://a.b:-1",
		"http://a.b:080", "http://a.b:8x",
		"https://a.b", "tls://a.b", "ftp://a.b", "http://a", "http://a.b.c", "http://.b", "http://a.", "http://a.b.",
		"http://*.b", "http://10.0",
		"http://[::1]:80", "http://a.b/path", "http://a.b?q", "http://a.b#f", "http://user:pw@a.b",
		"http://" + long + ".b",
		"http://a." + long,
		"http://a_b.c", "http://ä.b", "http://a\x01.b", "http://a\x00.b", "",
	}
	endpoints := []account.Endpoint{agentEndpoint("ep-good", "http://Good.demo:80/")}
	for i, url := range urls {
		endpoints = append(endpoints, agentEndpoint(fmt.Sprintf("ep-%d", i), url))
	}
	internal, nothing, noID := agentEndpoint("ep-internal", "http://x.demo"), agentEndpoint("ep-none", "http://y.demo"),
		agentEndpoint("", "http://z.demo")
	internal.Bindings, nothing.Bindings = []string{account.BindingInternal}, nil
	badProjection := agentEndpoint("ep-projection", "http://p.demo")
	badProjection.ProjectionID = strings.Repeat("p", 254)
	endpoints = append(endpoints, internal, nothing, noID, badProjection)

	s := newSet(admitFunc(all))
	c := s.Replace(listed(endpoints...), time.Now())
	if want := len(endpoints) - 1; len(c.Problems) != want {
		t.Errorf("got %d problems, want %d: %v", len(c.Problems), want, c.Problems)
	}
	if d := cmp.Diff([]string{"good.demo"}, c.Hostnames); d != "" {
		t.Error(d)
	}
	admitted, _, problems := s.Counts()
	if admitted != 1 || problems != len(endpoints)-1 {
		t.Errorf("got %d admitted and %d problems", admitted, problems)
	}
	if again := s.Replace(listed(endpoints...), time.Now()); len(again.Problems) != 0 || len(again.Hostnames) != 0 {
		t.Errorf("the same list again changes something: %v", again)
	}
}

func TestSet_Apply(t *testing.T) {
	t.Parallel()
	web := agentEndpoint("ep-1", "http://a.b")
	offline := web
	offline.Status = account.StatusOffline
	moved := web
	moved.URL = "http://c.d"
	for _, tc := range []struct {
		name                    string
		event                   account.EndpointEvent
		hostnames, availability []string
	}{
		{"an older event", event(account.Deleted, 5, web), nil, nil},
		{"the same event again", event(account.Modified, 7, offline), nil, nil},
		{"nothing that matters", event(account.Modified, 8, web), nil, nil},
		{"offline", event(account.Modified, 8, offline), nil, []string{"a.b"}},
		{"deleted", event(account.Deleted, 8, web), []string{"a.b"}, []string{"a.b"}},
		{"another epoch's", account.EndpointEvent{Type: account.Deleted,
			ResourceVersion: account.ResourceVersion{Epoch: 2, Seq: 1}, Endpoint: &web}, []string{"a.b"},
			[]string{"a.b"}},
		{"a bookmark", account.EndpointEvent{Type: account.Bookmark, ResourceVersion: version(9)}, nil, nil},
		{"a URL that changed, which cannot be", event(account.Modified, 8, moved), []string{"a.b", "c.d"},
			[]string{"a.b"}},
		{"an unknown endpoint deleted", event(account.Deleted, 8, agentEndpoint("ep-9", "http://x.y")), nil, nil},
	} {
		s := newSet(admitFunc(all))
		s.Replace(listed(), time.Now())
		s.Apply(event(account.Added, 7, web))
		c := s.Apply(tc.event)
		if d := cmp.Diff(tc.hostnames, c.Hostnames); d != "" {
			t.Errorf("%s: hostnames: %s", tc.name, d)
		}
		if d := cmp.Diff(tc.availability, c.Availability); d != "" {
			t.Errorf("%s: availability: %s", tc.name, d)
		}
	}
}

func TestSet_FirstListNamesAwaitedHostnames(t *testing.T) {
	t.Parallel()
	s := newSet(admitFunc(all))
	if s.SyncedOrAwait("gone.demo") {
		t.Fatal("synced before any list")
	}
	if c := s.Replace(listed(), time.Now()); !slices.Contains(c.Hostnames, "gone.demo") {
		t.Errorf("got %v", c.Hostnames)
	}
	if !s.SyncedOrAwait("gone.demo") {
		t.Error("not synced after a list")
	}
}

func TestSet_SelectorErrorExcludesEndpoint(t *testing.T) {
	t.Parallel()
	s := newSet(admitFunc(func(e *account.Endpoint) (bool, error) {
		if e.ID == "ep-2" {
			return true, errors.New("cost limit exceeded")
		}
		return true, nil
	}))
	c := s.Replace(listed(agentEndpoint("ep-1", "http://a.b"), agentEndpoint("ep-2", "http://c.d")), time.Now())
	if len(c.Problems) != 1 || c.Problems[0].EndpointID != "ep-2" ||
		!strings.Contains(c.Problems[0].Text, "cost limit") {
		t.Errorf("got %v", c.Problems)
	}
	if d := s.Desired("c.d"); len(d.Endpoints) != 0 || !d.Immediate.Has(80) {
		t.Errorf("got %+v", d)
	}
}

func TestSet_DesiredRefusesConflictingEndpoints(t *testing.T) {
	t.Parallel()
	s := newSet(admitFunc(all))
	endpoints := []account.Endpoint{agentEndpoint("ep-1", "http://a.b"), agentEndpoint("ep-2", "tcp://a.b:80")}
	for i := range maxPorts {
		endpoints = append(endpoints, agentEndpoint(fmt.Sprintf("ep-x%03d", i), fmt.Sprintf("tcp://a.b:%d", 1000+i)))
	}
	s.Replace(listed(endpoints...), time.Now())
	d := s.Desired("a.b")
	if len(d.Ports) != maxPorts || d.Ports[80] != "http" || len(d.Refused) != 2 || d.Refused[0].EndpointID != "ep-2" {
		t.Errorf("got %d ports, port 80 is %s, refused %v", len(d.Ports), d.Ports[80], d.Refused)
	}
}

func TestSet_AvailabilityNamesOfflineURLs(t *testing.T) {
	t.Parallel()
	s := newSet(admitFunc(all))
	if known, _, _ := s.Availability("db.prod"); known {
		t.Error("known before any list")
	}
	one, two, other := agentEndpoint("ep-1", "tcp://db.prod:5432"), agentEndpoint("ep-2", "tcp://db.prod:5432"),
		agentEndpoint("ep-3", "http://db.prod")
	one.Status, other.Status = account.StatusOffline, account.StatusOffline
	s.Replace(listed(one, two, other), time.Now())
	known, endpoints, offline := s.Availability("db.prod")
	if !known || endpoints != 3 || !slices.Equal(offline, []string{"http://db.prod"}) {
		t.Errorf("got %v, %d, %v", known, endpoints, offline)
	}
}

func TestSet_SealKeysOfOnlineAgents(t *testing.T) {
	t.Parallel()
	s := newSet(admitFunc(all))
	a, b, c := sealed.FormatKey(trust.Pin{1}), sealed.FormatKey(trust.Pin{2}), sealed.FormatKey(trust.Pin{3})
	withKey := func(id, url, key string) account.Endpoint {
		e := agentEndpoint(id, url)
		e.SealKey = key
		return e
	}
	offline := withKey("ep-4", "http://api.demo", c)
	offline.Status = account.StatusOffline
	s.Replace(listed(withKey("ep-1", "http://api.demo", b), withKey("ep-2", "http://api.demo", a),
		withKey("ep-3", "http://api.demo", b), offline, withKey("ep-5", "http://api.demo:81", "\x1b[31mno key")),
		time.Now())
	for port, want := range map[int][]string{80: {a, b}, 81: {""}, 82: nil} {
		u := account.EndpointURL{Scheme: "http", Host: "api.demo", Port: port}
		if got := s.SealKeys(u); !slices.Equal(got, want) {
			t.Errorf("port %d: %q, want %q", port, got, want)
		}
	}
	if all := s.SealKeysIn("demo"); len(all) != 2 || len(all[account.EndpointURL{Scheme: "http", Host: "api.demo",
		Port: 80}]) != 2 || len(s.SealKeysIn("other")) > 0 {
		t.Errorf("of the namespace: %v", all)
	}
	exported := withKey("ep-6", "tcp://db.shop.a:1", c)
	exported.Bindings = []string{account.BindingClusterset}
	imports := NewSet(SetOptions{Selector: admitFunc(all), Clusterset: true, Clock: clock.RealClock{}})
	imports.Replace(listed(exported), time.Now())
	if all := imports.SealKeysIn("shop"); len(all[account.ExportedPortURL("db", "shop", "a", 1)]) != 1 {
		t.Errorf("of an exported Service: %v", all)
	}
	changed := withKey("ep-5", "http://api.demo:81", c)
	if c := s.Apply(event(account.Modified, 2, changed)); !slices.Equal(c.Availability, []string{"api.demo"}) {
		t.Errorf("a new key concerns %q", c.Availability)
	}
}
