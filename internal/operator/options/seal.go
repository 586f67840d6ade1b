// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/fairlead-dev/fairlead/internal/endpointtrust"
	"github.com/fairlead-dev/fairlead/internal/sealed"
	"github.com/fairlead-dev/fairlead/internal/sealed/authority"
)

// Seal is whose agents may answer for endpoints that no EndpointTrust selects.
type Seal struct {
	// Sealed is off or require; empty: EndpointTrust objects are not read, and nothing is
	// sealed.
	Sealed      string
	SealAccount string // SealAccount is the id of the account, which agents' certificates name.
	// SealAuthorityFile has PEM certificates of the authorities that sign them; empty: none.
	SealAuthorityFile string
	// SealCallerDir has tls.crt and tls.key, by which forwarders prove themselves to agents; empty: they
	// do not.
	SealCallerDir string
	// SealCallerTokenFile has the token of their ServiceAccount for that; empty: none.
	SealCallerTokenFile string
}

// AddFlags adds the flags that manager and forwarder share.
func (o *Seal) AddFlags(f *pflag.FlagSet) {
	f.StringVar(&o.Sealed, "sealed", "",
		"`MODE` of endpoints that no EndpointTrust selects: off or require (sealed, or refused); "+
			"default: EndpointTrust objects are not read")
	f.StringVar(&o.SealAccount, "seal-account", "", "`ID` of the account, which agents' certificates must name")
	f.StringVar(&o.SealAuthorityFile, "seal-authority-file", "",
		"PEM `FILE` with certificates of the authorities that sign agents' certificates")
}

// AddCallerFlag adds the flag of forwarders.
func (o *Seal) AddCallerFlag(f *pflag.FlagSet) {
	f.StringVar(&o.SealCallerDir, "seal-caller-dir", "",
		"`FOLDER` with tls.crt and tls.key, as fairlead seal sign --caller and cert-manager make them, which prove to "+
			"agents who calls; read again when they change")
	f.StringVar(&o.SealCallerTokenFile, "seal-caller-token-file", "",
		"`FILE` with the ServiceAccount's token for the audience fairlead-seal:ACCOUNT, which proves it, too")
}

// Caller returns the certificate by which forwarders prove themselves; nil without one.
func (o *Seal) Caller() *authority.Source {
	if o.SealCallerDir == "" {
		return nil
	}
	return &authority.Source{CertFile: filepath.Join(o.SealCallerDir, "tls.crt"),
		KeyFile: filepath.Join(o.SealCallerDir, "tls.key"), CallerOf: o.SealAccount}
}

var sealModes = map[string]sealed.Mode{"": sealed.Off, "off": sealed.Off, "require": sealed.Require}

// Parse checks the flags and returns what they say.
func (o *Seal) Parse(c *Checker) endpointtrust.Default {
	mode, ok := sealModes[o.Sealed]
	if !ok {
		c.Reject("--sealed", o.Sealed, "give off or require")
	}
	if !IDPattern.MatchString(o.SealAccount) || ok && mode != sealed.Off && o.SealAccount == "" {
		c.Reject("--seal-account", o.SealAccount, "give the id of the account (ac-…)")
	}
	for _, f := range [][2]string{{"dir", o.SealCallerDir}, {"token-file", o.SealCallerTokenFile}} {
		if f[1] != "" && (o.Sealed == "" || o.SealAccount == "") {
			c.Reject("--seal-caller-"+f[0], f[1], "give --sealed and --seal-account, too")
		}
	}
	d := endpointtrust.Default{Mode: mode, Account: o.SealAccount}
	if o.SealAuthorityFile == "" {
		if mode == sealed.Require && o.SealAccount != "" {
			c.Reject("--seal-authority-file", "", "name the authorities that sign the agents' certificates")
		}
		return d
	}
	text, err := os.ReadFile(o.SealAuthorityFile)
	if err == nil {
		d.Authorities, err = authority.ParseAuthorities(string(text))
	}
	if err != nil {
		c.Reject("--seal-authority-file", o.SealAuthorityFile,
			fmt.Sprintf("name a PEM file with the certificates of authorities: %v", err))
	}
	return d
}
