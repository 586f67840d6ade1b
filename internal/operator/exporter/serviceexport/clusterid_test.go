// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceexport

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/internal/operator/controller/notify"
)

// properties is a cluster with at most one ClusterProperty.
type properties struct {
	client.Reader // nil: what is not implemented is not called

	mu      sync.Mutex
	version string // that has the property
	value   any
	err     error // of every other version
}

// set changes what there is.
func (p *properties) set(version string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.version, p.err = version, err
}

func (p *properties) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	u := o.(*unstructured.Unstructured)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.version != u.GroupVersionKind().Version || key.Name != PropertyName {
		return p.err
	}
	u.Object["spec"] = map[string]any{"value": p.value}
	return nil
}

var (
	resource  = schema.GroupResource{Group: PropertyGroup, Resource: "clusterproperties"}
	notFound  = apierrors.NewNotFound(resource, PropertyName)
	forbidden = apierrors.NewForbidden(resource, PropertyName, nil)
)

func TestClusterID_Find(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		cluster *properties
		flag    string
		id      string
		problem string // a part
		fails   bool
	}{
		"of the property": {&properties{version: "v1beta1", value: "prod", err: notFound}, "flag", "prod",
			"", false},
		"of an older version": {&properties{version: "v1alpha1", value: "prod", err: notFound}, "flag", "prod",
			"", false},
		"of the flag":    {&properties{err: notFound}, "flag", "flag", "", false},
		"without rights": {&properties{err: forbidden}, "flag", "flag", "", false},
		"of neither":     {&properties{err: notFound}, "", "", "create the ClusterProperty", false},
		"of a property that is wrong": {&properties{version: "v1beta1", value: "Prod.EU"}, "flag", "", `"Prod.EU"`,
			false},
		"of one without a value": {&properties{version: "v1beta1"}, "flag", "", "DNS label", false},
		"of one that is too long": {&properties{version: "v1beta1", value: strings.Repeat("x", 64)}, "flag", "",
			"63 characters", false},
		"of an API server that is away": {&properties{err: errors.New("away")}, "flag", "", "", true},
	} {
		c := &clusterID{live: tt.cluster, flag: tt.flag}
		id, problem, err := c.find(t.Context())
		if id != tt.id || !strings.Contains(problem, tt.problem) || (problem == "") != (tt.problem == "") ||
			(err != nil) != tt.fails {
			t.Errorf("%s: %q, %q, %v", name, id, problem, err)
		}
	}
}

// TestClusterID_StaysInUse: while there are exports, another id does not count.
func TestClusterID_StaysInUse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		exports, changes := newExportNames(), make(notify.Signal, 10)
		c := &clusterID{flag: "a", exports: exports, orphans: changes, log: logr.Discard()}
		expect := func(what, id, pending string, n int) {
			t.Helper()
			if got, problem := c.get(); got != id || c.pending() != pending || len(changes) != n {
				t.Errorf("%s: %q (%s), pending %q, %d changes", what, got, problem, c.pending(), len(changes))
			}
		}
		expect("at the start", "", "", 0)
		c.set("", "there is none")
		expect("without one", "", "", 1)
		exports.seen.Store(hello, true)
		c.set("a", "")
		expect("the first", "a", "", 2)
		c.set("a", "")
		expect("the same", "a", "", 2)
		c.set("b", "")
		c.set("b", "")
		expect("another one", "a", "b", 3)
		c.set("a", "")
		expect("the first again", "a", "", 4)
		c.set("", "there is none")
		if id, problem := c.get(); id != "a" || problem != "" {
			t.Errorf("without an id while there are exports: %q, %q", id, problem)
		}
		exports.seen.Delete(hello)
		c.set("b", "")
		expect("without exports", "b", "", 5)
	})
}

// TestClusterID_SurvivesAPIServer: what is known stays while the API server is away.
func TestClusterID_SurvivesAPIServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cluster := &properties{version: "v1beta1", value: "prod", err: notFound}
		c := &clusterID{live: cluster, exports: newExportNames(), log: logr.Discard()}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); c.run(ctx) }()
		synctest.Wait()
		cluster.set("", errors.New("away"))
		time.Sleep(time.Minute)
		if id, _ := c.get(); id != "prod" {
			t.Errorf("id %q", id)
		}
		cluster.set("", notFound)
		time.Sleep(idInterval)
		synctest.Wait()
		if id, problem := c.get(); id != "" || problem == "" {
			t.Errorf("id %q, %q of a cluster without the property", id, problem)
		}
		cancel()
		<-done
	})
}
