// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceimport

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/clusterset"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/informer"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/owned"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/status"
)

// errorRetry is the delay before what failed is repeated, unless an event comes earlier.
const errorRetry = time.Second

// conflict is the problem of an object of another owner.
func conflict(kind string, key types.NamespacedName) *status.Problem {
	return &status.Problem{Reason: v1alpha1.ReasonConflict, RetryAfter: owned.RefusalRetry,
		Message: fmt.Sprintf("%s %s belongs to another owner and is not changed: delete it, or rename it, and it is "+
			"imported", kind, key)}
}

// problemOf classifies the error of a write of an object; nil for none.
func problemOf(err error) *status.Problem {
	found := owned.ProblemOf(err)
	if found == nil {
		return nil
	}
	switch found.Reason {
	case v1alpha1.ReasonAPIError:
		found.RetryAfter = errorRetry
	case v1alpha1.ReasonNamespaceTerminating:
		return status.Pending() // the namespace's deletion follows
	case v1alpha1.ReasonNamespaceNotFound:
		found.Quiet = true // the namespace, the object or the kind went
	}
	return found
}

// first returns the first problem to report, or that is repeated first if none is.
func first(found ...*status.Problem) *status.Problem {
	found = slices.DeleteFunc(found, func(p *status.Problem) bool { return p == nil })
	if len(found) == 0 {
		return nil
	}
	slices.SortStableFunc(found, func(a, b *status.Problem) int {
		if a.Quiet != b.Quiet {
			if a.Quiet {
				return 1
			}
			return -1
		}
		return cmp.Compare(a.RetryAfter, b.RetryAfter)
	})
	return found[0]
}

// problems are those of all ServiceImports. It is safe for concurrent use.
type problems struct {
	mu    sync.Mutex
	byKey map[types.NamespacedName]*status.Problem
}

// set records the problem of a ServiceImport, nil for none, and reports whether it is to be
// reported. A quiet one changes nothing.
func (p *problems) set(key types.NamespacedName, found *status.Problem) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case found == nil:
		delete(p.byKey, key)
		return false
	case found.Quiet:
		return false
	}
	last := p.byKey[key]
	p.byKey[key] = found
	return last == nil || last.Reason != found.Reason || last.Message != found.Message
}

// condition returns the condition of the KubernetesOperator, without generation and time; nil = it
// is not known yet.
func (p *problems) condition(unread error) *metav1.Condition {
	c := &metav1.Condition{Type: v1alpha1.ConditionServiceImportsReady, Status: metav1.ConditionFalse}
	switch {
	case errors.Is(unread, informer.ErrNotRead):
		return nil
	case apierrors.IsNotFound(unread):
		c.Reason = v1alpha1.ReasonCRDsMissing
		c.Message = "the cluster does not serve ServiceImports of multicluster.x-k8s.io/v1beta1, so nothing is " +
			"imported; install them, and they are picked up: " + clusterset.InstallCRDs
		return c
	case apierrors.IsForbidden(unread):
		c.Reason, c.Message = v1alpha1.ReasonImportsForbidden, "the manager may not read ServiceImports, so "+
			"nothing is imported; upgrade the chart together with the image: "+unread.Error()
		return c
	case unread != nil:
		c.Reason, c.Message = v1alpha1.ReasonAPIError, "the ServiceImports cannot be read: "+unread.Error()
		return c
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.byKey) == 0 {
		c.Status, c.Reason = metav1.ConditionTrue, v1alpha1.ReasonReady
		c.Message = "what clusters of the account export is imported in every namespace of the same name"
		return c
	}
	keys := slices.SortedFunc(maps.Keys(p.byKey), func(a, b types.NamespacedName) int {
		return cmp.Compare(a.String(), b.String())
	})
	worst := p.byKey[keys[0]]
	c.Reason, c.Message = worst.Reason, notImported(keys[0], worst)
	if more := len(keys) - 1; more > 0 {
		c.Message += fmt.Sprintf("; and %d more: see the events", more)
	}
	return c
}

func notImported(key types.NamespacedName, p *status.Problem) string {
	return fmt.Sprintf("%s is not imported as it should be: %s", key, p.Message)
}
