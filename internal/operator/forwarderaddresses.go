// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"fmt"
	"maps"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/internal/operator/controller/forwarderaddresses"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/notify"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/registration"
)

// newForwarderAddresses returns the tracker of the addresses that EndpointSlices list, and the
// source that it notifies of hostnames; imports is notified of ServiceImports.
func newForwarderAddresses(
	mgr ctrl.Manager, o ManagerOptions, own installation.Installation, register *registration.Registration,
	imports *notify.Source,
) (*forwarderaddresses.Tracker, *notify.Source, error) {
	changes := notify.New(own.Namespace, 0)
	source, err := forwarderaddresses.WatchService(mgr.GetConfig(), own.Namespace, o.ForwarderService)
	if err != nil {
		return nil, nil, err
	}
	return forwarderaddresses.New(forwarderaddresses.Options{
		Source: source, Recorded: register.RecordedProjectedForwarders, Record: register.RecordProjectedForwarders,
		Listed: listedAddresses(mgr.GetAPIReader(), own, o.AllowNamespaces), Notify: byKind(changes, imports),
		Log: mgr.GetLogger().WithName("addresses"),
	}), changes, nil
}

// byKind returns a function that notifies of the tracker's keys: hostnames, and the
// "<namespace>/<name>" of ServiceImports.
func byKind(hostnames, imports *notify.Source) func([]string) {
	return func(keys []string) {
		for _, key := range keys {
			if namespace, name, ok := strings.Cut(key, "/"); ok {
				imports.NotifyObject(types.NamespacedName{Namespace: namespace, Name: name})
			} else {
				hostnames.Notify(key)
			}
		}
	}
}

// listedAddresses returns a function that lists our EndpointSlices and returns the addresses that
// they list as ready. Of listed namespaces it ignores those that are gone or refuse.
func listedAddresses(
	live client.Reader, own installation.Installation, listed []string,
) func(context.Context) (map[string]struct{}, error) {
	inNamespace := func(ctx context.Context, namespace string) (map[string]struct{}, error) {
		var list discoveryv1.EndpointSliceList
		if err := live.List(ctx, &list, client.InNamespace(namespace),
			client.MatchingLabels(own.SliceSelector())); err != nil {
			return nil, fmt.Errorf("listing EndpointSlices: %w", err)
		}
		return forwarderaddresses.Ready(list.Items), nil
	}
	if len(listed) == 0 {
		return func(ctx context.Context) (map[string]struct{}, error) { return inNamespace(ctx, "") }
	}
	return func(ctx context.Context) (map[string]struct{}, error) {
		all := map[string]struct{}{}
		for _, namespace := range listed {
			found, err := inNamespace(ctx, namespace)
			if err != nil && !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err) {
				return nil, err
			}
			maps.Copy(all, found)
		}
		return all, nil
	}
}
