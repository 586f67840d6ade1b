// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package trust_test

import (
	"crypto/tls"
	"crypto/x509"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/trust"
)

func TestPin_VerifiesServerByItsKeyOrAnAuthority(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	root, other := newCA(t, "root", nil, day), newCA(t, "other", nil, day)
	good := root.leaf(t, host, -day, day)
	selfSigned := sign(t, &x509.Certificate{NotBefore: time.Now().Add(-day), NotAfter: time.Now().Add(day)}, nil)
	nameless := tls.Certificate{Certificate: selfSigned.chain, PrivateKey: selfSigned.key}
	expired, misnamed := root.leaf(t, host, -2*day, -day), root.leaf(t, "other.test", -day, day)
	// An impostor shows a certificate of its own, and then the pinned one, which is public.
	impostor := other.leaf(t, host, -day, day)
	impostor.Certificate = append(impostor.Certificate, good.Certificate[0])
	for name, c := range map[string]struct {
		pin  string
		cert tls.Certificate
		want trust.Problem
	}{
		"authority":                    {trust.Fingerprint(root.cert), good, trust.NoProblem},
		"certificate":                  {fingerprintOf(t, good), good, trust.NoProblem},
		"certificate without names":    {fingerprintOf(t, nameless), nameless, trust.NoProblem},
		"certificate of other names":   {fingerprintOf(t, misnamed), misnamed, trust.WrongHost},
		"authority, other names":       {trust.Fingerprint(root.cert), misnamed, trust.WrongHost},
		"certificate that has expired": {fingerprintOf(t, expired), expired, trust.OutOfDate},
		"other authority":              {trust.Fingerprint(other.cert), good, trust.WrongPin},
		"impostor":                     {fingerprintOf(t, good), impostor, trust.WrongPin},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pin, ok := trust.ParsePin(c.pin)
			if !ok {
				t.Fatalf("%q is no pin", c.pin)
			}
			client := &tls.Config{ServerName: host, InsecureSkipVerify: true,
				VerifyConnection: func(cs tls.ConnectionState) error { return pin.VerifyServer(cs, host) }}
			_, err := once(t, client, &tls.Config{Certificates: []tls.Certificate{c.cert}})
			if got := trust.ProblemOf(err); got != c.want || (err == nil) != (c.want == trust.NoProblem) {
				t.Errorf("got %q, %v; want %q", got, err, c.want)
			}
		})
	}
}

func TestParsePin_RefusesWhatIsNoFingerprint(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "ab", "zz" + trust.Fingerprint(newCA(t, "root", nil, time.Hour).cert)[2:]} {
		if pin, ok := trust.ParsePin(text); ok {
			t.Errorf("%q became %x", text, pin)
		}
	}
}

// TestPin_VerifiesAddress holds that a certificate has to name the address that is its host, which
// crypto/tls does not put into the state of a connection.
func TestPin_VerifiesAddress(t *testing.T) {
	t.Parallel()
	root := newCA(t, "root", nil, time.Hour)
	pin, _ := trust.ParsePin(trust.Fingerprint(root.cert))
	const address = "127.0.0.1"
	client := &tls.Config{ServerName: address, InsecureSkipVerify: true,
		VerifyConnection: func(cs tls.ConnectionState) error { return pin.VerifyServer(cs, address) }}
	good := root.leaf(t, host, -time.Hour, time.Hour)
	_, err := once(t, client, &tls.Config{Certificates: []tls.Certificate{good}})
	if trust.ProblemOf(err) != trust.WrongHost {
		t.Errorf("a certificate for %s at %s: %v; want %s", host, address, err, trust.WrongHost)
	}
}
