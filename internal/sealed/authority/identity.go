// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package authority

import (
	"path/filepath"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/sealed"
)

// The fields of an endpoint that errors name: the folder of its pair, and the files of its callers'
// authorities and clusters.
const (
	FieldSealed   = "sealed"
	FieldCallers  = "seal_callers"
	FieldClusters = "seal_clusters"
)

// OpenIdentity returns the identity of the pair tls.crt and tls.key in a folder, which is read again
// when it changes; so is callers, a PEM file with the authorities of the callers that are served, "" =
// all callers, and clusters, a file of Root.SignClusters for them, or "". An error is an *account.Error
// that names the field.
func OpenIdentity(dir, callers, clusters string) (*sealed.Identity, error) {
	source := &Source{CertFile: filepath.Join(dir, "tls.crt"), KeyFile: filepath.Join(dir, "tls.key")}
	cert, err := source.Certificate()
	if err != nil {
		return nil, account.Invalid(FieldSealed, dir, err.Error())
	}
	o := sealed.IdentityOptions{Account: cert.Leaf.URIs[0].Host, Certificate: source.Certificate,
		Files: []sealed.File{source}}
	if callers != "" {
		proving := &Callers{File: callers, Clusters: clusters, Account: o.Account}
		if _, err := proving.load(); err != nil {
			return nil, account.Invalid(FieldCallers, callers, err.Error())
		}
		if _, err := proving.loadClusters(); err != nil && clusters != "" {
			return nil, account.Invalid(FieldClusters, clusters, err.Error())
		}
		o.Callers, o.RequireCaller, o.Files = proving, true, append(o.Files, proving)
	}
	identity, err := sealed.NewIdentity(o)
	if err != nil {
		return nil, account.Invalid(FieldSealed, dir, err.Error())
	}
	return identity, nil
}

// CheckURL returns an error, an *account.Error, unless the certificate of the identity in the folder
// names an endpoint.
func CheckURL(dir string, i *sealed.Identity, u account.EndpointURL) error {
	if i.Covers(u) {
		return nil
	}
	return account.Invalid(FieldSealed, dir, "its certificate does not name "+u.String()+
		": have one signed that does, fairlead seal sign --url "+u.String())
}
