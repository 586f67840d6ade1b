// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package boundendpoint_test

import (
	"crypto/x509"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/endpointtrust"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/forwarderstatus"
	"github.com/fairlead-dev/fairlead/internal/sealed"
	"github.com/fairlead-dev/fairlead/internal/trust"
)

// fakeTrust decides by ports; a port without a decision is not sealed.
type fakeTrust struct {
	decisions   map[int]endpointtrust.Decision
	enforcement forwarderstatus.Enforcement
	requested   []string // namespaces of which pins were requested
}

func (f *fakeTrust) RequestPins(namespace string) { f.requested = append(f.requested, namespace) }

func (f *fakeTrust) Decide(u account.EndpointURL) endpointtrust.Decision {
	if d, ok := f.decisions[u.Port]; ok {
		return d
	}
	return endpointtrust.Decision{Trust: sealed.TrustOptions{Mode: sealed.Off}}
}

func (f *fakeTrust) Enforcement(string) forwarderstatus.Enforcement { return f.enforcement }

var _ = Describe("Reconciler: seals", func() {
	var h *harness
	BeforeEach(func(ctx SpecContext) { h = newHarness(ctx) })
	byAuthority := endpointtrust.Decision{Trust: sealed.TrustOptions{Mode: sealed.Require,
		Authorities: make([]*x509.Certificate, 2)}}
	byKey := endpointtrust.Decision{Trust: sealed.TrustOptions{Mode: sealed.Require, Keys: make([]trust.Pin, 1)}}
	byPreference := endpointtrust.Decision{Trust: sealed.TrustOptions{Mode: sealed.Prefer, Keys: byKey.Trust.Keys}}
	conflict := endpointtrust.Decision{Refused: endpointtrust.ReasonConflict, Detail: "EndpointTrust a and b select it"}
	atSight := endpointtrust.Decision{Trust: byKey.Trust, FirstSight: true, Pinned: "all"}
	notPinned := endpointtrust.Decision{Refused: endpointtrust.ReasonNotPinned, FirstSight: true, Pinned: "all",
		Detail: "EndpointTrust demo/all"}
	announcing := func(keys ...string) func(*harness) { return func(h *harness) { h.account.sealKeys = keys } }
	unknown := endpointtrust.Decision{Refused: endpointtrust.ReasonUnknown}
	refused := func(port int, reason string) func(*harness) {
		return func(h *harness) {
			h.forwarders.report.SealsRefused = map[int]forwarderstatus.SealRefused{
				port: {Pod: "fwd-1", Reason: reason, Message: "its key is sha256/x"}}
		}
	}

	DescribeTable("are reported by status.sealed and Sealed", func(
		ctx SpecContext, http, tcp *endpointtrust.Decision, change func(*harness), column, want, message, ready string,
	) {
		h.trust.decisions = map[int]endpointtrust.Decision{}
		for port, d := range map[int]*endpointtrust.Decision{80: http, 5432: tcp} {
			if d != nil {
				h.trust.decisions[port] = *d
			}
		}
		change(h)
		b := h.object(ctx, "api", h.Target, v1alpha1.BoundPort{Port: 80, Scheme: "http", TargetPort: 20080},
			v1alpha1.BoundPort{Port: 5432, Scheme: "tcp", TargetPort: 25432})
		h.reconcile(ctx, b)
		Expect(b.Status.Sealed).To(Equal(column))
		if want == "" {
			Expect(meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionSealed)).To(BeNil())
		} else {
			expectCondition(b, v1alpha1.ConditionSealed, want, message)
		}
		expectCondition(b, v1alpha1.ConditionReady, ready, "")
		version := b.ResourceVersion
		h.Clock.Step(time.Hour)
		h.reconcile(ctx, b)
		Expect(b.ResourceVersion).To(Equal(version))
	},
		Entry("without rules", nil, nil, func(*harness) {}, "no", "", "", "True Ready"),
		Entry("by authorities", &byAuthority, &byAuthority, func(*harness) {}, "authority", "True Authority",
			"of one of these authorities: 2", "True Ready"),
		Entry("by a key, at one port", nil, &byKey, func(*harness) {}, "no,pinned", "True Pinned", "tcp://api.",
			"True Ready"),
		Entry("rules that contradict each other", nil, &conflict, func(*harness) {}, "no,refused", "False Conflict",
			"EndpointTrust a and b", "False Conflict"),
		Entry("a key that no forwarder trusts", &byAuthority, &byKey, refused(25432, "KeyChanged"), "authority,pinned",
			"False KeyChanged", "forwarder fwd-1 refused the last connection: its key is sha256/x", "False KeyChanged"),
		Entry("a refusal at a port that needs no seal any more", nil, &byKey, refused(20080, "Expired"), "no,pinned",
			"True Pinned", "", "True Ready"),
		Entry("agents that do not seal", &byAuthority, &byAuthority, announcing(""),
			"authority", "False NotSealed", "no agent of it seals", "False NotSealed"),
		Entry("agents of which one seals", &byAuthority, &byAuthority,
			announcing("", "sha256/x"), "authority", "True Authority", "",
			"True Ready"),
		Entry("another key than is pinned", nil, &byKey, announcing("sha256/x"), "no,pinned", "False KeyChanged",
			"the key sha256/x, which is not pinned", "False KeyChanged"),
		Entry("at first sight", nil, &atSight, func(*harness) {}, "no,first-sight", "True FirstSight",
			"seen first: for demonstrations", "True Ready"),
		Entry("at first sight, and the key changes", nil, &atSight, announcing("sha256/x"), "no,first-sight",
			"False KeyChanged", `:5432":"KEY"}}}'`, "False KeyChanged"),
		Entry("at first sight, before it", nil, &notPinned, announcing("sha256/x"), "no,first-sight",
			"Unknown NotPinned", "wait: EndpointTrust demo/all", "True Ready"),
		Entry("at first sight, by different keys", nil, &notPinned, announcing("sha256/x", "sha256/y"),
			"no,first-sight", "False NotPinned", "its agents announce different keys", "False NotPinned"),
		Entry("at first sight, and no agent seals", nil, &notPinned, announcing(""), "no,first-sight",
			"False NotSealed", "no agent of it seals", "False NotSealed"),
		Entry("preferred, and no agent seals", nil, &byPreference, announcing(""),
			"no,preferred", "", "", "True Ready"),
		Entry("preferred, and an agent is not trusted", nil, &byPreference, refused(25432, "KeyChanged"), "no,pinned",
			"False KeyChanged", "forwarder fwd-1 refused the last connection", "False KeyChanged"),
		Entry("a forwarder that lags behind", &byAuthority, nil,
			func(h *harness) { h.trust.enforcement.Behind = "fwd-2" }, "authority,no", "Unknown ForwardersBehind",
			"forwarder fwd-2", "True Ready"),
		Entry("no forwarder known", &byAuthority, nil,
			func(h *harness) { h.trust.enforcement = forwarderstatus.Enforcement{} }, "authority,no",
			"Unknown ForwardersUnknown", "", "True Ready"),
	)

	It("have first keys pinned", func(ctx SpecContext) {
		h.trust.decisions = map[int]endpointtrust.Decision{80: notPinned}
		h.account.sealKeys = []string{"sha256/x"}
		h.reconcile(ctx, h.object(ctx, "api", h.Target))
		Expect(h.trust.requested).To(ContainElement(h.Target))
		Expect(h.EventNotes()).To(BeEmpty())
	})

	It("emit an event when they are refused and when they are not any more, and stay while rules are unknown",
		func(ctx SpecContext) {
			h.trust.decisions = map[int]endpointtrust.Decision{80: byKey}
			b := h.object(ctx, "api", h.Target)
			reconcile := func() {
				h.Clock.Step(time.Second)
				h.reconcile(ctx, b)
			}
			reconcile()
			Expect(h.EventNotes()).To(BeEmpty())
			refused(20080, "KeyChanged")(h)
			reconcile()
			Expect(h.EventNotes()).To(ConsistOf(ContainSubstring("Warning KeyChanged forwarder fwd-1")))
			h.trust.decisions[80] = unknown
			reconcile()
			Expect(b.Status.Sealed).To(Equal("pinned"))
			expectCondition(b, v1alpha1.ConditionReady, "False KeyChanged", "")
			h.trust.decisions[80] = byKey
			h.forwarders.report.SealsRefused = nil
			reconcile()
			Expect(h.EventNotes()).To(ConsistOf(ContainSubstring("Normal Pinned")))
			delete(h.trust.decisions, 80)
			reconcile()
			Expect(b.Status.Sealed).To(Equal("no"))
			Expect(meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionSealed)).To(BeNil())
			expectCondition(b, v1alpha1.ConditionReady, "True Ready", "")
		})
})
