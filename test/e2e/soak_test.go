// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// What `make soak` makes longer and larger.
const (
	variableOutage    = "FAIRLEAD_E2E_OUTAGE"    // how long each outage lasts
	variableRollouts  = "FAIRLEAD_E2E_ROLLOUTS"  // how often the forwarders are rolled
	variableEndpoints = "FAIRLEAD_E2E_ENDPOINTS" // how many endpoints there are while they are
	variableChurn     = "FAIRLEAD_E2E_CHURN"     // how many of those come and go in a second
	variableCalls     = "FAIRLEAD_E2E_CALLS"     // how many calls a second there are while something is rolled
)

const (
	// bindEvery is a little slower than the binds that the service takes from one authtoken.
	bindEvery = time.Second / 16
	// maxCalled is how many endpoints of a crowd are called.
	maxCalled = 90
)

// bindFurther binds further endpoints by one session, waits until all are projected, and returns
// URLs of those that stay. Some of the others come and go until the test ends.
func (f *traffic) bindFurther(t *testing.T, n, churn int) (urls []string) {
	t.Helper()
	session := openSession(t, f.c, f.service)
	began := time.Now()
	var ids []string
	for i := range n {
		url := f.furtherURL(i)
		id, err := bindPlain(t.Context(), session, url)
		if err != nil {
			t.Fatalf("binding %s: %v", url, err)
		}
		ids = append(ids, id)
		if len(urls) < maxCalled {
			urls = append(urls, url)
		}
	}
	f.c.Eventually(t, 10*time.Minute, fmt.Sprintf("%d endpoints projected", n), func(ctx context.Context) error {
		var all v1alpha1.BoundEndpointList
		if err := f.c.Client.List(ctx, &all, client.InNamespace(f.release.Namespace)); err != nil {
			return err
		}
		ready := 0
		for _, b := range all.Items {
			if b.Status.ClusterIP != "" {
				ready++
			}
		}
		if ready < n {
			return fmt.Errorf("%d are", ready)
		}
		return nil
	})
	t.Logf("%d endpoints bound and projected in %v", n, time.Since(began).Round(time.Second))
	if churn > 0 && n > len(urls) {
		f.churn(t, session, ids, len(urls), time.Second/time.Duration(churn))
	}
	return urls
}

func (f *traffic) furtherURL(i int) string { return fmt.Sprintf("http://crowd-%d.%s", i, f.ns) }

// bindPlain binds at the pace that the service takes.
func bindPlain(ctx context.Context, session *tunnel.Session, url string) (id string, err error) {
	bound, err := session.Bind(ctx, tunnel.Bind{URL: url, Binding: "kubernetes", UpstreamURL: "http://localhost:1",
		UpstreamProtocol: "http1"})
	if err != nil {
		return "", err
	}
	return bound.EndpointID, pause(ctx, bindEvery)
}

// churn gives one endpoint back and binds it again, one after the other, until the test ends.
func (f *traffic) churn(t *testing.T, session *tunnel.Session, ids []string, from int, every time.Duration) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := from; ctx.Err() == nil; i = max(from, (i+1)%len(ids)) {
			err := session.Unbind(ctx, ids[i])
			if err == nil {
				ids[i], err = bindPlain(ctx, session, f.furtherURL(i))
			}
			if err != nil && ctx.Err() == nil {
				t.Errorf("churning %s: %v", f.furtherURL(i), err)
				return
			}
			_ = pause(ctx, every)
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
}

// durationOf reads a duration from the environment.
func durationOf(t testing.TB, variable string, otherwise time.Duration) time.Duration {
	t.Helper()
	v := os.Getenv(variable)
	if v == "" {
		return otherwise
	}
	d, err := time.ParseDuration(v)
	if err != nil || d <= 0 {
		t.Fatalf("%s=%q: want a duration such as 10m", variable, v)
	}
	return d
}

// numberOf reads a number from the environment.
func numberOf(t testing.TB, variable string, otherwise int) int {
	t.Helper()
	v := os.Getenv(variable)
	if v == "" {
		return otherwise
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 0 {
		t.Fatalf("%s=%q: want a number", variable, v)
	}
	return n
}
