// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package endpointtrust decides which connections to endpoints are sealed, and whose agents may
// answer them.
//
// Inputs: the EndpointTrust objects of a cluster as Policies, which namespaces' objects are known,
// and the installation's Default. Output: for a URL a Decision. It watches nothing and knows no
// Kubernetes client: forwarders carry the decisions out, the manager reports problems.
//
// Unlike policies about callers, policies of trust do not unite: a URL that two of them select which
// trust different authorities or keys is refused, as is one whose policy cannot be read. Policies of
// objects that were just deleted can be among the others: they hold for URLs that no object selects
// any more.
package endpointtrust

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"github.com/fairlead-dev/fairlead/internal/endpointaccess"
	"github.com/fairlead-dev/fairlead/internal/sealed"
	"github.com/fairlead-dev/fairlead/internal/sealed/authority"
	"github.com/fairlead-dev/fairlead/internal/trust"
)

// Policy is an EndpointTrust object.
type Policy struct {
	Namespace, Name string
	UID             string
	Generation      int64
	Spec            Spec
	// Pins are the keys that were seen first, by URL: what is trusted where the policy and the installation
	// give nothing, and a record with Mode Prefer.
	Pins map[string]string
	// Vanished is when the object was deleted, or got another generation; zero: it is as it was.
	Vanished time.Time
}

// Spec is the spec of an EndpointTrust object.
type Spec struct {
	Endpoints   []string // first labels of hostnames, in which * stands for any characters
	Ports       []int32  // ports of URLs; empty selects all
	Authorities []string // PEM texts
	Keys        []string // as sealed.ParseKey reads them
	// Mode is Require, or Prefer, which is Prefer for URLs that have no pin, unless the installation
	// requires a seal.
	Mode sealed.Mode
}

// Version returns which object it is of, in which generation.
func (p Policy) Version() endpointaccess.Version {
	return endpointaccess.Version{Name: p.Name, UID: p.UID, Generation: p.Generation, Vanished: p.Vanished}
}

// VanishedAt returns the policy as one of an object that vanished then.
func (p Policy) VanishedAt(t time.Time) Policy { p.Vanished = t; return p }

// parse returns what the spec trusts: nothing, if it has neither authorities nor keys.
func (s *Spec) parse() (authorities []*x509.Certificate, keys []trust.Pin, err error) {
	for i, text := range s.Authorities {
		all, err := authority.ParseAuthorities(text)
		if err != nil {
			return nil, nil, fmt.Errorf("spec.authorities[%d]: %w", i, err)
		}
		authorities = append(authorities, all...)
	}
	for i, text := range s.Keys {
		key, err := sealed.ParseKey(text)
		if err != nil {
			return nil, nil, fmt.Errorf("spec.keys[%d]: %w", i, err)
		}
		keys = append(keys, key)
	}
	return authorities, keys, nil
}

// digest returns a text that identifies what the options trust, in any order and in any mode.
func digest(o *sealed.TrustOptions) string {
	lines := []string{"account " + o.Account}
	for _, c := range o.Authorities {
		lines = append(lines, "authority "+string(c.Raw))
	}
	for _, key := range o.Keys {
		lines = append(lines, "key "+sealed.FormatKey(key))
	}
	slices.Sort(lines)
	h := sha256.New()
	for _, line := range slices.Compact(lines) {
		fmt.Fprintf(h, "%d %s", len(line), line)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}
