// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package orphans deletes the account's endpoints of this cluster whose object is gone: those that
// were deleted while no exporter ran.
//
// What comes in: complete lists of the account's endpoints and of the cluster's objects. What goes
// out: deletions, and the list of endpoints for internal/operator/exporter/cloudendpoint. It runs while the
// process holds the Lease, at its start and then every 10 minutes.
//
// An endpoint is an orphan if the API server itself says that its object is gone, or has another
// URL by now: a cache may lack an object that another replica has just exported. An agent's
// endpoint that is online is never one, as the exporter that holds it ends it. Of a ServiceExport
// that exists, only ports are orphans: internal/operator/exporter/serviceexport keeps its record. Nothing is
// deleted after an error or an incomplete list, and if more than half of the endpoints would go,
// only after a second round a minute later that finds the same.
package orphans

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/apiclient"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/notify"
	"github.com/fairlead-dev/fairlead/internal/operator/exporter/accountclient"
)

const (
	interval      = 10 * time.Minute
	failedRetry   = time.Minute      // after an error
	confirmDelay  = time.Minute      // between the two rounds that a mass deletion takes
	objectTimeout = 10 * time.Second // for reading one object
	// massMin is the least number of endpoints of which more than half are held.
	massMin = 10
)

// Account are the account's endpoints.
type Account interface {
	ListEndpoints(ctx context.Context, f account.EndpointFilter) (*apiclient.EndpointSnapshot, error)
	DeleteEndpoint(ctx context.Context, id string) error
}

// ServiceExports are those of the cluster; *serviceexport.Reconciler implements it.
type ServiceExports interface {
	// PortURLs returns the URLs of the ports that each ServiceExport has; known is false while that
	// cannot be told.
	PortURLs(ctx context.Context) (urls map[types.NamespacedName][]string, known bool, err error)
}

// CloudEndpoints are those of the cluster; *cloudendpoint.Reconciler implements it.
type CloudEndpoints interface{ Observe([]account.Endpoint) }

// Collector deletes orphans. One process of the cluster runs it at a time.
type Collector struct {
	Account Account
	// Cached reads objects from the cache, Live from the API server.
	Cached, Live client.Reader
	Replica      accountclient.Replica
	// Exports is nil in an exporter that exports no Services.
	Exports ServiceExports
	// Soon receives when a round is needed soon; may be nil.
	Soon notify.Signal
	// Clouds observes each complete list of the cluster's endpoints; may be nil.
	Clouds CloudEndpoints
	Log    logr.Logger

	held      map[string]bool // ids of the endpoints that the last round would have deleted
	heldCount atomic.Int64    // len(held), for Held
}

// Held returns how many deletions wait for a second round. It is safe for concurrent use.
func (c *Collector) Held() int { return int(c.heldCount.Load()) }

// setHeld sets held.
func (c *Collector) setHeld(ids map[string]bool) {
	c.held = ids
	c.heldCount.Store(int64(len(ids)))
}

// Run runs rounds until the context ends.
func (c *Collector) Run(ctx context.Context) {
	c.setHeld(nil)
	logged := ""
	for {
		wait := interval*9/10 + rand.N(interval/5)
		err := c.Collect(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			wait = failedRetry
			if err.Error() != logged {
				logged = err.Error()
				c.Log.Error(err, "Looking for endpoints without an object failed; it is repeated")
			}
		case len(c.held) > 0:
			wait = confirmDelay
		}
		if err == nil {
			logged = ""
		}
		select {
		case <-ctx.Done():
			return
		case <-c.Soon:
		case <-time.After(wait):
		}
	}
}

// Collect runs one round. After an error nothing more is deleted.
func (c *Collector) Collect(ctx context.Context) error {
	list, err := c.Account.ListEndpoints(ctx, account.EndpointFilter{OwnerCluster: c.Replica.Cluster()})
	if err != nil {
		return fmt.Errorf("listing the account's endpoints of this cluster: %w", err)
	}
	own := slices.DeleteFunc(list.Endpoints, func(e account.Endpoint) bool { return !c.isOurs(&e) })
	if c.Clouds != nil {
		c.Clouds.Observe(own)
	}
	objects, exportsKnown, err := c.cachedObjects(ctx)
	if err != nil {
		return err
	}
	var orphans []account.Endpoint
	for _, e := range own {
		if e.Owner.Kind == account.KindServiceExport && !exportsKnown {
			continue
		}
		orphan, err := c.isOrphan(ctx, &e, objects)
		if err != nil {
			return err
		}
		if orphan {
			orphans = append(orphans, e)
		}
	}
	confirmed := c.held
	c.setHeld(nil)
	if len(own) >= massMin && 2*len(orphans) > len(own) {
		if confirmed == nil {
			c.hold(orphans, len(own))
			return nil
		}
		orphans = slices.DeleteFunc(orphans, func(e account.Endpoint) bool { return !confirmed[e.ID] })
	}
	return c.delete(ctx, orphans)
}

// isOurs reports whether an object of a kind that this version knows, in this cluster, is the
// owner.
func (c *Collector) isOurs(e *account.Endpoint) bool {
	o := e.Owner
	return o != nil && o.Cluster == c.Replica.Cluster() &&
		(o.Kind == account.KindAgentEndpoint && e.Type == account.TypeAgent ||
			o.Kind == account.KindCloudEndpoint && e.Type == account.TypeCloud ||
			o.Kind == account.KindServiceExport)
}

// hold remembers what the next round deletes if it finds the same.
func (c *Collector) hold(orphans []account.Endpoint, of int) {
	held := map[string]bool{}
	for _, e := range orphans {
		held[e.ID] = true
	}
	c.setHeld(held)
	c.Log.Info("More than half of the account's endpoints of this cluster have no object; "+
		"they are deleted if that is so a minute from now", "endpoints", len(orphans), "of", of)
}

func (c *Collector) delete(ctx context.Context, orphans []account.Endpoint) error {
	for _, e := range orphans {
		switch err := c.Account.DeleteEndpoint(ctx, e.ID); account.CodeOf(err) {
		case "":
			c.Log.Info("Deleted an endpoint whose object is gone", "endpoint", e.ID, "url", e.URL, "object",
				e.Owner.Object())
		case account.CodeNotFound, account.CodeInUse: // it is gone, or an exporter has bound it again
		default:
			return fmt.Errorf("deleting endpoint %s (%s), whose object %s is gone: %w", e.ID, e.URL,
				e.Owner.Object(), err)
		}
	}
	return nil
}

// object identifies an object.
type object struct{ kind, namespace, name string }

// location is where an object's endpoint can be called.
type location struct{ binding, url string }

// locationOf returns the location that a spec asks for, with the URL in its normal form.
func locationOf(bindings []string, url string) location {
	binding := account.BindingKubernetes
	if len(bindings) > 0 {
		binding = bindings[0]
	}
	if u, err := account.ParseBindingURL(binding, url); err == nil {
		url = u.String()
	}
	return location{binding, url}
}

// cachedObjects returns the locations of all objects that the cache has: one of each, but of a
// ServiceExport those of its ports.
func (c *Collector) cachedObjects(
	ctx context.Context,
) (found map[object][]location, exportsKnown bool, err error) {
	found = map[object][]location{}
	var agents v1alpha1.AgentEndpointList
	if err := c.Cached.List(ctx, &agents); err != nil {
		return nil, false, fmt.Errorf("listing AgentEndpoints: %w", err)
	}
	for i := range agents.Items {
		o := &agents.Items[i]
		found[object{account.KindAgentEndpoint, o.Namespace, o.Name}] = []location{
			locationOf(o.Spec.Bindings, o.Spec.URL)}
	}
	var clouds v1alpha1.CloudEndpointList
	if err := c.Cached.List(ctx, &clouds); err != nil {
		return nil, false, fmt.Errorf("listing CloudEndpoints: %w", err)
	}
	for i := range clouds.Items {
		o := &clouds.Items[i]
		found[object{account.KindCloudEndpoint, o.Namespace, o.Name}] = []location{
			locationOf(o.Spec.Bindings, o.Spec.URL)}
	}
	if c.Exports == nil {
		return found, false, nil
	}
	exports, known, err := c.Exports.PortURLs(ctx)
	if err != nil {
		return nil, false, fmt.Errorf("listing what is exported: %w", err)
	}
	for name, urls := range exports {
		ports := []location{}
		for _, url := range urls {
			ports = append(ports, location{account.BindingClusterset, url})
		}
		found[object{account.KindServiceExport, name.Namespace, name.Name}] = ports
	}
	return found, known, nil
}

// isOrphan reports whether the endpoint's object is gone, has another URL, or does not have the
// port.
func (c *Collector) isOrphan(
	ctx context.Context, e *account.Endpoint, objects map[object][]location,
) (bool, error) {
	if e.Type == account.TypeAgent && e.Status != account.StatusOffline {
		return false, nil
	}
	isExport := e.Owner.Kind == account.KindServiceExport
	here := locationOf(e.Bindings, e.URL)
	name := object{e.Owner.Kind, e.Owner.Namespace, e.Owner.Name}
	switch cached, ok := objects[name]; {
	case slices.Contains(cached, here):
		return false, nil
	case ok && isExport:
		return e.Type == account.TypeAgent, nil // a port that it does not have; its record stays
	}
	live, err := c.live(ctx, name)
	switch {
	case err == nil:
		return !isExport && live != here, nil
	case isNotFound(err):
		return true, nil
	case apierrors.IsForbidden(err), // it lies in a namespace that is another exporter's
		isExport && apierrors.IsNotFound(err): // the kind was removed since it was read
		return false, nil
	}
	return false, fmt.Errorf("reading %s %s/%s: %w", name.kind, name.namespace, name.name, err)
}

// live returns the location of an object, from the API server. A ServiceExport has none.
func (c *Collector) live(ctx context.Context, of object) (location, error) {
	ctx, cancel := context.WithTimeout(ctx, objectTimeout)
	defer cancel()
	key := client.ObjectKey{Namespace: of.namespace, Name: of.name}
	switch of.kind {
	case account.KindServiceExport:
		o := &metav1.PartialObjectMetadata{}
		o.SetGroupVersionKind(schema.GroupVersion(v1beta1.GroupVersion).WithKind(v1beta1.ServiceExportKindName))
		return location{}, c.Live.Get(ctx, key, o)
	case account.KindCloudEndpoint:
		var o v1alpha1.CloudEndpoint
		err := c.Live.Get(ctx, key, &o)
		return locationOf(o.Spec.Bindings, o.Spec.URL), err
	}
	var o v1alpha1.AgentEndpoint
	err := c.Live.Get(ctx, key, &o)
	return locationOf(o.Spec.Bindings, o.Spec.URL), err
}

// isNotFound reports whether the API server has no such object. One that does not serve the kind,
// as while its definition is replaced, answers 404 too.
func isNotFound(err error) bool {
	return apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}
