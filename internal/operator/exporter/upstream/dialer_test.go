// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// cacheOf returns a cache of Service demo/api with these slices.
func cacheOf(t *testing.T, endpointSlices ...discoveryv1.EndpointSlice) client.Reader {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	build := fake.NewClientBuilder().WithScheme(scheme).
		WithIndex(&discoveryv1.EndpointSlice{}, indexService, func(o client.Object) []string {
			return []string{ServiceOf(o)}
		}).
		WithObjects(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: "api"},
			Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "api"},
				Ports: []corev1.ServicePort{port("web", 80, corev1.ProtocolTCP)}}})
	for i, s := range endpointSlices {
		s.Namespace, s.Name = "demo", "api-"+string(rune('a'+i))
		s.Labels = map[string]string{discoveryv1.LabelServiceName: "api", discoveryv1.LabelManagedBy: SliceController}
		build = build.WithObjects(&s)
	}
	return build.Build()
}

// dialed records the addresses that were dialed; those in hang never answer, those in refuse fail.
type dialed struct {
	mu           sync.Mutex
	addresses    []string
	hang, refuse []string
}

func (d *dialed) dial(ctx context.Context, _, address string) (net.Conn, error) {
	d.mu.Lock()
	d.addresses = append(d.addresses, address)
	d.mu.Unlock()
	switch {
	case slices.Contains(d.hang, address):
		<-ctx.Done()
		return nil, ctx.Err()
	case slices.Contains(d.refuse, address):
		return nil, errors.New("refused by " + address)
	}
	ours, theirs := net.Pipe()
	_ = theirs.Close()
	return ours, nil
}

func (d *dialed) take() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	taken := d.addresses
	d.addresses = nil
	return taken
}

func TestDialer_TakesTurns(t *testing.T) {
	t.Parallel()
	network := &dialed{}
	d := &Dialer{Dial: network.dial, Cache: cacheOf(t,
		slice(discoveryv1.AddressTypeIPv4, "web", 8080, ready("10.0.0.1"), ready("10.0.0.2"), ready("10.0.0.3")))}
	for range 6 {
		conn, err := d.DialContext(t.Context(), "tcp", "api.demo.svc:80")
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.Close()
	}
	count := map[string]int{}
	for _, a := range network.take() {
		count[a]++
	}
	if len(count) != 3 || count["10.0.0.1:8080"] != 2 || count["10.0.0.2:8080"] != 2 {
		t.Errorf("six connections went to %v", count)
	}
}

func TestDialer_TriesOthers(t *testing.T) {
	t.Parallel()
	network := &dialed{refuse: []string{"10.0.0.1:80", "10.0.0.2:80"}}
	d := &Dialer{Dial: network.dial, Cache: cacheOf(t,
		slice(discoveryv1.AddressTypeIPv4, "web", 80, ready("10.0.0.1"), ready("10.0.0.2"), ready("10.0.0.3")))}
	for range 3 {
		if _, err := d.DialService(t.Context(), apiRef); err != nil {
			t.Error(err)
		}
	}
	network.refuse = append(network.refuse, "10.0.0.3:80")
	if _, err := d.DialService(t.Context(), apiRef); err == nil ||
		!strings.Contains(err.Error(), "refused by 10.0.0.3") {
		t.Errorf("got %v", err)
	}
}

func TestDialer_TriesOtherFamily(t *testing.T) {
	t.Parallel()
	network := &dialed{}
	var v4 []discoveryv1.Endpoint
	for _, a := range []string{"10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5"} {
		v4 = append(v4, ready(a))
		network.refuse = append(network.refuse, a+":80")
	}
	d := &Dialer{Dial: network.dial, Cache: cacheOf(t, slice(discoveryv1.AddressTypeIPv4, "web", 80, v4...),
		slice(discoveryv1.AddressTypeIPv6, "web", 80, ready("fd00::1")))}
	if _, err := d.DialService(t.Context(), apiRef); err != nil {
		t.Error(err)
	}
	if tried := network.take(); len(tried) != maxAttempts || tried[maxAttempts-1] != "[fd00::1]:80" {
		t.Errorf("tried %v", tried)
	}
}

func TestDialer_HangingAddressCostsSeconds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		network := &dialed{hang: []string{"10.0.0.1:80", "10.0.0.2:80"}}
		d := &Dialer{Dial: network.dial, Cache: cacheOf(t,
			slice(discoveryv1.AddressTypeIPv4, "web", 80, ready("10.0.0.1"), ready("10.0.0.2"), ready("10.0.0.3")))}
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			began := time.Now()
			if _, err := d.DialService(ctx, apiRef); err != nil || time.Since(began) > 2*attemptTimeout {
				t.Errorf("after %v: %v", time.Since(began), err)
			}
			cancel()
		}
	})
}

func TestDialer_NamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	d := &Dialer{Dial: new(dialed).dial, Cache: cacheOf(t,
		slice(discoveryv1.AddressTypeIPv4, "web", 80, notReady("10.0.0.1")))}
	for address, want := range map[string]string{
		"api.demo.svc:80":   "no endpoint of port 80 is ready",
		"api.demo.svc:81":   "no TCP port 81",
		"other.demo.svc:80": "demo/other does not exist",
		"example.com:80":    "not the address of a Service",
		"10.0.0.1:80":       "not the address of a Service",
	} {
		if _, err := d.DialContext(t.Context(), "tcp", address); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", address, err, want)
		}
	}
}
