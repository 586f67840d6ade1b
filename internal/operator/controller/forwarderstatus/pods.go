// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarderstatus

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/fairlead-dev/fairlead/internal/operator/kube/informer"
)

// +kubebuilder:rbac:groups="",namespace=fairlead,resources=pods,verbs=get;list;watch

// PodWatch watches the pods of a namespace with the given labels. They have an informer of their own:
// the controllers must not wait for it, as only statuses depend on it.
type PodWatch struct {
	Config    *rest.Config
	Namespace string
	Labels    labels.Set
}

// Watch implements Pods.
func (w *PodWatch) Watch(ctx context.Context, update func([]Pod)) error {
	core, err := coreclient.NewForConfig(w.Config)
	if err != nil {
		return fmt.Errorf("making client for pods: %w", err)
	}
	lw := cache.NewFilteredListWatchFromClient(core.RESTClient(), "pods", w.Namespace, func(o *metav1.ListOptions) {
		o.LabelSelector = w.Labels.String()
	})
	set := informer.NewSet()
	pods, err := set.Add(lw, &corev1.Pod{}, transformPod)
	if err != nil {
		return err
	}
	set.Run(ctx, func() { update(livePods(pods.List())) })
	return nil
}

// livePods returns the pods that are neither finished nor being deleted.
func livePods(objects []any) []Pod {
	var pods []Pod
	for _, object := range objects {
		p, ok := object.(*corev1.Pod)
		if !ok || p.DeletionTimestamp != nil || p.Status.Phase == corev1.PodSucceeded ||
			p.Status.Phase == corev1.PodFailed {
			continue
		}
		pod := Pod{UID: string(p.UID), Name: p.Name, IP: p.Status.PodIP}
		for _, c := range p.Status.Conditions {
			pod.Ready = pod.Ready || c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		}
		pods = append(pods, pod)
	}
	return pods
}

// transformPod keeps what is read of a pod.
func transformPod(object any) (any, error) {
	p, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace, UID: p.UID,
			ResourceVersion:   p.ResourceVersion,
			DeletionTimestamp: p.DeletionTimestamp},
		Status: corev1.PodStatus{Phase: p.Status.Phase, PodIP: p.Status.PodIP, Conditions: p.Status.Conditions},
	}, nil
}
