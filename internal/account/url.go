// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package account

import (
	"cmp"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
)

// EndpointURL is a parsed and normalised endpoint URL. The zero value is not valid.
type EndpointURL struct {
	// Scheme is "http", "https" (public binding only), "tcp", or SchemeService (BindingClusterset
	// only)
	Scheme string
	Host   string // lower case; for the kubernetes binding "<service>.<namespace>"
	Port   int    // 1-65535; 0 with SchemeService
}

// String returns the normal form: lower case, without the port when it is the scheme's default,
// without a trailing slash.
func (u EndpointURL) String() string {
	if u.Port == DefaultPort(u.Scheme) {
		return u.Scheme + "://" + u.Host
	}
	return u.Scheme + "://" + u.HostPort()
}

// HostPort returns host:port, always with the port; the host alone with SchemeService, which has
// none.
func (u EndpointURL) HostPort() string {
	if u.Port == 0 {
		return u.Host
	}
	return u.Host + ":" + strconv.Itoa(u.Port)
}

// Service returns the first label of a kubernetes endpoint's hostname, the name of its target
// Service.
func (u EndpointURL) Service() string { s, _, _ := strings.Cut(u.Host, "."); return s }

// Namespace returns the second label of a kubernetes endpoint's hostname.
func (u EndpointURL) Namespace() string { _, ns, _ := strings.Cut(u.Host, "."); return ns }

const (
	ruleScheme   = "the scheme must be http or tcp"
	ruleHostname = "the hostname must be <service>.<namespace>: exactly two DNS labels of a-z, 0-9 and '-' (at " +
		"most 63 " +
		"characters; the service begins with a letter), no wildcard, no IP address"
	rulePort    = "the port must be a number from 1 to 65535 without leading zeros"
	ruleTCPPort = "a tcp endpoint needs a port, from 1 to 65535: tcp://<service>.<namespace>:<port>"
)

// ParseEndpointURL reads the URL of an endpoint with the kubernetes binding:
// [http|tcp]://<service>.<namespace>[:port]. Errors are CodeInvalid, with field "url", the value
// and the rule. What it accepts, Kubernetes accepts as Service name, namespace and port.
func ParseEndpointURL(raw string) (EndpointURL, error) { return kubernetesForm.parse(raw) }

// showURL is what an error may show of a URL: not long, and without user name and password.
func showURL(raw string) string {
	if i := strings.LastIndexByte(raw, '@'); i >= 0 {
		scheme, _, ok := strings.Cut(raw[:i], "://")
		if ok {
			scheme += "://"
		} else {
			scheme = ""
		}
		raw = scheme + "…" + raw[i:]
	}
	return Shorten(raw)
}

// onlyAuthority strips one trailing slash and refuses whatever else may follow or precede host and
// port.
func onlyAuthority(rest string) (string, error) {
	rest = strings.TrimSuffix(rest, "/")
	switch {
	case strings.Contains(rest, "?"):
		return "", fmt.Errorf("a query is not allowed; remove it")
	case strings.Contains(rest, "#"):
		return "", fmt.Errorf("a fragment is not allowed; remove it")
	case strings.Contains(rest, "/"):
		return "", fmt.Errorf("a path is not allowed; remove it")
	case strings.Contains(rest, "@"):
		return "", fmt.Errorf("user name and password are not allowed; remove them")
	}
	return rest, nil
}

// ValidKubernetesHostname reports whether host is <service>.<namespace> in lower case: a DNS-1035
// label and a DNS-1123 label.
func ValidKubernetesHostname(host string) bool {
	service, namespace, ok := strings.Cut(host, ".")
	return ok && validLabel(service) && service[0] >= 'a' && validLabel(namespace)
}

// validLabel reports whether s is a DNS-1123 label (RFC 1123, lower case).
func validLabel(s string) bool {
	if len(s) == 0 || len(s) > 63 || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}

// ServerAddress returns host:port of a server's URL.
func ServerAddress(u *url.URL) string { return net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "443")) }

// ParseServerURL reads the address of a fairlead-server: https://host[:port], the scheme optional,
// without path, query, user or fragment. field names the setting in the error.
func ParseServerURL(field, raw string) (*url.URL, error) {
	text := raw
	if !strings.Contains(text, "://") {
		text = "https://" + text
	}
	u, err := url.Parse(text)
	switch {
	case raw == "" || err != nil || u.Hostname() == "":
		return nil, Invalid(field, raw, "give the server's address as https://HOST[:PORT]")
	case strings.Count(u.Host, ":") > 1 && !strings.HasPrefix(u.Host, "["):
		return nil, Invalid(field, raw, "an IPv6 address stands in brackets: https://[::1]:8443")
	case u.Scheme != "https":
		return nil, Invalid(field, raw, "the scheme must be https")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "" || (u.Path != "" && u.Path != "/"):
		return nil, Invalid(field, raw, "only https://HOST[:PORT] is allowed, without user, path, query or fragment")
	}
	if p := u.Port(); p != "" {
		if n, err := strconv.Atoi(p); err != nil || n < 1 || n > 65535 {
			return nil, Invalid(field, raw, rulePort)
		}
	}
	return &url.URL{Scheme: "https", Host: strings.ToLower(u.Host)}, nil
}
