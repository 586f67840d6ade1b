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

// writeSeal returns a folder with the certificate and the key of the agent, and with the root that has
// signed it.
func writeSeal(b testing.TB) string {
	b.Helper()
	var urls []account.EndpointURL
	for _, text := range []string{tcpURL, httpURL} {
		u, err := account.ParseEndpointURL(text)
		must.Succeed(b, err)
		urls = append(urls, u)
	}
	now, dir := time.Now(), filepath.Join(b.TempDir(), "seal")
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
	if i.Seal == "" {
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
	if i.Seal == "" {
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

// sealed measures our chain with a sealed endpoint beside the one that is not.
func (r *chainBench) sealed(keys string, up upstreams) func() {
	var seals *chain
	return func() {
		if seals == nil {
			seals = startChain(r.b, sealing, keys, up)
			if _, err := setUps(seals.tcp, 50, 10); err != nil {
				r.b.Fatalf("%s: %v", seals.name, err)
			}
			if err := requests(seals.http, 50, 10, true); err != nil {
				r.b.Fatalf("%s: %v", seals.name, err)
			}
		}
		both := map[string]*chain{native: r.chains[0], ours: seals}
		for _, x := range []struct {
			streams int
			upwards bool
		}{{1, false}, {1, true}, {16, false}, {16, true}} {
			name := fmt.Sprintf("sealed, %d %s: CPU", x.streams, map[bool]string{false: "down", true: "up"}[x.upwards])
			r.reportProgress(name)
			for chain, c := range both {
				cpu, _ := c.busy(r.b, func() error { return bulk(c.tcp, x.upwards, r.size.bulk, x.streams) })
				r.report.add(name, "s/GB", goal{over: native}, chain, cpu.Seconds()/(float64(r.size.bulk)/1e9))
			}
		}
		r.reportProgress("sealed, set-up")
		for chain, c := range both {
			took, err := setUps(c.tcp, r.size.setUps, 1)
			must.Succeed(r.b, err)
			r.report.add("sealed, set-up, sequential: p50", "ms", goal{over: native, most: 2.5}, chain, median(took))
		}
		r.reportProgress("sealed, set-up with a spare")
		for chain, c := range both {
			var took []float64
			for range r.size.setUps {
				time.Sleep(100 * time.Millisecond) // a spare for the next one is made meanwhile
				each, err := setUps(c.tcp, 1, 1)
				must.Succeed(r.b, err)
				took = append(took, each...)
			}
			r.report.add("sealed, set-up with a spare: p50", "ms", goal{over: native, most: 1.3}, chain, median(took))
		}
		r.reportProgress("sealed, http, 64 connections kept")
		for chain, c := range both {
			n := 10 * r.size.requests // the connections' set-up is another case
			cpu, took := c.busy(r.b, func() error { return requests(c.http, n, 64, true) })
			r.report.add("sealed, http, 64 connections kept: rate", "1/s", goal{over: native, least: 0.95}, chain,
				float64(n)/took.Seconds())
			r.report.add("sealed, http, 64 connections kept: CPU of one", "ms", goal{over: native}, chain,
				ms(cpu)/float64(n))
		}
	}
}
