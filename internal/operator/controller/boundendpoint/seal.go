// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package boundendpoint

import (
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
	"github.com/fairlead-dev/fairlead/internal/sealed"
)

// Trust reports which connections are sealed, from memory. Implementations are safe for concurrent
// use.
type Trust interface {
	// Decide returns what holds for connections to the URL.
	Decide(u account.EndpointURL) endpointtrust.Decision
	// Enforcement returns how many forwarders enforce what holds in a namespace.
	Enforcement(namespace string) forwarderstatus.Enforcement
}

// Values of status.sealed.
const (
	sealedByAuthority = "authority"
	sealedByKeys      = "pinned"
	sealedNot         = "no"
	sealedRefused     = "refused"
)

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
			last := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionSealed)
			return refusing(last)
		}
		kind, c := w.sealedCondition(b, u, d, refusedAt(report, int(p.TargetPort)))
		if !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
		if c != nil && (required == nil || required.Status == metav1.ConditionTrue || c.Status == metav1.ConditionFalse &&
			required.Status == metav1.ConditionUnknown) {
			required = c
		}
	}
	s.Sealed = strings.Join(kinds, ",")
	if len(kinds) == 0 {
		s.Sealed = sealedNot
	}
	if required == nil {
		meta.RemoveStatusCondition(&s.Conditions, v1alpha1.ConditionSealed)
		return nil
	}
	required.ObservedGeneration, required.LastTransitionTime = b.Generation, metav1.NewTime(w.clock.Now())
	meta.SetStatusCondition(&s.Conditions, *required)
	return refusing(required)
}

func refusing(c *metav1.Condition) []metav1.Condition {
	if c == nil || c.Status != metav1.ConditionFalse {
		return nil
	}
	return []metav1.Condition{*c}
}

// refusedAt returns the first refusal at a target port, or nil.
func refusedAt(report forwarderstatus.Report, port int) *forwarderstatus.SealRefused {
	i := slices.IndexFunc(report.SealsRefused, func(r forwarderstatus.SealRefused) bool { return r.Port == port })
	if i < 0 {
		return nil
	}
	return &report.SealsRefused[i]
}

// sealedCondition returns the value of status.sealed of one URL, and its condition; nil if nothing
// requires a seal.
func (w *statusWriter) sealedCondition(
	b *v1alpha1.BoundEndpoint, u account.EndpointURL, d endpointtrust.Decision, refused *forwarderstatus.SealRefused,
) (kind string, c *metav1.Condition) {
	c = &metav1.Condition{Type: v1alpha1.ConditionSealed, Status: metav1.ConditionFalse}
	if d.Refused != "" {
		c.Reason = accesspolicy.TrustReason(d.Refused)
		c.Message = fmt.Sprintf("connections to %s are refused: %s", u, d.Detail)
		return sealedRefused, c
	}
	if d.Trust.Mode == sealed.Off {
		return sealedNot, nil
	}
	kind, reason := sealedByAuthority, v1alpha1.ReasonAuthority
	message := fmt.Sprintf("connections to %s are sealed: agents need a certificate of one of these authorities: %d",
		u, len(d.Trust.Authorities))
	if len(d.Trust.Keys) > 0 {
		kind, reason = sealedByKeys, v1alpha1.ReasonPinned
		message = fmt.Sprintf("connections to %s are sealed: agents need one of these keys: %d", u, len(d.Trust.Keys))
	}
	e := w.trust.Enforcement(b.Spec.Namespace)
	keys := w.account.SealKeys(u)
	switch {
	case refused != nil:
		c.Reason = refused.Reason
		c.Message = fmt.Sprintf("forwarder %s refused the last connection: %s", refused.Pod, refused.Message)
	case len(keys) == 1 && keys[0] == "":
		c.Reason = v1alpha1.ReasonNotSealed
		c.Message = fmt.Sprintf("connections to %s have to be sealed, and no agent of it seals", u)
	case !e.Known || e.Forwarders == 0:
		c.Status, c.Reason = metav1.ConditionUnknown, v1alpha1.ReasonForwardersUnknown
		c.Message = "no forwarder reports its status"
	case e.Behind != "":
		c.Status, c.Reason = metav1.ConditionUnknown, v1alpha1.ReasonForwardersBehind
		c.Message = fmt.Sprintf("forwarder %s does not report that it seals as the rules say", e.Behind)
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, reason, message
	}
	return kind, c
}
