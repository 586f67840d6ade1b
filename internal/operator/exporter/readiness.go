// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
)

// checkReady reports why the exporter is not ready: it is connected, its cache is filled, and since
// it started each object that there was had an answer, so that a roll-out ends an old replica only
// when the new one serves everything.
func (e *exporter) checkReady(req *http.Request) error {
	select {
	case <-e.synced:
	default:
		return errors.New("the caches are not filled yet: is the API server reachable?")
	}
	if e.stopping.Load() {
		return errors.New("it is stopping")
	}
	if up, _ := e.states.session(); !up {
		return errors.New("no session with the service")
	}
	if e.answered.Load() {
		return nil
	}
	if err := e.checkAnswered(req.Context()); err != nil {
		return err
	}
	e.answered.Store(true)
	return nil
}

// checkAnswered returns an error unless every object's endpoints had their answers.
func (e *exporter) checkAnswered(ctx context.Context) error {
	var list v1alpha1.AgentEndpointList
	if err := e.manager.GetClient().List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing AgentEndpoints: %w", err)
	}
	all := make([]object, 0, len(list.Items))
	for i := range list.Items {
		all = append(all, agentEndpoint(client.ObjectKeyFromObject(&list.Items[i])))
	}
	if e.exports != nil {
		exports, err := e.exports.Names(ctx)
		if err != nil {
			return err
		}
		for _, export := range exports {
			all = append(all, serviceExport(export))
		}
	}
	for _, o := range all {
		isUnanswered := func(key string) bool { return !e.states.get(key).answered() }
		if !e.set.wasSeen(o) || slices.ContainsFunc(e.set.keys(o), isUnanswered) {
			return fmt.Errorf("%s %s is not bound yet", o.kind, o.NamespacedName)
		}
	}
	return nil
}
