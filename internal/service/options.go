// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/acme"
	"github.com/fairlead-dev/fairlead/internal/service/backend"
	"github.com/fairlead-dev/fairlead/internal/service/lease"
	"github.com/fairlead-dev/fairlead/internal/service/peers"
	"github.com/fairlead-dev/fairlead/internal/service/public"
	"github.com/fairlead-dev/fairlead/internal/service/seal"
	"github.com/fairlead-dev/fairlead/internal/service/sqldb"
	"github.com/fairlead-dev/fairlead/internal/service/store"
	"github.com/fairlead-dev/fairlead/internal/service/store/membership"
	"github.com/fairlead-dev/fairlead/internal/service/traffic"
)

// Options of the service. Field names in errors are those of the flags.
type Options struct {
	ListenOptions
	DataOptions
	ObservabilityOptions
	BootstrapOptions
	Replica     ReplicaOptions
	Public      PublicOptions
	LoginAllow  []string // LoginAllow are private networks that identity providers and issuers may be in.
	StaticAllow []string // StaticAllow are private networks that static backends may be in.
	GeoIP       []string // GeoIP has files with the locations of addresses.

	DrainTimeout     time.Duration
	AgentOpenTimeout time.Duration // AgentOpenTimeout is for an agent to accept a stream; 0 = the edge's default.
	Logger           *slog.Logger
	ForceStop        <-chan struct{} // ForceStop ends the drain at once when it is closed. It may be nil.
	OnReady          func(Addresses) // OnReady, if not nil, is called when the service is ready.

	substitutes
}

// ListenOptions are of the listener for the API, agents and forwarders.
type ListenOptions struct {
	Addr            string   // Addr is host:port.
	BaseURL         string   // BaseURL is for clients; "" = https://<host name>:<port of Addr>.
	TunnelURL       string   // TunnelURL is for agents and forwarders, when it differs from BaseURL.
	TLSCert, TLSKey string   // TLSCert and TLSKey are PEM files; both or none.
	TLSNames        []string // TLSNames are further names and addresses for the service's own certificate.
	VersionHeaders  []string // VersionHeaders are names that the API accepts beside Service-Version.
}

// DataOptions say where the service's data is, and how long it is kept.
type DataOptions struct {
	DataDir           string // DataDir has the database, authority and lock.
	DatabaseURL       string // DatabaseURL is PostgreSQL's, "" for SQLite. It may hold a password: never log it.
	SecretKeyFile     string // SecretKeyFile has the key that seals secrets; "" = a file in DataDir, made if missing.
	EndpointGrace     time.Duration
	OperatorRetention time.Duration // OperatorRetention is from when an operator was last seen; 0 = for ever.
	IdentityRetention time.Duration // IdentityRetention is from when a person was last active; 0 = for ever.
}

// ObservabilityOptions are of health, metrics and the access log.
type ObservabilityOptions struct {
	MetricsAddr, HealthAddr string           // HealthAddr is for probes that may not see metrics; "" = none.
	MetricsSeries           int              // MetricsSeries bounds the endpoints, and backends, with own metrics.
	AccessLog               string           // AccessLog is a file, "-" for standard output, "stderr"; "" = none.
	AccessLogSample         float64          // AccessLogSample is the share that is logged, 0 to 1; errors always are.
	ReopenAccessLog         <-chan os.Signal // ReopenAccessLog, if not nil, opens the file again by a value.
}

// BootstrapOptions say where the first secrets go, and which ones every start makes valid.
type BootstrapOptions struct {
	BootstrapFile             string    // BootstrapFile is "" for Terminal, or a file in DataDir without it.
	Terminal                  io.Writer // Terminal is one that a person looks at, or nil.
	APIKeyFile, AuthtokenFile string    // APIKeyFile and AuthtokenFile may be "".
}

// substitutes are parts and times in place of the service's own, which the zero values stand for.
// Tests set them.
type substitutes struct {
	storeClock           func() time.Time
	onStoreOpen          func(*store.Store) // onStoreOpen gets the open store.
	recorder             *traffic.Recorder
	maxUnauthenticated   int           // maxUnauthenticated is for the connections of a client.
	sessionSweepInterval time.Duration // sessionSweepInterval is for cutting ended sessions of people.
	wrapLoginStore       func(account.Logins) account.Logins
	wrapRevoker          func(account.Revoker) account.Revoker
	beatTimes            membership.BeatTimes
	leaseClock           *lease.Clock
	dialPeer             peers.Dialer // dialPeer dials other replicas.
}

// Addresses are those of the listeners.
type Addresses struct {
	Service, Metrics, Health net.Addr // Metrics and Health are nil when there is none
	HTTP, HTTPS              net.Addr // the public edge's; nil when there is none
	BaseURL                  string
	CAFingerprint            string // "" with certificate files
}

// Limits of the options.
const (
	maxDrain = time.Hour
	maxGrace = 30 * 24 * time.Hour

	minRetention = 24 * time.Hour
	maxRetention = 100 * 365 * 24 * time.Hour

	maxSeries = 100_000
)

// settings are the options with what was parsed of them. All parts of the service share one.
type settings struct {
	Options
	baseURL, tunnelURL      *url.URL          // nil without the option; open sets baseURL to its default
	staticAllow, loginAllow []backend.Allowed // private addresses of static backends; of providers and issuers
	trustedProxies          []netip.Prefix
	publicCertFiles         []public.CertFiles
	acme                    *acme.Options // nil without --acme-directory; the store is not set yet
	relayHost, relayPort    string        // ReplicaOptions.RelayAddress; "" for a service that is alone
	// ReplicaOptions.Address without brackets around an IPv4 address; "" = none
	replicaAddress string
}

// parse checks the options before anything is opened or written. Its error lists every broken rule.
func (o *Options) parse() (set settings, err error) {
	set.Options = *o
	var broken []account.FieldError
	note := func(err error) { broken = append(broken, account.FieldsOf(err)...) }
	note(checkListen("--addr", o.Addr))
	for _, l := range [][2]string{{"--metrics-addr", o.MetricsAddr}, {"--health-addr", o.HealthAddr}} {
		if flag, addr := l[0], l[1]; addr != "" {
			note(checkListen(flag, addr))
		}
	}
	if o.MetricsSeries < 0 || o.MetricsSeries > maxSeries {
		note(account.Invalid("--metrics-series", strconv.Itoa(o.MetricsSeries),
			fmt.Sprintf("must lie between 0 and %d", maxSeries)))
	}
	set.staticAllow, err = backend.ParseAllow("--static-allow", o.StaticAllow)
	note(err)
	set.loginAllow, err = backend.ParseAllow("--login-allow", o.LoginAllow)
	note(err)
	if !(o.AccessLogSample >= 0 && o.AccessLogSample <= 1) { // also rejects NaN
		note(account.Invalid("--access-log-sample", fmt.Sprint(o.AccessLogSample), "must lie between 0 and 1"))
	}
	set.baseURL, err = parseOwnURL("--base-url", o.BaseURL)
	note(err)
	set.tunnelURL, err = parseOwnURL("--tunnel-url", o.TunnelURL)
	note(err)
	if o.DataDir == "" {
		note(account.Invalid("--data-dir", "", "give the directory that holds the service's data"))
	}
	if o.DatabaseURL != "" {
		note(sqldb.CheckDatabaseURL(o.DatabaseURL))
		if o.SecretKeyFile == "" {
			note(account.Invalid("--secret-key-file", "",
				fmt.Sprintf("is required with PostgreSQL, and belongs into the backup of the database: "+
					"give a file with %d hexadecimal digits, which `openssl rand -hex %d` makes", 2*seal.KeySize,
					seal.KeySize)))
		}
	}
	o.validateTLS(note)
	for _, name := range o.VersionHeaders {
		if !httpguts.ValidHeaderFieldName(name) || slices.Contains(reservedHeaders, http.CanonicalHeaderKey(name)) {
			note(account.Invalid("--version-header", name,
				"must be the name of an HTTP header that has no other meaning"))
		}
	}
	note(checkDuration("--drain-timeout", o.DrainTimeout, 0, maxDrain))
	note(checkDuration("--endpoint-grace", o.EndpointGrace, time.Second, maxGrace))
	note(checkRetention("--identity-retention", o.IdentityRetention))
	note(checkRetention("--operator-retention", o.OperatorRetention))
	o.Public.parse(&set, note)
	o.Replica.parse(&set, o.DatabaseURL != "", note)
	if len(broken) > 0 {
		return settings{}, account.InvalidAll(broken)
	}
	return set, nil
}

// validateTLS checks the options of the certificate of the service's own listener.
func (o *ListenOptions) validateTLS(note func(error)) {
	if (o.TLSCert == "") != (o.TLSKey == "") {
		note(account.Invalid("--tls-cert", o.TLSCert, "give --tls-cert and --tls-key together, or neither"))
	}
	if o.TLSCert != "" && len(o.TLSNames) > 0 {
		note(account.Invalid("--tls-san", strings.Join(o.TLSNames, ","),
			"only for the service's own certificate; leave it out with --tls-cert"))
	}
	for _, name := range o.TLSNames {
		if !validName(name) {
			note(account.Invalid("--tls-san", name, "must be a host name or an IP address"))
		}
	}
}

// checkRetention checks how long objects are kept; 0 is for ever.
func checkRetention(field string, d time.Duration) error {
	if d == 0 {
		return nil
	}
	return checkDuration(field, d, minRetention, maxRetention)
}

// diskFull adds the remedy to an error of the start for which sqldb.DiskFull returns true.
func (o *DataOptions) diskFull(err error) error {
	holds := "data directory " + o.DataDir
	if o.DatabaseURL != "" {
		holds += ", or the database,"
	}
	return fmt.Errorf("the disk that holds %s is full; free some space there, or make the volume larger, "+
		"and start again: %w", holds, err)
}

// secretKeyFile is the file in the data directory that holds the key when no other is given.
const secretKeyFile = "secret.key"

func (o *DataOptions) secretKey() (*seal.Key, error) {
	if o.SecretKeyFile != "" {
		return seal.Read(o.SecretKeyFile)
	}
	return seal.ReadOrCreate(filepath.Join(o.DataDir, secretKeyFile))
}

// reservedHeaders cannot carry the API's version.
var reservedHeaders = []string{"Authorization", "Content-Type", "Content-Length", "Host"}

func checkListen(field, addr string) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return account.Invalid(field, addr, "must be HOST:PORT or :PORT, for example :8443 or [::1]:8443")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || strconv.FormatUint(n, 10) != port {
		return account.Invalid(field, addr, "the port must be a number from 0 to 65535")
	}
	if host != "" && !validName(host) {
		return account.Invalid(field, addr,
			"the host must be a host name or an IP address, or be left out for all addresses")
	}
	return nil
}

func checkDuration(field string, d, low, high time.Duration) error {
	if d < low || d > high {
		return account.Invalid(field, d.String(), fmt.Sprintf("must lie between %s and %s", low, high))
	}
	return nil
}

// parseOwnURL parses a URL by which clients reach the service; nil for "".
func parseOwnURL(field, raw string) (*url.URL, error) {
	if raw == "" {
		return nil, nil
	}
	u, err := account.ParseServerURL(field, raw)
	if err == nil && (!validName(strings.TrimSuffix(u.Hostname(), ".")) || strings.HasPrefix(u.Hostname(), "*")) {
		err = account.Invalid(field, raw, "the host must be a host name or an IP address")
	}
	return u, err
}

// validName reports whether s can stand in a certificate as host name or IP address. A leading "*."
// is a wildcard.
func validName(s string) bool {
	if net.ParseIP(s) != nil {
		return true
	}
	s = strings.TrimPrefix(s, "*.")
	if len(s) == 0 || len(s) > 253 {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if len(label) == 0 || len(label) > 63 || strings.HasPrefix(label, "-") || strings.HasSuffix(label, "-") {
			return false
		}
		for _, c := range label {
			if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' {
				return false
			}
		}
	}
	return true
}

// defaultBaseURL returns the URL of the API, from the host's name and the port that is listened on.
func defaultBaseURL(listening net.Addr) (*url.URL, error) {
	host, err := os.Hostname()
	if err != nil || !validName(host) {
		host = "localhost"
	}
	_, port, err := net.SplitHostPort(listening.String())
	if err != nil {
		return nil, fmt.Errorf("reading the listener's address %s: %w", listening, err)
	}
	return &url.URL{Scheme: "https", Host: net.JoinHostPort(strings.ToLower(host), port)}, nil
}

// ownHosts are the hosts of the service's own URLs.
func (set *settings) ownHosts() []string {
	hosts := []string{strings.ToLower(set.baseURL.Hostname())}
	if set.tunnelURL != nil {
		hosts = append(hosts, strings.ToLower(set.tunnelURL.Hostname()))
	}
	return hosts
}

// certificateNames are the names under which clients reach the service.
func (set *settings) certificateNames() []string {
	names := append([]string{set.baseURL.Hostname(), "localhost", "127.0.0.1", "::1"}, set.TLSNames...)
	if set.tunnelURL != nil {
		names = append(names, set.tunnelURL.Hostname())
	}
	if host, err := os.Hostname(); err == nil && validName(host) {
		names = append(names, host)
	}
	if host, _, err := net.SplitHostPort(set.Addr); err == nil && host != "" && !net.ParseIP(host).IsUnspecified() {
		names = append(names, host)
	}
	return names
}
