// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/internal/agent/sealededge"
	"github.com/fairlead-dev/fairlead/internal/endpointaccess"
	"github.com/fairlead-dev/fairlead/internal/endpointtrust"
	"github.com/fairlead-dev/fairlead/internal/operator/forwarder"
	"github.com/fairlead-dev/fairlead/internal/sealed"
	"github.com/fairlead-dev/fairlead/internal/sealed/authority"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// writeSeal fills a folder with the certificate and the key of the agent, and with the root that has
// signed it. It returns the folder.
func writeSeal(b testing.TB, dir string) string {
	b.Helper()
	var urls []account.EndpointURL
	for _, text := range []string{tcpURL, httpURL} {
		u, err := account.ParseEndpointURL(text)
		must.Succeed(b, err)
		urls = append(urls, u)
	}
	now := time.Now()
	accountID := account.NewID(account.PrefixAccount, now)
	_, own, err := authority.NewRoot(accountID, "root", now)
	must.Succeed(b, err)
	must.Succeed(b, authority.WriteFiles(dir, true, own...))
	root, err := authority.ReadRoot(filepath.Join(dir, "root.crt"), filepath.Join(dir, "root.key"))
	must.Succeed(b, err)
	files, err := authority.NewRequest(authority.Names{}, "tls")
	must.Succeed(b, err)
	leaf, err := root.Sign(files[1].Data, authority.Names{Account: accountID, URLs: urls},
		24*time.Hour, now)
	must.Succeed(b, err)
	must.Succeed(b, authority.WriteFiles(dir, true, append(files,
		authority.File{Name: "tls.crt", Data: leaf, Mode: authority.Public})...))
	return dir
}

// seal seals an endpoint of the agent's, unless the chain does not seal.
func (i *installation) seal(e *agent.Endpoint) error {
	if !i.Sealed {
		return nil
	}
	source := &authority.Source{CertFile: filepath.Join(i.Seal, "tls.crt"), KeyFile: filepath.Join(i.Seal, "tls.key")}
	c, err := source.Certificate()
	if err != nil {
		return err
	}
	if e.URL.Scheme == "http" {
		e.SealedServer = sealededge.New(slog.New(slog.DiscardHandler)).Server(e)
	}
	e.Seal, err = sealed.NewIdentity(sealed.IdentityOptions{Account: c.Leaf.URIs[0].Host,
		Certificate: source.Certificate})
	return err
}

// trust are rules that require the endpoints to be sealed; nil for a chain that does not seal.
func (i *installation) trust() (forwarder.TrustRules, error) {
	if !i.Sealed {
		return nil, nil
	}
	text, err := os.ReadFile(filepath.Join(i.Seal, "root.crt"))
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	root, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, err
	}
	return fixedTrust{endpointtrust.Compile([]endpointtrust.Policy{{Namespace: "bench", Name: "all",
		Spec: endpointtrust.Spec{Endpoints: []string{"db", "web"}}}},
		endpointtrust.Default{Mode: sealed.Off, Account: authority.RootAccount(root),
			Authorities: []*x509.Certificate{root}},
		endpointaccess.Listed{"": true})}, nil
}

// fixedTrust are rules that do not change.
type fixedTrust struct{ rules *endpointtrust.Rules }

func (f fixedTrust) Snapshot() *endpointtrust.Rules { return f.rules }
func (f fixedTrust) Changed() <-chan struct{}       { return nil }

// sealedRig has the chains that sealed endpoints are measured with.
type sealedRig struct {
	*chainBench
	chains map[string]*chain
}

// sealed measures our chain with sealed endpoints, over both of their paths, beside the one whose
// endpoints are not, raw TLS and HAProxy.
func (r *chainBench) sealed(keys string, up upstreams) func() {
	var s *sealedRig
	return func() {
		if s == nil {
			s = &sealedRig{r, map[string]*chain{native: r.chains[0], rawTLS: r.chains[1]}}
			for _, name := range []string{sealedInPairs, sealedInMux} {
				s.chains[name] = startChain(r.b, name, keys, up)
				must.Succeed(r.b, requests(s.chains[name].http, 50, 10, true))
			}
			if c := startHAProxy(r.b, "tcp", keys, up.tcp); c != nil {
				s.chains[haproxy] = c
			}
			for name, c := range s.chains {
				if _, err := setUps(c.tcp, 50, 10); err != nil {
					r.b.Fatalf("%s: %v", name, err)
				}
			}
		}
		for _, streams := range []int{1, 16} {
			s.bulk(streams, false)
			s.bulk(streams, true)
		}
		s.setUps()
		s.setUpsWithSpare()
		s.requests()
	}
}

// bulk measures the CPU time for the bytes of connections that have been opened before. What the edge
// reads into its own memory shows on which path they were.
func (r *sealedRig) bulk(streams int, upwards bool) {
	what := fmt.Sprintf("%d %s", streams, map[bool]string{false: "down", true: "up"}[upwards])
	gb, most := float64(r.size.bulk)/1e9, 0.85
	if streams > 1 && upwards {
		most = 0.95
	}
	took := map[string]float64{}
	for name, c := range r.chains {
		r.reportProgress("sealed, " + what + ": " + name)
		conns, err := openBulk(c.tcp, upwards, r.size.bulk, streams)
		must.Succeed(r.b, err)
		edge := slices.IndexFunc(c.parts, func(p *process) bool { return p.part == "edge" })
		before := c.parts[edge].bytesRead(r.b)
		cpu, _ := c.busy(r.b, conns.move)
		took[name] = cpu.Seconds() / gb
		copied := float64(c.parts[edge].bytesRead(r.b)-before) / float64(r.size.bulk)
		if name == sealedInPairs && copied > 0.1 || name == sealedInMux && copied < 0.9 {
			r.b.Errorf("%s, %s: the edge has copied %.0f %% of the bytes", name, what, 100*copied)
		}
	}
	inPairs, inMux := "sealed, in pairs, "+what+": CPU", "sealed, in the multiplexer, "+what+": CPU"
	for name, seconds := range took {
		switch name {
		case sealedInPairs:
			r.report.add(inPairs, "s/GB", goal{over: rawTLS, most: most}, ours, seconds)
		case sealedInMux:
			r.report.add(inMux, "s/GB", goal{over: native}, ours, seconds)
		default:
			r.report.add(inPairs, "s/GB", goal{over: rawTLS, most: most}, name, seconds)
			r.report.add(inMux, "s/GB", goal{over: native}, name, seconds)
		}
	}
	r.report.add(inMux+" of the seal / raw TLS", "times", goal{most: 0.35}, ours,
		(took[sealedInMux]-took[native])/took[rawTLS])
}

// setUps measures new connections.
func (r *sealedRig) setUps() {
	for _, path := range []struct {
		name, chain string
		goal        goal
	}{
		{"in pairs", sealedInPairs, goal{over: native}},
		{"in the multiplexer", sealedInMux, goal{over: native, most: 2.5}},
	} {
		name := "sealed, " + path.name + ", set-up, sequential: p50"
		r.reportProgress(name)
		for chain, c := range map[string]*chain{native: r.chains[native], ours: r.chains[path.chain]} {
			took, err := setUps(c.tcp, r.size.setUps, 1)
			must.Succeed(r.b, err)
			r.report.add(name, "ms", path.goal, chain, median(took))
		}
	}
}

// setUpsWithSpare measures new connections that find a spare.
func (r *sealedRig) setUpsWithSpare() {
	const name = "sealed, set-up with a spare: p50"
	r.reportProgress(name)
	for chain, c := range map[string]*chain{native: r.chains[native], ours: r.chains[sealedInPairs]} {
		var took []float64
		for range r.size.setUps {
			time.Sleep(100 * time.Millisecond) // a spare for the next one is made meanwhile
			each, err := setUps(c.tcp, 1, 1)
			must.Succeed(r.b, err)
			took = append(took, each...)
		}
		r.report.add(name, "ms", goal{over: native, most: 1.3}, chain, median(took))
	}
}

// requests measures requests over connections that are kept.
func (r *sealedRig) requests() {
	name := "sealed, http, 64 connections kept"
	r.reportProgress(name)
	for chain, c := range map[string]*chain{native: r.chains[native], ours: r.chains[sealedInPairs]} {
		n := 10 * r.size.requests // the connections' set-up is another case
		cpu, took := c.busy(r.b, func() error { return requests(c.http, n, 64, true) })
		r.report.add(name+": rate", "1/s", goal{over: native, least: 0.95}, chain, float64(n)/took.Seconds())
		r.report.add(name+": CPU of one", "ms", goal{over: native}, chain, ms(cpu)/float64(n))
	}
}

// idlePairs measures connections that have moved 1 MiB each way over pairs and are idle then, of
// processes without privileges, whose pipes the kernel limits. The kernel's memory is not counted.
func (r *chainBench) idlePairs(keys string, up upstreams) {
	const pairs = 1000
	r.reportProgress(fmt.Sprintf("%d idle pairs", pairs))
	c := startChain(r.b, unprivileged, keys, up)
	if _, err := setUps(c.tcp, 50, 10); err != nil {
		r.b.Fatalf("%s: %v", c.name, err)
	}
	use := func(p *process) (u resourceUse, kb float64) {
		for range 3 { // the garbage collector closes the pipes that were pooled
			u = p.resourceUse(r.b)
		}
		return u, p.memory(r.b)
	}
	type figures struct {
		use resourceUse
		kb  float64
	}
	before := map[string]figures{}
	for _, p := range c.parts {
		u, kb := use(p)
		before[p.part] = figures{u, kb}
	}
	conns, err := idle(c.tcp, pairs, 1<<20)
	if err != nil {
		r.b.Fatalf("%s: %d idle connections: %v", c.name, len(conns), err)
	}
	ends := 0.0
	for _, p := range c.parts {
		u, kb := use(p)
		kb = (kb - before[p.part].kb) / pairs
		switch p.part {
		case "edge":
			r.report.add("idle pair: edge", "kB", goal{most: 45}, ours, kb)
			r.report.add("idle pair: descriptors of the edge", "", goal{most: 2.05}, ours,
				float64(u.descriptors-before[p.part].use.descriptors)/pairs)
		default:
			ends += kb
		}
	}
	r.report.add("idle pair: forwarder and agent", "kB", goal{most: 110}, ours, ends)
	for _, conn := range conns {
		_ = conn.Close()
	}
}
