// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/notify"
	"github.com/fairlead-dev/fairlead/internal/operator/exporter/policy"
	"github.com/fairlead-dev/fairlead/internal/operator/exporter/serviceexport"
	"github.com/fairlead-dev/fairlead/internal/operator/exporter/upstream"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/owned"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/status"
	"github.com/fairlead-dev/fairlead/internal/sealed"
	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
	"github.com/fairlead-dev/fairlead/internal/trust"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// answerWait is how long the first status of a generation waits for the answer to its bind.
const answerWait = 2 * time.Second

// liveRetry is the pause before the question whether an object is gone is asked again.
const liveRetry = 5 * time.Second

// agentEndpoints reconciles AgentEndpoints: it resolves each into an endpoint of the agent, and
// while this replica leads, writes its status.
type agentEndpoints struct {
	client   client.Client
	live     client.Reader // without a cache
	rules    rules
	set      *endpointSet
	states   *bindStates
	changes  *notify.Source // changes names objects whose endpoint in the account has changed.
	lead     *leadership
	recorder events.EventRecorder
	traffic  *trafficMetrics
	policies *policy.Reader
	dial     agent.DialFunc
	seal     *seal
}

// resolution is what an AgentEndpoint's spec means.
type resolution struct {
	endpoint agent.Endpoint
	problem  *status.Problem // why it cannot be served; nil: endpoint is to be bound
	keep     bool            // in spite of problem an endpoint that is served stays as it is
	accepted *status.Problem // why the object is not accepted; problem, or one of its Service
	upstream *status.Problem // why the upstream is not ready
}

// Reconcile implements reconcile.Reconciler.
func (r *agentEndpoints) Reconcile(ctx context.Context, req ctrl.Request) (reconcile.Result, error) {
	o := &v1alpha1.AgentEndpoint{}
	err := r.client.Get(ctx, req.NamespacedName, o)
	switch {
	case apierrors.IsNotFound(err):
		return r.missing(ctx, req.NamespacedName)
	case err != nil:
		return reconcile.Result{}, err
	case o.DeletionTimestamp != nil:
		r.remove(req.NamespacedName)
		return reconcile.Result{}, nil
	}
	found, err := r.resolve(ctx, o)
	if err != nil {
		return reconcile.Result{}, err
	}
	r.serve(req.NamespacedName, found, o.Spec.Sealed)
	result := reconcile.Result{}
	if r.lead.Leading() {
		result, err = r.report(ctx, o, found)
	}
	if o.Spec.Sealed && result.RequeueAfter == 0 {
		result.RequeueAfter = serviceexport.SealRecheck
	}
	return result, err
}

// missing removes the endpoint of an object that the cache does not have, once the API server
// itself says that it is gone: a cache that was filled from a wrong answer ends no endpoint.
func (r *agentEndpoints) missing(ctx context.Context, object client.ObjectKey) (reconcile.Result, error) {
	if !r.set.has(agentEndpoint(object)) {
		r.remove(object)
		return reconcile.Result{}, nil
	}
	if !owned.IsGone(ctx, r.live, v1alpha1.GroupVersion.WithKind(account.KindAgentEndpoint), object) {
		return reconcile.Result{RequeueAfter: liveRetry}, nil
	}
	r.remove(object)
	return reconcile.Result{}, nil
}

// remove ends the endpoint of an object that is gone.
func (r *agentEndpoints) remove(object client.ObjectKey) {
	r.set.remove(agentEndpoint(object))
	r.states.forget(keyOf(object))
	r.traffic.forget(agentEndpoint(object))
}

// serve gives the object's endpoint to the agent, or takes it away: at once if it is to be sealed.
func (r *agentEndpoints) serve(object client.ObjectKey, found resolution, sealed bool) {
	switch o := agentEndpoint(object); {
	case found.problem == nil:
		if changed, _ := r.set.put(o, found.endpoint); len(changed) > 0 {
			r.states.ask(changed...)
			r.traffic.add(o)
		}
	case found.keep:
		r.set.keep(o)
	case sealed:
		r.set.withhold(o)
		r.states.forget(keyOf(object))
	default:
		r.set.put(o)
		r.states.forget(keyOf(object))
	}
}

// resolve reads what the object names.
func (r *agentEndpoints) resolve(ctx context.Context, o *v1alpha1.AgentEndpoint) (resolution, error) {
	binding := bindingOf(o.Spec.Bindings)
	refused := func(p *status.Problem, keep bool) (resolution, error) {
		return resolution{problem: p, keep: keep, accepted: p}, nil
	}
	url, p := r.rules.endpointURL(binding, o.Spec.URL, o.Namespace)
	if p != nil {
		return refused(p, false)
	}
	ref, p := r.rules.upstreams.Parse(o.Spec.Upstream.URL, o.Namespace)
	if p != nil {
		return refused(p, false)
	}
	var seal *sealed.Identity
	var sealing *trafficpolicy.Sealing
	if o.Spec.Sealed {
		sealing = &r.seal.sealing
		if seal, p = r.seal.identityOf(binding, url); p != nil {
			return refused(p, false)
		}
	}
	keep := !o.Spec.Sealed || r.set.seals(agentEndpoint(client.ObjectKeyFromObject(o)))
	text, err := r.policies.Text(ctx, o.Namespace, o.Spec.TrafficPolicy, url.Scheme, binding, sealing)
	if p := status.AsProblem(err); p != nil {
		return refused(p, keep)
	}
	if err != nil {
		return resolution{}, err
	}
	to := agent.Upstream{Scheme: ref.Scheme, Host: ref.Host(), Port: int(ref.Port),
		Protocol: protocolOf(ref.Scheme, o.Spec.Upstream.Protocol)}
	if version := o.Spec.Upstream.ProxyProtocol; version != 0 {
		to.ProxyProtocol = strconv.Itoa(int(version)) // which the schema admits with tcp only
	}
	if p := setTrust(&to, o.Spec.Upstream.TLS); p != nil {
		return refused(p, keep)
	}
	found := resolution{endpoint: agent.Endpoint{
		Key: keyOf(client.ObjectKeyFromObject(o)), Owner: ownerOf(o), URL: url, Binding: binding,
		Name: account.ObjectName(o.Namespace, o.Name), Description: o.Spec.Description, Metadata: o.Spec.Metadata,
		ServiceLabels:  account.FormatServiceLabels(o.Spec.ServiceLabels),
		PoolingEnabled: o.Spec.PoolingEnabled, TrafficPolicy: text,
		Dial: r.dial, Upstream: to, Seal: seal,
	}}
	if seal != nil {
		found.endpoint.SealedServer = r.seal.edge.Server(&found.endpoint)
	}
	addresses, p, err := r.rules.upstreams.Lookup(ctx, r.client, ref)
	if err != nil {
		return resolution{}, err
	}
	found.accepted = p
	if p == nil && len(addresses.Ready) == 0 {
		found.upstream = addresses.ReasonOf(ref)
	}
	return found, nil
}

// setTrust sets how the upstream's certificate is verified.
func setTrust(to *agent.Upstream, from *v1alpha1.UpstreamTLS) *status.Problem {
	if from == nil {
		return nil
	}
	err := to.SetTrust(trust.Options{CAPEM: []byte(from.CA), CASHA256: from.CASHA256}, from.ServerName)
	names := map[string]string{agent.FieldCAFile: "ca", agent.FieldCASHA256: "caSHA256",
		agent.FieldServerName: "serverName"}
	var mistakes []string
	for _, f := range account.FieldsOf(err) {
		mistakes = append(mistakes, fmt.Sprintf("upstream.tls.%s %q: %s", names[f.Field], f.Value, f.Rule))
	}
	if len(mistakes) == 0 {
		return nil
	}
	return status.Problemf(v1alpha1.ReasonUpstreamNotAllowed, "%s", strings.Join(mistakes, "; "))
}

// ownerOf names the object to the service.
func ownerOf(o *v1alpha1.AgentEndpoint) *tunnel.Owner {
	return &tunnel.Owner{Kind: account.KindAgentEndpoint, Namespace: o.Namespace, Name: o.Name, UID: string(o.UID)}
}

// protocolOf returns the protocol of an upstream, "" for tcp.
func protocolOf(scheme, protocol string) string {
	switch {
	case scheme == "tcp":
		return ""
	case protocol == "":
		return agent.ProtocolHTTP1
	}
	return protocol
}

// report writes the object's status if it differs, and an event if Ready does.
func (r *agentEndpoints) report(ctx context.Context, o *v1alpha1.AgentEndpoint, found resolution) (
	reconcile.Result, error,
) {
	now := o.DeepCopy()
	bound, wait := r.bound(o, found)
	if wait {
		return reconcile.Result{RequeueAfter: answerWait}, nil // or before, with the answer
	}
	ready := status.Condition(v1alpha1.ConditionUpstreamReady, v1alpha1.ReasonReady, "the Service has ready endpoints",
		found.upstream)
	if found.accepted != nil {
		ready.Status, ready.Reason, ready.Message = metav1.ConditionUnknown, found.accepted.Reason,
			found.accepted.Message
	}
	accepted := status.Condition(v1alpha1.ConditionAccepted, v1alpha1.ReasonAccepted, "the spec is valid",
		found.accepted)
	status.Set(&now.Status.Conditions, o.Generation, time.Now(), accepted, bound, ready,
		status.Ready("calls of the URL reach the upstream", accepted, bound, ready))
	now.Status.ObservedGeneration = o.Generation
	if state := r.states.get(keyOf(client.ObjectKeyFromObject(o))); state.Bound {
		now.Status.ID, now.Status.AssignedURL = state.ID, state.URL
	} else if found.problem != nil && !found.keep {
		now.Status.ID, now.Status.AssignedURL = "", ""
	}
	if retry, err := status.Write(ctx, r.client, account.KindAgentEndpoint, o, now); retry > 0 || err != nil {
		return reconcile.Result{RequeueAfter: retry}, err
	}
	if _, c := status.Changed(o.Status.Conditions, now.Status.Conditions, v1alpha1.ConditionReady); c != nil {
		status.Event(r.recorder, now, "Export", *c, c.Status != metav1.ConditionTrue)
	}
	return reconcile.Result{}, nil
}

// bound returns the condition Bound. wait asks for a later call: the answer to the bind is due at
// any moment.
func (r *agentEndpoints) bound(o *v1alpha1.AgentEndpoint, found resolution) (c metav1.Condition, wait bool) {
	state := r.states.get(keyOf(client.ObjectKeyFromObject(o)))
	_, unreachable := r.states.session()
	last := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionBound)
	result := func(p *status.Problem) (metav1.Condition, bool) {
		return status.Condition(v1alpha1.ConditionBound, v1alpha1.ReasonBound, "the exporter holds the endpoint",
			p), false
	}
	switch {
	case found.problem != nil && !r.set.has(agentEndpoint(client.ObjectKeyFromObject(o))):
		return result(status.Problemf(found.problem.Reason, "an object that is not accepted is not bound"))
	case unreachable != "":
		return result(status.Problemf(v1alpha1.ReasonUnreachable, "the exporter has no session with the service: %s",
			unreachable))
	case state.Bound:
		return result(nil)
	case state.Reason != "":
		return result(&status.Problem{Reason: state.Reason, Message: state.Message})
	case last != nil && last.ObservedGeneration == o.Generation && last.Reason != v1alpha1.ReasonPending:
		return *last, false // as the last holder of the Lease left it
	case time.Since(state.asked) < answerWait:
		return metav1.Condition{}, true
	}
	return result(status.Problemf(v1alpha1.ReasonPending, "the endpoint is being bound"))
}

const (
	workers = 4
	// indexUpstream indexes AgentEndpoints by the "<namespace>/<name>" of their Service,
	// indexConfigMap by that of the ConfigMap with their traffic policy.
	indexUpstream  = "fairlead.upstream"
	indexConfigMap = "fairlead.configMap"
)

// setUp adds the controller of AgentEndpoints.
func (r *agentEndpoints) setUp(ctx context.Context, mgr ctrl.Manager) error {
	for index, values := range map[string]client.IndexerFunc{indexUpstream: r.upstreamOf, indexConfigMap: configMapOf} {
		if err := mgr.GetFieldIndexer().IndexField(ctx, &v1alpha1.AgentEndpoint{}, index, values); err != nil {
			return fmt.Errorf("indexing AgentEndpoints: %w", err)
		}
	}
	ofService := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
		return r.byIndex(ctx, indexUpstream, o.GetNamespace()+"/"+o.GetName())
	})
	ofSlice := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
		return r.byIndex(ctx, indexUpstream, o.GetNamespace()+"/"+upstream.ServiceOf(o))
	})
	ofConfigMap := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
		return r.byIndex(ctx, indexConfigMap, o.GetNamespace()+"/"+o.GetName())
	})
	build := ctrl.NewControllerManagedBy(mgr).Named("agentendpoint").
		For(&v1alpha1.AgentEndpoint{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&corev1.Service{}, ofService).
		Watches(&discoveryv1.EndpointSlice{}, ofSlice).
		WatchesRawSource(r.changes).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, NeedLeaderElection: ptr.To(false)})
	if r.policies.ReadsConfigMaps() {
		build = build.WatchesMetadata(&corev1.ConfigMap{}, ofConfigMap)
	}
	return build.Complete(r)
}

// upstreamOf returns the values of indexUpstream.
func (r *agentEndpoints) upstreamOf(o client.Object) []string {
	ref, p := r.rules.upstreams.Parse(o.(*v1alpha1.AgentEndpoint).Spec.Upstream.URL, o.GetNamespace())
	if p != nil {
		return nil
	}
	return []string{ref.Service.String()}
}

// configMapOf returns the values of indexConfigMap.
func configMapOf(o client.Object) []string {
	name := policy.ConfigMapName(o.(*v1alpha1.AgentEndpoint).Spec.TrafficPolicy)
	if name == "" {
		return nil
	}
	return []string{o.GetNamespace() + "/" + name}
}

// byIndex returns requests for the AgentEndpoints with the value in the index.
func (r *agentEndpoints) byIndex(ctx context.Context, index, value string) []reconcile.Request {
	return notify.Requests(notify.Names(ctx, r.client, &v1alpha1.AgentEndpointList{},
		client.MatchingFields{index: value}))
}

// enqueueAll requests a reconciliation of every AgentEndpoint.
func (r *agentEndpoints) enqueueAll(ctx context.Context) {
	r.changes.NotifyObjects(notify.Names(ctx, r.client, &v1alpha1.AgentEndpointList{}))
}
