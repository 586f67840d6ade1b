// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceexport

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/notify"
	"github.com/fairlead-dev/fairlead/internal/operator/exporter/upstream"
	"github.com/fairlead-dev/fairlead/test/support/fakeaccount"
)

const ownCluster = "uid-a"

var hello = types.NamespacedName{Namespace: "demo", Name: "hello"}

// harness is a Reconciler of cluster uid-a, with id "a", in a bubble of time.
type harness struct {
	*testing.T
	kube    client.Client
	account *fakeAccount
	ports   *fakePorts
	events  *events.FakeRecorder
	r       *Reconciler
	queue   workqueue.TypedRateLimitingInterface[reconcile.Request]
	orphans notify.Signal // a value each time that orphans were to be collected

	mu        sync.Mutex // guards the rest
	follows   bool       // another replica leads
	writes    int        // of a status
	stale     string     // "ServiceExport" or "Service": the cache does not have these any more
	firstTime time.Time
}

// run runs the test in a bubble, with a Reconciler that leads.
func run(t *testing.T, test func(h *harness)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { h.r.Lead(ctx) })
		running.Go(func() { h.reconcile(ctx) })
		h.settle()
		test(h)
		cancel()
		h.queue.ShutDown()
		running.Wait()
	})
}

func newHarness(t *testing.T) *harness {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, discoveryv1.AddToScheme, v1beta1.Install} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	h := &harness{T: t, account: &fakeAccount{Account: fakeaccount.New()}, firstTime: time.Now(),
		orphans: make(notify.Signal, 1000),
		ports: &fakePorts{served: map[types.NamespacedName]map[int32]agent.Endpoint{},
			states: map[string]PortState{}},
		events: events.NewFakeRecorder(1000), queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())}
	builder := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1beta1.ServiceExport{})
	if err := upstream.IndexSlices(t.Context(), indexer{builder}); err != nil {
		t.Fatal(err)
	}
	h.kube = builder.Build()
	h.r = New(Options{
		Client: interceptor.NewClient(h.kube.(client.WithWatch), interceptor.Funcs{Get: h.get,
			SubResourceUpdate: h.updateStatus}),
		Live: h.kube, Account: h.account, Watch: h.account.watch, Ports: h.ports, ClusterID: "a",
		Replica: h, Recorder: h.events, Log: logr.Discard(), Orphans: h.orphans,
	})
	h.ports.changed = h.r.Notify
	h.r.kind.read.Store(true)
	h.r.ids.set("a", "")
	return h
}

type indexer struct{ *fake.ClientBuilder }

// IndexField implements client.FieldIndexer.
func (i indexer) IndexField(_ context.Context, o client.Object, field string, values client.IndexerFunc) error {
	i.WithIndex(o, field, values)
	return nil
}

func (h *harness) locked(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
}

func (h *harness) Cluster() string { return ownCluster }

func (h *harness) Leading() (leads bool) {
	h.locked(func() { leads = !h.follows })
	return leads
}

// get reads an object of the cache.
func (h *harness) get(
	ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption,
) error {
	stale := ""
	h.locked(func() { stale = h.stale })
	if reflect.TypeOf(o).Elem().Name() == stale { // nothing has this name
		key.Name = "x-" + key.Name
	}
	return c.Get(ctx, key, o, opts...)
}

func (h *harness) updateStatus(
	ctx context.Context, c client.Client, _ string, o client.Object, _ ...client.SubResourceUpdateOption,
) error {
	h.locked(func() { h.writes++ })
	return c.Status().Update(ctx, o)
}

// reconcile is the controller.
func (h *harness) reconcile(ctx context.Context) {
	if err := h.r.exports.changes.Start(ctx, h.queue); err != nil {
		h.Error(err)
	}
	for {
		req, shutDown := h.queue.Get()
		if shutDown {
			return
		}
		result, err := h.r.Reconcile(ctx, req)
		if err != nil && ctx.Err() == nil {
			h.Error(err)
		}
		h.queue.Done(req)
		if result.RequeueAfter > 0 {
			h.queue.AddAfter(req, result.RequeueAfter)
		}
	}
}

// settle waits until everything that was begun has ended, in no time.
func (h *harness) settle() { synctest.Wait() }

// request has an export reconciled.
func (h *harness) request(name types.NamespacedName) {
	h.r.Notify(name)
	h.settle()
}

func (h *harness) must(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

func tcp(name string, port int32) corev1.ServicePort {
	return corev1.ServicePort{Name: name, Port: port, Protocol: corev1.ProtocolTCP}
}

// service makes a Service with a selector, and an EndpointSlice with a ready endpoint of its TCP
// ports.
func (h *harness) service(name types.NamespacedName, ports ...corev1.ServicePort) *corev1.Service {
	h.Helper()
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, Selector: map[string]string{"a": "b"},
			Ports: ports}}
	h.must(h.kube.Create(h.Context(), s))
	slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name,
		Labels: map[string]string{discoveryv1.LabelServiceName: name.Name,
			discoveryv1.LabelManagedBy: upstream.SliceController}}, AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.1.0.1"},
			Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}}}}
	for _, p := range ports {
		slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: &p.Name, Port: ptr.To(p.Port + 8000),
			Protocol: &p.Protocol})
	}
	h.must(h.kube.Create(h.Context(), slice))
	return s
}

// setReady changes whether the endpoint of a Service is ready.
func (h *harness) setReady(name types.NamespacedName, ready bool) {
	h.Helper()
	var s discoveryv1.EndpointSlice
	h.must(h.kube.Get(h.Context(), name, &s))
	s.Endpoints[0].Conditions.Ready = &ready
	h.must(h.kube.Update(h.Context(), &s))
	h.request(name)
}

// export makes a ServiceExport and has it reconciled; its binds are answered.
func (h *harness) export(name types.NamespacedName, change ...func(*v1beta1.ServiceExport)) *v1beta1.ServiceExport {
	h.Helper()
	o := &v1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name,
		UID: types.UID(fmt.Sprintf("u-%d", time.Since(h.firstTime))), Generation: 1}}
	for _, f := range change {
		f(o)
	}
	h.must(h.kube.Create(h.Context(), o))
	h.request(name)
	return o
}

// conditions returns those of an export as "Type=Status Reason", sorted, and all messages.
func (h *harness) conditions(name types.NamespacedName) (all, messages string) {
	h.Helper()
	var o v1beta1.ServiceExport
	h.must(h.kube.Get(h.Context(), name, &o))
	var texts []string
	for _, c := range o.Status.Conditions {
		texts = append(texts, fmt.Sprintf("%s=%s %s", c.Type, c.Status, c.Reason))
		messages += c.Type + ": " + c.Message + "\n"
	}
	slices.Sort(texts)
	return strings.Join(texts, ", "), messages
}

// expect compares the conditions of an export, of which parts are to be in a message.
func (h *harness) expect(name types.NamespacedName, want string, parts ...string) {
	h.Helper()
	got, messages := h.conditions(name)
	if got != want {
		h.Errorf("%s: conditions %s, want %s", name, got, want)
	}
	for _, part := range parts {
		if !strings.Contains(messages, part) {
			h.Errorf("%s: no message has %q:\n%s", name, part, messages)
		}
	}
}

// exported are the conditions of an export that works.
const exportedWell = "Conflict=False NoConflicts, Ready=True Exported, Valid=True Valid, fairlead.dev/Carried=True " +
	"Carried"

// record returns the only record of this cluster's export.
func (h *harness) record(name types.NamespacedName) account.Endpoint {
	h.Helper()
	own := h.account.of(ownCluster, name)
	if len(own) != 1 {
		h.Fatalf("%d records of %s", len(own), name)
	}
	return own[0]
}

// expectCalls compares the calls that changed the account since the last call.
func (h *harness) expectCalls(want ...string) {
	h.Helper()
	if got := h.account.take(); !slices.Equal(got, want) {
		h.Errorf("calls %v, want %v", got, want)
	}
}
