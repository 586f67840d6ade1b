// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/endpointaccess"
	"github.com/fairlead-dev/fairlead/internal/goruntime/timer"
	"github.com/fairlead-dev/fairlead/internal/operator/forwarder/caller"
	"github.com/fairlead-dev/fairlead/internal/trafficerror"
	"github.com/fairlead-dev/fairlead/internal/tunnel/forward"
)

// Pods are the pods of the cluster; *podidentity.Pods implements it.
type Pods interface {
	// Lookup returns the pod with an address, or nil if it is unknown. It may wait, until ctx is
	// done, for a pod that has just started.
	Lookup(ctx context.Context, ip netip.Addr) *caller.Pod
	// Current returns the pod that has the address now, or nil.
	Current(ip netip.Addr) *caller.Pod
	// LabelsChanged receives after labels of pods have changed.
	LabelsChanged() <-chan struct{}
}

// AccessRules are the rules about who may call what; *accessrules.Watcher implements it.
type AccessRules interface {
	// Snapshot returns the current rules.
	Snapshot() *caller.Snapshot
	// Changed receives after the rules or namespaces' labels have changed.
	Changed() <-chan struct{}
}

// Reasons of denials besides those of package endpointaccess.
const (
	reasonRulesUnknown  endpointaccess.Reason = "rules_unknown"   // the namespace's objects were never listed
	reasonNoPodIdentity endpointaccess.Reason = "no_pod_identity" // the forwarder does not know pods
	// reasonNotWritten: NetworkPolicies are to decide, and are not written for the rules as they are.
	reasonNotWritten endpointaccess.Reason = "policies_not_written"
	reasonRevoked    endpointaccess.Reason = "revoked" // a live connection that a change forbids
)

// accessControl decides which connections are served, and ends live ones that a change forbids. A
// nil accessControl allows all. Its methods are safe for concurrent use.
type accessControl struct {
	rules AccessRules
	pods  Pods // pods of the cluster; nil: no caller is known
	// network leaves the decision to NetworkPolicies that are written for the rules as they are,
	// where no caller is known.
	network bool
	written atomic.Pointer[v1alpha1.WrittenNetworkPolicies] // policies that are written; nil: none are
	// problems has what the manager reports of target namespaces, for a forwarder that cannot read
	// namespaces.
	problems atomic.Pointer[map[string]string]
	timing   timing
	denials  denials
	live     liveConns
	updated  broadcaster  // updated is woken when the rules have changed.
	changed  *broadcaster // changed is woken when the status has changed.
}

// newAccessControl returns nil without rules.
func newAccessControl(o *Options, t timing, changed *broadcaster) *accessControl {
	if o.Access == nil {
		return nil
	}
	return &accessControl{rules: o.Access, pods: o.Pods, network: o.NetworkPolicies, timing: t,
		changed: changed, denials: newDenials(o.Logger)}
}

// admit identifies the caller of a connection and returns nil if it may call the connection's
// target, which is then live until remove. Rules that are not known yet are waited for as long as
// a session with the edge.
func (a *accessControl) admit(ctx context.Context, c *clientConn) *forward.Failure {
	if !a.awaitRules(ctx, c) {
		return a.deny(c, reasonRulesUnknown)
	}
	a.live.add(c)
	if !a.restricts(c.target) {
		return nil
	}
	decision := a.decide(ctx, c)
	switch {
	case decision.TrustsForwarding:
		c.trustsForwarding.Store(true) // from now on revoke ends it when that changes, which it may have
		again, _ := a.decideNow(a.rules.Snapshot(), c)
		c.trustsForwarding.Store(again.TrustsForwarding)
		return nil
	case decision.Allowed:
		return nil
	case closedNamespaces[decision.Reason] != "":
	case a.pods == nil && a.network:
		decision.Reason = reasonNotWritten
	case a.pods == nil && decision.Reason == endpointaccess.ReasonUnknownCaller:
		decision.Reason = reasonNoPodIdentity
	}
	a.live.remove(c)
	return a.deny(c, decision.Reason)
}

// decide decides about a connection that is live already, so that no change of rules or labels
// falls in between. It waits until the session deadline for the labels of the caller's namespace.
func (a *accessControl) decide(ctx context.Context, c *clientConn) endpointaccess.Decision {
	ctx, cancel := context.WithDeadline(ctx, c.SessionDeadline)
	defer cancel()
	for {
		updated := a.updated.next()
		decision, later := a.decideNow(a.rules.Snapshot(), c)
		if !later {
			return decision
		}
		select {
		case <-updated:
		case <-ctx.Done():
			return decision
		}
	}
}

// decideNow decides by what is known now, and returns whether that may soon be more.
func (a *accessControl) decideNow(
	s *caller.Snapshot, c *clientConn,
) (decision endpointaccess.Decision, later bool) {
	target := c.target.target()
	if reason := a.closed(s, target); reason != "" {
		return endpointaccess.Decision{Reason: reason, Target: target}, false
	}
	caller, later := a.caller(s, c)
	decision = s.Rules.Decide(target, caller)
	return decision, later && decision.Reason == endpointaccess.ReasonUnknownCaller
}

// leavesToNetwork reports whether NetworkPolicies decide about calls of namespaces whose rules they
// are written for.
func (a *accessControl) leavesToNetwork() bool {
	return a.network && a.pods == nil && a.written.Load() != nil
}

// leftToNetwork reports whether NetworkPolicies, written for exactly these rules, decide which
// connections to the restricted target arrive. Policies that have vanished are in none of them.
func (a *accessControl) leftToNetwork(s *caller.Snapshot, t endpointaccess.Target) bool {
	if !a.network || a.pods != nil {
		return false
	}
	written := a.written.Load()
	return written != nil && s.Knows(t.Namespace) && written.DefaultAccess == string(s.Rules.Default()) &&
		written.Namespaces[t.Namespace] == s.Rules.Digest(t.Namespace) &&
		(s.Rules.Default() == endpointaccess.Deny || s.Rules.Current(t))
}

// restricts reports whether calls of the target depend on the caller, as far as the rules are
// known.
func (a *accessControl) restricts(to *portAssignment) bool {
	if a == nil {
		return false
	}
	s, target := a.rules.Snapshot(), to.target()
	return a.closed(s, target) != "" || s.Rules.Restricted(target) && !a.leftToNetwork(s, target)
}

// awaitRules reports whether the rules of the target's namespace are known before the connection's
// session deadline. It waits for a namespace, too, that may have just been created.
func (a *accessControl) awaitRules(ctx context.Context, c *clientConn) bool {
	target := c.target.target()
	known := func() bool {
		s := a.rules.Snapshot()
		return s.Knows(target.Namespace) && a.closed(s, target) != reasonNamespaceMissing
	}
	if known() {
		return true
	}
	ctx, cancel := context.WithDeadline(ctx, c.SessionDeadline)
	defer cancel()
	for {
		updated := a.updated.next()
		if known() {
			return true
		}
		select {
		case <-updated:
		case <-ctx.Done():
			return a.rules.Snapshot().Knows(target.Namespace)
		}
	}
}

// missing returns which rules are not known yet that the listeners need, or "".
func (a *accessControl) missing(all []ListenerStatus) string {
	if a == nil {
		return ""
	}
	snapshot := a.rules.Snapshot()
	if missing := unlisted("EndpointAccess", all, snapshot.Knows); missing != "" || snapshot.KnowsNamespaces() {
		return missing
	}
	return "namespaces are not listed yet"
}

// unlisted returns in which of the listeners' namespaces the objects of a kind are not known, or "".
func unlisted(kind string, all []ListenerStatus, known func(namespace string) bool) string {
	unknown := map[string]struct{}{}
	for _, l := range all {
		if target := endpointaccess.TargetOf(l.Hostname, l.ServicePort); !known(target.Namespace) {
			unknown[target.Namespace] = struct{}{}
		}
	}
	if len(unknown) == 0 {
		return ""
	}
	return "the " + kind + " objects of these namespaces are not listed yet: " +
		strings.Join(slices.Sorted(maps.Keys(unknown)), ", ")
}

// caller returns the connection's caller as it is now. It is nil while that is not certain: then
// later reports whether it may become so.
func (a *accessControl) caller(s *caller.Snapshot, c *clientConn) (caller *endpointaccess.Caller, later bool) {
	if c.pod == nil {
		return nil, false
	}
	pod := a.pods.Current(c.clientIP())
	if pod == nil {
		return nil, true
	}
	if pod.Namespace != c.pod.Namespace || pod.Name != c.pod.Name { // the address has another owner now
		return nil, false
	}
	namespaceLabels, known := s.NamespaceLabels(pod.Namespace)
	if !known || !pod.Labels.Known() {
		return nil, !known
	}
	return &endpointaccess.Caller{Namespace: pod.Namespace, NamespaceLabels: namespaceLabels, PodLabels: pod.Labels,
		ServiceAccount: pod.ServiceAccount}, false
}

// enforce ends live connections that a change forbids, until ctx is done.
func (a *accessControl) enforce(ctx context.Context) error {
	if a == nil {
		return nil
	}
	var labels <-chan struct{}
	if a.pods != nil {
		labels = a.pods.LabelsChanged()
	}
	var again <-chan time.Time // while some callers are not certain
	for {
		select {
		case <-a.rules.Changed():
			a.updated.broadcast()
			a.changed.broadcast()
		case <-labels:
		case <-again:
		case <-ctx.Done():
			return nil
		}
		again = nil
		if a.revoke() {
			again = time.After(a.timing.accessRetry)
		}
		if !timer.Sleep(ctx, a.timing.accessPause) {
			return nil
		}
	}
}

// revoke ends the live connections that are forbidden for certain. It reports whether there are
// some about which this may become certain.
func (a *accessControl) revoke() (later bool) {
	snapshot := a.rules.Snapshot()
	for _, c := range a.live.list() {
		forbidden, wait := a.forbidden(snapshot, c)
		later = later || wait
		if !forbidden || !a.live.remove(c) {
			continue
		}
		a.record(c, reasonRevoked)
		c.revoked.Store(true)
		forward.Reset(c)
	}
	return later
}

// forbidden reports whether a live connection is forbidden for certain, and whether that may become
// certain.
func (a *accessControl) forbidden(s *caller.Snapshot, c *clientConn) (forbidden, later bool) {
	target := c.target.target()
	if !s.Knows(target.Namespace) {
		return false, false
	}
	if problem, known := s.NamespaceProblem(target.Namespace); known && problem != "" && a.closed(s, target) != "" {
		return true, false
	}
	if c.pod == nil || !s.Rules.Restricted(target) {
		return false, false
	}
	caller, later := a.caller(s, c)
	if caller == nil {
		return false, later
	}
	d := s.Rules.Decide(target, caller)
	return !d.Allowed || c.trustsForwarding.Load() && !d.TrustsForwarding, later
}

// deny records a denied connection and returns its failure.
func (a *accessControl) deny(c *clientConn, why endpointaccess.Reason) *forward.Failure {
	a.record(c, why)
	class := trafficerror.AccessDenied()
	return &forward.Failure{Reason: forward.Reason(class.Reason), Code: account.CodeAccessDenied,
		Msg: class.Message(c.target.String()) + denialDetail(c, why)}
}

func (a *accessControl) record(c *clientConn, why endpointaccess.Reason) {
	c.stats.countDenial(string(why))
	a.denials.add(denialKey{c.target.Host, c.target.Port, c.caller(), string(why)}, time.Now())
}

// denialDetail returns the rest of the sentence that a denied client gets. It names no objects: the
// client may not read them.
func denialDetail(c *clientConn, why endpointaccess.Reason) string {
	namespace := c.target.target().Namespace
	if problem := closedNamespaces[why]; problem != "" {
		return fmt.Sprintf(": namespace %s %s, and no EndpointAccess of it allows the call.", namespace, problem)
	}
	switch why {
	case endpointaccess.ReasonDefault:
		return fmt.Sprintf(": no EndpointAccess of namespace %s selects it, and this cluster denies such calls.",
			namespace)
	case reasonRulesUnknown:
		return fmt.Sprintf(": its forwarder could not yet read the EndpointAccess objects of namespace %s.",
			namespace)
	case reasonNoPodIdentity:
		return fmt.Sprintf(": EndpointAccess objects of namespace %s restrict it, and this cluster's forwarders do "+
			"not know pods. Set forwarder.podIdentity.enabled.", namespace)
	case reasonNotWritten:
		return fmt.Sprintf(": which pods may call endpoints of namespace %s is left to NetworkPolicies, and they are "+
			"not written for its EndpointAccess objects as they are now.", namespace)
	case endpointaccess.ReasonUnknownCaller:
		return fmt.Sprintf(": EndpointAccess objects of namespace %s restrict it, and no pod is known for certain to "+
			"have the address %s.", namespace, c.clientIP())
	}
	return fmt.Sprintf(": no EndpointAccess of namespace %s allows pod %s with ServiceAccount %s.", namespace,
		c.caller(), c.pod.ServiceAccount)
}

// liveConns are the connections being served. The zero value is ready for use.
type liveConns struct {
	mu    sync.Mutex
	conns map[*clientConn]struct{}
}

func (l *liveConns) add(c *clientConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conns == nil {
		l.conns = map[*clientConn]struct{}{}
	}
	l.conns[c] = struct{}{}
}

// remove removes a connection and reports whether it was one of them.
func (l *liveConns) remove(c *clientConn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, found := l.conns[c]
	delete(l.conns, c)
	return found
}

func (l *liveConns) list() []*clientConn {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.conns))
}
