// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudendpoint

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/operator/exporter/accountclient"
)

// ensure creates the endpoint, or changes it where it differs, and returns it. With an error it
// returns the endpoint that the object has nevertheless, or nil.
func (r *Reconciler) ensure(
	ctx context.Context, key types.NamespacedName, statusID string, want account.Endpoint,
) (*account.Endpoint, error) {
	now, err := r.findOrDelete(ctx, key, statusID, &want)
	if err != nil {
		return nil, err
	}
	if now == nil {
		r.remember(key, row{uncertain: &want})
		made, err := r.Account.CreateEndpoint(ctx, want)
		if err != nil {
			if !accountclient.Unanswered(err) {
				r.forget(key)
			}
			return nil, err
		}
		r.remember(key, row{id: made.ID, version: made.ResourceVersion, policy: digest(want.TrafficPolicy)})
		return made, nil
	}
	known := r.known(key)
	patch, owner, differs := difference(now, &want, known)
	if !differs {
		r.remember(key, row{id: now.ID, version: now.ResourceVersion, policy: digest(want.TrafficPolicy)})
		return now, nil
	}
	changed, err := r.Account.PatchEndpoint(ctx, now.ID, patch, owner)
	if account.CodeOf(err) == account.CodeNotFound {
		r.forget(key) // it is made again at the next attempt
		return nil, err
	}
	if err != nil {
		r.remember(key, row{id: now.ID, version: now.ResourceVersion})
		return now, err
	}
	r.remember(key, row{id: changed.ID, version: changed.ResourceVersion, policy: digest(want.TrafficPolicy)})
	return changed, nil
}

// findOrDelete returns the object's endpoint with its policy; one of another URL it deletes.
func (r *Reconciler) findOrDelete(
	ctx context.Context, key types.NamespacedName, statusID string, want *account.Endpoint,
) (*account.Endpoint, error) {
	if id := cmp.Or(r.known(key).id, statusID); account.ValidID(account.PrefixEndpoint, id) {
		e, err := r.Account.Endpoint(ctx, id)
		switch {
		case err != nil && accountclient.Unanswered(err):
			return nil, err
		case err != nil || !isOf(e, want.Owner): // gone, or not ours: the status may be anything
		case sameLocation(e, want):
			return e, nil
		default:
			if err := r.delete(ctx, e.ID); err != nil {
				return nil, err
			}
		}
	}
	id, err := r.lookUp(ctx, want)
	if err != nil || id == "" {
		return nil, err
	}
	return r.Account.Endpoint(ctx, id)
}

// lookUp returns the id of the owner's endpoint at the URL of want, or "". The service lets it have
// one.
func (r *Reconciler) lookUp(ctx context.Context, want *account.Endpoint) (string, error) {
	list, err := r.Account.ListEndpoints(ctx, account.EndpointFilter{Bindings: want.Bindings, URL: want.URL})
	if err != nil {
		return "", err
	}
	for _, e := range list.Endpoints {
		if isOf(&e, want.Owner) && sameLocation(&e, want) {
			return e.ID, nil
		}
	}
	return "", nil
}

// removeEndpoints deletes the endpoints of an object that are known, or named by its status.
func (r *Reconciler) removeEndpoints(ctx context.Context, key types.NamespacedName, statusID string) error {
	known, owner := r.known(key), r.owner(key, "")
	if id := cmp.Or(known.id, statusID); account.ValidID(account.PrefixEndpoint, id) {
		e, err := r.Account.Endpoint(ctx, id)
		if err != nil && accountclient.Unanswered(err) {
			return err
		}
		if err == nil && isOf(e, owner) {
			if err := r.delete(ctx, id); err != nil {
				return err
			}
		}
	}
	if known.uncertain != nil {
		id, err := r.lookUp(ctx, known.uncertain)
		if err == nil && id != "" {
			err = r.delete(ctx, id)
		}
		if err != nil {
			return err
		}
	}
	r.forget(key)
	return nil
}

// delete deletes an endpoint that may be gone.
func (r *Reconciler) delete(ctx context.Context, id string) error {
	err := r.Account.DeleteEndpoint(ctx, id)
	if account.CodeOf(err) == account.CodeNotFound {
		return nil
	}
	return err
}

// isOf reports whether an endpoint of type cloud has the owner.
func isOf(e *account.Endpoint, owner *account.Owner) bool {
	return e.Type == account.TypeCloud && e.Owner != nil && e.Owner.Is(owner)
}

// sameLocation reports whether both have one URL and binding.
func sameLocation(a, b *account.Endpoint) bool {
	return a.URL == b.URL && slices.Equal(a.Bindings, b.Bindings)
}

// difference returns the change that makes an endpoint as wanted. known is what this process wrote
// of it.
func difference(now, want *account.Endpoint, known row) (p account.EndpointPatch, owner *account.Owner, differs bool) {
	texts := []struct {
		now, want string
		set       **string
	}{
		{now.Description, want.Description, &p.Description}, {now.Metadata, want.Metadata, &p.Metadata},
		{now.BackendID, want.BackendID, &p.BackendID},
	}
	for i := range texts {
		if t := &texts[i]; t.now != t.want {
			*t.set, differs = &t.want, true
		}
	}
	if now.PoolingEnabled != want.PoolingEnabled {
		p.PoolingEnabled, differs = &want.PoolingEnabled, true
	}
	if now.TrafficPolicy != want.TrafficPolicy && (!isRedacted(now.TrafficPolicy) || !known.wrote(now, want)) {
		p.TrafficPolicy, differs = &want.TrafficPolicy, true
	}
	if now.Owner.UID != want.Owner.UID {
		owner, differs = want.Owner, true
	}
	return p, owner, differs
}

// isRedacted reports whether the text may have a mark in the place of a value that the service
// takes for a secret, so that it cannot be compared.
func isRedacted(text string) bool { return strings.Contains(text, "redacted:") }

// wrote reports whether this process wrote the wanted policy, and the endpoint has not changed
// since.
func (known row) wrote(now, want *account.Endpoint) bool {
	return known.id == now.ID && known.version == now.ResourceVersion && known.policy == digest(want.TrafficPolicy)
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

func (r *Reconciler) known(key types.NamespacedName) row {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.rows[key]
}

func (r *Reconciler) remember(key types.NamespacedName, known row) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rows[key] = known
}

func (r *Reconciler) forget(key types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.rows, key)
}

// Observe takes a complete list of the cluster's endpoints, and has each object reconciled whose
// endpoint is not as this process left it: changed, deleted, or not the only one.
func (r *Reconciler) Observe(endpoints []account.Endpoint) {
	listed := map[types.NamespacedName][]account.Endpoint{}
	for _, e := range endpoints {
		if e.Type == account.TypeCloud && e.Owner != nil && e.Owner.Kind == account.KindCloudEndpoint {
			key := types.NamespacedName{Namespace: e.Owner.Namespace, Name: e.Owner.Name}
			listed[key] = append(listed[key], e)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, known := range r.rows {
		if known.id == "" {
			continue // its next attempt is due
		}
		switch own := listed[key]; {
		case len(own) == 1 && own[0].ID == known.id && own[0].ResourceVersion == known.version:
			continue
		case len(own) != 1 || own[0].ID != known.id:
			delete(r.rows, key) // it is looked up by its URL
		}
		r.changes.NotifyObject(key)
	}
}
