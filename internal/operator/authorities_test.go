// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"context"
	"crypto/x509"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/internal/operator"
	"github.com/fairlead-dev/fairlead/internal/operator/options"
	"github.com/fairlead-dev/fairlead/internal/service/pki"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

const authorities = "fairlead-operator-authorities"

// rotating is a release with the chart's rights, of a service whose authority is replaced.
type rotating struct {
	*release
	writes  *writes
	service *servicetest.Server
	pki.Rotation
	authtoken string // authtoken is the forwarder's.
	caFile    string // caFile has the first authority, and stays.
	announced int    // announced counts the announcements that were waited for.
}

func newRotating(ctx context.Context) *rotating {
	GinkgoHelper()
	r := &rotating{release: newReleaseOf(ctx, "everything"), writes: &writes{count: map[string]int{}},
		service: servicetest.Start(GinkgoTB())}
	r.kubernetes = r.writes.wrap(r.kubernetes)
	r.Rotation = pki.NewRotation(r.service.Options.DataDir, nil)
	first, err := r.Read(ctx)
	Expect(err).NotTo(HaveOccurred())
	r.caFile = r.file("ca.crt", string(pki.EncodeCertificate(first.Current)))
	Expect(kube.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace,
		Name: authorities, Labels: map[string]string{"app.kubernetes.io/managed-by": "Helm"}}})).To(Succeed())
	r.authtoken = *r.service.CreateAuthtoken("connect:*").Token
	r.await(func() error { return nil })
	return r
}

func (r *rotating) file(name, text string) string {
	GinkgoHelper()
	path := filepath.Join(GinkgoTB().TempDir(), name)
	Expect(os.WriteFile(path, []byte(text), 0o600)).To(Succeed())
	return path
}

// await changes the service's authorities and waits for its announcement.
func (r *rotating) await(change func() error) {
	GinkgoHelper()
	Expect(change()).To(Succeed())
	r.announced++
	Eventually(func() int {
		return strings.Count(r.service.Log.String(), "clients are told to trust these authorities")
	}).Should(Equal(r.announced))
}

// kept returns the files of the ConfigMap.
func (r *rotating) kept(ctx context.Context) map[string]string {
	GinkgoHelper()
	var object corev1.ConfigMap
	Expect(kube.Get(ctx, client.ObjectKey{Namespace: r.namespace, Name: authorities}, &object)).To(Succeed())
	return object.Data
}

// updates returns how often the ConfigMap was written.
func (r *rotating) updates() int {
	r.writes.mu.Lock()
	defer r.writes.mu.Unlock()
	return r.writes.count["PUT configmaps"]
}

// mount writes the ConfigMap's files into the directory, as the kubelet does, and returns it.
func (r *rotating) mount(ctx context.Context, dir string) string {
	GinkgoHelper()
	for name, text := range r.kept(ctx) {
		Expect(os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)).To(Succeed())
	}
	return dir
}

// credentials are those of a pod with the directory.
func (r *rotating) credentials(secret, dir string) options.Credentials {
	GinkgoHelper()
	return options.Credentials{SecretFile: r.file("secret", secret), CAFile: r.caFile, AuthoritiesDir: dir}
}

// startManager runs a manager in a pod with the directory.
func (r *rotating) startManager(dir string) (stop func()) {
	GinkgoHelper()
	o := r.options()
	o.Account, o.Registrar, o.Metrics = nil, nil, prometheus.NewRegistry()
	o.API = options.API{APIURL: "https://" + r.service.Addrs.Service.String(), VersionHeader: "Service-Version",
		Credentials: r.credentials(r.service.APIKey, dir)}
	o.AuthoritiesConfigMap = authorities
	return run(o)
}

// startForwarder runs a forwarder until the end of the spec.
func (r *rotating) startForwarder(dir string) {
	GinkgoHelper()
	o := operator.ForwarderOptions{Installation: r.options().Installation, PodIPs: "10.1.0.9",
		Session:     options.Session{EdgeAddress: r.service.Addrs.Service.String(), PodName: "forwarder-1"},
		Credentials: r.credentials(r.authtoken, dir), Process: r.options().Process}
	o.Kubernetes = config
	running, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- operator.RunForwarder(running, o) }()
	DeferCleanup(func() {
		cancel()
		Eventually(done).Should(Receive(BeNil()))
	})
}

// registrations returns how often a manager has registered.
func (r *rotating) registrations() int {
	return strings.Count(r.service.Log.String(), `"method":"POST","route":"/kubernetes_operators"`)
}

// expectKept waits until the ConfigMap has these authorities of the service and no others.
func (r *rotating) expectKept(ctx context.Context, of func(pki.Authorities) []*x509.Certificate) {
	GinkgoHelper()
	all, err := r.Read(ctx)
	Expect(err).NotTo(HaveOccurred())
	var want string
	for _, c := range of(all) {
		want += string(pki.EncodeCertificate(c))
	}
	Eventually(func() []string { return slices.Collect(maps.Values(r.kept(ctx))) }).Should(Equal([]string{want}))
}

var _ = Describe("the authorities of the service", func() {
	It("are kept for pods that start after a promotion, until they are retired", func(ctx SpecContext) {
		r := newRotating(ctx)
		r.await(func() error { return r.AddNext(ctx, time.Now()) })
		stop := r.startManager(GinkgoTB().TempDir())
		Eventually(r.registrations).Should(BeNumerically(">", 0))
		waiting := GinkgoTB().TempDir() // of a pod that runs before anything is kept
		stopWaiting := r.startManager(waiting)
		r.expectKept(ctx, func(a pki.Authorities) []*x509.Certificate { return []*x509.Certificate{a.Next} })
		r.mount(ctx, waiting)

		r.await(func() error { return r.Promote(ctx) })
		before := r.registrations()
		stop()
		Eventually(r.registrations).Should(BeNumerically(">", before), "the waiting manager trusts the service")
		r.startForwarder(r.mount(ctx, GinkgoTB().TempDir()))
		Eventually(r.service.ScrapeMetrics).Should(ContainSubstring(`fairlead_server_sessions{role="forwarder"} 1`))
		Consistently(r.updates).WithTimeout(3*time.Second).Should(Equal(1), "no write without a difference")
		stopWaiting()

		r.await(func() error { return r.Retire(ctx) })
		r.await(func() error { return r.AddNext(ctx, time.Now()) })
		stop = r.startManager(r.mount(ctx, GinkgoTB().TempDir()))
		r.expectKept(ctx, func(a pki.Authorities) []*x509.Certificate { return []*x509.Certificate{a.Current, a.Next} })
		stop() // or its write could be cut off, and be counted twice
		r.await(func() error { return r.Promote(ctx) })
		r.await(func() error { return r.Retire(ctx) })
		r.startManager(r.mount(ctx, GinkgoTB().TempDir()))
		r.expectKept(ctx, func(a pki.Authorities) []*x509.Certificate { return []*x509.Certificate{a.Current} })
		Expect(r.updates()).To(Equal(3))
	})
})
