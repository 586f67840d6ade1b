// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/operator/optioncheck"
)

// checkEvery is how often Check reads the KubernetesOperator.
const checkEvery = time.Second

// CheckOptions select the installation to check. Flags are named as in `fairlead-operator check
// --help`.
type CheckOptions struct {
	Namespace, Release string
	Timeout            time.Duration // how long to wait until the installation works

	Kubernetes *rest.Config
	Out        io.Writer
}

// Check reports whether an installation works: the account knows it, answers and, if endpoints are
// bound, every forwarder has a session with the service's edge. It waits for that until the
// timeout, and changes nothing.
func Check(ctx context.Context, o CheckOptions) error {
	var c optioncheck.Checker
	c.Release(o.Namespace, o.Release)
	if err := c.Err(); err != nil {
		return err
	}
	mapper, err := newMapper(nil, nil)
	if err != nil {
		return err
	}
	kube, err := client.New(clientConfig(o.Kubernetes), client.Options{Scheme: newScheme(), Mapper: mapper})
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
		if err == nil {
			return nil
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

// works writes the conditions of a working installation, or returns the first problem.
func (o CheckOptions) works(k *v1alpha1.KubernetesOperator) error {
	needed := []string{v1alpha1.ConditionRegistered, v1alpha1.ConditionAPIReachable}
	if k.Spec.BindingEnabled {
		needed = append(needed, v1alpha1.ConditionEdgeReachable)
	}
	for _, typ := range needed {
		switch c := meta.FindStatusCondition(k.Status.Conditions, typ); {
		case c == nil || c.ObservedGeneration != k.Generation:
			return fmt.Errorf("%s is not known yet: does the manager run?", typ)
		case c.Status != metav1.ConditionTrue:
			return fmt.Errorf("%s is %s (%s): %s", typ, c.Status, c.Reason, c.Message)
		}
	}
	for _, typ := range needed {
		_, _ = fmt.Fprintf(o.Out, "%s: %s\n", typ, meta.FindStatusCondition(k.Status.Conditions, typ).Message)
	}
	_, _ = fmt.Fprintf(o.Out, "%d hostnames are bound, %d of them ready\n",
		k.Status.BoundEndpoints, k.Status.ReadyEndpoints)
	return nil
}
