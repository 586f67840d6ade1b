// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net"
	"strconv"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/internal/trust"
)

// Option configures [Listen] and [Forward]. Of two options for the same setting the last one counts.
type Option interface{ applyEndpoint(o *endpointOptions) }

// CommonOption configures [Listen], [Forward] and [NewClient].
type CommonOption interface {
	Option
	ClientOption
}

// ClientOption configures [NewClient].
type ClientOption interface{ applyClient(o *clientOptions) }

// connectionOptions are whom to connect to, and as whom.
type connectionOptions struct {
	configFile, server, caFile, caSHA256 string
	roots                                *x509.CertPool
	logger                               *slog.Logger
}

type clientOptions struct {
	connectionOptions

	apiKey string
}

type endpointOptions struct {
	connectionOptions

	agent         agent.Options  // agent is without the server, which resolve finds.
	endpoint      agent.Endpoint // endpoint is without its URL.
	upstreamTrust trust.Options
	upstreamName  string
	proxyProtocol string
	// seal is the folder of the pair, callers the file of their authorities, clusters that of their keys.
	seal, callers, clusters string
	connectTimeout          time.Duration
	backlog                 int
	onEvent                 func(Event)
}

type endpointOption func(*endpointOptions)

func (f endpointOption) applyEndpoint(o *endpointOptions) { f(o) }

type clientOption func(*clientOptions)

func (f clientOption) applyClient(o *clientOptions) { f(o) }

type commonOption func(*connectionOptions)

func (f commonOption) applyEndpoint(o *endpointOptions) { f(&o.connectionOptions) }
func (f commonOption) applyClient(o *clientOptions)     { f(&o.connectionOptions) }

// WithServer sets the address of the service, https://HOST[:PORT]. The tunnel and the API have the
// same.
func WithServer(url string) CommonOption {
	return commonOption(func(o *connectionOptions) { o.server = url })
}

// WithConfigFile reads the settings that are not given otherwise from this file, which must exist.
func WithConfigFile(path string) CommonOption {
	return commonOption(func(o *connectionOptions) { o.configFile = path })
}

// WithCAFile trusts the certificate authorities of a PEM file instead of the system's. Of
// WithCAFile, WithCAFingerprint and WithRootCAs the last one counts.
func WithCAFile(path string) CommonOption {
	return commonOption(func(o *connectionOptions) { o.caFile, o.caSHA256, o.roots = path, "", nil })
}

// WithCAFingerprint trusts the authority whose key has this SHA-256 fingerprint, in hex as
// fairlead-server prints it at its start.
func WithCAFingerprint(sha256 string) CommonOption {
	return commonOption(func(o *connectionOptions) { o.caFile, o.caSHA256, o.roots = "", sha256, nil })
}

// WithRootCAs trusts these certificate authorities instead of the system's.
func WithRootCAs(roots *x509.CertPool) CommonOption {
	return commonOption(func(o *connectionOptions) { o.caFile, o.caSHA256, o.roots = "", "", roots })
}

// WithLogger logs when an endpoint goes online and offline (Info, Warn) and what may explain it
// (Debug). Secrets are not logged. By default nothing is logged.
func WithLogger(l *slog.Logger) CommonOption {
	return commonOption(func(o *connectionOptions) { o.logger = l })
}

// WithAPIKey sets the API key (flk_…); by default it is that of FAIRLEAD_API_KEY.
func WithAPIKey(key string) ClientOption {
	return clientOption(func(o *clientOptions) { o.apiKey = key })
}

// WithAuthtoken sets the authtoken (flt_…).
func WithAuthtoken(token string) Option { return WithAuthtokenFunc(func() string { return token }) }

// WithAuthtokenFunc calls f for the authtoken, once for each session: at the start and at every
// reconnect, so that a rotated token is used. f must be safe for concurrent use.
func WithAuthtokenFunc(f func() string) Option {
	return endpointOption(func(o *endpointOptions) { o.agent.Token = f })
}

// WithBinding sets where the endpoint can be called from: [BindingKubernetes], which is the default,
// [BindingInternal] or [BindingPublic].
func WithBinding(binding string) Option {
	return endpointOption(func(o *endpointOptions) { o.endpoint.Binding = binding })
}

// The bindings, which decide on the URLs that an endpoint can have.
const (
	BindingKubernetes = "kubernetes" // pods of the account's clusters: http or tcp, SERVICE.NAMESPACE[:PORT]
	BindingInternal   = "internal"   // traffic policies of the account: http or tcp, below .internal
	BindingPublic     = "public"     // everywhere: http or https, below a domain that the account was granted
)

// WithName sets the name of the endpoint, at most 128 bytes. The members of a pool keep their ids by
// it.
func WithName(name string) Option {
	return endpointOption(func(o *endpointOptions) { o.endpoint.Name = name })
}

// WithDescription sets a text for people, at most 255 bytes.
func WithDescription(text string) Option {
	return endpointOption(func(o *endpointOptions) { o.endpoint.Description = text })
}

// WithMetadata sets a text for programs, at most 4096 bytes.
func WithMetadata(text string) Option {
	return endpointOption(func(o *endpointOptions) { o.endpoint.Metadata = text })
}

// WithServiceLabels sets Kubernetes labels for the endpoint's Services, in clusters whose owners
// admit the keys (binding.services.endpointLabels of the operator's chart).
func WithServiceLabels(labels map[string]string) Option {
	return endpointOption(func(o *endpointOptions) {
		o.endpoint.ServiceLabels = account.FormatServiceLabels(labels)
	})
}

// WithTrafficPolicy sets the traffic policy, in YAML or JSON, at most 64 KiB
// (docs/use/traffic-policy).
func WithTrafficPolicy(policy string) Option {
	return endpointOption(func(o *endpointOptions) { o.endpoint.TrafficPolicy = policy })
}

// WithPooling shares the URL with all agents and programs of the account that allow it, too. Each new
// call goes to the one with the fewest open.
func WithPooling() Option {
	return endpointOption(func(o *endpointOptions) { o.endpoint.PoolingEnabled = true })
}

// WithReplacePoolPolicy gives the other members of the pool this endpoint's traffic policy; without
// it, a member with another one is refused.
func WithReplacePoolPolicy() Option {
	return endpointOption(func(o *endpointOptions) { o.endpoint.ReplacePoolPolicy = true })
}

// WithHTTP2 makes the service speak HTTP/2 without TLS to the listener or the upstream of an http or
// https endpoint, as gRPC needs. By default it speaks HTTP/1.1, whatever its clients speak. An
// http.Server must allow it in its Protocols.
func WithHTTP2() Option {
	return endpointOption(func(o *endpointOptions) { o.endpoint.Upstream.Protocol = agent.ProtocolHTTP2 })
}

// WithHostHeader sets the Host of requests: "passthrough", as the caller sent it, which is the
// default, "rewrite", the upstream's own of [Forward], or a host.
func WithHostHeader(host string) Option {
	return endpointOption(func(o *endpointOptions) { o.endpoint.HostMode = host })
}

// WithSeal seals the connections: TLS from the caller's cluster to this program, whose bytes the service
// cannot read. The folder has tls.crt, a certificate of the account's owner that names the URL, and
// tls.key, as fairlead seal makes them; both are read again when they change. Plain connections are
// refused then (docs/secure/sealed.md).
func WithSeal(folder string) Option {
	return endpointOption(func(o *endpointOptions) { o.seal = folder })
}

// WithSealCallers refuses callers of a sealed endpoint that cannot prove themselves by a certificate
// of these authorities, a PEM file.
func WithSealCallers(path string) Option {
	return endpointOption(func(o *endpointOptions) { o.callers = path })
}

// WithSealClusters makes WithSealCallers accept tokens of the clusters in a file of fairlead seal
// clusters, too, which one of the authorities has signed.
func WithSealClusters(path string) Option {
	return endpointOption(func(o *endpointOptions) { o.clusters = path })
}

// WithConnectTimeout bounds how long Listen and Forward wait for a service that does not answer. By
// default they wait until their context is done.
func WithConnectTimeout(d time.Duration) Option {
	return endpointOption(func(o *endpointOptions) { o.connectTimeout = d })
}

// WithBacklog sets how many connections of [Listen] wait for an Accept; further ones are refused. The
// default is 128. A connection waits 10 s at most, or as long as its caller does.
func WithBacklog(n int) Option { return endpointOption(func(o *endpointOptions) { o.backlog = n }) }

// WithDrainTimeout sets how long [Forward] waits for open connections when it ends; the default is
// 3 s.
func WithDrainTimeout(d time.Duration) Option {
	return endpointOption(func(o *endpointOptions) { o.agent.DrainTimeout = d })
}

// WithMaxReconnectGap sets the longest pause between two attempts to reach the service; the default
// is 10 s. Pauses begin with 0.2 s, double, and are random.
func WithMaxReconnectGap(d time.Duration) Option {
	return endpointOption(func(o *endpointOptions) { o.agent.MaxBackoff = d })
}

// WithEventHandler calls f for every [Event]. f must not block, and is called from several
// goroutines.
func WithEventHandler(f func(Event)) Option {
	return endpointOption(func(o *endpointOptions) { o.onEvent = f })
}

// WithUpstreamDialer makes [Forward] connect to its upstream with dial, whose connections must have a
// CloseWrite, as those of a net.Dialer do.
func WithUpstreamDialer(dial func(ctx context.Context, network, address string) (net.Conn, error)) Option {
	return endpointOption(func(o *endpointOptions) { o.agent.Dial = dial })
}

// WithProxyProtocol makes [Forward] begin each connection to a tcp upstream with a header of the PROXY
// protocol, version 1 or 2, which names the caller.
func WithProxyProtocol(version int) Option {
	return endpointOption(func(o *endpointOptions) { o.proxyProtocol = strconv.Itoa(version) })
}

// WithUpstreamCAFile trusts the certificate authorities of a PEM file for the https upstream of
// [Forward], instead of the system's.
func WithUpstreamCAFile(path string) Option {
	return endpointOption(func(o *endpointOptions) { o.upstreamTrust = trust.Options{CAFile: path} })
}

// WithUpstreamCAFingerprint trusts, for the https upstream of [Forward], the authority or the
// certificate whose key has this SHA-256 fingerprint, in hex.
func WithUpstreamCAFingerprint(sha256 string) Option {
	return endpointOption(func(o *endpointOptions) { o.upstreamTrust = trust.Options{CASHA256: sha256} })
}

// WithUpstreamServerName sets the name that the certificate of the https upstream of [Forward] is
// for; by default it is the upstream's host.
func WithUpstreamServerName(name string) Option {
	return endpointOption(func(o *endpointOptions) { o.upstreamName = name })
}

// WithUpstreamTLS sets the TLS settings of [Forward] for an https upstream, such as its roots.
// ServerName and NextProtos are set for each connection.
func WithUpstreamTLS(config *tls.Config) Option {
	return endpointOption(func(o *endpointOptions) { o.agent.UpstreamTLS = config })
}
