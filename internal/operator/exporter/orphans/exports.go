// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package orphans

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// exports returns the URLs of the ports that each ServiceExport of the cluster has.
func (c *Collector) exports(ctx context.Context) (map[types.NamespacedName][]string, bool, error) {
	if c.Exports == nil {
		return nil, false, nil
	}
	urls, known, err := c.Exports.PortURLs(ctx)
	if err != nil {
		return nil, false, fmt.Errorf("listing what is exported: %w", err)
	}
	return urls, known, nil
}

// isOrphanOfExport reports whether the ServiceExport of an endpoint is gone, or does not have the
// port.
func (c *Collector) isOrphanOfExport(
	ctx context.Context, e *account.Endpoint, exports map[types.NamespacedName][]string,
) (bool, error) {
	if e.Type == account.TypeAgent && e.Status != account.StatusOffline {
		return false, nil
	}
	name := types.NamespacedName{Namespace: e.Owner.Namespace, Name: e.Owner.Name}
	if urls, ok := exports[name]; ok {
		return e.Type == account.TypeAgent && !slices.Contains(urls, e.URL), nil
	}
	ctx, cancel := context.WithTimeout(ctx, objectTimeout)
	defer cancel()
	o := &metav1.PartialObjectMetadata{}
	o.SetGroupVersionKind(schema.GroupVersion(v1beta1.GroupVersion).WithKind(v1beta1.ServiceExportKindName))
	switch err := c.Live.Get(ctx, name, o); {
	case err == nil, apierrors.IsForbidden(err): // it lies in a namespace that is another exporter's
		return false, nil
	case apierrors.IsNotFound(err):
		return isNotFound(err), nil // the kind may have been removed since it was read
	default:
		return false, fmt.Errorf("reading ServiceExport %s: %w", name, err)
	}
}
