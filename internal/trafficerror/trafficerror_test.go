// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package trafficerror

import (
	"fmt"
	"io"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

func TestOf_ClassifiesErrors(t *testing.T) {
	t.Parallel()
	refused := func(c tunnel.RefuseCode) error { return fmt.Errorf("reading: %w", &tunnel.RefusedError{Code: c}) }
	gone := &account.Error{Code: account.CodeEndpointOffline}
	for _, c := range []struct {
		err    error
		page   account.Code
		refuse tunnel.RefuseCode
	}{
		{gone, account.CodeEndpointOffline, tunnel.RefusedOffline},
		{refused(tunnel.RefusedUpstream), account.CodeUpstreamUnreachable, tunnel.RefusedUpstream},
		{refused(tunnel.RefusedUnknownEndpoint), account.CodeEndpointOffline, tunnel.RefusedOffline},
		{refused(tunnel.RefusedDraining), account.CodeEndpointOffline, tunnel.RefusedOffline},
		{refused(tunnel.RefusedInternal), account.CodeUpstreamBroken, tunnel.RefusedInternal},
		{ErrAgentTimeout, account.CodeAgentSilent, tunnel.RefusedUpstream},
		{io.ErrUnexpectedEOF, account.CodeUpstreamBroken, tunnel.RefusedInternal},
	} {
		if got := Of(c.err).Code; got != c.page {
			t.Errorf("%v: page %s, want %s", c.err, got, c.page)
		}
		if got := Of(c.err).Refusal; got != c.refuse {
			t.Errorf("%v: refused with %v, want %v", c.err, got, c.refuse)
		}
	}
}
