// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"bytes"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/fairlead-dev/fairlead/internal/operator"
)

var _ = Describe("the check", func() {
	It("passes for an installation that works, and reports the problem of one that does not", func(ctx SpecContext) {
		r := newRelease(ctx)
		var out bytes.Buffer
		check := operator.CheckOptions{
			Namespace: r.namespace, Release: "fairlead", Timeout: 2 * time.Second, Kubernetes: r.kubernetes, Out: &out,
		}
		Expect(operator.Check(ctx, check)).To(MatchError(ContainSubstring("not found")))
		r.account.fail(errDown)
		run(r.options())
		check.Timeout = 20 * time.Second
		Expect(operator.Check(ctx, check)).To(MatchError(ContainSubstring("Registered is not known yet")))
		Expect(out.String()).To(BeEmpty())
		r.account.fail(nil)
		check.Timeout = time.Minute
		Expect(operator.Check(ctx, check)).To(Succeed())
		Expect(out.String()).To(ContainSubstring("EdgeReachable: all forwarders"))
		Expect(out.String()).To(ContainSubstring("0 hostnames are bound"))
	})
})
