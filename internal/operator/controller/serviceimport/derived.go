// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceimport

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/clusterset"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/owned"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/status"
)

// defaultAffinitySeconds is the API server's default of a Service with ClientIP affinity.
const defaultAffinitySeconds = 10800

// DerivedName returns the name of the derived Service of a ServiceImport.
func DerivedName(name types.NamespacedName) string {
	sum := sha256.Sum256([]byte(name.String()))
	return "derived-" + strings.ToLower(base32.HexEncoding.EncodeToString(sum[:]))[:10]
}

// ensureDerived makes the derived Service as desired, but for ports that go: they stay for now. A new
// one gets the addresses that the ServiceImport had unless they have been given to another Service.
func (r *Reconciler) ensureDerived(
	ctx context.Context, i *clusterset.Import, owner *mcsv1beta1.ServiceImport,
) (*corev1.Service, *status.Problem) {
	desired := derivedService(r.Anchors.Installation, i, owner)
	key := client.ObjectKeyFromObject(desired)
	if ips := owner.Spec.IPs; len(ips) > 0 {
		desired.Spec.ClusterIP, desired.Spec.ClusterIPs = ips[0], slices.Clone(ips)
	}
	live := &corev1.Service{}
	err := r.Client.Get(ctx, key, live)
	if apierrors.IsNotFound(err) {
		if live, _, err = r.objects.CreateService(ctx, desired); err != nil {
			return nil, problemOf(fmt.Errorf("creating Service %s: %w", key, err))
		}
	}
	switch {
	case err != nil:
		return nil, problemOf(fmt.Errorf("reading Service %s: %w", key, err))
	case !r.Anchors.Installation.Owns(live) && !slices.Contains(live.OwnerReferences, importReference(owner)):
		return nil, conflict("Service", key)
	case live.DeletionTimestamp != nil:
		return nil, status.Pending()
	case live.Spec.ClusterIP == corev1.ClusterIPNone || live.Spec.ClusterIP == "":
		return nil, r.recreateDerived(ctx, live)
	}
	desired.Spec.Ports = append(desired.Spec.Ports, leavingPorts(live.Spec.Ports, desired.Spec.Ports)...)
	return live, r.updateDerived(ctx, live, desired)
}

// updateDerived makes live, a derived Service, as desired. It changes live.
func (r *Reconciler) updateDerived(ctx context.Context, live, desired *corev1.Service) *status.Problem {
	next, _, err := r.objects.RepairService(ctx, live, desired)
	if err != nil {
		return problemOf(fmt.Errorf("updating Service %s: %w", client.ObjectKeyFromObject(live), err))
	}
	if next != live { // a copy of an object into itself loses its maps
		next.DeepCopyInto(live)
	}
	return nil
}

// recreateDerived deletes a derived Service that another client made headless, or of another type:
// it cannot be updated. Its deletion's event makes it again.
func (r *Reconciler) recreateDerived(ctx context.Context, live *corev1.Service) *status.Problem {
	if err := owned.Delete(ctx, r.Client, live); err != nil {
		return problemOf(fmt.Errorf("deleting Service %s: %w", client.ObjectKeyFromObject(live), err))
	}
	return owned.ProblemOf(owned.ErrRepeat)
}

// removeDerived deletes the derived Service and its slices, as far as they are ours.
func (r *Reconciler) removeDerived(ctx context.Context, key types.NamespacedName) *status.Problem {
	name := types.NamespacedName{Namespace: key.Namespace, Name: DerivedName(key)}
	live := &corev1.Service{}
	err := r.Client.Get(ctx, name, live)
	if err == nil && r.Anchors.Installation.Owns(live) && live.DeletionTimestamp == nil {
		err = owned.Delete(ctx, r.Client, live)
	}
	found := problemOf(client.IgnoreNotFound(err))
	r.objects.Forget(name)
	return first(found, r.removeSlices(ctx, key, nil))
}

// derivedService returns the desired derived Service of a ServiceImport, which owns it. It has no
// selector: the slices lead to the forwarders, on any node.
func derivedService(
	own installation.Installation, i *clusterset.Import, owner *mcsv1beta1.ServiceImport,
) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: owner.Namespace,
			Name:            DerivedName(client.ObjectKeyFromObject(owner)),
			Labels:          map[string]string{mcsv1beta1.LabelServiceName: owner.Name},
			OwnerReferences: []metav1.OwnerReference{importReference(owner)}},
		Spec: corev1.ServiceSpec{
			Type:                  corev1.ServiceTypeClusterIP,
			SessionAffinity:       corev1.ServiceAffinity(i.Spec.SessionAffinity),
			InternalTrafficPolicy: new(corev1.ServiceInternalTrafficPolicyCluster),
			IPFamilyPolicy:        new(corev1.IPFamilyPolicyPreferDualStack),
		},
	}
	if s.Spec.SessionAffinity == corev1.ServiceAffinityClientIP {
		seconds := ptr.Deref(i.Spec.SessionAffinitySeconds, defaultAffinitySeconds)
		s.Spec.SessionAffinityConfig = affinityConfig(&seconds)
	}
	for _, p := range i.Spec.Ports {
		s.Spec.Ports = append(s.Spec.Ports, servicePort(p))
	}
	own.Mark(s)
	return s
}

// servicePort returns a port of a Service as it is exported.
func servicePort(p account.ServiceExportPort) corev1.ServicePort {
	port := corev1.ServicePort{Name: p.Name, Protocol: corev1.Protocol(p.Protocol), Port: p.Port,
		TargetPort: intstr.FromInt32(p.Port)}
	if len(validation.IsQualifiedName(p.AppProtocol)) == 0 {
		port.AppProtocol = new(p.AppProtocol)
	}
	return port
}

func importReference(s *mcsv1beta1.ServiceImport) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: mcsv1beta1.GroupVersion.String(), Kind: mcsv1beta1.ServiceImportKindName,
		Name: s.Name, UID: s.UID, BlockOwnerDeletion: new(false)}
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
