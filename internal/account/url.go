// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package account

import (
	"cmp"
	"fmt"
	"net"
	"net/url"
	"slices"
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

// Namespace returns the second label of the hostname of a kubernetes endpoint, or of an exported Service.
func (u EndpointURL) Namespace() string {
	_, rest, _ := strings.Cut(u.Host, ".")
	namespace, _, _ := strings.Cut(rest, ".")
	return namespace
}

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

// ParseForwardedURL reads the URL of an endpoint that forwarders call: one with the kubernetes binding,
// or a port of an exported Service, see ExportedPortURL.
func ParseForwardedURL(raw string) (EndpointURL, error) {
	if u, err := clustersetForm.parse(raw); err == nil && u.Scheme == "tcp" {
		return u, nil
	}
	return ParseEndpointURL(raw)
}

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
