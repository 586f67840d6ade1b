// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package path

import (
	"testing"

	"sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
)

// TestRemedy_OfEveryReason: each reason that the operator has is given a remedy of its own.
func TestRemedy_OfEveryReason(t *testing.T) {
	t.Parallel()
	for _, reason := range []string{
		v1alpha1.ReasonNamespaceNotFound, v1alpha1.ReasonNamespaceTerminating, v1alpha1.ReasonNamespaceForbidden,
		v1alpha1.ReasonNamespaceNotAllowed,
		v1alpha1.ReasonConflict, v1alpha1.ReasonPortsExhausted, v1alpha1.ReasonInvalidEndpoint,
		v1alpha1.ReasonClusterIPExhausted,
		v1alpha1.ReasonQuotaExceeded, v1alpha1.ReasonAdmissionDenied,
		v1alpha1.ReasonAnchorMissing, v1alpha1.ReasonServiceTerminating,
	} {
		if Remedy("BoundEndpoint", reason) == Remedy("BoundEndpoint", "") {
			t.Errorf("%s has no remedy of its own", reason)
		}
	}
	for _, reason := range []string{v1alpha1.ReasonSecondRelease, v1alpha1.ReasonLimitReached,
		v1alpha1.ReasonRejected} {
		if Remedy("KubernetesOperator", reason) == Remedy("KubernetesOperator", "") {
			t.Errorf("%s has no remedy of its own", reason)
		}
	}
	for _, reason := range []v1beta1.ServiceExportConditionReason{v1beta1.ServiceExportReasonNoService,
		v1beta1.ServiceExportReasonInvalidServiceType, v1beta1.ServiceExportReasonPending} {
		if Remedy("ServiceExport", string(reason)) == Remedy("ServiceExport", "") {
			t.Errorf("%s has no remedy of its own", reason)
		}
	}
}

// TestExportRemedy_OfEveryReason: so is each reason of an AgentEndpoint. A condition's type that
// the checks read is one of the kind's.
func TestExportRemedy_OfEveryReason(t *testing.T) {
	t.Parallel()
	remedies := map[string]string{}
	for _, reason := range []string{
		v1alpha1.ReasonUpstreamNotFound, v1alpha1.ReasonUpstreamNotAllowed, v1alpha1.ReasonUnsupportedService,
		v1alpha1.ReasonPortNotFound, v1alpha1.ReasonPolicyInvalid, v1alpha1.ReasonPolicyNotFound,
		v1alpha1.ReasonURLNotAllowed, v1alpha1.ReasonURLTaken, v1alpha1.ReasonForbidden, v1alpha1.ReasonRejected,
		v1alpha1.ReasonLimitReached, v1alpha1.ReasonUnreachable, v1alpha1.ReasonPending,
		v1alpha1.ReasonNoReadyEndpoints,
	} {
		remedy := Remedy("AgentEndpoint", reason)
		if remedy == Remedy("AgentEndpoint", "") || remedies[remedy] != "" {
			t.Errorf("%s has no remedy of its own: %q", reason, remedy)
		}
		remedies[remedy] = reason
	}
	for have, want := range map[string]string{"Accepted": v1alpha1.ConditionAccepted, "Bound": v1alpha1.ConditionBound,
		"UpstreamReady": v1alpha1.ConditionUpstreamReady} {
		if have != want {
			t.Errorf("the condition %s is called %s", have, want)
		}
	}
}
