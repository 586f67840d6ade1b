// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"crypto/tls"
	"net/mail"
	"net/url"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/acme"
	"github.com/fairlead-dev/fairlead/internal/trust"
	"github.com/fairlead-dev/fairlead/internal/version"
)

// ACMEOptions let the service order the certificates of public endpoints. Without a directory there
// are only those in files.
type ACMEOptions struct {
	Directory string // Directory is the https URL of the authority's directory.
	Email     string // Email is the contact of the account; "" = none.
	AgreeTOS  bool   // AgreeTOS accepts the authority's terms of service.
	CAFile    string // CAFile has authorities for the directory's own certificate; "" = the system's.
}

// parse sets what a Manager needs, and notes every broken rule.
func (o *ACMEOptions) parse(edge *PublicOptions, set *settings, note func(error)) {
	if o.Directory == "" {
		if *o != (ACMEOptions{}) {
			note(account.Invalid("--acme-directory", "", "is required with the other --acme flags"))
		}
		return
	}
	if u, err := url.Parse(o.Directory); err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil {
		note(account.Invalid("--acme-directory", account.Shorten(o.Directory), "must be the https URL of an ACME "+
			"directory, such as https://acme-v02.api.letsencrypt.org/directory"))
	}
	if !o.AgreeTOS {
		note(account.Invalid("--acme-agree-tos", "false", "read the terms of service of the authority of "+
			"--acme-directory, and accept them with this flag"))
	}
	if edge.HTTPSAddr == "" {
		note(account.Invalid("--acme-directory", o.Directory, "goes with --public-https-addr"))
	}
	if a, err := mail.ParseAddress(o.Email); o.Email != "" && (err != nil || a.Address != o.Email) {
		note(account.Invalid("--acme-email", account.Shorten(o.Email), "must be an address such as ops@example.com"))
	}
	config, err := trust.Options{CAFile: o.CAFile}.ClientConfig()
	if err != nil {
		note(account.Invalid("--acme-ca-file", o.CAFile, err.Error()))
		return
	}
	config.MinVersion = tls.VersionTLS12
	set.acme = &acme.Options{Directory: o.Directory, Email: o.Email, TLS: config, HTTP01: edge.HTTPAddr != "",
		UserAgent: "fairlead-server/" + version.String(), Logger: set.Logger}
}
