// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"slices"

	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// linked waits until all replicas have links with each other.
func (c *testCluster) linked(all ...*testReplica) {
	c.Helper()
	for _, r := range all {
		wait.Until(c, "links of "+r.opt.ID, func() bool {
			n := 0
			for _, s := range r.Status() {
				if s.Connected && slices.ContainsFunc(all, func(o *testReplica) bool { return o.opt.ID == s.ID }) {
					n++
				}
			}
			return n == len(all)-1
		})
	}
	c.connect(all)
}

// connect opens the connections that questions go over, so that the first one, whose time is
// limited, does not wait for their handshakes.
func (c *testCluster) connect(all []*testReplica) {
	c.Helper()
	for _, r := range all {
		for _, o := range all {
			if o == r {
				continue
			}
			r.mu.Lock()
			pr := r.peers[o.opt.ID]
			r.mu.Unlock()
			asked := o.local.questions()
			wait.Until(c, "an answer of "+o.opt.ID, func() bool {
				_, err := pr.askHolders(c.Context(), Query{})
				return err == nil
			})
			o.local.mu.Lock()
			o.local.asked = asked
			o.local.mu.Unlock()
		}
	}
}
