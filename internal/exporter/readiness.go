// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"errors"
	"fmt"
	"net/http"

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
	var list v1alpha1.AgentEndpointList
	if err := e.manager.GetClient().List(req.Context(), &list, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing AgentEndpoints: %w", err)
	}
	for i := range list.Items {
		object := client.ObjectKeyFromObject(&list.Items[i])
		if !e.set.wasSeen(object) || e.set.has(object) && !e.states.get(object).answered() {
			return fmt.Errorf("AgentEndpoint %s is not bound yet", object)
		}
	}
	e.answered.Store(true)
	return nil
}
