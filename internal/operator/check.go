// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
	"github.com/fairlead-dev/fairlead/internal/operator/options"
)

// checkEvery is how often Check reads the KubernetesOperator.
const checkEvery = time.Second

// exporterName is the app.kubernetes.io/name of the exporters' pods.
const exporterName = "fairlead-exporter"

// CheckOptions select the installation to check. Flags are named as in `fairlead-operator check
// --help`.
type CheckOptions struct {
	installation.Installation
	Timeout    time.Duration // how long to wait until the installation works
	Exporter   bool          // the installation has exporters, which must be ready
	Clusterset bool          // the installation imports Services

	Kubernetes *rest.Config
	Out        io.Writer
}

// Check reports whether an installation works: the account knows it, answers and, if endpoints are
// bound, every forwarder has a session with the service's edge. With Exporter, exporters run and
// are all ready; with Clusterset, ServiceImports can be made. It waits for that until the timeout, and changes nothing.
func Check(ctx context.Context, o CheckOptions) error {
	var c options.Checker
	o.Installation.Check(&c)
	if err := c.Err(); err != nil {
		return err
	}
	kube, err := client.New(clientConfig(o.Kubernetes), kinds().ClientOptions())
	if err != nil {
		return fmt.Errorf("preparing the client: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	tick := time.NewTicker(checkEvery)
	defer tick.Stop()
	lastErr := errors.New("the Kubernetes API server did not answer in time")
	for {
		var k v1alpha1.KubernetesOperator
		err := kube.Get(ctx, client.ObjectKey{Namespace: o.Namespace, Name: o.Release}, &k)
		if err == nil {
			err = o.works(&k)
		}
		if err == nil && o.Clusterset {
			err = importing(&k)
		}
		if err == nil && o.Exporter {
			err = o.exportersReady(ctx, kube)
		}
		if err == nil {
			return o.report(&k)
		}
		if ctx.Err() == nil {
			lastErr = err // an error of the timeout is less precise
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("checking release %s in namespace %s: %w", o.Release, o.Namespace, lastErr)
		case <-tick.C:
		}
	}
}

// neededConditions are the conditions of an installation that works.
func neededConditions(k *v1alpha1.KubernetesOperator) []string {
	needed := []string{v1alpha1.ConditionRegistered, v1alpha1.ConditionAPIReachable}
	if k.Spec.BindingEnabled {
		needed = append(needed, v1alpha1.ConditionEdgeReachable)
	}
	return needed
}

// works returns the first problem of an installation, or nil.
func (o CheckOptions) works(k *v1alpha1.KubernetesOperator) error {
	for _, typ := range neededConditions(k) {
		switch c := meta.FindStatusCondition(k.Status.Conditions, typ); {
		case c == nil || c.ObservedGeneration != k.Generation:
			return fmt.Errorf("%s is not known yet: does the manager run?", typ)
		case c.Status != metav1.ConditionTrue:
			return fmt.Errorf("%s is %s (%s): %s", typ, c.Status, c.Reason, c.Message)
		}
	}
	return nil
}

// importing returns an error if nothing can be imported. A single ServiceImport that is not as it
// should be is only reported.
func importing(k *v1alpha1.KubernetesOperator) error {
	c := meta.FindStatusCondition(k.Status.Conditions, v1alpha1.ConditionServiceImportsReady)
	switch {
	case c == nil || c.ObservedGeneration != k.Generation:
		return fmt.Errorf("%s is not known yet: does the manager run with --clusterset?",
			v1alpha1.ConditionServiceImportsReady)
	case c.Reason == v1alpha1.ReasonCRDsMissing, c.Reason == v1alpha1.ReasonImportsForbidden:
		return fmt.Errorf("%s is %s (%s): %s", c.Type, c.Status, c.Reason, c.Message)
	}
	return nil
}

// exportersReady returns an error unless there are exporters and all of them are ready.
func (o CheckOptions) exportersReady(ctx context.Context, kube client.Client) error {
	var pods corev1.PodList
	if err := kube.List(ctx, &pods, client.InNamespace(o.Namespace), client.MatchingLabels{
		"app.kubernetes.io/name": exporterName, "app.kubernetes.io/instance": o.Release,
	}); err != nil {
		return fmt.Errorf("listing the exporters: %w", err)
	}
	running := 0
	for _, p := range pods.Items {
		if p.DeletionTimestamp != nil {
			continue
		}
		running++
		if !slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		}) {
			return fmt.Errorf("exporter %s is not ready: kubectl --namespace %s logs %s tells why", p.Name, p.Namespace,
				p.Name)
		}
	}
	if running == 0 {
		return errors.New("no exporter runs: see the Deployment of the release's exporters")
	}
	return nil
}

// report writes what works.
func (o CheckOptions) report(k *v1alpha1.KubernetesOperator) error {
	for _, typ := range neededConditions(k) {
		_, _ = fmt.Fprintf(o.Out, "%s: %s\n", typ, meta.FindStatusCondition(k.Status.Conditions, typ).Message)
	}
	if o.Clusterset {
		_, _ = fmt.Fprintf(o.Out, "%s: %s\n", v1alpha1.ConditionServiceImportsReady,
			meta.FindStatusCondition(k.Status.Conditions, v1alpha1.ConditionServiceImportsReady).Message)
	}
	_, _ = fmt.Fprintf(o.Out, "%d hostnames are bound, %d of them ready\n",
		k.Status.BoundEndpoints, k.Status.ReadyEndpoints)
	if o.Exporter {
		_, _ = fmt.Fprintln(o.Out, "all exporters are ready")
	}
	return nil
}
