// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"os"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/operator/serviceaccounttoken"
)

// newCredential returns the function that reads the API key, or the ServiceAccount token, for each
// session and request again.
func newCredential(o *Options) func() (string, error) {
	if o.ServiceAccountTokenFile != "" {
		return serviceaccounttoken.New(o.ServiceAccountTokenFile, o.Logger).Read
	}
	return func() (string, error) {
		b, err := os.ReadFile(o.APIKeyFile)
		return strings.TrimSpace(string(b)), err
	}
}

// token returns the credential for a session; "" if it cannot be read.
func (e *exporter) token() string {
	token, err := e.readCredential()
	if err != nil && e.APIKeyFile != "" { // that of a ServiceAccount token is logged where it is read
		e.Logger.Error("reading the API key", "error", err)
	}
	return token
}
