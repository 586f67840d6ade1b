// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package account

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// maxHostname is the most characters of a hostname (RFC 1035).
const maxHostname = 253

const (
	ruleBinding      = "must be kubernetes, internal or public"
	ruleSchemePublic = "the scheme of a public endpoint must be http or https"
	ruleInternalHost = "the hostname must end in .internal, with at least one DNS label of a-z, 0-9 and '-' " +
		"before it " +
		"(at most 63 characters each, 253 in all), " +
		"no wildcard, no IP address"
	rulePublicHost = "the hostname must be a full domain name: at least two DNS labels of a-z, 0-9 and '-' (at " +
		"most 63 " +
		"characters each, 253 in all), " +
		"no dot at its end, no wildcard, no IP address, not below .internal"
	ruleClustersetScheme = "the scheme must be tcp or service"
	ruleClustersetHost   = "the hostname must be <service>.<namespace>.<cluster id>: three DNS labels of a-z, " +
		"0-9 and " +
		"'-'; the service begins with a letter"
	ruleClustersetPort = "a tcp endpoint needs a port, from 1 to 65535: tcp://<service>.<namespace>.<cluster id>:<port>"
	ruleServicePort    = "a service:// URL has no port; remove it"
	ruleInternalPort   = "a tcp endpoint needs a port, from 1 to 65535: tcp://<name>.internal:<port>"
)

// Bindings lists the bindings that an endpoint can have.
func Bindings() []string { return []string{BindingKubernetes, BindingInternal, BindingPublic} }

// ParseBindingURL reads the URL of an endpoint with the binding. Errors are CodeInvalid, with field
// "url" (or "binding"), the value and the rule. Names in other scripts have to be given in their
// ASCII form (xn--…), in which they are compared and shown.
//
//	kubernetes  http, tcp    see ParseEndpointURL
//	internal    http, tcp    any host below .internal; tcp with a port
//	public      http, https  any domain name; who may bind it is decided by the grants of the account
//	clusterset  tcp, service <service>.<namespace>.<cluster id>; tcp with a port, service without
func ParseBindingURL(binding, raw string) (EndpointURL, error) {
	switch binding {
	case BindingKubernetes:
		return ParseEndpointURL(raw)
	case BindingInternal:
		return internalForm.parse(raw)
	case BindingPublic:
		return publicForm.parse(raw)
	case BindingClusterset:
		return clustersetForm.parse(raw)
	}
	return EndpointURL{}, Invalid("binding", Shorten(binding), ruleBinding)
}

// ParseAnyURL reads the URL of an endpoint whose binding is not known: what any binding accepts.
// All bindings write one URL alike.
func ParseAnyURL(raw string) (EndpointURL, error) {
	u, err := clustersetForm.parse(raw)
	if err == nil || strings.HasPrefix(strings.ToLower(raw), SchemeService+"://") {
		return u, err
	}
	return parseRuleURL(raw)
}

// parseRuleURL reads a URL that a bind rule can admit: that of any binding but BindingClusterset,
// for which export rules count.
func parseRuleURL(raw string) (EndpointURL, error) {
	for _, f := range []urlForm{kubernetesForm, internalForm, publicForm} {
		if u, err := f.parse(raw); err == nil {
			return u, nil
		}
	}
	lower := strings.ToLower(raw)
	switch {
	case strings.HasPrefix(lower, "https://"):
		return publicForm.parse(raw)
	case strings.Contains(lower, ".internal"):
		return internalForm.parse(raw)
	}
	return kubernetesForm.parse(raw)
}

// urlForm describes the URLs of a binding.
type urlForm struct {
	schemes                              []string
	ruleScheme, ruleHost, ruleTCP, usual string
	validHost                            func(string) bool
}

var (
	kubernetesForm = urlForm{schemes: []string{"http", "tcp"}, ruleScheme: ruleScheme, ruleHost: ruleHostname,
		ruleTCP: ruleTCPPort,
		usual:   "[http|tcp]://<service>.<namespace>[:port]", validHost: ValidKubernetesHostname}
	internalForm = urlForm{schemes: []string{"http", "tcp"}, ruleScheme: ruleScheme, ruleHost: ruleInternalHost,
		ruleTCP: ruleInternalPort,
		usual:   "[http|tcp]://<name>.internal[:port]", validHost: validInternalHost}
	publicForm = urlForm{schemes: []string{"https", "http"}, ruleScheme: ruleSchemePublic, ruleHost: rulePublicHost,
		usual: "[https|http]://<domain name>[:port]", validHost: ValidPublicHost}
	clustersetForm = urlForm{schemes: []string{"tcp", SchemeService}, ruleScheme: ruleClustersetScheme,
		ruleHost: ruleClustersetHost, ruleTCP: ruleClustersetPort,
		usual: "tcp://<service>.<namespace>.<cluster id>:<port>", validHost: validClustersetHost}
)

func (f urlForm) parse(raw string) (EndpointURL, error) {
	bad := func(rule string) (EndpointURL, error) { return EndpointURL{}, Invalid("url", showURL(raw), rule) }
	if len(raw) > 300 {
		return bad("a URL has at most 300 characters")
	}
	for i := range len(raw) {
		if raw[i] <= ' ' || raw[i] >= 0x7f {
			return bad("only printable ASCII characters are allowed")
		}
	}
	scheme, rest, ok := strings.Cut(raw, "://")
	if !ok {
		return bad(f.ruleNoScheme(raw))
	}
	scheme = strings.ToLower(scheme)
	if !slices.Contains(f.schemes, scheme) {
		if scheme == "https" {
			return bad(f.ruleScheme + "; https:// is for endpoints with the public binding")
		}
		return bad(f.ruleScheme)
	}
	authority, err := onlyAuthority(rest)
	if err != nil {
		return bad(err.Error())
	}
	return f.parseAuthority(scheme, authority, bad)
}

// ruleNoScheme suggests the URL with a scheme where that would be one.
func (f urlForm) ruleNoScheme(raw string) string {
	guess := f.schemes[0] + "://" + strings.TrimPrefix(raw, "//")
	if _, err := f.parse(guess); err != nil {
		return "the scheme is missing; give " + f.usual
	}
	return fmt.Sprintf("the scheme is missing; did you mean %q?", guess)
}

func (f urlForm) parseAuthority(scheme, authority string, bad func(string) (EndpointURL, error)) (EndpointURL, error) {
	host, port, _ := strings.Cut(authority, ":") // "http://a.b:" is "http://a.b" (RFC 3986, section 3.2.3)
	if strings.HasPrefix(authority, "[") {
		return bad(f.ruleHost)
	}
	u := EndpointURL{Scheme: scheme, Host: strings.ToLower(host), Port: DefaultPort(scheme)}
	if !f.validHost(u.Host) {
		return bad(f.ruleHost)
	}
	switch {
	case scheme == SchemeService:
		if port != "" {
			return bad(ruleServicePort)
		}
	case port != "":
		n, err := strconv.Atoi(port)
		if err != nil || n < 1 || n > 65535 || strconv.Itoa(n) != port {
			return bad(rulePort)
		}
		u.Port = n
	case u.Port == 0:
		return bad(f.ruleTCP)
	}
	return u, nil
}

// DefaultPort is the port of a URL of the scheme that names none; 0 for a scheme that has no such
// port.
func DefaultPort(scheme string) int {
	switch scheme {
	case "http":
		return 80
	case "https":
		return 443
	}
	return 0
}

// ValidPublicHost reports whether host is a domain name, in lower case, that an endpoint with the
// public binding may have.
func ValidPublicHost(host string) bool {
	last := host[strings.LastIndexByte(host, '.')+1:]
	return strings.Contains(host, ".") && validHostname(host) && last != "internal" && !numeric(last)
}

func validInternalHost(host string) bool {
	return strings.HasSuffix(host, ".internal") && validHostname(host)
}

func validHostname(host string) bool {
	if len(host) > maxHostname {
		return false
	}
	for label := range strings.SplitSeq(host, ".") {
		if !validLabel(label) {
			return false
		}
	}
	return true
}

// numeric reports whether a last label makes programs take the host for an IPv4 address: digits, or
// a hexadecimal number.
func numeric(label string) bool {
	if hex, ok := strings.CutPrefix(label, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}
