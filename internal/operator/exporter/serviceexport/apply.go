// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceexport

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/operator/exporter/accountclient"
)

// errRecordsUnknown means that the account's records were not read yet.
var errRecordsUnknown = account.Errorf(account.CodeUnreachable, "the exports of the account are being read")

// own returns the records that the account has of this cluster's export; while this replica does
// not lead, none.
func (r *Reconciler) own(name types.NamespacedName) []record {
	if !r.Leading() {
		return nil
	}
	var own []record
	for _, found := range r.records.of(name) {
		if found.ClusterUID == r.Cluster() {
			own = append(own, found)
		}
	}
	return own
}

// known returns an error unless the records of the account are known.
func (r *Reconciler) known() error {
	known, err := r.records.state()
	switch {
	case known:
		return nil
	case err != nil:
		return err
	}
	return errRecordsUnknown
}

// apply makes the record as it should be.
func (r *Reconciler) apply(ctx context.Context, o *v1beta1.ServiceExport, found *resolution) (out applied) {
	if out.err = r.known(); out.err != nil {
		return out
	}
	switch {
	case found.invalid != nil:
		out.err = r.removeRecords(ctx, client.ObjectKeyFromObject(o))
	case found.refused == nil:
		out = r.ensure(ctx, o, found)
	}
	return out
}

// applied is what came of apply.
type applied struct {
	err     error         // err is why the record is not as it should be.
	recheck time.Duration // recheck is the delay before the next look; 0: none.
}

// removeRecords deletes all records of this cluster's export.
func (r *Reconciler) removeRecords(ctx context.Context, name types.NamespacedName) error {
	if err := r.known(); err != nil {
		return err
	}
	for _, own := range r.own(name) {
		if err := r.Account.DeleteEndpoint(ctx, own.ID); err != nil && account.CodeOf(err) != account.CodeNotFound {
			return fmt.Errorf("deleting the record %s: %w", own.ID, err)
		}
		r.records.drop(own)
	}
	return nil
}

// ensure creates the record, or changes it where it differs.
func (r *Reconciler) ensure(ctx context.Context, o *v1beta1.ServiceExport, found *resolution) (out applied) {
	name := client.ObjectKeyFromObject(o)
	owner := &account.Owner{Cluster: r.Cluster(), Kind: account.KindServiceExport, Namespace: o.Namespace,
		Name: o.Name, UID: string(o.UID)}
	want := *found.service
	var now *record
	for _, own := range r.own(name) {
		if own.ClusterID == found.id {
			now = &own
		}
	}
	want.Ready, out.recheck = r.readiness(name, found.ready, now)
	switch {
	case now == nil:
		out.err = r.create(ctx, found.id, account.Endpoint{
			URL:      account.ServiceExportURL(o.Name, o.Namespace, found.id).String(),
			Bindings: []string{account.BindingClusterset}, ServiceExport: &want, Owner: owner,
			EndpointSettings: account.EndpointSettings{Name: account.ObjectName(o.Namespace, o.Name)}})
		return out
	case now.ownerUID != owner.UID:
	case equality.Semantic.DeepEqual(now.Spec, want):
		return out
	default:
		owner = nil
	}
	changed, err := r.Account.PatchEndpoint(ctx, now.ID, account.EndpointPatch{ServiceExport: &want}, owner)
	switch {
	case account.CodeOf(err) == account.CodeNotFound:
		r.records.drop(*now) // it is made again at the next attempt, which drop requests
		out.err = errRecordsUnknown
	case err != nil:
		out.err = err
	default:
		r.keepRecord(changed, false)
	}
	return out
}

// create creates a record of the cluster with the id. Where another cluster has this id, the account
// is asked for one export from time to time, and not for each.
func (r *Reconciler) create(ctx context.Context, id string, e account.Endpoint) error {
	if err := r.claim.refused(id, time.Now()); err != nil {
		return err
	}
	made, err := r.Account.CreateEndpoint(ctx, e)
	freed := r.claim.record(id, err, time.Now())
	if e, ok := errors.AsType[*account.Error](err); ok && e.Details["cluster_uid"] == r.Cluster() {
		r.Orphans.Send() // ports of exports that are gone may be what is in the way
	}
	if freed {
		r.EnqueueAll()
	}
	switch {
	case account.CodeOf(err) == account.CodeURLTaken:
		r.feed.refresh.Send() // the record may be this export's own
		return err
	case err != nil:
		return err
	}
	r.keepRecord(made, true)
	return nil
}

// keepRecord remembers what the account answered.
func (r *Reconciler) keepRecord(e *account.Endpoint, isNew bool) {
	if made, ok := recordOf(e); ok {
		r.records.put(made, isNew)
	}
}

// claimRetry is the pause between two attempts to export under an id that the account refuses.
const claimRetry = 15 * time.Second

// claim is the account's answer to the id under which this cluster exports. It is safe for concurrent
// use.
type claim struct {
	mu  sync.Mutex
	id  string // the id that the account refused, as another cluster has it
	err error
	at  time.Time // when the account is asked again
}

// refused returns the account's answer while it is known to refuse the cluster's id.
func (c *claim) refused(id string, now time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil || c.id != id || !now.Before(c.at) {
		c.at = now.Add(claimRetry) // another export asks then, unless this one is answered before
		return nil
	}
	return c.err
}

// record records whether the account refused the cluster's id, and returns whether it no longer does.
func (c *claim) record(id string, err error, now time.Time) (freed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.err
	switch {
	case account.CodeOf(err) == account.CodeInUse:
		c.id, c.err, c.at = id, err, now.Add(claimRetry)
	case err == nil || !accountclient.Unanswered(err):
		c.err = nil
	}
	return before != nil && c.err == nil
}

// readiness returns what the record is to say of ready endpoints: that there is none after
// readyFallDelay only. recheck > 0 is when to look again.
func (r *Reconciler) readiness(
	name types.NamespacedName, ready bool, now *record,
) (say bool, recheck time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ready || now == nil || !now.Spec.Ready {
		delete(r.unready, name)
		return ready, 0
	}
	since, ok := r.unready[name]
	if !ok {
		since = time.Now()
		r.unready[name] = since
	}
	if wait := readyFallDelay - time.Since(since); wait > 0 {
		return true, wait
	}
	return false, 0
}

// Withdraw deletes the records of this cluster that this replica knows as it leads, or led last:
// the exporters are being removed for good.
func (r *Reconciler) Withdraw(ctx context.Context) error {
	var errs []error
	for _, own := range r.records.ofCluster(r.Cluster()) {
		if err := r.Account.DeleteEndpoint(ctx, own.ID); account.CodeOf(err) != account.CodeNotFound {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
