// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/service"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/freeaddr"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// withAddress makes a service listen at a free address that it announces to clients.
func withAddress(t *testing.T) func(*service.Options) {
	t.Helper()
	addr, err := freeaddr.Find()
	must.Succeed(t, err)
	return func(o *service.Options) { o.Addr, o.Replica.Address = addr, addr }
}

// awaitLegs waits until a client's session has connections with so many replicas.
func awaitLegs(t *testing.T, c *tunnel.Client, n int) {
	t.Helper()
	servicetest.Eventually(t, "connections with replicas", func() bool {
		s := c.Session()
		return s != nil && len(s.Legs()) == n
	})
}

// TestReplicas_ClientsUseAnnouncedAddresses has clients that reach one replica by its own address
// only: they connect to the other by the address that it announces.
func TestReplicas_ClientsUseAnnouncedAddresses(t *testing.T) {
	t.Parallel()
	g := newReplicaGroup(t)
	one, two := g.start(withAddress(t)), g.start(withAddress(t))
	agent, bound := bindHello(one)
	awaitLegs(t, agent.Client, 2)
	f := one.StartForwarder()
	awaitLegs(t, f.Client, 2)
	must.Succeed(t, two.StopAndWait())
	awaitLegs(t, agent.Client, 1)
	if status, _ := f.Get(bound); status != http.StatusOK {
		t.Errorf("status %d", status)
	}
}

// TestReplicas_ForgedAddressIsNotAnnounced changes the address of a replica in the database: clients
// are told the other address only.
func TestReplicas_ForgedAddressIsNotAnnounced(t *testing.T) {
	t.Parallel()
	g := newReplicaGroup(t)
	one, two := g.start(withAddress(t)), g.start(withAddress(t))
	awaitPeers(1, one, two)
	must.Succeed(t, replicaDatabases.Server(t).Exec(t.Context(), g.database,
		"UPDATE replicas SET address = '127.0.0.1:9' WHERE address = '"+two.Addrs.Service.String()+"'"))
	const complaint = "its row was not written by a server with this secret key"
	servicetest.Eventually(t, "a line in the log", func() bool { return strings.Contains(one.Log.String(), complaint) })
	servicetest.Eventually(t, "the other address alone to be announced", func() bool {
		s, err := one.StartForwarder().Wait(servicetest.Context(t))
		must.Succeed(t, err)
		told := s.Welcome().ReplicaAddresses
		return len(told) == 1 && told[0].Address == one.Addrs.Service.String()
	})
	if n := strings.Count(one.Log.String(), complaint); n != 1 {
		t.Errorf("%d lines in the log", n)
	}
}

// TestReplicaAddress_IsChecked starts replicas whose address leads elsewhere.
func TestReplicaAddress_IsChecked(t *testing.T) {
	t.Parallel()
	g := newReplicaGroup(t)
	other := g.start()
	plain := servicetest.ServeTCP(t, func(c *net.TCPConn) { _, _ = c.Write([]byte("220 mail.example.com ESMTP\r\n")) })
	alone := servicetest.Start(t)
	free, err := freeaddr.Find()
	must.Succeed(t, err)
	for name, c := range map[string]struct{ address, want string }{
		"another replica": {other.Addrs.Service.String(), "answers there: give the address at which clients"},
		"another one, bracketed": {strings.Replace(other.Addrs.Service.String(), "127.0.0.1", "[127.0.0.1]", 1),
			"answers there: give the address at which clients"},
		"another service":        {alone.Addrs.Service.String(), "a server that is no replica of this service answers"},
		"another protocol":       {plain, "a program that does not speak TLS answers"},
		"nothing":                {free, ""},
		"all addresses":          {"0.0.0.0:443", "not all of its addresses"},
		"all IPv6 addresses":     {"[::]:443", "not all of its addresses"},
		"no port":                {"10.0.0.1", "HOST:PORT"},
		"no host":                {":443", "HOST:PORT"},
		"port 0":                 {"10.0.0.1:0", "from 1 to 65535"},
		"a wildcard":             {"*.example.com:443", "HOST:PORT"},
		"a short address":        {"10.1:443", "HOST:PORT"},
		"a hexadecimal address":  {"0x7f000001:443", "HOST:PORT"},
		"a link-local address":   {"169.254.169.254:80", "is a link-local address, which clients do not dial"},
		"an address with a zone": {"[fe80::1%eth0]:443", "which clients do not dial"},
		"a multicast address":    {"224.0.0.1:443", "which clients do not dial"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := servicetest.StartError(t, g.options, func(o *service.Options) { o.Replica.Address = c.address })
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) ||
				!strings.Contains(err.Error(), `--replica-address "`+c.address)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
	err = servicetest.StartError(t, func(o *service.Options) { o.Replica.Address = "10.0.0.1:443" })
	if err == nil || !strings.Contains(err.Error(), "give --relay-address, too, or leave it out") {
		t.Errorf("without --relay-address: %v", err)
	}
}
