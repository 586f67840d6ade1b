// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package boundendpoint

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/endpointtrust"
	"github.com/fairlead-dev/fairlead/internal/operator/accesspolicy"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/forwarderstatus"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/status"
	"github.com/fairlead-dev/fairlead/internal/path"
	"github.com/fairlead-dev/fairlead/internal/sealed"
	"github.com/fairlead-dev/fairlead/internal/trust"
)

// Trust reports which connections are sealed, from memory. Implementations are safe for concurrent
// use.
type Trust interface {
	// Decide returns what holds for connections to the URL.
	Decide(u account.EndpointURL) endpointtrust.Decision
	// Enforcement returns how many forwarders enforce what holds in a namespace.
	Enforcement(namespace string) forwarderstatus.Enforcement
	// RequestPins has the first keys of a namespace's endpoints pinned where they are to be trusted.
	RequestPins(namespace string)
}

// notSealed is the value of status.sealed where nothing requires a seal, and preferred where it will be
// required once a connection was sealed.
const notSealed, preferred = "no", "preferred"

// setSealed sets status.sealed and the condition Sealed, which is absent where nothing requires a
// seal. Both stay while the rules are not known. It returns the condition if calls are refused.
func (w *statusWriter) setSealed(
	b *v1alpha1.BoundEndpoint, s *v1alpha1.BoundEndpointStatus, report forwarderstatus.Report,
) []metav1.Condition {
	var kinds []string
	var required *metav1.Condition
	for _, p := range b.Spec.Ports {
		if p.State == v1alpha1.StateReleased || b.Spec.State == v1alpha1.StateReleased || w.trust == nil {
			continue
		}
		u := account.EndpointURL{Scheme: p.Scheme, Host: b.Name, Port: int(p.Port)}
		d := w.trust.Decide(u)
		if d.Refused == endpointtrust.ReasonUnknown {
			return refusing(meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionSealed))
		}
		kind, c := w.sealedCondition(b, u, d, report.SealsRefused[int(p.TargetPort)])
		if !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
		if c != nil && (required == nil || required.Status == metav1.ConditionTrue ||
			required.Status == metav1.ConditionUnknown && c.Status == metav1.ConditionFalse) {
			required = c
		}
	}
	s.Sealed = cmp.Or(strings.Join(kinds, ","), notSealed)
	if required == nil {
		meta.RemoveStatusCondition(&s.Conditions, v1alpha1.ConditionSealed)
		return nil
	}
	status.Set(&s.Conditions, b.Generation, w.clock.Now(), *required)
	return refusing(required)
}

func refusing(c *metav1.Condition) []metav1.Condition {
	if c == nil || c.Status != metav1.ConditionFalse {
		return nil
	}
	return []metav1.Condition{*c}
}

// sealedCondition returns the value of status.sealed of one URL, and its condition; nil if nothing
// requires a seal.
func (w *statusWriter) sealedCondition(
	b *v1alpha1.BoundEndpoint, u account.EndpointURL, d endpointtrust.Decision, refused forwarderstatus.SealRefused,
) (kind string, c *metav1.Condition) {
	c = &metav1.Condition{Type: v1alpha1.ConditionSealed, Status: metav1.ConditionFalse}
	keys := w.account.SealKeys(u)
	switch {
	case d.Refused == endpointtrust.ReasonNotPinned:
		return "first-sight", w.notPinned(b, u, d, keys)
	case d.Refused != "":
		c.Reason = accesspolicy.TrustReason(d.Refused)
		c.Message = fmt.Sprintf("connections to %s are refused: %s", u, d.Detail)
		return "refused", c
	case d.Trust.Mode == sealed.Off:
		return notSealed, nil
	case d.Trust.Mode == sealed.Prefer && refused.Reason == "":
		return preferred, nil
	}
	kind, reason, message := trusted(d, u)
	e := w.trust.Enforcement(b.Spec.Namespace)
	isPinned := func(key string) bool {
		return slices.ContainsFunc(d.Trust.Keys, func(pin trust.Pin) bool { return sealed.FormatKey(pin) == key })
	}
	switch {
	case refused.Reason != "":
		c.Reason = refused.Reason
		c.Message = fmt.Sprintf("forwarder %s refused the last connection: %s", refused.Pod, refused.Message)
	case len(keys) == 1 && keys[0] == "":
		c.Reason, c.Message = v1alpha1.ReasonNotSealed, noAgentSeals(u)
	case len(d.Trust.Keys) > 0 && len(keys) > 0 && !slices.ContainsFunc(keys, isPinned):
		c.Reason = v1alpha1.ReasonKeyChanged
		c.Message = fmt.Sprintf("the service announces for %s the key %s, which is not pinned", u,
			strings.Join(keys, ", "))
	case !e.Known || e.Forwarders == 0:
		c.Status, c.Reason = metav1.ConditionUnknown, v1alpha1.ReasonForwardersUnknown
		c.Message = "no forwarder reports its status"
	case e.Behind != "":
		c.Status, c.Reason = metav1.ConditionUnknown, v1alpha1.ReasonForwardersBehind
		c.Message = fmt.Sprintf("forwarder %s does not report that it seals as the rules say", e.Behind)
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, reason, message
	}
	if d.FirstSight && c.Reason == v1alpha1.ReasonKeyChanged {
		c.Message += "; if the agent's screen shows this key, pin it in place of KEY: kubectl " +
			path.ApprovePin(b.Spec.Namespace, d.Pinned, u.String())
	}
	return kind, c
}

// trusted returns the value of status.sealed for what a decision trusts, and the reason and message of
// the condition while that is in force.
func trusted(d endpointtrust.Decision, u account.EndpointURL) (kind, reason, message string) {
	n := len(d.Trust.Keys)
	switch {
	case d.FirstSight:
		return "first-sight", v1alpha1.ReasonFirstSight, fmt.Sprintf("connections to %s are sealed: agents need the "+
			"key %s, which was seen first: for demonstrations", u, sealed.FormatKey(d.Trust.Keys[0]))
	case n > 0:
		return "pinned", v1alpha1.ReasonPinned,
			fmt.Sprintf("connections to %s are sealed: agents need one of these keys: %d", u, n)
	}
	return "authority", v1alpha1.ReasonAuthority, fmt.Sprintf("connections to %s are sealed: agents need a "+
		"certificate of one of these authorities: %d", u, len(d.Trust.Authorities))
}

// notPinned returns the condition of a URL whose first key is to be trusted, and requests that the one
// is pinned that its agents announce.
func (w *statusWriter) notPinned(
	b *v1alpha1.BoundEndpoint, u account.EndpointURL, d endpointtrust.Decision, keys []string,
) *metav1.Condition {
	c := &metav1.Condition{Type: v1alpha1.ConditionSealed, Status: metav1.ConditionFalse,
		Reason: v1alpha1.ReasonNotPinned}
	switch {
	case len(keys) > 1:
		c.Message = fmt.Sprintf("connections to %s are refused: its agents announce different keys; give those that "+
			"you know in spec.keys of EndpointTrust %s/%s", u, b.Spec.Namespace, d.Pinned)
	case len(keys) == 1 && keys[0] == "":
		c.Reason, c.Message = v1alpha1.ReasonNotSealed, noAgentSeals(u)
	default:
		w.trust.RequestPins(b.Spec.Namespace)
		c.Status, c.Message = metav1.ConditionUnknown, fmt.Sprintf("connections to %s wait: %s", u, d.Detail)
	}
	return c
}

func noAgentSeals(u account.EndpointURL) string {
	return fmt.Sprintf("connections to %s have to be sealed, and no agent of it seals", u)
}
