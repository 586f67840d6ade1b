// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceimport

import (
	"crypto/sha256"
	"encoding/base32"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/clusterset"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
)

// AnnotationDerivedService holds, on a ServiceImport of type ClusterSetIP, the name of its derived
// Service.
const AnnotationDerivedService = "multicluster.kubernetes.io/derived-service"

// defaultAffinitySeconds is the API server's default of a Service with ClientIP affinity.
const defaultAffinitySeconds = 10800

// DerivedName returns the name of the derived Service of a ServiceImport.
func DerivedName(name types.NamespacedName) string {
	sum := sha256.Sum256([]byte(name.String()))
	return "derived-" + strings.ToLower(base32.HexEncoding.EncodeToString(sum[:]))[:10]
}

// newImport returns the desired ServiceImport, without IPs.
func newImport(
	own installation.Installation, i *clusterset.Import, owners []metav1.OwnerReference,
) *mcsv1beta1.ServiceImport {
	key := types.NamespacedName{Namespace: i.Namespace, Name: i.Name}
	s := &mcsv1beta1.ServiceImport{
		ObjectMeta: metav1.ObjectMeta{Namespace: i.Namespace, Name: i.Name, Labels: exportedLabels(i.Spec.Labels),
			Annotations:     exportedAnnotations(i.Spec.Annotations),
			OwnerReferences: owners},
		Spec: mcsv1beta1.ServiceImportSpec{Type: mcsv1beta1.ServiceImportType(i.Spec.Type),
			Ports:                 []mcsv1beta1.ServicePort{},
			SessionAffinity:       corev1.ServiceAffinity(i.Spec.SessionAffinity),
			SessionAffinityConfig: affinityConfig(i.Spec.SessionAffinitySeconds)},
	}
	for _, p := range i.Spec.Ports {
		s.Spec.Ports = append(s.Spec.Ports, mcsv1beta1.ServicePort{Name: p.Name, Port: p.Port,
			Protocol: corev1.Protocol(p.Protocol), AppProtocol: orNil(p.AppProtocol)})
	}
	if i.Spec.InternalTrafficPolicy != "" {
		s.Spec.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicy(i.Spec.InternalTrafficPolicy))
	}
	s.Spec.TrafficDistribution = orNil(i.Spec.TrafficDistribution)
	if i.Spec.Type == account.ExportClusterSetIP {
		s.Annotations[AnnotationDerivedService] = DerivedName(key)
	}
	own.Mark(s)
	return s
}

// exportedLabels returns the labels that a ServiceImport can have: those of another cluster may
// break the API server's rules, or be ours.
func exportedLabels(exported map[string]string) map[string]string {
	kept := exportedAnnotations(exported)
	for name, value := range kept {
		if len(validation.IsQualifiedName(name)) > 0 || len(validation.IsValidLabelValue(value)) > 0 {
			delete(kept, name)
		}
	}
	return kept
}

// exportedAnnotations does so for annotations.
func exportedAnnotations(exported map[string]string) map[string]string {
	kept := map[string]string{}
	for name, value := range exported {
		ours := strings.HasPrefix(name, "bindings.fairlead.dev/") || name == AnnotationDerivedService
		if !ours && len(validation.IsQualifiedName(strings.ToLower(name))) == 0 {
			kept[name] = value
		}
	}
	return kept
}

func affinityConfig(seconds *int32) *corev1.SessionAffinityConfig {
	if seconds == nil {
		return nil
	}
	return &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: ptr.To(*seconds)}}
}

func orNil(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// updatedImport returns live with the desired content, and whether that is a change. Labels and
// annotations are exactly the exported ones and our marks, so that one which is no longer exported
// goes. The IPs are those of the derived Service; nil = it has none.
func updatedImport(
	live, desired *mcsv1beta1.ServiceImport, addressed *corev1.Service,
) (*mcsv1beta1.ServiceImport, bool) {
	next := live.DeepCopy()
	next.Labels, next.Annotations = desired.Labels, desired.Annotations
	next.OwnerReferences = desired.OwnerReferences
	next.Spec = *desired.Spec.DeepCopy()
	if addressed != nil {
		next.Spec.IPs = slices.Clone(addressed.Spec.ClusterIPs)
		next.Spec.IPFamilies = slices.Clone(addressed.Spec.IPFamilies)
	}
	return next, !equality.Semantic.DeepEqual(live, next)
}

// derivedService returns the desired derived Service of a ServiceImport, which owns it. It has no
// selector: the slices lead to the forwarders, on any node.
func derivedService(
	own installation.Installation, i *clusterset.Import, owner *mcsv1beta1.ServiceImport,
) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: owner.Namespace,
			Name:            DerivedName(types.NamespacedName{Namespace: owner.Namespace, Name: owner.Name}),
			Labels:          map[string]string{mcsv1beta1.LabelServiceName: owner.Name},
			OwnerReferences: []metav1.OwnerReference{importReference(owner)}},
		Spec: corev1.ServiceSpec{
			Type:                  corev1.ServiceTypeClusterIP,
			SessionAffinity:       corev1.ServiceAffinity(i.Spec.SessionAffinity),
			InternalTrafficPolicy: ptr.To(corev1.ServiceInternalTrafficPolicyCluster),
			IPFamilyPolicy:        ptr.To(corev1.IPFamilyPolicyPreferDualStack),
		},
	}
	if s.Spec.SessionAffinity == corev1.ServiceAffinityClientIP {
		seconds := ptr.Deref(i.Spec.SessionAffinitySeconds, defaultAffinitySeconds)
		s.Spec.SessionAffinityConfig = affinityConfig(&seconds)
	}
	for _, p := range i.Spec.Ports {
		port := corev1.ServicePort{Name: p.Name, Protocol: corev1.Protocol(p.Protocol), Port: p.Port,
			TargetPort: intstr.FromInt32(p.Port)}
		if len(validation.IsQualifiedName(p.AppProtocol)) == 0 {
			port.AppProtocol = ptr.To(p.AppProtocol)
		}
		s.Spec.Ports = append(s.Spec.Ports, port)
	}
	own.Mark(s)
	return s
}

func importReference(s *mcsv1beta1.ServiceImport) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: mcsv1beta1.GroupVersion.String(), Kind: mcsv1beta1.ServiceImportKindName,
		Name: s.Name, UID: s.UID, BlockOwnerDeletion: ptr.To(false)}
}

// leavingPorts returns the ports of live that are not desired, but can stay beside those until the
// slices lack them.
func leavingPorts(live, desired []corev1.ServicePort) []corev1.ServicePort {
	return slices.DeleteFunc(slices.Clone(live), func(p corev1.ServicePort) bool {
		return p.Name == "" || slices.ContainsFunc(desired, func(q corev1.ServicePort) bool {
			return q.Name == "" || p.Name == q.Name || p.Protocol == q.Protocol && p.Port == q.Port
		})
	})
}
