// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package testenv starts a real API server with etcd, and if asked some of Kubernetes's own
// controllers, for the length of a test. Tests come in; a rest.Config of an administrator goes out,
// with this project's CRDs installed. It needs no root. The programs are those that `make
// envtest-assets` builds; where they are absent a test fails, it is never skipped.
package testenv

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

// startTimeout bounds the start of etcd and of the API server, each. They need two seconds on an
// idle machine.
const startTimeout = 2 * time.Minute

// assetsVariable names the folder of the programs. An empty value is as none.
const assetsVariable = "KUBEBUILDER_ASSETS"

// Option changes what Start starts.
type Option func(*options)

type options struct {
	controllers  []string
	crds         bool
	multiCluster bool
	serviceRange string
	tokenKeys    []string
}

// WithControllers also runs Kubernetes's controller manager with the named controllers, such as
// "namespace", "garbagecollector" and "endpointslice". Without it nothing deletes dependents, ends
// namespaces or fills EndpointSlices.
func WithControllers(names ...string) Option {
	return func(o *options) { o.controllers = append(o.controllers, names...) }
}

// WithServiceRange gives Services their ClusterIPs from a range such as "10.0.0.0/16", or of both
// families: "10.0.0.0/16,fd00::/112". The default holds about 250.
func WithServiceRange(cidr string) Option { return func(o *options) { o.serviceRange = cidr } }

// WithTokenKeys also accepts and publishes these public keys of ServiceAccounts' tokens, files with
// PEM; the API server signs with another.
func WithTokenKeys(files ...string) Option { return func(o *options) { o.tokenKeys = files } }

// WithMultiClusterKinds also installs the CRDs of the Multi-Cluster Services API.
func WithMultiClusterKinds() Option { return func(o *options) { o.multiCluster = true } }

// WithoutCRDs leaves this project's CRDs out.
func WithoutCRDs() Option { return func(o *options) { o.crds = false } }

// Env is a running control plane.
type Env struct {
	// Config is an administrator's, without client-side rate limits that a test would notice. Copy
	// it before changing it.
	Config *rest.Config
	// Kubeconfig is the same as a kubeconfig's text, for programs of their own.
	Kubeconfig []byte

	env         envtest.Environment
	controllers *controllerManager
}

// Start runs a control plane until the test and its subtests have ended. In a ginkgo suite give it
// ginkgo.GinkgoTB() in BeforeSuite. A start takes about four seconds: share one among the tests of
// a package, apart by namespace.
func Start(t testing.TB, opts ...Option) *rest.Config {
	t.Helper()
	e, err := New(opts...)
	must.Succeed(t, err)
	t.Cleanup(func() {
		if err := e.Stop(); err != nil {
			t.Error(err)
		}
	})
	return e.Config
}

// Run is a TestMain that keeps quiet the logs of controller-runtime and klog: it runs a control
// plane for the package's tests, which find it in config, and returns the exit code.
func Run(m *testing.M, config **rest.Config, opts ...Option) (code int) {
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	e, err := New(opts...)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	*config = e.Config
	code = m.Run()
	if err := e.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	return code
}

// New runs a control plane until Stop, for a TestMain. What it started is stopped when it returns
// an error.
func New(opts ...Option) (*Env, error) {
	o := options{crds: true}
	for _, opt := range opts {
		opt(&o)
	}
	assets, err := assetsDir()
	if err != nil {
		return nil, err
	}
	existing := false
	e := &Env{env: envtest.Environment{
		UseExistingCluster:       &existing,
		ControlPlane:             envtest.ControlPlane{Etcd: &envtest.Etcd{Path: filepath.Join(assets, "etcd")}},
		ControlPlaneStartTimeout: startTimeout, ControlPlaneStopTimeout: time.Minute,
	}}
	e.env.ControlPlane.GetAPIServer().Path = filepath.Join(assets, "kube-apiserver")
	if o.serviceRange != "" {
		e.env.ControlPlane.GetAPIServer().Configure().Set("service-cluster-ip-range", o.serviceRange)
	}
	if len(o.tokenKeys) > 0 {
		e.env.ControlPlane.GetAPIServer().Configure().Append("service-account-key-file", o.tokenKeys...)
	}
	if o.crds {
		dir, err := repositoryDir("config", "crd", "bases")
		if err != nil {
			return nil, fmt.Errorf("%w: run `make manifests`", err)
		}
		e.env.CRDDirectoryPaths, e.env.ErrorIfCRDPathMissing = []string{dir}, true
	}
	if e.Config, err = e.env.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("starting the API server: %w", err), e.env.Stop())
	}
	e.Kubeconfig = e.env.KubeConfig
	if o.multiCluster {
		if err := InstallMultiClusterKinds(e.Config); err != nil {
			return nil, errors.Join(err, e.env.Stop())
		}
	}
	if len(o.controllers) > 0 {
		if e.controllers, err = startControllers(assets, e.Kubeconfig, o.controllers); err != nil {
			return nil, errors.Join(fmt.Errorf("starting the controller manager: %w", err), e.env.Stop())
		}
	}
	return e, nil
}

// Stop ends everything. It may take a few seconds while clients' watches are still open.
func (e *Env) Stop() error {
	var err error
	if e.controllers != nil {
		err = e.controllers.stop()
	}
	if stop := e.env.Stop(); stop != nil {
		err = errors.Join(err, fmt.Errorf("stopping the API server: %w", stop))
	}
	return err
}

// assetsDir finds the programs.
func assetsDir() (string, error) {
	dir := os.Getenv(assetsVariable)
	if dir == "" {
		cache, err := cacheDir()
		if err != nil {
			return "", err
		}
		// The build of test/cluster lets this name its newest kubenode.
		dir = filepath.Join(cache, "cluster", "current")
	}
	for _, program := range []string{"etcd", "kube-apiserver", "kube-controller-manager"} {
		if _, err := os.Stat(filepath.Join(dir, program)); err != nil {
			return "", fmt.Errorf("no %s in %s: run `make envtest-assets`, which builds it once (4 minutes), or set %s",
				program,
				dir, assetsVariable)
		}
	}
	return dir, nil
}

// cacheDir is where test/cluster keeps its binaries.
func cacheDir() (string, error) {
	if d := os.Getenv("FAIRLEAD_CACHE"); d != "" {
		return d, nil
	}
	d, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no cache folder: set HOME, FAIRLEAD_CACHE or %s", assetsVariable)
	}
	return filepath.Join(d, "fairlead"), nil
}

// repositoryDir finds a folder of the checkout that the test runs in: tests run in the folder of
// their package.
func repositoryDir(elements ...string) (string, error) {
	wd, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := wd; ; dir = filepath.Dir(dir) {
		found := filepath.Join(append([]string{dir}, elements...)...)
		if _, err := os.Stat(found); err == nil {
			return found, nil
		} else if !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no %s above %s", filepath.Join(elements...), wd)
		}
	}
}
