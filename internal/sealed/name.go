// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package sealed

import (
	"fmt"
	"net/url"
	"path"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// NameScheme is the scheme of the URI in an agent's certificate that names what it may answer for:
// fairlead://ACCOUNT/http/api.demo:80, or *.demo in place of api.demo.
const NameScheme = "fairlead"

// Name returns the URI by which a certificate names an endpoint of an account. The first label of
// the endpoint's host may be *, which stands for any one label.
func Name(accountID string, u account.EndpointURL) *url.URL {
	path := "/" + u.Scheme + "/" + u.HostPort()
	return &url.URL{Scheme: NameScheme, Host: accountID, Path: path, RawPath: path} // RawPath keeps the *
}

// Covers reports whether one of the URIs of a certificate names the endpoint of the account, itself
// or by *.
func Covers(names []*url.URL, accountID string, u account.EndpointURL) bool {
	wildcard := u
	if _, rest, ok := strings.Cut(u.Host, "."); ok {
		wildcard.Host = "*." + rest
	}
	for _, name := range names {
		if text := name.String(); text == Name(accountID, u).String() || text == Name(accountID, wildcard).String() {
			return true
		}
	}
	return false
}

// CallerName returns the URI by which a certificate names a caller of an account, such as a cluster.
func CallerName(accountID, name string) *url.URL {
	return &url.URL{Scheme: NameScheme, Host: accountID, Path: "/caller/" + name}
}

// callerOf returns the caller of the account that a certificate names; "" if it names none.
func callerOf(names []*url.URL, accountID string) string {
	for _, name := range names {
		caller := path.Base(name.Path)
		if account.ValidClusterID(caller) && name.String() == CallerName(accountID, caller).String() {
			return caller
		}
	}
	return ""
}

// ParsePattern returns the URL in the name of a certificate: that of an endpoint that forwarders call,
// whose host's first label may be *.
func ParsePattern(text string) (account.EndpointURL, error) {
	scheme, rest, ok := strings.Cut(text, "://*.")
	if !ok {
		return account.ParseForwardedURL(text)
	}
	const label = "any"
	u, err := account.ParseForwardedURL(scheme + "://" + label + "." + rest)
	if err != nil {
		return account.EndpointURL{}, fmt.Errorf("%q: * stands for the first label of the host: %w", text, err)
	}
	u.Host = "*" + strings.TrimPrefix(u.Host, label)
	return u, nil
}
