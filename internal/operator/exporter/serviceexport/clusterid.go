// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceexport

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/goruntime/timer"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/notify"
)

// The ClusterProperty that holds a cluster's id (KEP-2149).
const (
	PropertyName  = "cluster.clusterset.k8s.io"
	PropertyGroup = "about.k8s.io"
	PropertyKind  = "ClusterProperty"
)

// PropertyVersions are the versions of ClusterProperty, the newest first. A cluster serves one of
// them, both or none.
func PropertyVersions() []string { return []string{"v1beta1", "v1alpha1"} }

// idInterval is how often the ClusterProperty is read.
const idInterval = 5 * time.Second

// clusterID finds the id under which the cluster exports: the ClusterProperty's value, else the
// flag's. Once there are exports, the id stays until there are none: one that changes would end
// every connection, and the account refuses a second id of a cluster.
type clusterID struct {
	live      client.Reader
	flag      string
	exports   *exportNames
	orphans   notify.Signal
	log       logr.Logger
	mu        sync.Mutex
	id        string
	problem   string // why there is none; "" while it is not known
	differing string // an id that counts when there are no exports any more
}

// get returns the cluster's id, or why there is none; both are "" before it is known.
func (c *clusterID) get() (id, problem string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.id, c.problem
}

// pending returns an id that the cluster was given and that does not count yet, or "".
func (c *clusterID) pending() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.differing
}

// run looks for the id until the context ends.
func (c *clusterID) run(ctx context.Context) {
	logged := ""
	for ctx.Err() == nil {
		id, problem, err := c.find(ctx)
		switch {
		case err == nil:
			logged = ""
			c.set(id, problem)
		case ctx.Err() == nil && err.Error() != logged:
			logged = err.Error()
			c.log.Error(err, "The cluster's id cannot be read; what is known of it stays")
		}
		timer.Sleep(ctx, idInterval)
	}
}

// set takes what was found.
func (c *clusterID) set(id, problem string) {
	inUse := len(c.exports.all()) > 0
	c.mu.Lock()
	if c.id != "" && id != c.id && inUse {
		isNew := c.differing != id
		c.differing = id
		c.mu.Unlock()
		if isNew {
			c.log.Info("The cluster has another id now; it counts when the last ServiceExport is deleted", "id", id,
				"exportsAs", c.id, "problem", problem)
			c.notify()
		}
		return
	}
	changed := c.id != id || c.problem != problem || c.differing != ""
	c.id, c.problem, c.differing = id, problem, ""
	c.mu.Unlock()
	switch {
	case changed && id != "":
		c.log.Info("Services are exported under the cluster's id", "id", id)
	case changed:
		c.log.Info("Services are not exported: the cluster has no id", "problem", problem)
	}
	if changed {
		c.notify()
	}
}

// notify tells that get returns something else.
func (c *clusterID) notify() {
	c.exports.notifyAll()
	c.orphans.Send()
}

// find reads the id. An error means that it is not known.
func (c *clusterID) find(ctx context.Context) (id, problem string, err error) {
	value, found, err := c.property(ctx)
	switch {
	case err != nil:
		return "", "", err
	case found && account.ValidClusterID(value):
		return value, "", nil
	case found:
		return "",
			fmt.Sprintf("%s %s has the value %q: a cluster's id is a DNS label, of a-z, 0-9 and '-', of at most "+
				"63 characters", PropertyKind, PropertyName, account.Shorten(value)), nil
	case c.flag == "":
		return "", fmt.Sprintf("the cluster has no id: create the %s %s (%s), or set export.clusterID", PropertyKind,
			PropertyName, PropertyGroup), nil
	}
	return c.flag, "", nil
}

// property reads the ClusterProperty. A cluster that lacks the kind, or does not let the exporter
// read it, has none.
func (c *clusterID) property(ctx context.Context) (value string, found bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	for _, version := range PropertyVersions() {
		o := &unstructured.Unstructured{}
		o.SetGroupVersionKind(schema.GroupVersionKind{Group: PropertyGroup, Version: version, Kind: PropertyKind})
		err := c.live.Get(ctx, client.ObjectKey{Name: PropertyName}, o)
		switch {
		case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
			continue
		case err != nil:
			return "", false, fmt.Errorf("reading %s %s: %w", PropertyKind, PropertyName, err)
		}
		value, _, _ := unstructured.NestedString(o.Object, "spec", "value")
		return value, true, nil
	}
	return "", false, nil
}
