// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package exporter_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/operator/exporter"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// exporting makes an exporter export Services, as cluster a.
func exporting(o *exporter.Options) { o.Services, o.ClusterID = true, "a" }

// clusterService creates a Service with a cluster IP and port 80, and an endpoint that answers with
// the text.
func (w *world) clusterService(name, text string) *corev1.Service {
	w.Helper()
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name},
		Spec: corev1.ServiceSpec{Selector: map[string]string{"app": name},
			Ports: []corev1.ServicePort{{Name: "web", Port: 80},
				{Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP}}}}
	w.kube.MustCreate(s)
	w.endpointsOf(w.namespace, name, text)
	return s
}

// serviceExport creates a ServiceExport.
func (w *world) serviceExport(name string) *v1beta1.ServiceExport {
	w.Helper()
	o := &v1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}}
	w.kube.MustCreate(o)
	return o
}

// exportConditions returns the conditions of an export of the present generation, and their
// messages.
func (w *world) exportConditions(o *v1beta1.ServiceExport) (all, messages string) {
	w.Helper()
	if err := w.kube.Get(w.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		w.Fatal(err)
	}
	var texts []string
	for _, c := range o.Status.Conditions {
		if c.ObservedGeneration == o.Generation {
			texts = append(texts, fmt.Sprintf("%s=%s %s", strings.TrimPrefix(c.Type, "fairlead.dev/"), c.Status,
				c.Reason))
			messages += c.Type + ": " + c.Message + "\n"
		}
	}
	slices.Sort(texts)
	return strings.Join(texts, ", "), messages
}

// expectExport waits until the conditions have the part, and a message the other one.
func (w *world) expectExport(o *v1beta1.ServiceExport, part, message string) {
	w.Helper()
	all, messages := "", ""
	defer func() {
		if w.Failed() {
			w.Logf("%s: want %s, %s; the last were %s\n%s", o.Name, part, message, all, messages)
		}
	}()
	wait.Until(w.T, o.Name+" with "+part, func() bool {
		all, messages = w.exportConditions(o)
		return strings.Contains(all, part) && strings.Contains(messages, message)
	})
}

// host returns the hostname of an export of the cluster with the id.
func (w *world) host(name, id string) string { return name + "." + w.namespace + "." + id }

// dashes returns the hostname of a pod that has none, by its address.
func dashes(address string) string { return strings.ReplaceAll(address, ".", "-") }

// callPort calls a port of an export as a forwarder of another cluster does, and returns the body.
func (w *world) callPort(name string, port int32) string {
	w.Helper()
	rows := w.rows(fmt.Sprintf("tcp://%s:%d", w.host(name, "a"), port))
	if len(rows) == 0 {
		return "no endpoint"
	}
	s, err := w.forwarder.Wait(w.Context())
	if err != nil {
		return err.Error()
	}
	st, err := s.Open(w.Context(), tunnel.OpenHeader{EndpointID: rows[0].ID, Scheme: "tcp", Host: w.host(name, "a"),
		Port: int(port), ClientAddr: "10.9.9.9:1234"})
	if err != nil {
		return err.Error()
	}
	defer func() { _ = st.Close() }()
	_, _ = io.WriteString(st, "GET / HTTP/1.0\r\n\r\n")
	answer, err := io.ReadAll(st)
	if err != nil {
		return err.Error()
	}
	_, body, _ := strings.Cut(string(answer), "\r\n\r\n")
	return body
}

func (w *world) expectPort(name, want string) { w.Helper(); w.expectPortAt(name, 80, want) }

func (w *world) expectPortAt(name string, port int32, want string) {
	w.Helper()
	got := ""
	defer func() {
		if got != want {
			w.Logf("%s: the last answer was %q, want %q", name, got, want)
		}
	}()
	wait.Until(w.T, want+" of "+name, func() bool { got = w.callPort(name, port); return got == want })
}

// record returns the records of an export.
func (w *world) records(name string) []account.Endpoint {
	return w.rows("service://" + w.host(name, "a"))
}

// foreign creates a record of another cluster's export of the name.
func (w *world) foreign(name string, export account.ServiceExport) account.Endpoint {
	w.Helper()
	var key account.APIKey
	w.service.CreateObject("/api_keys", map[string]any{"scopes": []string{"exporter"}, "cluster_uid": "uid-b"}, &key)
	var made account.Endpoint
	body := map[string]any{"url": "service://" + w.host(name, "b"), "bindings": []string{"clusterset"},
		"owner": account.Owner{Cluster: "uid-b", Kind: "ServiceExport", Namespace: w.namespace, Name: name,
			UID: "u"},
		"service_export": export}
	administrator := w.service.APIKey
	w.service.APIKey = *key.Token
	w.service.CreateObject("/endpoints", body, &made)
	w.service.APIKey = administrator
	return made
}

func TestExporter_ExportsService(t *testing.T) {
	w := newWorld(t)
	d := w.deployment()
	first, second := w.start(d, exporting).ready(), w.start(d, exporting).ready()
	w.clusterService("hello", "hi")
	o := w.serviceExport("hello")
	w.expectExport(o, "Ready=True Exported", "udp/53 (dns) is listed, but only TCP is carried")
	w.expectPort("hello", "hi")
	wait.Until(t, "a port of each replica", func() bool {
		return len(w.rows("tcp://"+w.host("hello", "a")+":80")) == 2
	})
	rows := w.records("hello")
	if len(rows) != 1 || rows[0].Owner.UID != string(o.UID) || rows[0].Owner.Cluster != clusterUID(w) ||
		!rows[0].ServiceExport.Ready || len(rows[0].ServiceExport.Ports) != 2 {
		t.Fatalf("records %+v", rows)
	}
	for name, want := range map[string]float64{"fairlead_exporter_service_exports": 1,
		"fairlead_exporter_service_exports_failed": 0, "fairlead_exporter_service_exports_readable": 1} {
		if got := first.metric(name); got != want {
			t.Errorf("%s is %v", name, got)
		}
	}
	if first.metric("fairlead_exporter_connections_total")+second.metric("fairlead_exporter_connections_total") < 1 {
		t.Error("connections are not counted")
	}
	took := time.Hour
	for attempt := 0; took > 5*time.Second && attempt < 5; attempt++ { // this machine may be slow
		began := time.Now()
		b := w.foreign("hello", account.ServiceExport{Type: account.ExportHeadless, SessionAffinity: "None"})
		w.expectExport(o, "Conflict=True PortConflict,TypeConflict", "cluster a is the oldest")
		took = time.Since(began)
		w.service.RequireStatus(http.MethodDelete, "/endpoints/"+b.ID, nil, http.StatusNoContent)
		w.expectExport(o, "Conflict=False NoConflicts", "")
	}
	if took > 5*time.Second {
		t.Errorf("the conflict was reported after %v", took)
	}
	w.kube.MustDelete(o)
	wait.Until(t, "the end of the export", func() bool {
		return len(w.records("hello"))+len(w.rows("tcp://"+w.host("hello", "a")+":80")) == 0
	})
}

// TestExporter_ExportsAfterRestart: rows outlive the exporters, which write nothing anew, and take
// what was deleted meanwhile off the account.
func TestExporter_ExportsAfterRestart(t *testing.T) {
	w := newWorld(t)
	d := w.deployment()
	w.clusterService("hello", "hi")
	w.clusterService("gone", "hi")
	r := w.start(d, exporting)
	o, gone := w.serviceExport("hello"), w.serviceExport("gone")
	w.expectExport(o, "Ready=True Exported", "")
	w.expectExport(gone, "Ready=True Exported", "")
	record, version := w.records("hello")[0], o.ResourceVersion
	r.stop()
	w.kube.MustDelete(gone)
	again := w.start(d, exporting).ready()
	if rows := w.rows("tcp://" + w.host("hello", "a") + ":80"); len(rows) != 1 ||
		rows[0].Status != account.StatusOnline {
		t.Errorf("a ready exporter has bound %+v", rows)
	}
	wait.Until(t, "the end of what was deleted", func() bool {
		return len(w.records("gone"))+len(w.rows("tcp://"+w.host("gone", "a")+":80")) == 0
	})
	w.expectPort("hello", "hi")
	w.exportConditions(o)
	if now := w.records("hello"); len(now) != 1 || now[0].ResourceVersion != record.ResourceVersion ||
		o.ResourceVersion != version {
		t.Errorf("after a restart: %+v, before %+v; status %+v", now, record, o.Status)
	}
	w.kube.MustDelete(d)
	again.stop()
	if rows := append(w.records("hello"), w.rows("tcp://"+w.host("hello", "a")+":80")...); len(rows) != 0 {
		t.Errorf("after the Deployment's end: %+v", rows)
	}
}

func TestExporter_ExportRefusals(t *testing.T) {
	w := newWorld(t, func(body map[string]any) { body["acl"] = []string{"export:*/allowed", "bind:*"} })
	w.start(w.deployment(), exporting)
	w.clusterService("allowed", "hi")
	w.clusterService("other", "hi")
	other := w.serviceExport("other")
	w.expectExport(other, "Ready=False Failed", "export:")
	allowed := w.serviceExport("allowed")
	w.expectExport(allowed, "Ready=True Exported", "")
}

func TestExporter_ExportUnderForeignClusterID(t *testing.T) {
	w := newWorld(t)
	foreign := w.foreign("x", account.ServiceExport{Type: account.ExportClusterSetIP, SessionAffinity: "None"})
	w.clusterService("hello", "hi")
	w.start(w.deployment(), exporting, func(o *exporter.Options) { o.ClusterID = "b" })
	o := w.serviceExport("hello")
	w.expectExport(o, "Ready=False Failed", `the cluster id "b" is that of cluster uid-b`)
	w.service.RequireStatus(http.MethodDelete, "/endpoints/"+foreign.ID, nil, http.StatusNoContent)
	w.expectExport(o, "Ready=True Exported", "")
}

func TestExporter_ExportWithoutClusterID(t *testing.T) {
	w := newWorld(t)
	w.start(w.deployment(), exporting, func(o *exporter.Options) { o.ClusterID = "" }).ready()
	w.clusterService("hello", "hi")
	o := w.serviceExport("hello")
	w.expectExport(o, "Ready=False Failed",
		"create the ClusterProperty cluster.clusterset.k8s.io (about.k8s.io), or set "+
			"export.clusterID")
	w.expectExport(o, "Valid=True Valid", "")
}

func TestExporter_NamespaceDeletionEndsExports(t *testing.T) {
	w := newWorld(t)
	w.start(w.deployment(), exporting)
	for _, name := range []string{"a", "b", "c"} {
		w.clusterService(name, "hi")
		w.expectExport(w.serviceExport(name), "Ready=True Exported", "")
	}
	w.kube.MustDelete(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}})
	for _, name := range []string{"a", "b", "c"} {
		wait.Until(t, "the end of "+name, func() bool {
			return len(w.records(name))+len(w.rows("tcp://"+w.host(name, "a")+":80")) == 0
		})
	}
}

// TestExporter_ExportWritesOnce counts what an exporter writes for an export: a status, and an
// event for each condition that says something.
func TestExporter_ExportWritesOnce(t *testing.T) {
	w := newWorld(t)
	const attempts = 5
	for n := range attempts { // before the exporter starts: its cache has the EndpointSlices, too
		w.clusterService(fmt.Sprintf("hello-%d", n), "hi")
	}
	written := &writeCounter{writes: map[string]int{}}
	w.start(w.deployment(), exporting, written.count(w)).ready()
	name := ""
	// a bind that takes longer than 2 s is reported, in a second write: this machine may be slow
	for n, took := 0, time.Hour; took > 2*time.Second && n < attempts; n++ {
		written.reset()
		name = fmt.Sprintf("hello-%d", n)
		began := time.Now()
		o := w.serviceExport(name)
		w.expectExport(o, "Ready=True Exported", "")
		took = time.Since(began)
		wait.Until(t, "the events", func() bool { return len(w.eventReasons(o)) >= 2 })
		w.expectPort(name, "hi")
	}
	written.require(t, map[string]int{"POST /events": 2, "PUT /serviceexports/" + name + "/status": 1})
	if now := w.records(name); len(now) != 1 || now[0].UpdatedAt != now[0].CreatedAt {
		t.Errorf("the record was written again: %+v", now)
	}
}

// deploymentEvents returns the messages of the events about the exporters' Deployment.
func (w *world) deploymentEvents(d *appsv1.Deployment) (messages []string) {
	w.Helper()
	var list eventsv1.EventList
	if err := w.kube.List(w.Context(), &list, client.InNamespace(d.Namespace)); err != nil {
		w.Fatal(err)
	}
	for _, e := range list.Items {
		if e.Regarding.UID == d.UID {
			messages = append(messages, e.Note)
		}
	}
	return messages
}
