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
	"github.com/fairlead-dev/fairlead/internal/service/backend"
	"github.com/fairlead-dev/fairlead/internal/service/edge/public"
	"github.com/fairlead-dev/fairlead/internal/service/lease"
	"github.com/fairlead-dev/fairlead/internal/service/peers"
	"github.com/fairlead-dev/fairlead/internal/service/seal"
	"github.com/fairlead-dev/fairlead/internal/service/sqldb"
	"github.com/fairlead-dev/fairlead/internal/service/store"
	"github.com/fairlead-dev/fairlead/internal/service/store/membership"
	"github.com/fairlead-dev/fairlead/internal/service/traffic"
)

// Options of the service. Field names in errors are those of the flags.
type Options struct {
	Addr        string // where API, agents and forwarders connect; host:port
	BaseURL     string // how clients reach the API; "" = https://<host name>:<port of Addr>
	TunnelURL   string // how agents and forwarders reach the service, when that differs from BaseURL
	DataDir     string // database, authority, lock
	DatabaseURL string // PostgreSQL; "" = SQLite in DataDir. It may hold a password: never log it
	// the key that seals what is secret in the store; "" = a file in DataDir, which is made when it
	// is missing
	SecretKeyFile  string
	TLSCert        string   // PEM files; both or none
	TLSKey         string   //
	TLSNames       []string // further names and addresses for the service's own certificate
	VersionHeaders []string // names that the API accepts beside Service-Version
	MetricsAddr    string   // health and metrics; "" = none
	HealthAddr     string   // health alone, for probes that may not see metrics; "" = none
	MetricsSeries  int      // endpoints, and backends, that have metrics of their own
	// networks and addresses that identity providers and issuers of clusters may be in although they
	// are private, loopback or the like
	LoginAllow []string
	// networks and addresses that static backends may lie in although they are private, loopback or
	// the like
	StaticAllow       []string
	DrainTimeout      time.Duration
	EndpointGrace     time.Duration
	AgentOpenTimeout  time.Duration // for an agent to accept a stream; 0 = the edge's default
	OperatorRetention time.Duration // how long operators are kept after they were last seen; 0 = for ever
	IdentityRetention time.Duration // how long those who logged in are kept after they were last active; 0 = for ever
	GeoIP             []string      // files with the locations of addresses; empty = none
	Replica           ReplicaOptions
	Public            PublicOptions

	AccessLog       string           // a file, "-" for standard output, "stderr"; "" = none
	AccessLogSample float64          // the share of requests and connections that is logged, 0 to 1; errors always are
	ReopenAccessLog <-chan os.Signal // a value opens the access log's file again; may be nil

	// where the first secrets are written; "" = to Terminal, or a file in DataDir when that is nil
	BootstrapFile string
	Terminal      io.Writer // a terminal that a person looks at, or nil
	APIKeyFile    string    // files whose secrets are made valid at every start; "" = none
	AuthtokenFile string    //

	Logger *slog.Logger
	// ForceStop ends the drain at once when it is closed. May be nil.
	ForceStop <-chan struct{}
	// OnReady is called when the service is ready, with the addresses it listens on. May be nil.
	OnReady func(Addresses)

	storeClock  func() time.Time   // the store's; nil = the machine's; tests step it
	onStoreOpen func(*store.Store) // gets the open store; nil = not called; tests fill its disk
	// gets what records the traffic; nil = not called; tests read it
	onTraffic func(*traffic.Recorder)
	// how often metrics of deleted objects are dropped; 0 = the default; tests shorten it
	dropDeletedInterval time.Duration
	// connections of one client without a credential; 0 = the default; tests lower it
	maxUnauthenticated int

	// how often ended sessions of people are cut; 0 = the default; tests shorten it
	sessionSweepInterval time.Duration
	// wraps the store of login actions; nil = not wrapped; tests pause in it
	wrapLoginStore func(account.Logins) account.Logins
	// wraps the revoker of sessions; nil = not wrapped; tests cancel requests in it
	wrapRevoker func(account.Revoker) account.Revoker

	beatTimes membership.BeatTimes // a replica's; zero = the defaults; tests shorten them
	// clocks of the lease; nil = the system's; tests step them
	leaseClock *lease.Clock
	// dials other replicas; nil = a net.Dialer; tests cut what it returns
	dialPeer peers.Dialer
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
	relayHost, relayPort    string // ReplicaOptions.RelayAddress; "" for a service that is alone
	// ReplicaOptions.Address without brackets around an IPv4 address; "" = none
	replicaAddress string
}

// parse checks the options before anything is opened or written. Its error lists every broken rule.
func (o *Options) parse() (set settings, err error) {
	set.Options = *o
	var broken []account.FieldError
	note := func(err error) { broken = append(broken, account.FieldsOf(err)...) }
	note(checkListen("--addr", o.Addr))
	if o.MetricsAddr != "" {
		note(checkListen("--metrics-addr", o.MetricsAddr))
	}
	if o.HealthAddr != "" {
		note(checkListen("--health-addr", o.HealthAddr))
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
	}
	if o.DatabaseURL != "" && o.SecretKeyFile == "" {
		note(account.Invalid("--secret-key-file", "",
			fmt.Sprintf("is required with PostgreSQL, and belongs into the backup of the database: "+
				"give a file with %d hexadecimal digits, which `openssl rand -hex %d` makes", 2*seal.KeySize,
				seal.KeySize)))
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
func (o *Options) validateTLS(note func(error)) {
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
func (o *Options) diskFull(err error) error {
	holds := "data directory " + o.DataDir
	if o.DatabaseURL != "" {
		holds += ", or the database,"
	}
	return fmt.Errorf("the disk that holds %s is full; free some space there, or make the volume larger, "+
		"and start again: %w", holds, err)
}

// secretKeyFile is the file in the data directory that holds the key when no other is given.
const secretKeyFile = "secret.key"

func (o *Options) secretKey() (*seal.Key, error) {
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
