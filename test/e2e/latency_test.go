// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"

	"github.com/fairlead-dev/fairlead/internal/trust"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/internal/version"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// stalledMachine is the time for two creates by hand from which on the machine, not the operator,
// is what is measured.
const stalledMachine = 100 * time.Millisecond

// variableRounds sets how many endpoints the latency test makes.
const variableRounds = "FAIRLEAD_E2E_ROUNDS"

// TestProjection_Latency measures promise 2: from creation to both Services in 100 ms (median), 250
// ms at most; a pod's first byte at most 150 ms (median) later than through a Service made by hand
// at the same moment. It runs alone on the machine; every name is new. kube-proxy runs with its
// default minSyncPeriod of 1 s.
func TestProjection_Latency(t *testing.T) {
	c := Shared(t)
	rounds := max(1, numberOf(t, variableRounds, 20))
	s := c.StartService(t)
	s.Install(t)
	m := newMeasurement(t, c, s)
	m.round(t, "warm", time.Minute)
	for i := range rounds {
		m.round(t, fmt.Sprintf("r%d", i), 20*time.Second)
	}
	services, ours, byHand := m.services[1:], m.ours[1:], m.byHand[1:]
	t.Logf("%d rounds on %d cores, kube-proxy minSyncPeriod 1 s", rounds, runtime.NumCPU())
	t.Logf("creation to both Services: median %v, max %v", median(services), slices.Max(services))
	t.Logf("the same two Services written by hand, one client, at the same moment: median %v, max %v",
		median(m.handWrites[1:]), slices.Max(m.handWrites[1:]))
	t.Logf("online to a pod's first 200: median %v, max %v; through a Service made by hand: median %v, max %v",
		median(ours), slices.Max(ours), median(byHand), slices.Max(byHand))
	if got := median(services); got > 100*time.Millisecond {
		t.Errorf("median %v from creation to both Services, promised 100ms", got)
	}
	var excused []string
	for i, got := range services {
		switch byHand := m.handWrites[i+1]; {
		case got <= 250*time.Millisecond:
		case byHand < stalledMachine:
			t.Errorf(
				"%v from creation to both Services, promised 250ms at most; meanwhile the API server took %v for two "+
					"by hand", got,
				byHand)
		default:
			excused = append(excused, fmt.Sprintf("%v while two by hand took %v", got, byHand))
		}
	}
	t.Logf("over 250ms and excused, as two creates by hand took %v and more: %d of %d rounds %v", stalledMachine,
		len(excused),
		rounds, excused)
	if 3*len(excused) > rounds {
		t.Errorf("%d of %d rounds were excused: this machine is too busy to tell", len(excused), rounds)
	}
	if later := median(ours) - median(byHand); later > 150*time.Millisecond {
		t.Errorf("a pod's first 200 comes %v later than through a Service made by hand, promised 150ms", later)
	}
}

func median(d []time.Duration) time.Duration {
	d = slices.Sorted(slices.Values(d))
	return d[len(d)/2]
}

// measurement makes endpoints as an agent does and watches what comes of them.
type measurement struct {
	c           *Cluster
	client      kubernetes.Interface
	ns, hand    string // namespaces: of the target Services; of what is made by hand
	session     *tunnel.Session
	probe       *probe
	mu          sync.Mutex
	appearances map[string]chan time.Time // Service namespace/name -> when the watch showed it
	services    []time.Duration
	ours        []time.Duration
	byHand      []time.Duration

	handWrites []time.Duration // what the API server took for the two Services by hand
	operators  string
}

func newMeasurement(t *testing.T, c *Cluster, s *Service) *measurement {
	t.Helper()
	client, err := kubernetes.NewForConfig(c.Config)
	must.Succeed(t, err)
	m := &measurement{c: c, client: client, ns: c.Namespace(t, "fast"), hand: c.Namespace(t, "hand"),
		appearances: map[string]chan time.Time{}}
	m.session = openSession(t, c, s)
	c.StartPod(t, Pod{Namespace: m.hand, Labels: map[string]string{"app": "hand"}, Image: ImageNettool,
		Args: []string{"serve", ":8080"}})
	pod := c.NettoolPod(t, m.ns)
	m.probe = c.startProbe(t, pod)
	m.watchServices(t)
	return m
}

// openSession connects as an agent whose upstream answers every request with 200.
func openSession(t *testing.T, c *Cluster, s *Service) *tunnel.Session {
	t.Helper()
	tlsConfig, err := trust.Options{CAFile: s.CAFile}.ClientConfig()
	must.Succeed(t, err)
	client := tunnel.NewClient(tunnel.ClientConfig{
		Address: s.addr, TLS: tlsConfig, DialContext: c.DialContext,
		Hello: func() tunnel.Hello {
			return tunnel.Hello{Role: tunnel.RoleAgent, Token: s.Authtoken, ClientVersion: version.String(),
				OS:         runtime.GOOS,
				InstanceID: "latency"}
		},
		OnStream: func(_ context.Context, _ *tunnel.Session, st *tunnel.Stream) { answerOK(st) },
	})
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = client.Run(ctx) // a session that ends shows in the test
	}()
	t.Cleanup(func() { cancel(); <-done })
	wait, cancelWait := context.WithTimeout(ctx, 10*time.Second)
	defer cancelWait()
	session, err := client.Wait(wait)
	if err != nil {
		t.Fatalf("waiting for the session: %v", err)
	}
	return session
}

func answerOK(st *tunnel.Stream) {
	defer func() { _ = st.Close() }()
	if st.Accept() != nil {
		return
	}
	for r := bufio.NewReader(st); ; {
		if _, err := http.ReadRequest(r); err != nil {
			return
		}
		if _, err := st.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")); err != nil {
			return
		}
	}
}

// watchServices notes when each Service appears.
func (m *measurement) watchServices(t *testing.T) {
	t.Helper()
	w, err := m.client.CoreV1().Services("").Watch(t.Context(), metav1.ListOptions{})
	must.Succeed(t, err)
	t.Cleanup(w.Stop)
	go func() {
		for ev := range w.ResultChan() {
			if svc, ok := ev.Object.(*corev1.Service); ok {
				select {
				case m.appearance(svc.Namespace + "/" + svc.Name) <- time.Now():
				default:
				}
			}
		}
	}()
}

// appearance returns the channel that receives the first time at which the watch showed a Service.
func (m *measurement) appearance(name string) chan time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.appearances[name] == nil {
		m.appearances[name] = make(chan time.Time, 1)
	}
	return m.appearances[name]
}

// round makes one endpoint and one pair of Services by hand, at once, and measures both.
func (m *measurement) round(t *testing.T, name string, timeout time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	before := time.Now()
	bound, err := m.session.Bind(ctx, tunnel.Bind{URL: "http://" + name + "." + m.ns, Binding: "kubernetes",
		UpstreamURL: "http://localhost:1", UpstreamProtocol: "http1"})
	if err != nil {
		t.Fatalf("binding: %v", err)
	}
	online := time.Now()
	m.createByHand(ctx, t, name)
	m.handWrites = append(m.handWrites, time.Since(online))
	ours, byHand := m.probe.first(ctx, "http://"+name+"."+m.ns), m.probe.first(ctx, "http://"+name+"-hand."+m.ns)
	var last time.Time
	for _, service := range []string{m.ns + "/" + name, m.upstreamOf(ctx, t, name, bound.EndpointID)} {
		select {
		case at := <-m.appearance(service):
			if at.After(last) {
				last = at
			}
		case <-ctx.Done():
			t.Fatalf("%s: Service %s did not appear", name, service)
		}
	}
	// From the request to bind: the commit, which is the creation, comes after it, so that this is
	// an upper bound.
	m.services = append(m.services, last.Sub(before))
	for answer, into := range map[<-chan time.Time]*[]time.Duration{ours: &m.ours, byHand: &m.byHand} {
		select {
		case at := <-answer:
			*into = append(*into, at.Sub(online))
		case <-ctx.Done():
			t.Fatalf("%s: no 200 within %v: %s", name, timeout, m.probe.output())
		}
	}
}

// upstreamOf names the upstream Service: the endpoint's id, in the operator's namespace.
func (m *measurement) upstreamOf(ctx context.Context, t *testing.T, name, endpointID string) string {
	if m.operators == "" {
		m.c.Eventually(t, time.Minute, "the upstream Service of "+name, func(context.Context) error {
			list, err := m.client.CoreV1().Services("").
				List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + endpointID})
			if err == nil && len(list.Items) != 1 {
				err = fmt.Errorf("%d Services", len(list.Items))
			}
			if err == nil {
				m.operators = list.Items[0].Namespace
			}
			return err
		})
	}
	return m.operators + "/" + endpointID
}

// createByHand makes what the operator makes, for a pod that runs already.
func (m *measurement) createByHand(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	upstream := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{
		Selector: map[string]string{"app": "hand"},
		Ports:    []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}}}}
	target := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name + "-hand"}, Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeExternalName, ExternalName: name + "." + m.hand + ".svc.cluster.local"}}
	if _, err := m.client.CoreV1().Services(m.hand).Create(ctx, upstream, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := m.client.CoreV1().Services(m.ns).Create(ctx, target, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// probe is `nettool first` in a pod: it reads URLs and prints when each first answered 200, by the
// machine's clock.
type probe struct {
	process *Process
	stdin   *os.File
}

func (c *Cluster) startProbe(t *testing.T, pod *corev1.Pod) *probe {
	t.Helper()
	read, write, err := os.Pipe()
	must.Succeed(t, err)
	t.Cleanup(func() { _ = write.Close() })
	p := c.StartInput(t, "probe", read, "kubectl", "--namespace", pod.Namespace, "exec", "-i", pod.Name, "--",
		"/nettool",
		"first")
	_ = read.Close() // the process has its own
	return &probe{process: p, stdin: write}
}

func (p *probe) output() string { return p.process.Output() }

// first returns when the URL first answered 200.
func (p *probe) first(ctx context.Context, url string) <-chan time.Time {
	at := make(chan time.Time, 1)
	if _, err := fmt.Fprintln(p.stdin, url); err != nil {
		return at
	}
	go func() {
		for ctx.Err() == nil {
			for line := range strings.Lines(p.output()) {
				got, nanos, ok := strings.Cut(strings.TrimSpace(line), " ")
				if n, err := strconv.ParseInt(nanos, 10, 64); ok && err == nil && got == url {
					at <- time.Unix(0, n)
					return
				}
			}
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	return at
}
