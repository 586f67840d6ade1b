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
			client := &tls.Config{ServerName: host, InsecureSkipVerify: true, VerifyConnection: pin.VerifyServer}
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
