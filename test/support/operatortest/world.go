// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package operatortest runs the operator's programs in a test's process, between a control plane of
// test/support/testenv and a service of test/support/servicetest.
//
// A World has a namespace of the operator, one of Services, and the programs that the test starts,
// with the options that a test changes. All that it starts ends with the test.
package operatortest

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/operator"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
	"github.com/fairlead-dev/fairlead/internal/operator/exporter"
	"github.com/fairlead-dev/fairlead/internal/operator/options"
	"github.com/fairlead-dev/fairlead/test/support/logbuffer"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
	"github.com/fairlead-dev/fairlead/test/support/testenv"
)

// Release is the name of a World's installation.
const Release = "fairlead-operator"

// World is an installation in a cluster, and the service that it uses.
type World struct {
	*testing.T
	Config    *rest.Config // Config is an administrator's.
	Kube      *testenv.Kube
	Service   *servicetest.Server
	CAFile    string            // CAFile has the service's authority.
	Namespace string            // Namespace is the operator's.
	Target    string            // Target is the namespace of what is exported and projected.
	Logs      *logbuffer.Buffer // Logs has what the programs log.
}

// New returns a World without programs.
func New(t *testing.T, config *rest.Config, service *servicetest.Server) *World {
	t.Helper()
	w := &World{T: t, Config: config, Kube: testenv.NewKube(t, config), Service: service, Logs: &logbuffer.Buffer{},
		CAFile: filepath.Join(service.Options.DataDir, "ca.crt")}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the operator's log:\n%s", w.Logs)
		}
	})
	w.Namespace, w.Target = w.Kube.CreateNamespace("fairlead-"), w.Kube.CreateNamespace("team-")
	return w
}

// WriteFile writes a file that only the test has and returns its path.
func WriteFile(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	must.Succeed(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

// Secret returns credentials with an API key or an authtoken.
func (w *World) Secret(secret string) options.Credentials {
	w.Helper()
	return options.Credentials{SecretFile: WriteFile(w.T, "secret", secret+"\n")}
}

// ExporterKey returns credentials with a new API key of the scope exporter.
func (w *World) ExporterKey() options.Credentials {
	w.Helper()
	var key account.APIKey
	w.Service.CreateObject("/api_keys", map[string]any{"scopes": []string{"exporter"}}, &key)
	return w.Secret(*key.Token)
}

// Run runs a program until stop, or the end of the test.
func (w *World) Run(program func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- program(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			w.Error(err)
		}
	})
	w.Cleanup(stop)
	return stop
}

func (w *World) process() options.Process {
	return options.Process{Kubernetes: w.Config,
		Logger: slog.New(slog.NewTextHandler(w.Logs, &slog.HandlerOptions{Level: slog.LevelDebug}))}
}

func (w *World) api(c options.Credentials) options.API {
	c.CAFile = w.CAFile
	return options.API{APIURL: "https://" + w.Service.Addrs.Service.String(), Credentials: c,
		VersionHeader: "Service-Version"}
}

func (w *World) installation() installation.Installation {
	return installation.Installation{Namespace: w.Namespace, Release: Release}
}

// StartManager runs a manager, with the options changed by change.
func (w *World) StartManager(c options.Credentials, change ...func(*operator.ManagerOptions)) {
	w.Helper()
	roles := installation.Roles{ClusterRole: w.Namespace + ".anchor", Role: "anchor"}
	w.Kube.MustCreate(&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: roles.ClusterRole}},
		&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: roles.Role}})
	o := operator.ManagerOptions{
		API: w.api(c), Installation: w.installation(), Process: w.process(), Roles: roles, LeaderElect: true,
		KubernetesOperatorSpec: v1alpha1.KubernetesOperatorSpec{BindingEnabled: true},
		ProjectionOptions: operator.ProjectionOptions{RemovalDelay: 30 * time.Second, PortRange: "10000-32767",
			ClusterDomain: "cluster.local", Projection: v1alpha1.ProjectionExternalName, TakeoverDelay: time.Minute},
		ForwarderPods: installation.ForwarderPods{ForwarderName: "fairlead-forwarder", ForwarderInstance: Release},
	}
	for _, f := range change {
		f(&o)
	}
	w.Run(func(ctx context.Context) error { return operator.RunManager(ctx, o) })
}

// StartForwarder runs a forwarder, with the options changed by change.
func (w *World) StartForwarder(c options.Credentials, change ...func(*operator.ForwarderOptions)) {
	w.Helper()
	c.CAFile = w.CAFile
	o := operator.ForwarderOptions{
		Session:     options.Session{EdgeAddress: w.Service.Addrs.Service.String(), PodName: "forwarder-1"},
		Credentials: c, Installation: w.installation(), Process: w.process(), PodIPs: "10.1.0.9",
	}
	for _, f := range change {
		f(&o)
	}
	w.Run(func(ctx context.Context) error { return operator.RunForwarder(ctx, o) })
}

// ExporterOptions returns the options of an exporter.
func (w *World) ExporterOptions(c options.Credentials) exporter.Options {
	w.Helper()
	return exporter.Options{
		API: w.api(c), Installation: w.installation(), Process: w.process(), Metrics: prometheus.NewRegistry(),
		Session: options.Session{EdgeAddress: w.Service.Addrs.Service.String(), PodName: "exporter-1",
			DrainTimeout: time.Second},
		Deployment: "exporter", ClusterDomain: "cluster.local",
	}
}

// StartExporter runs an exporter until stop, or the end of the test, with the options changed by
// change.
func (w *World) StartExporter(c options.Credentials, change ...func(*exporter.Options)) (stop func()) {
	w.Helper()
	o := w.ExporterOptions(c)
	for _, f := range change {
		f(&o)
	}
	return w.Run(func(ctx context.Context) error { return exporter.Run(ctx, o) })
}

// ForwarderAddress returns where the forwarder listens for a hostname of the namespace of Services.
func (w *World) ForwarderAddress(name string) (string, error) {
	var b v1alpha1.BoundEndpoint
	key := client.ObjectKey{Namespace: w.Namespace, Name: name + "." + w.Target}
	if err := w.Kube.Get(w.Context(), key, &b); err != nil {
		return "", err
	}
	if len(b.Spec.Ports) == 0 {
		return "", fmt.Errorf("%s has no port", b.Name)
	}
	return net.JoinHostPort("127.0.0.1", fmt.Sprint(b.Spec.Ports[0].TargetPort)), nil
}
