// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/forwarderstatus"
	"github.com/fairlead-dev/fairlead/internal/statustoken"
)

// forwarderStatusServer serves a forwarder's /status as the test sets it. All pods lead to it.
type forwarderStatusServer struct {
	*httptest.Server
	mu    sync.Mutex
	lines []string // since the beginning; the first is the whole document
	more  chan struct{}
}

func newForwarderStatusServer(first string) *forwarderStatusServer {
	s := &forwarderStatusServer{lines: []string{first}, more: make(chan struct{})}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.open(r) {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		for n := 0; ; {
			s.mu.Lock()
			lines, more := s.lines[n:], s.more
			s.mu.Unlock()
			for _, line := range lines {
				fmt.Fprintln(w, line)
				n++
			}
			w.(http.Flusher).Flush()
			select {
			case <-more:
			case <-r.Context().Done():
				return
			}
		}
	}))
	DeferCleanup(s.Close)
	return s
}

// open reports whether the request has the token of a pod of any installation.
func (s *forwarderStatusServer) open(r *http.Request) bool {
	var operators v1alpha1.KubernetesOperatorList
	if err := kube.List(r.Context(), &operators); err != nil {
		return false
	}
	for i := range operators.Items {
		for _, pod := range []string{"f-1", "f-2"} {
			if statustoken.Valid(r, statustoken.Derive(string(operators.Items[i].UID), pod)) {
				return true
			}
		}
	}
	return false
}

func (s *forwarderStatusServer) say(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, line)
	close(s.more)
	s.more = make(chan struct{})
}

func (s *forwarderStatusServer) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, network, s.Listener.Addr().String())
}

// forwarder makes a ready pod.
func (r *release) forwarder(ctx context.Context, name string) {
	GinkgoHelper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: name, Labels: map[string]string{
		"app.kubernetes.io/name": "fairlead-forwarder", "app.kubernetes.io/instance": "fairlead",
	}}}
	p.Spec.Containers = []corev1.Container{{Name: "forwarder", Image: "none"}}
	Expect(kube.Create(ctx, p)).To(Succeed())
	p.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.1.2.3", PodIPs: []corev1.PodIP{{IP: "10.1.2.3"}},
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
	Expect(kube.Status().Update(ctx, p)).To(Succeed())
}

var _ = Describe("the forwarders' status", func() {
	It(
		"makes a new endpoint ready when all listen, with two writes of its status and five in all, and names what "+
			"fails later", func(ctx SpecContext) {
			r := newRelease(ctx)
			s := newForwarderStatusServer(`{"pod":"f","session":{"up":true},"listeners":[]}`)
			r.forwarder(ctx, "f-1")
			r.forwarder(ctx, "f-2")
			counted := &writes{count: map[string]int{}}
			o := r.options()
			o.Forwarders, o.Kubernetes = nil, counted.wrap(r.kubernetes)
			o.ForwarderTransport = forwarderstatus.NewTransport(s.dial)
			run(o)
			Eventually(r.condition(ctx, v1alpha1.ConditionEdgeReachable)).Should(Equal("True Online"))

			var hostname string
			var target int32
			// a forwarder that takes longer than 3 s is reported, in a third write: this machine may be slow
			for attempt, took := 0, time.Hour; took > 3*time.Second && attempt < 5; attempt++ {
				hostname = hostnameIn(r.target, fmt.Sprintf("api-%d", attempt))
				Eventually(counted.quiet).Should(BeTrue())
				counted.take()
				began := time.Now()
				r.account.Put(endpoint(fmt.Sprintf("ep-%d", attempt), "http://"+hostname))
				b := &v1alpha1.BoundEndpoint{}
				Eventually(func(g Gomega) { // forwarders do not listen before
					g.Expect(kube.Get(ctx, client.ObjectKey{Namespace: r.namespace, Name: hostname}, b)).To(Succeed())
					g.Expect(b.Observed()).To(BeTrue())
				}).Should(Succeed())
				target = b.Spec.Ports[0].TargetPort
				s.say(fmt.Sprintf(`{"listeners":[{"port":%d,"hostname":%q,"listening":true}]}`, target, hostname))
				Eventually(r.ready(ctx, hostname)).Should(Equal("True Ready"))
				took = time.Since(began)
			}
			Expect(r.bep(ctx, hostname).Status.Forwarders).To(Equal("2/2"))
			Eventually(counted.quiet).Should(BeTrue())
			Expect(counted.take()).
				To(Equal(map[string]int{"POST boundendpoints": 1, "POST services": 2, "PUT boundendpoints/status": 2}))
			Consistently(func() int { return counted.take()["PUT boundendpoints/status"] }).
				WithTimeout(2 * time.Second).Should(BeZero())

			s.say(
				fmt.Sprintf(
					`{"listeners":[{"port":%d,"hostname":%q,"listening":false,"error":"address already in use"}]}`,
					target, hostname))
			Eventually(r.ready(ctx, hostname)).WithTimeout(time.Minute).Should(Equal("False ListenerFailed"))
			Eventually(func() string { return r.bep(ctx, hostname).Status.Forwarders }).WithTimeout(time.Minute).
				Should(Equal("0/2"), "one fails before the other")
		})

	It("is not needed by anything else: without the right to read pods all but Reachable goes on",
		func(ctx SpecContext) {
			r := newRelease(ctx)
			o := r.options()
			o.Forwarders = nil
			o.Kubernetes = rest.CopyConfig(o.Kubernetes)
			o.Kubernetes.Wrap(func(next http.RoundTripper) http.RoundTripper {
				return roundTripper(func(req *http.Request) (*http.Response, error) {
					if resource(req.URL.Path) == "pods" {
						return nil, errDown
					}
					return next.RoundTrip(req)
				})
			})
			run(o)
			r.account.Put(endpoint("ep-1", "http://api."+r.target))
			r.services(ctx, "ep-1", "api")
			Eventually(r.ready(ctx, "api."+r.target)).Should(Equal("Unknown ServiceUnreachable"))
		})
})
