// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package podidentity

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/fairlead-dev/fairlead/test/support/testenv"
)

// fakeAPI is an API server inside a bubble. Its watches end at their timeout, unless it hangs.
type fakeAPI struct {
	mu    sync.Mutex
	pods  []corev1.Pod
	hangs bool
	err   error // of lists
	gone  bool  // the next watch says so
	lists int   // complete ones
	w     *watch.FakeWatcher
}

func (a *fakeAPI) List(ctx context.Context, o metav1.ListOptions) (*corev1.PodList, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.hangs {
		a.mu.Unlock()
		<-ctx.Done()
		a.mu.Lock()
		return nil, ctx.Err()
	}
	if a.err != nil {
		return nil, a.err
	}
	if o.Limit != 1 {
		a.lists++
	}
	return &corev1.PodList{Items: slices.Clone(a.pods)}, nil
}

func (a *fakeAPI) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	w := watch.NewFakeWithChanSize(10, false)
	a.w = w
	if a.gone {
		a.gone = false
		status := apierrors.NewResourceExpired("too old").Status()
		w.Error(&status)
	}
	go func() {
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(*o.TimeoutSeconds) * time.Second):
			a.mu.Lock()
			hangs := a.hangs
			a.mu.Unlock()
			if hangs {
				<-ctx.Done()
			}
		}
		w.Stop()
	}()
	return w, nil
}

func (a *fakeAPI) do(change func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change()
}

func runPods(t *testing.T, test func(t *testing.T, a *fakeAPI, p *Pods)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		a := &fakeAPI{pods: []corev1.Pod{*newPod("a", "10.0.0.1")}}
		p := &Pods{table: newTable(nil), api: a, log: slog.New(slog.DiscardHandler)}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); p.Run(ctx) }()
		synctest.Wait()
		test(t, a, p)
		cancel()
		<-done
		synctest.Wait()
	})
}

// expect checks for a pod's name or "", and how long the lookup takes.
func expect(t *testing.T, p *Pods, ip, want string, within time.Duration) {
	t.Helper()
	begun, got := time.Now(), ""
	if identity := p.Lookup(t.Context(), netip.MustParseAddr(ip)); identity != nil {
		got = identity.Name
		if identity.Namespace != "demo" || identity.ServiceAccount != "sa-"+got {
			t.Errorf("%s: %+v", ip, identity)
		}
	}
	if took := time.Since(begun); got != want || took != within {
		t.Errorf("%s: %q after %s, want %q after %s", ip, got, took, want, within)
	}
}

func TestWatch_QuietClusterStaysKnown(t *testing.T) {
	t.Parallel()
	runPods(t, func(t *testing.T, a *fakeAPI, p *Pods) {
		for range 600 {
			expect(t, p, "10.0.0.1", "a", 0)
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
		}
		a.do(func() {
			if a.lists != 1 {
				t.Errorf("%d lists in a minute", a.lists)
			}
		})
	})
}

func TestWatch_SilentClusterIsUnknown(t *testing.T) {
	t.Parallel()
	runPods(t, func(t *testing.T, a *fakeAPI, p *Pods) {
		a.do(func() { a.hangs = true })
		time.Sleep(5*time.Second + time.Millisecond)
		expect(t, p, "10.0.0.1", "", 0)
		expect(t, p, "10.0.0.9", "", 0)
		a.do(func() { a.hangs, a.pods = false, []corev1.Pod{*newPod("b", "10.0.0.1")} })
		time.Sleep(time.Minute + 10*time.Second)
		expect(t, p, "10.0.0.1", "b", 0)
	})
}

func TestWatch_APIServerWithoutEtcdIsSilent(t *testing.T) {
	t.Parallel()
	runPods(t, func(t *testing.T, a *fakeAPI, p *Pods) {
		a.do(func() { a.err = errors.New("etcdserver: request timed out") })
		time.Sleep(6 * time.Second)
		expect(t, p, "10.0.0.1", "", 0)
		a.do(func() { a.err = nil })
		time.Sleep(3 * time.Second)
		expect(t, p, "10.0.0.1", "a", 0)
	})
}

func TestWatch_RelistsExpiredVersion(t *testing.T) {
	t.Parallel()
	runPods(t, func(t *testing.T, a *fakeAPI, p *Pods) {
		a.do(func() { a.gone, a.pods = true, []corev1.Pod{*newPod("b", "10.0.0.2")} })
		time.Sleep(6 * time.Second)
		synctest.Wait()
		expect(t, p, "10.0.0.2", "b", 0)
		expect(t, p, "192.0.2.1", "", 0) // a node is known to be unknown
	})
}

func TestLookup_WaitsForMissingAddressOnce(t *testing.T) {
	t.Parallel()
	runPods(t, func(t *testing.T, a *fakeAPI, p *Pods) {
		go func() {
			time.Sleep(1500 * time.Millisecond)
			a.do(func() { a.w.Add(newPod("b", "10.0.0.2")) })
		}()
		expect(t, p, "10.0.0.2", "b", 1500*time.Millisecond)
		expect(t, p, "10.0.0.3", "", 2*time.Second)
		expect(t, p, "10.0.0.3", "", 0)
		a.do(func() { a.w.Add(newPod("c", "10.0.0.3")) })
		synctest.Wait()
		expect(t, p, "10.0.0.3", "c", 0)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if p.Lookup(ctx, netip.MustParseAddr("10.0.0.4")) != nil || ctx.Err() == nil {
			t.Error("a lookup whose connection has gone did not end")
		}
	})
}

// On a real API server: an idle watch is renewed and stays alive, and a reused address is never the
// old pod's.
func TestPods_RealCluster(t *testing.T) {
	t.Parallel()
	config := testenv.Start(t)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	run := func(name string) {
		t.Helper()
		p := newPod(name, "10.0.0.1")
		p.Namespace, p.Spec.ServiceAccountName = "default", ""
		p.Spec.Containers = []corev1.Container{{Name: "c", Image: "none"}}
		p.Spec.AutomountServiceAccountToken = new(bool)
		status := p.Status
		p, err := client.CoreV1().Pods("default").Create(ctx, p, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		p.Status = status
		if _, err := client.CoreV1().Pods("default").UpdateStatus(ctx, p, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	p, err := New(config, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	watching, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { defer close(done); p.Run(watching) }()
	defer func() { stop(); <-done }()
	until := func(what string, condition func() bool) {
		t.Helper()
		for !condition() {
			select {
			case <-ctx.Done():
				t.Fatal("waited in vain for " + what)
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
	run("a")
	until("the pod", func() bool { return p.table.who("10.0.0.1") == "a" })
	alive := func() time.Time {
		p.table.mu.Lock()
		defer p.table.mu.Unlock()
		return p.table.alive
	}
	first := alive()
	until("signs of life in a quiet cluster", func() bool { return alive().Sub(first) > aliveFor })
	if err := client.CoreV1().Pods("default").Delete(ctx, "a", *metav1.NewDeleteOptions(0)); err != nil {
		t.Fatal(err)
	}
	run("b")
	until("the new pod", func() bool { return p.table.who("10.0.0.1") == "b" })
}
