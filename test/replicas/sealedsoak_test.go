// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/endpointaccess"
	"github.com/fairlead-dev/fairlead/internal/endpointtrust"
	"github.com/fairlead-dev/fairlead/internal/operator/forwarder/fixedsource"
	"github.com/fairlead-dev/fairlead/internal/sealed"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/sealtest"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

const sealedURL = "tcp://db.demo:5432"

// sealedSoak is a service of two servers with addresses for clients, and a sealed endpoint.
type sealedSoak struct {
	*rig
	owner    *sealtest.Owner
	upstream string
	addr     string // addr is the forwarder's.

	credentialID, token string
	agent               *testAgent
	stopForwarder       func()
	churned             sync.WaitGroup
	done, failed        atomic.Int64 // calls
}

// TestReplicas_SealedSoak has sealed connections that come and go, and end in all ways, while servers,
// the agent and the forwarder are restarted and the agent's credential is revoked: no process is left
// with more descriptors, pipes or goroutines than it had. It shares its process with no other test.
func TestReplicas_SealedSoak(t *testing.T) { //nolint:paralleltest // it counts goroutines
	length := duration(t, sealedVariable, 0)
	if length == 0 {
		t.Skipf("%s is not set: make soak-replicas sets it", sealedVariable)
	}
	s := newSealedSoak(t)
	unused := s.uses()
	s.churn(5 * time.Second)()
	if failed := s.failed.Load(); failed > 0 {
		t.Errorf("%d of %d calls failed while nothing was restarted", failed, s.done.Load())
	}
	before := s.uses()
	held := s.hold(60)
	if got, want := s.uses().descriptors()-unused.descriptors(), 2*len(held); got < want {
		t.Errorf("%d connections have %d more descriptors at the servers, want 2 each: they are not in pairs",
			len(held), got)
	}
	for _, c := range held {
		_ = c.Close()
	}
	for round, began := 0, time.Now(); round == 0 || time.Since(began) < length; round++ {
		await := s.churn(20 * time.Second)
		s.restartAll(round)
		await()
		t.Logf("round %d, %s: %d calls, %d failed", round, time.Since(began), s.done.Load(), s.failed.Load())
	}
	must.Succeed(t, s.call('e', 1<<20))
	s.requireSettled(before, unused)
}

func newSealedSoak(t *testing.T) *sealedSoak {
	t.Helper()
	s := &sealedSoak{rig: startRig(t, 2, "--replica-address", ownAddress), upstream: startOrderedUpstream(t),
		addr: freeAddr(t, "127.0.0.1"), owner: sealtest.NewOwner(t, account.NewID(account.PrefixAccount, time.Now()))}
	s.clientLog = slog.LevelInfo
	s.credentialID, s.token = s.createCredential()
	s.startClients()
	return s
}

// startClients starts the agent and the forwarder.
func (s *sealedSoak) startClients() {
	s.t.Helper()
	s.startForwarderFor(s.startSealedAgent())
}

func (s *sealedSoak) startSealedAgent() (id string) {
	s.t.Helper()
	u, err := account.ParseEndpointURL(sealedURL)
	must.Succeed(s.t, err)
	agent, ids := s.startAgentWith(-1, s.token, endpoint{url: sealedURL, binding: account.BindingKubernetes,
		upstream: s.upstream, seal: s.owner.Identity(u)})
	s.agent = agent
	return ids[sealedURL]
}

func (s *sealedSoak) startForwarderFor(id string) {
	s.t.Helper()
	s.stopForwarder = s.runForwarder(-1, fixedsource.Source{OperatorID: s.operator(),
		BoundEndpoints: []*v1alpha1.BoundEndpoint{boundEndpoint(s.t, sealedURL, id, s.addr)}}, s.rules())
	wait.Until(s.t, "forwarder to serve", func() bool { return s.call('e', 1) == nil })
}

// rules require the endpoint to be sealed.
func (s *sealedSoak) rules() fixedRules {
	return fixedRules{endpointtrust.Compile([]endpointtrust.Policy{{Namespace: "demo", Name: "all",
		Spec: endpointtrust.Spec{Endpoints: []string{"db"}}}},
		endpointtrust.Default{Mode: sealed.Off, Account: s.owner.Account,
			Authorities: []*x509.Certificate{s.owner.Root}}, endpointaccess.Listed{"": true})}
}

// fixedRules are rules that do not change.
type fixedRules struct{ rules *endpointtrust.Rules }

func (f fixedRules) Snapshot() *endpointtrust.Rules { return f.rules }
func (f fixedRules) Changed() <-chan struct{}       { return nil }

// restartAll restarts a server, the forwarder and the agent, and revokes the agent's credential.
func (s *sealedSoak) restartAll(round int) {
	s.t.Helper()
	s.replicas[round%len(s.replicas)].restart()
	s.stopForwarder()
	s.agent.stop()
	s.startClients()
	held := s.hold(3)
	must.Succeed(s.t, s.replicas[0].api.DeleteObject(s.t.Context(), "/credentials/"+s.credentialID))
	for _, c := range held {
		if n, err := io.Copy(io.Discard, c); err == nil {
			s.t.Errorf("a connection of a revoked agent has ended cleanly after %d bytes", n)
		}
		_ = c.Close()
	}
	s.agent.stop()
	s.stopForwarder()
	s.credentialID, s.token = s.createCredential()
	s.startClients()
}

// churn makes calls for a while; some fail while parts are away. The function waits for the end.
func (s *sealedSoak) churn(d time.Duration) (await func()) {
	end := time.Now().Add(d)
	for i := range 8 {
		s.churned.Go(func() {
			for n := i; time.Now().Before(end); n++ {
				if s.call("eeexa"[n%5], 1<<(n%18)) != nil {
					s.failed.Add(1)
				}
				s.done.Add(1)
				time.Sleep(50 * time.Millisecond) // ports of ended connections are in use for a minute
			}
		})
	}
	return s.churned.Wait
}

// call makes a call with an order to the upstream: e echoes, and a aborts. x is e, which the caller
// aborts.
func (s *sealedSoak) call(order byte, size int) error {
	c, err := net.Dial("tcp", s.addr)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	sent := append([]byte{order}, bytes.Repeat([]byte("x"), size)...)
	if _, err := c.Write(sent); err != nil {
		return err
	}
	if order == 'x' {
		return c.(*net.TCPConn).SetLinger(0)
	}
	_ = c.(*net.TCPConn).CloseWrite()
	got, err := io.ReadAll(c)
	switch {
	case order == 'a' && err == nil:
		return errors.New("an abort is an end")
	case order == 'e' && err == nil && !bytes.Equal(got, sent):
		return fmt.Errorf("%d bytes came back of %d", len(got), len(sent))
	case order == 'e':
		return err
	}
	return nil
}

// hold makes calls that stay open. One may fail while connections of the sessions are still replaced.
func (s *sealedSoak) hold(n int) (held []net.Conn) {
	s.t.Helper()
	wait.Until(s.t, "open calls", func() bool {
		c, err := net.Dial("tcp", s.addr)
		must.Succeed(s.t, err)
		_ = c.SetDeadline(time.Now().Add(30 * time.Second))
		_, writeErr := c.Write([]byte{'e'})
		if _, err := io.ReadFull(c, make([]byte, 1)); writeErr != nil || err != nil {
			s.t.Logf("a call failed: %v, %v", writeErr, err)
			s.failed.Add(1)
			_ = c.Close()
			return false
		}
		held = append(held, c)
		return len(held) == n
	})
	return held
}

// startOrderedUpstream does what the first byte of a connection asks for, which it sends back.
func startOrderedUpstream(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				order := make([]byte, 1)
				if _, err := io.ReadFull(c, order); err != nil {
					return
				}
				_, _ = c.Write(order)
				if order[0] == 'a' {
					_ = c.(*net.TCPConn).SetLinger(0)
					return
				}
				_, _ = io.Copy(struct{ io.Writer }{c}, struct{ io.Reader }{c})
			}()
		}
	}()
	return ln.Addr().String()
}

// use is what a process holds.
type use struct{ descriptors, pipes, goroutines int }

// soakUses are those of the test's process, with agent and forwarder, and of the servers, by name.
type soakUses map[string]use

func (s *sealedSoak) uses() soakUses {
	s.t.Helper()
	runtime.GC() // which closes pipes that are pooled
	all := soakUses{}
	all["test"] = useOf(s.t, os.Getpid(), runtime.NumGoroutine())
	for _, server := range s.replicas {
		all[server.name] = useOf(s.t, server.cmd.Process.Pid, int(server.metric("go_goroutines")))
	}
	return all
}

func useOf(t *testing.T, pid, goroutines int) use {
	t.Helper()
	dir := filepath.Join("/proc", strconv.Itoa(pid), "fd")
	open, err := os.ReadDir(dir)
	must.Succeed(t, err)
	u := use{descriptors: len(open), goroutines: goroutines}
	for _, fd := range open {
		if to, err := os.Readlink(filepath.Join(dir, fd.Name())); err == nil && strings.HasPrefix(to, "pipe:") {
			u.pipes++
		}
	}
	return u
}

// descriptors returns those of the servers.
func (u soakUses) descriptors() (n int) {
	for name, x := range u {
		if name != "test" {
			n += x.descriptors
		}
	}
	return n
}

// requireSettled waits until no process holds more than before, but for what a few connections of
// sessions and parked ones hold, nor any more pipes than when nothing had been spliced. Servers
// collect their garbage every two minutes when nothing goes on.
func (s *sealedSoak) requireSettled(before, unused soakUses) {
	s.t.Helper()
	exceeding := ""
	for began := time.Now(); time.Since(began) < 6*time.Minute; time.Sleep(5 * time.Second) {
		exceeding = ""
		now := s.uses()
		for name, u := range now {
			was := before[name]
			if u.descriptors > was.descriptors+10 || u.pipes > unused[name].pipes || u.goroutines > was.goroutines+30 {
				exceeding += fmt.Sprintf("%s has %+v, and %+v before; ", name, u, was)
			}
		}
		if exceeding == "" {
			s.t.Logf("after %s all have what they had: %+v, and %+v before", time.Since(began), now, before)
			return
		}
	}
	s.t.Error(exceeding)
}
