// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package owned

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/status"
)

// What admission changes is written again after admissionRetry, then after twice as long each time,
// at most admissionRetryMax, and when the object or what is desired changes.
const (
	admissionRetry    = time.Minute
	admissionRetryMax = time.Hour
)

// admissionChange is what a webhook or policy makes of a write of an object. As an error, it is one
// that prevents the object's use.
type admissionChange struct {
	desired client.Object // the object as it was desired
	version string        // the resourceVersion that the API server answered
	fields  []string      // paths of the fields that are other than desired
	pause   time.Duration
	retryAt time.Time
}

func (c *admissionChange) Error() string {
	return fmt.Sprintf("admission changes %s of %s on every write; exempt what has the label "+
		"app.kubernetes.io/managed-by=fairlead-operator", strings.Join(c.fields, ", "), describe(c.desired))
}

// err returns the change as an error if it concerns more than labels, annotations and owners.
func (c *admissionChange) err() error {
	if slices.ContainsFunc(c.fields, func(path string) bool { return !strings.HasPrefix(path, "metadata.") }) {
		return c
	}
	return nil
}

func describe(o client.Object) string {
	return strings.TrimPrefix(fmt.Sprintf("%T", o), "*v1.") + " " + client.ObjectKeyFromObject(o).String()
}

// update writes an object that is not as desired, unless admission has undone the same write of the
// same version shortly before. written reports whether the object is as desired now, repaired
// returns it with the desired content, and whether that is a change.
func (w *Writer) update(
	ctx context.Context, live, desired, next client.Object, repaired func() (client.Object, bool), write func() error,
) (written bool, err error) {
	id, now := describe(live), w.Clock.Now()
	known, _ := w.changes.Load(id)
	last, _ := known.(*admissionChange)
	if last != nil && last.version == live.GetResourceVersion() && now.Before(last.retryAt) &&
		equality.Semantic.DeepEqual(last.desired, desired) {
		return false, last.err()
	}
	if err := write(); err != nil {
		return false, err
	}
	wanted, different := repaired()
	if !different {
		w.changes.Delete(id)
		return true, nil
	}
	change := &admissionChange{version: next.GetResourceVersion(), fields: differences(next, wanted),
		pause: admissionRetry}
	change.desired, _ = desired.DeepCopyObject().(client.Object)
	if last != nil {
		change.pause = min(2*last.pause, admissionRetryMax)
	} else {
		log.FromContext(ctx).Info("Admission changes what is written", "object", id, "fields", change.fields)
	}
	change.retryAt = now.Add(change.pause)
	w.changes.Store(id, change)
	return false, change.err()
}

// AdmissionChanged describes what admission changes of the objects, "" for nothing, and returns when
// to write them again.
func (w *Writer) AdmissionChanged(objects ...client.Object) (message string, retryAfter time.Duration) {
	for _, o := range objects {
		known, _ := w.changes.Load(describe(o))
		c, _ := known.(*admissionChange)
		if c == nil {
			continue
		}
		if wait := max(c.retryAt.Sub(w.Clock.Now()), time.Second); retryAfter == 0 || wait < retryAfter {
			message, retryAfter = c.Error(), wait
		}
	}
	return message, retryAfter
}

// problem returns the change as what prevents the object's use.
func (c *admissionChange) problem() *status.Problem {
	return &status.Problem{Reason: v1alpha1.ReasonAdmissionChanged, Message: c.Error(), RetryAfter: c.pause}
}

// differences returns the paths of the fields in which two objects differ, two levels of the
// metadata and one of the rest.
func differences(a, b client.Object) (paths []string) {
	fields := func(o client.Object) map[string]any {
		all, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		if err != nil {
			return map[string]any{err.Error(): o}
		}
		return all
	}
	var compare func(path string, a, b map[string]any)
	compare = func(path string, a, b map[string]any) {
		all := map[string]any{}
		maps.Copy(all, a)
		maps.Copy(all, b)
		for _, key := range slices.Sorted(maps.Keys(all)) {
			inA, okA := a[key].(map[string]any)
			inB, okB := b[key].(map[string]any)
			switch {
			case (okA || okB) && (path == "" || path == "metadata."):
				compare(path+key+".", inA, inB)
			case !equality.Semantic.DeepEqual(a[key], b[key]):
				paths = append(paths, path+key)
			}
		}
	}
	compare("", fields(a), fields(b))
	return paths
}
