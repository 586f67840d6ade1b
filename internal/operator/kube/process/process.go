// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package process has what the processes of fairlead-operator that run controllers begin with: the
// kinds that they read and write, clients without limits of their own, the manager of their
// controllers and the lock of their Lease. Input: the configuration of a cluster's client. Output:
// a controller-runtime manager, to which internal/operator and its exporter add their parts.
package process

import (
	"cmp"
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
)

// leaseTimeout bounds one request for a Lease, so that a hanging request does not cost the
// leadership.
const leaseTimeout = 5 * time.Second

// Kinds are the kinds that a process reads and writes.
type Kinds struct {
	Register   []func(*runtime.Scheme) error // Register adds their Go types to a scheme.
	Namespaced []schema.GroupVersionKind
	Cluster    []schema.GroupVersionKind // Cluster has those without a namespace.
}

// Scheme returns a scheme of the kinds.
func (k Kinds) Scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, register := range k.Register {
		utilruntime.Must(register(s))
	}
	return s
}

// Mapper returns a static mapper of the kinds and of their lists, so that nothing has to be
// discovered: a process can start while the API server is unreachable.
func (k Kinds) Mapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	for scope, kinds := range map[meta.RESTScope][]schema.GroupVersionKind{
		meta.RESTScopeNamespace: k.Namespaced, meta.RESTScopeRoot: k.Cluster,
	} {
		for _, kind := range kinds {
			plural, singular := meta.UnsafeGuessKindToResource(kind)
			m.AddSpecific(kind, plural, singular, scope)
			m.AddSpecific(kind.GroupVersion().WithKind(kind.Kind+"List"), plural, singular, scope)
		}
	}
	return m
}

// ClientOptions returns the options of a client of the kinds.
func (k Kinds) ClientOptions() client.Options {
	return client.Options{Scheme: k.Scheme(), Mapper: k.Mapper()}
}

// ClientConfig disables client-side rate limits: the API server has priority levels and answers 429
// with a retry delay; a limit here would only delay the first thousands of endpoints.
func ClientConfig(c *rest.Config, userAgent string) *rest.Config {
	c = rest.CopyConfig(c)
	c.QPS, c.Burst = -1, 0
	return rest.AddUserAgent(c, userAgent)
}

// NewManager returns a manager of controllers of the kinds, which listens at the addresses; an
// empty one is none, which controller-runtime calls "0". The rest of o is as given.
func NewManager(c *rest.Config, k Kinds, metricsAddr, healthAddr string, o ctrl.Options) (ctrl.Manager, error) {
	o.Scheme = k.Scheme()
	o.MapperProvider = func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return k.Mapper(), nil }
	o.Metrics = metricsserver.Options{BindAddress: cmp.Or(metricsAddr, "0")}
	o.HealthProbeBindAddress = cmp.Or(healthAddr, "0")
	o.GracefulShutdownTimeout = new(10 * time.Second)
	o.Controller = config.Controller{SkipNameValidation: new(true), CacheSyncTimeout: time.Hour}
	mgr, err := ctrl.NewManager(c, o)
	if err != nil {
		return nil, fmt.Errorf("preparing the manager: %w", err)
	}
	return mgr, nil
}

// NewLock returns the lock of a Lease, for an identity that begins with the holder's name. Requests
// for it pass through what wrap returns.
func NewLock(
	c *rest.Config, lease types.NamespacedName, holder string,
	wrap func(coordination.LeaseInterface, string) coordination.LeasesGetter,
) (resourcelock.Interface, error) {
	c = rest.AddUserAgent(c, "leader-election")
	c.Timeout = leaseTimeout
	client, err := coordination.NewForConfig(c)
	if err != nil {
		return nil, fmt.Errorf("preparing the client for the Lease: %w", err)
	}
	identity := holder + "_" + string(uuid.NewUUID())
	return &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: lease.Namespace, Name: lease.Name},
		Client:     wrap(client.Leases(lease.Namespace), identity),
		LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
	}, nil
}

// EveryReplica makes a manager's Runnable that embeds it run on every replica, leading or not.
type EveryReplica struct{}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (EveryReplica) NeedLeaderElection() bool { return false }

// NewBindingsClient returns a client of the kinds of v1alpha1 that reads and watches by paths.
func NewBindingsClient(config *rest.Config) (rest.Interface, error) {
	c := rest.CopyConfig(config)
	c.APIPath, c.GroupVersion = "/apis", &v1alpha1.GroupVersion
	c.NegotiatedSerializer = serializer.NewCodecFactory(Kinds{
		Register: []func(*runtime.Scheme) error{v1alpha1.AddToScheme}}.Scheme()).WithoutConversion()
	c.ContentType, c.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	bindings, err := rest.RESTClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("making client for %s: %w", v1alpha1.GroupVersion, err)
	}
	return bindings, nil
}
