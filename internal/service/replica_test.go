// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the database as an administrator sees it

	"github.com/fairlead-dev/fairlead/internal/goruntime/timer"
	"github.com/fairlead-dev/fairlead/internal/service"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/freeaddr"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/postgrestest"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// replicaGroup is several services on one PostgreSQL database.
type replicaGroup struct {
	t        *testing.T
	database string
	key      string // the file with the secret key
	first    *servicetest.Server
}

// replicaDatabases is the PostgreSQL server of the tests of replicas.
var replicaDatabases postgrestest.Shared

func newReplicaGroup(t *testing.T) *replicaGroup {
	t.Helper()
	postgres := replicaDatabases.Server(t)
	g := &replicaGroup{t: t, database: postgres.URL(t), key: filepath.Join(t.TempDir(), "key")}
	must.Succeed(t, os.WriteFile(g.key, []byte(strings.Repeat("5a", 32)), 0o600))
	return g
}

// options makes the service one of the group.
func (g *replicaGroup) options(o *service.Options) {
	o.DatabaseURL, o.SecretKeyFile, o.BaseURL = g.database, g.key, "https://127.0.0.1:8443"
	o.Replica = service.ReplicaOptions{RelayAddress: "127.0.0.1:0", Lease: service.DefaultLease}
}

// start starts one more service of the group.
func (g *replicaGroup) start(change ...func(*service.Options)) *servicetest.Server {
	g.t.Helper()
	r := servicetest.Start(g.t, append([]func(*service.Options){g.options}, change...)...)
	if g.first == nil {
		g.first = r
		g.first.RegisterOperator()
	}
	r.APIKey, r.Authtoken, r.OperatorID = g.first.APIKey, g.first.Authtoken, g.first.OperatorID
	return r
}

// metric returns the value of a metric of the service.
func metric(r *servicetest.Server, name string) (value float64) {
	for line := range strings.Lines(r.ScrapeMetrics()) {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			_, _ = fmt.Sscan(rest, &value)
		}
	}
	return value
}

// awaitPeers waits until the services are linked with so many others each.
func awaitPeers(n int, all ...*servicetest.Server) {
	for _, r := range all {
		servicetest.Eventually(r.T, fmt.Sprintf("%d links to other replicas", n), func() bool {
			return metric(r, `fairlead_server_peers{state="linked"}`) == float64(n)
		})
	}
}

// bindHello binds http://hello.demo with an agent that has a session with r only.
func bindHello(r *servicetest.Server) (*servicetest.Agent, tunnel.Bound) {
	r.T.Helper()
	upstream := servicetest.ServeHTTP(r.T, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, "hello")
	})
	a := r.StartAgent(tunnel.Bind{URL: "http://hello.demo", Binding: "kubernetes", UpstreamURL: "http://" + upstream,
		UpstreamProtocol: "http1"}, upstream)
	return a, servicetest.Receive(r.T, a.Bound, "bind")
}

// TestReplicas_RelayTraffic binds an endpoint with one replica and calls it through another.
func TestReplicas_RelayTraffic(t *testing.T) {
	t.Parallel()
	g := newReplicaGroup(t)
	one, two := g.start(), g.start()
	awaitPeers(1, one, two)
	agent, bound := bindHello(one)
	f := two.StartForwarder()
	if status, body := f.Get(bound); status != http.StatusOK || body != "hello" {
		t.Fatalf("through the other replica: %d %q", status, body)
	}
	line := servicetest.Receive(t, agent.Lines, "request line")
	if line.Status != http.StatusOK || line.EndpointID != bound.EndpointID {
		t.Errorf("the agent's screen shows %+v", line)
	}
	if got := metric(two, `fairlead_server_relayed_streams_total{direction="out"}`); got < 1 {
		t.Errorf("%v streams were relayed", got)
	}
	if status, _ := one.StartForwarder().Get(bound); status != http.StatusOK {
		t.Errorf("through the agent's own replica: %d", status)
	}
}

// lateDialer dials other replicas late, as on a machine that is busy.
type lateDialer time.Duration

func (d lateDialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	if !timer.Sleep(ctx, time.Duration(d)) {
		return nil, ctx.Err()
	}
	return (&net.Dialer{}).DialContext(ctx, network, address)
}

// TestReplicas_NewOneServesWhenLinked calls an endpoint of another replica through one that has just
// started, and whose links take longer than a question to the others may.
func TestReplicas_NewOneServesWhenLinked(t *testing.T) {
	t.Parallel()
	g := newReplicaGroup(t)
	_, bound := bindHello(g.start())
	two := g.start(func(o *service.Options) { o.SetDialPeer(lateDialer(1200 * time.Millisecond)) })
	if status, body := two.StartForwarder().Get(bound); status != http.StatusOK || body != "hello" {
		t.Errorf("through the new replica: %d %q", status, body)
	}
}

// TestReplicas_StopSessionOfAnother stops a session through a replica that does not have it.
func TestReplicas_StopSessionOfAnother(t *testing.T) {
	t.Parallel()
	g := newReplicaGroup(t)
	one, two := g.start(), g.start()
	awaitPeers(1, one, two)
	agent, bound := bindHello(one)
	f := two.StartForwarder()
	if status, _ := f.Get(bound); status != http.StatusOK {
		t.Fatalf("status %d", status)
	}
	s, err := agent.Wait(servicetest.Context(t))
	must.Succeed(t, err)
	two.RequireStatus("POST", "/tunnel_sessions/"+s.ID()+"/stop", nil, http.StatusNoContent)
	if status, _ := f.Get(bound); status != http.StatusServiceUnavailable && status != http.StatusBadGateway {
		t.Errorf("after the stop was answered: %d", status)
	}
	if err := servicetest.Receive(t, agent.Ended, "end of the agent"); err == nil ||
		!strings.Contains(err.Error(), "stopped through the API") {
		t.Errorf("the agent was told %v", err)
	}
}

// TestReplicas_DeletedTokenEndsSessionsElsewhere deletes an authtoken through one replica while
// its session is with another.
func TestReplicas_DeletedTokenEndsSessionsElsewhere(t *testing.T) {
	t.Parallel()
	g := newReplicaGroup(t)
	one, two := g.start(), g.start()
	awaitPeers(1, one, two)
	token := one.CreateAuthtoken("bind:*")
	upstream := servicetest.ServeHTTP(t, func(http.ResponseWriter, *http.Request) {})
	agent := one.StartAgentWith(*token.Token, tunnel.Bind{URL: "http://gone.demo", Binding: "kubernetes",
		UpstreamURL: "http://" + upstream, UpstreamProtocol: "http1"}, servicetest.RelayTo(upstream))
	bound := servicetest.Receive(t, agent.Bound, "bind")
	f := two.StartForwarder()
	if status, _ := f.Get(bound); status != http.StatusOK {
		t.Fatalf("status %d", status)
	}
	two.RequireStatus("DELETE", "/credentials/"+token.ID, nil, http.StatusNoContent)
	if status, _ := f.Get(bound); status == http.StatusOK {
		t.Error("traffic passed after the deletion was answered")
	}
}

// TestReplicas_OneStops stops the replica that has an agent's session; the agent connects to
// the other and the endpoint keeps its id.
func TestReplicas_OneStops(t *testing.T) {
	t.Parallel()
	g := newReplicaGroup(t)
	one, two := g.start(), g.start()
	awaitPeers(1, one, two)
	must.Succeed(t, one.StopAndWait())
	if log := one.Log.String(); strings.Contains(log, `"level":"ERROR"`) {
		t.Error("an orderly stop logged an error")
	}
	awaitPeers(0, two)
	_, bound := bindHello(two)
	if status, _ := two.StartForwarder().Get(bound); status != http.StatusOK {
		t.Errorf("status %d", status)
	}
}

// TestReplicas_FencedBeginsAnew removes the row of a replica, as the others do with a dead one.
func TestReplicas_FencedBeginsAnew(t *testing.T) {
	t.Parallel()
	g := newReplicaGroup(t)
	addr, err := freeaddr.Find()
	must.Succeed(t, err)
	starts := make(chan service.Addresses, 8)
	one := g.start(func(o *service.Options) {
		o.Addr = addr
		first := o.OnReady
		o.OnReady = func(a service.Addresses) { first(a); starts <- a }
	})
	servicetest.Receive(t, starts, "start")
	db, err := sql.Open("pgx", g.database)
	must.Succeed(t, err)
	defer func() { _ = db.Close() }()
	if _, err := db.ExecContext(servicetest.Context(t), `DELETE FROM replicas`); err != nil {
		t.Fatal(err)
	}
	servicetest.Receive(t, starts, "second start of the fenced replica")
	one.RequireStatus("GET", "/endpoints", nil, http.StatusOK)
	_, bound := bindHello(one)
	if bound.EndpointID == "" {
		t.Error("nothing is bound")
	}
}

// TestReplicas_RefuseBadInput starts replicas that do not go with the others.
func TestReplicas_RefuseBadInput(t *testing.T) {
	t.Parallel()
	g := newReplicaGroup(t)
	g.start()
	otherKey := filepath.Join(t.TempDir(), "key")
	must.Succeed(t, os.WriteFile(otherKey, []byte(strings.Repeat("77", 32)), 0o600))
	for name, c := range map[string]struct {
		change func(*service.Options)
		want   string
	}{
		"SQLite": {func(o *service.Options) {
			o.DatabaseURL, o.SecretKeyFile = "", ""
		}, "SQLite has one server"},
		"another secret key": {func(o *service.Options) { o.SecretKeyFile = otherKey }, "secret key"},
		"another base URL": {func(o *service.Options) {
			o.BaseURL = "https://127.0.0.2:8443"
		}, "https://127.0.0.1:8443"},
		"another mode": {func(o *service.Options) { o.Replica.RelayAddress = "" }, "replica"},
		"all addresses": {func(o *service.Options) {
			o.Replica.RelayAddress = "0.0.0.0:0"
		}, "not all of its addresses"},
		"no port":      {func(o *service.Options) { o.Replica.RelayAddress = "10.0.0.1" }, "HOST:PORT"},
		"a long lease": {func(o *service.Options) { o.Replica.Lease = time.Hour }, "--revocation-lease"},
	} {
		t.Run(name, func(t *testing.T) {
			err := servicetest.StartError(t, g.options, c.change)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}
