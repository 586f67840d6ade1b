// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

// Second starts a cluster beside the suite's for this test: its addresses are the same, and the two
// have no link. kube-proxy programs new Services there within 10 ms, so that times show what is
// Fairlead's.
func (c *Cluster) Second(t testing.TB) *Cluster {
	t.Helper()
	if c.context != "" {
		t.Skipf("a second cluster is one of the cluster program: unset %s", variableContext)
	}
	ctx, cancel := context.WithTimeout(t.Context(), bootTimeout)
	defer cancel()
	second, err := boot(ctx, c.name+"-second", "--kube-proxy-min-sync", "10ms")
	must.Succeed(t, err)
	t.Cleanup(func() {
		if err := second.close(); err != nil {
			t.Errorf("ending the second cluster: %v", err)
		}
	})
	return second
}

// SeenFrom returns the service as another cluster reaches it: at the same address of its own node,
// from which connections are passed on.
func (s *Service) SeenFrom(t testing.TB, other *Cluster) *Service {
	t.Helper()
	other.relay(t, s.addr, s.c, s.addr)
	seen := *s
	seen.c = other
	return &seen
}

// relay passes connections to an address of this cluster's node on to an address of another's.
func (c *Cluster) relay(t testing.TB, addr string, to *Cluster, target string) {
	t.Helper()
	l, err := c.listen(t.Context(), addr)
	must.Succeed(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return // closed
			}
			serving.Go(func() { to.pass(ctx, conn, target) })
		}
	})
	t.Cleanup(func() {
		cancel()
		_ = l.Close()
		serving.Wait()
	})
}

// pass connects with the target, and moves bytes until one side or ctx has ended.
func (c *Cluster) pass(ctx context.Context, conn net.Conn, target string) {
	defer func() { _ = conn.Close() }()
	upstream, err := c.dial(ctx, "tcp", target)
	if err != nil {
		return
	}
	stop := context.AfterFunc(ctx, func() { _, _ = conn.Close(), upstream.Close() })
	defer stop()
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(conn, upstream)
		_ = conn.Close()
	})
	_, _ = io.Copy(upstream, conn)
	_ = upstream.Close()
	back.Wait()
}

// NamespaceOf makes the namespace that another cluster has in a second one, with which it goes.
func (c *Cluster) NamespaceOf(t testing.TB, name string) {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	must.Succeed(t, c.Client.Create(t.Context(), ns))
}

// contexts writes a kubeconfig for the cluster's node, with the context "a" of this cluster and "b"
// of another.
func (c *Cluster) contexts(t testing.TB, other *Cluster) (file string) {
	t.Helper()
	addr := freeAddr()
	c.relay(t, addr, other, net.JoinHostPort(NodeIP, "6443"))
	merged := clientcmdapi.NewConfig()
	for name, of := range map[string]*Cluster{"a": c, "b": other} {
		config, err := clientcmd.LoadFromFile(of.kubeconfig)
		must.Succeed(t, err)
		current := config.Contexts[config.CurrentContext]
		merged.Clusters[name] = config.Clusters[current.Cluster]
		merged.AuthInfos[name] = config.AuthInfos[current.AuthInfo]
		merged.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	}
	merged.Clusters["b"].Server = fmt.Sprintf("https://%s", addr)
	file = filepath.Join(t.TempDir(), "kubeconfig")
	must.Succeed(t, clientcmd.WriteToFile(*merged, file))
	return file
}
