// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/internal/operator"
)

var _ = Describe("the leadership", func() {
	It("goes to the other manager when the leader is killed", func(ctx SpecContext) {
		r := newRelease(ctx)
		leader := r.startKillable()
		Eventually(r.holder(ctx)).ShouldNot(BeEmpty())
		for i := range 3 {
			standby := r.startKillable()
			name := fmt.Sprintf("api-%d", i)
			r.account.Put(endpoint("ep-before-"+name, "http://before-"+name+"."+r.target))
			Eventually(service(ctx, r.target, "before-"+name)).ShouldNot(BeZero())
			before := r.holder(ctx)()
			Expect(*r.lease(ctx).Spec.LeaseDurationSeconds).To(BeNumerically("<=", 7), "what others wait for")
			leader.kill()
			killed := time.Now()
			r.account.Put(endpoint("ep-"+name, "http://"+name+"."+r.target))
			Eventually(service(ctx, r.target, name)).WithTimeout(time.Minute).ShouldNot(BeZero())
			took := time.Since(killed)
			AddReportEntry("from kill -9 to the Services of a new endpoint", took.String())
			Expect(r.holder(ctx)()).NotTo(Equal(before))
			leader = standby
		}
	})

	It("stays where it is while the API server takes 2 s for every request", func(ctx SpecContext) {
		r := newRelease(ctx)
		for range 2 {
			o := r.options()
			o.Kubernetes = intercepted(r.kubernetes, func(ctx context.Context) error { return pause(ctx, time.Second) })
			run(o)
		}
		Eventually(r.holder(ctx)).WithTimeout(time.Minute).ShouldNot(BeEmpty())
		holder := r.holder(ctx)()
		Consistently(r.holder(ctx)).WithTimeout(slowFor).WithPolling(100 * time.Millisecond).Should(Equal(holder))
		// 3 s and twice the time of the last request
		Expect(*r.lease(ctx).Spec.LeaseDurationSeconds).To(And(BeNumerically(">=", 7), BeNumerically("<=", 15)))
	})

	It("ends as soon as the leader reads that another has it", func(ctx SpecContext) {
		r := newRelease(ctx)
		ended := make(chan error, 1)
		o := r.options()
		go func() { ended <- operator.RunManager(ctx, o) }()
		Eventually(r.holder(ctx)).ShouldNot(BeEmpty())
		Eventually(func() error { // against the renewals
			lease := r.lease(ctx)
			lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = ptr.To("another"), ptr.To[int32](60)
			return kube.Update(ctx, lease)
		}).Should(Succeed())
		Eventually(ended).Should(Receive(MatchError(ContainSubstring("another manager acquired the Lease"))),
			"a leader that cannot renew ends with another error, and later")
		Expect(r.holder(ctx)()).To(Equal("another"))
	})
})

// slowFor is how long a slow API server is looked at.
const slowFor = 20 * time.Second

// killableManager is a manager that can be stopped like kill -9: it releases nothing.
type killableManager struct{ dead atomic.Bool }

func (k *killableManager) kill() { k.dead.Store(true) }

var errKilled = errors.New("this process was killed")

func (r *release) startKillable() *killableManager {
	GinkgoHelper()
	k, o := &killableManager{}, r.options()
	o.Kubernetes = intercepted(r.kubernetes, func(context.Context) error {
		if k.dead.Load() {
			return errKilled
		}
		return nil
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- operator.RunManager(ctx, o) }()
	DeferCleanup(func() {
		cancel()
		Eventually(done).WithTimeout(time.Minute).Should(Receive())
	})
	return k
}

// intercepted calls before each request, and again before its answer is read.
func intercepted(c *rest.Config, before func(context.Context) error) *rest.Config {
	c = rest.CopyConfig(c)
	c.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			if err := before(req.Context()); err != nil {
				return nil, err
			}
			res, err := next.RoundTrip(req)
			if err != nil {
				return nil, err
			}
			if err := before(req.Context()); err != nil {
				_ = res.Body.Close()
				return nil, err
			}
			return res, nil
		})
	})
	return c
}

// pause waits for d, or returns why the context ended before.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

func (r *release) lease(ctx context.Context) *coordinationv1.Lease {
	lease := &coordinationv1.Lease{}
	if err := kube.Get(ctx, client.ObjectKey{Namespace: r.namespace, Name: "fairlead-operator"}, lease); err != nil {
		return &coordinationv1.Lease{}
	}
	return lease
}

// holder returns who holds the Lease; empty: no manager.
func (r *release) holder(ctx context.Context) func() string {
	return func() string { return ptr.Deref(r.lease(ctx).Spec.HolderIdentity, "") }
}
