// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package e2e tests the whole product on a real Kubernetes. This part of it, the harness, owns the
// cluster: tests ask Shared for it and get clients, commands, pods and background processes, each
// of which ends with its test.
//
// The cluster is the one of test/cluster, named "e2e" or as FAIRLEAD_E2E_CLUSTER says: it is
// started when the first test asks and taken down at the end of the suite, unless it ran before.
// FAIRLEAD_CLUSTER_BIN names its program (`make e2e` sets it); without root the suite is skipped.
// FAIRLEAD_E2E_CONTEXT names a context of a kubeconfig to use instead: kubectl and helm then go
// there, other commands run on this machine (nettool must be in PATH: `bin/cluster build --only
// images --print-dir` names its folder), FAIRLEAD_E2E_HOST_IP is this machine as pods reach it, and
// the images of the tests must have been loaded.
//
// A server or an agent of a test runs as a process in the node's network (Cluster.Start) at NodeIP,
// which pods and the API server reach; nothing is reachable from outside, and nothing inside can
// leave.
package e2e

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
)

const (
	// ImageNettool is a client and server for tests; its commands are listed by `nettool` without
	// arguments.
	ImageNettool = "fairlead.test/nettool:1"
	// ImageCurl holds curl, bash and sleep.
	ImageCurl = "fairlead.test/curl:1"

	variableBin     = "FAIRLEAD_CLUSTER_BIN"
	variableContext = "FAIRLEAD_E2E_CONTEXT"
	variableCluster = "FAIRLEAD_E2E_CLUSTER"
	variableHostIP  = "FAIRLEAD_E2E_HOST_IP"
	bootTimeout     = 15 * time.Minute // the first time, Kubernetes is compiled
)

// NodeIP is the address of the test cluster's node; with a context it is this machine's as pods
// reach it, named by FAIRLEAD_E2E_HOST_IP (with kind the gateway of its container network). A
// process of the harness that listens on it, or on every address, is reached there from pods, from
// the API server and by other such processes.
var NodeIP = cmp.Or(os.Getenv(variableHostIP), "10.99.0.2")

// Cluster is a running cluster. Its methods may be called from parallel tests. Those that take a
// testing.TB end the test when they fail; what they made goes away with it.
type Cluster struct {
	// Config is an administrator's. Addresses of the cluster's network work with its dialer.
	Config *rest.Config
	// Client reads without a cache and knows the kinds of Kubernetes, of this project and
	// CustomResourceDefinitions.
	Client client.Client

	bin     string // the cluster program; empty with a context
	name    string // of the program's cluster
	context string // of a kubeconfig; empty with the cluster program
	dial    func(ctx context.Context, network, addr string) (net.Conn, error)
	listen  func(ctx context.Context, addr string) (net.Listener, error) // TCP, in the node's network
	logDir  string
	close   func() error
	loaded  sync.Once // of the operator's image

	kubeconfig string // file of the cluster program's cluster; for its node
}

// suite boots the cluster once for all tests of the process.
type suite struct {
	once    sync.Once
	cluster *Cluster
	err     error
}

var shared suite

// Shared returns the suite's cluster, starts it if this is the first call, or skips the test where
// there can be none.
func Shared(t testing.TB) *Cluster {
	t.Helper()
	if reason := whySkip(); reason != "" {
		t.Skip(reason)
	}
	shared.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), bootTimeout)
		defer cancel()
		shared.cluster, shared.err = boot(ctx, clusterName())
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.cluster
}

// Main is what the suite's TestMain calls. It takes the cluster down, also after Ctrl-C.
func Main(m *testing.M) int {
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, syscall.SIGINT, syscall.SIGTERM)
	done := make(chan int, 1)
	go func() { done <- m.Run() }()
	code := 130
	select {
	case code = <-done:
	case <-interrupted:
	}
	shared.once.Do(func() {}) // waits for a start under way; none can follow
	if shared.cluster != nil {
		if err := shared.cluster.close(); err != nil {
			fmt.Fprintln(os.Stderr, "ending the cluster:", err)
			return 1
		}
	}
	return code
}

// hasIPv6 reports whether this machine's kernel can give the node's network IPv6.
func hasIPv6() bool {
	_, err := os.Stat("/proc/net/if_inet6")
	return err == nil
}

func clusterName() string { return cmp.Or(os.Getenv(variableCluster), "e2e") }

func whySkip() string {
	switch {
	case os.Getenv(variableContext) != "" && os.Getenv(variableHostIP) == "":
		return variableHostIP + " must say at which address of this machine pods reach it"
	case os.Getenv(variableContext) != "":
		return ""
	case os.Geteuid() != 0:
		return "a cluster of its own needs root on Linux: run `sudo make e2e`, or name a kubeconfig context in " +
			variableContext
	case os.Getenv(variableBin) == "":
		return variableBin + " does not name the cluster program: run `make e2e`, or name a kubeconfig context in " +
			variableContext
	}
	return ""
}

// boot starts the cluster of that name, with further arguments of `cluster up`, or joins it.
func boot(ctx context.Context, name string, upArgs ...string) (*Cluster, error) {
	logDir, err := os.MkdirTemp("", "fairlead-e2e-")
	if err != nil {
		return nil, err
	}
	c := &Cluster{bin: os.Getenv(variableBin), name: name, context: os.Getenv(variableContext), logDir: logDir}
	c.close = func() error { return os.RemoveAll(logDir) }
	if c.context != "" {
		err = c.useContext()
	} else {
		err = c.useOwn(ctx, upArgs)
	}
	if err == nil {
		log.SetLogger(logr.Discard()) // or a client that is made late complains about it
		c.Client, err = client.New(c.Config, client.Options{Scheme: scheme()})
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("preparing the cluster: %w", err), c.close())
	}
	return c, nil
}

func scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(s))
	utilruntime.Must(apiextensionsv1.AddToScheme(s))
	utilruntime.Must(v1alpha1.AddToScheme(s))
	utilruntime.Must(mcsv1beta1.Install(s))
	return s
}

func (c *Cluster) useContext() error {
	rules, overrides := clientcmd.NewDefaultClientConfigLoadingRules(),
		&clientcmd.ConfigOverrides{CurrentContext: c.context}
	var err error
	c.Config, err = clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides).ClientConfig()
	if err != nil {
		return fmt.Errorf("reading the context %s: %w", c.context, err)
	}
	c.Config.QPS, c.Config.Burst = -1, 0
	c.dial = (&net.Dialer{}).DialContext
	c.listen = func(ctx context.Context, addr string) (net.Listener, error) {
		return (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	}
	return nil
}

// useOwn starts the cluster of test/cluster, or joins it where it runs.
func (c *Cluster) useOwn(ctx context.Context, upArgs []string) error {
	st, err := c.status(ctx)
	if err != nil {
		return err
	}
	ranBefore := st.Running
	args := append([]string{"up", "--name", c.name}, upArgs...)
	if hasIPv6() {
		args = append(args, "--dual-stack")
	}
	up := exec.CommandContext(ctx, c.bin, args...)
	up.Stdout, up.Stderr = os.Stderr, os.Stderr
	up.Cancel = func() error { return up.Process.Signal(syscall.SIGINT) } // it cleans up
	if err := up.Run(); err != nil {
		return fmt.Errorf("starting it: %w (the reason is above)", err)
	}
	if !ranBefore {
		removeLogs := c.close
		c.close = func() error {
			down := exec.CommandContext(context.WithoutCancel(ctx), c.bin, "down", "--name", c.name)
			down.Stdout, down.Stderr = os.Stderr, os.Stderr
			return errors.Join(down.Run(), removeLogs())
		}
	}
	if st, err = c.status(ctx); err != nil {
		return err
	}
	c.kubeconfig = st.Kubeconfig
	if c.Config, err = clientcmd.BuildConfigFromFlags("", st.Kubeconfig); err != nil {
		return err
	}
	netns, err := openNetNS(st.PID)
	if err != nil {
		return err
	}
	c.dial, c.listen = netns.dial, netns.listen
	c.Config.Dial = c.dial
	c.Config.QPS, c.Config.Burst = -1, 0
	return nil
}

// status is what `cluster status --output json` prints.
type status struct {
	Running    bool   `json:"running"`
	PID        int    `json:"pid"`
	Kubeconfig string `json:"kubeconfig"`
}

func (c *Cluster) status(ctx context.Context) (status, error) {
	var st status
	cmd := exec.CommandContext(ctx, c.bin, "status", "--name", c.name, "--output", "json")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output() // the exit code is 3 where none runs
	if jsonErr := json.Unmarshal(out, &st); jsonErr != nil {
		return st, fmt.Errorf("asking %s for its status: %w", c.bin, errors.Join(err, jsonErr))
	}
	return st, nil
}

// DialContext connects from inside the cluster's node. The host of addr must be an address, not a
// name.
func (c *Cluster) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	return c.dial(ctx, network, addr)
}

// HTTPClient makes requests from inside the cluster's node, without following redirects or keeping
// connections.
func (c *Cluster) HTTPClient() *http.Client {
	return &http.Client{
		Timeout:       30 * time.Second,
		Transport:     &http.Transport{DialContext: c.dial, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// get asks from inside the node.
func (c *Cluster) get(ctx context.Context, url string) (status int, body string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, "", err
	}
	resp, err := c.HTTPClient().Do(req)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	return resp.StatusCode, string(b), err
}
