// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/internal/goruntime/timer"
	"github.com/fairlead-dev/fairlead/internal/trust"
)

// +kubebuilder:rbac:groups="",namespace=fairlead,resources=configmaps,resourceNames=fairlead-operator-authorities,verbs=get;update

const (
	// authoritiesInterval is how often what the service has told is compared with what was written.
	authoritiesInterval = 2 * time.Second
	// authoritiesRecheck is how often the ConfigMap is read: others may have changed it.
	authoritiesRecheck = 10 * time.Minute
	// authoritiesRetry delays the next attempt after a failed one.
	authoritiesRetry = 30 * time.Second
)

// authorityKeeper writes the authorities that the service has announced to the manager into a
// ConfigMap of the chart, from which manager, forwarders and exporters of later pods have them. It is
// a manager.Runnable of the leader.
type authorityKeeper struct {
	client      client.Client // client reads without a cache.
	key         client.ObjectKey
	authorities *trust.Authorities
	log         logr.Logger
}

// Start runs until ctx is done.
func (k *authorityKeeper) Start(ctx context.Context) error {
	var kept map[string]string
	var due time.Time
	for timer.Sleep(ctx, authoritiesInterval) {
		file, text, told := k.authorities.Told()
		want := map[string]string{}
		if text != "" {
			want[file] = text
		}
		if !told || time.Now().Before(due) && (kept == nil || maps.Equal(want, kept)) {
			continue
		}
		kept, due = want, time.Now().Add(authoritiesRecheck)
		if err := k.write(ctx, want); err != nil {
			k.log.Error(err, "the authorities that the server announced are not kept for pods that start later")
			kept, due = nil, time.Now().Add(authoritiesRetry)
		}
	}
	return nil
}

// write makes data all that the ConfigMap has, unless it is.
func (k *authorityKeeper) write(ctx context.Context, data map[string]string) error {
	var object corev1.ConfigMap
	if err := k.client.Get(ctx, k.key, &object); err != nil {
		return fmt.Errorf("reading ConfigMap %s: %w", k.key, err)
	}
	if maps.Equal(object.Data, data) {
		return nil
	}
	object.Data = data
	if err := k.client.Update(ctx, &object); err != nil {
		return fmt.Errorf("updating ConfigMap %s: %w", k.key, err)
	}
	k.log.Info("kept the authorities that the server announced", "configMap", k.key.Name, "files", len(data))
	return nil
}
