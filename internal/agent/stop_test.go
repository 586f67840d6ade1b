// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

func TestStop_UnbindsThenDrains(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	svc := newService(t).start()
	r := run(t, svc, tcpUpstream(t, func(c *net.TCPConn) {
		_, _ = io.WriteString(c, "first ")
		<-release
		_, _ = io.WriteString(c, "last")
	}), func(o *agent.Options) { asTCP(o); o.DrainTimeout = patience })
	st := open(t, receive(t, svc.bound, "session"), header())
	defer func() { _ = st.Close() }()
	if _, err := io.ReadFull(st, make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	next[agent.Connection](r)
	r.stop()
	if id := receive(t, svc.unbinds, "goodbye"); id != endpointID {
		t.Errorf("goodbye to %q", id)
	}
	if e := next[agent.Stopping](r); e.Connections != 1 || e.Timeout != patience {
		t.Errorf("%+v", e)
	}
	close(release)
	if err := st.CloseWrite(); err != nil {
		t.Error(err)
	}
	if got, err := io.ReadAll(st); err != nil || string(got) != "last" {
		t.Errorf("the live connection got %q, %v", got, err)
	}
	if e := next[agent.Stopped](r); !e.ServerTold {
		t.Errorf("%+v", e)
	}
	if err := r.end(); err != nil {
		t.Error(err)
	}
}

func TestStop_AbortsAfterDrainTimeout(t *testing.T) {
	t.Parallel()
	svc := newService(t).start()
	r := run(t, svc, tcpUpstream(t, func(c *net.TCPConn) { _, _ = io.Copy(io.Discard, c) }),
		func(o *agent.Options) { asTCP(o); o.DrainTimeout = time.Millisecond })
	st := open(t, receive(t, svc.bound, "session"), header())
	defer func() { _ = st.Close() }()
	next[agent.Connection](r)
	r.stop()
	if err := r.end(); err != nil {
		t.Error(err)
	}
	if got, err := io.ReadAll(st); err == nil {
		t.Errorf("the cut connection read as a clean end after %q", got)
	}
}

func TestStop_DuringBindUnbinds(t *testing.T) {
	t.Parallel()
	svc := newService(t)
	release := make(chan struct{})
	svc.bind = func(context.Context, *tunnel.Session, tunnel.Bind) (tunnel.Bound, error) {
		<-release
		return svc.grant(), nil
	}
	svc.start()
	r := run(t, svc, "8080", func(o *agent.Options) { o.UnbindTimeout = patience })
	receive(t, svc.binds, "bind")
	r.stop()
	close(release)
	if id := receive(t, svc.unbinds, "goodbye"); id != endpointID {
		t.Errorf("goodbye to %q", id)
	}
	if err := r.end(); err != nil {
		t.Error(err)
	}
}

func TestStop_WithoutServerEnds(t *testing.T) {
	t.Parallel()
	svc := newService(t)
	release := make(chan struct{})
	defer close(release)
	svc.bind = func(context.Context, *tunnel.Session, tunnel.Bind) (tunnel.Bound, error) {
		<-release
		return tunnel.Bound{}, errors.New("too late")
	}
	svc.start()
	r := run(t, svc, "8080", func(o *agent.Options) { o.UnbindTimeout = 10 * time.Millisecond })
	receive(t, svc.binds, "bind")
	r.stop()
	if err := r.end(); err != nil {
		t.Error(err)
	}
	if e := next[agent.Stopped](r); e.ServerTold {
		t.Error("claims that the server was told")
	}
}
