// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/goruntime/memory"
	"github.com/fairlead-dev/fairlead/internal/service"
	"github.com/fairlead-dev/fairlead/internal/service/public"
	"github.com/fairlead-dev/fairlead/internal/service/store"
)

const serveExample = `  fairlead-server --base-url https://fairlead.example.net:8443
  fairlead-server --addr 10.0.0.5:443 --base-url https://fairlead.example.net --tls-cert tls.crt --tls-key tls.key
  fairlead-server --data-dir ./data --bootstrap-file ./first-secrets --log-format json`

func newServe(c console, at *dataLocation) *cobra.Command {
	o := service.Options{ForceStop: c.forceStop}
	var logFormat, logLevel string
	cmd := &cobra.Command{
		Use:     "serve",
		Short:   "Run the service (the default)",
		Example: serveExample,
		Args:    arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if o.DatabaseURL, err = at.databaseURL(); err != nil {
				return err
			}
			o.DataDir = at.dataDir
			o.APIKeyFile, o.AuthtokenFile = c.env("FAIRLEAD_BOOTSTRAP_API_KEY_FILE"),
				c.env("FAIRLEAD_BOOTSTRAP_AUTHTOKEN_FILE")
			if c.outTerminal {
				o.Terminal = c.out
			}
			if o.Logger, err = newLogger(c, logFormat, logLevel); err != nil {
				return err
			}
			hangup := make(chan os.Signal, 1)
			if o.AccessLog != "" {
				signal.Notify(hangup, syscall.SIGHUP)
				defer signal.Stop(hangup)
			}
			o.ReopenAccessLog = hangup
			defer memory.Ballast()()
			return service.Run(cmd.Context(), o)
		},
	}
	addServeFlags(cmd.Flags(), &o)
	cmd.Flags().StringVar(&logFormat, "log-format", "",
		"`FORMAT` of the log on standard error: text or json; default text on a terminal, else json")
	cmd.Flags().StringVar(&logLevel, "log-level", "info", "least `LEVEL` that is logged: debug, info, warn or error")
	return cmd
}

func addServeFlags(f *pflag.FlagSet, o *service.Options) {
	f.SortFlags = false
	f.StringVar(&o.Addr, "addr", ":8443", "`HOST:PORT` where API, agents and forwarders connect, always over TLS")
	f.StringVar(&o.BaseURL, "base-url", "",
		"`URL` by which clients reach the API; default https://<host name>:<port of --addr>")
	f.StringVar(&o.TunnelURL, "tunnel-url", "",
		"`URL` by which agents and forwarders reach the service, when it is not --base-url")
	f.StringVar(&o.SecretKeyFile, "secret-key-file", "",
		"`FILE` with 64 hexadecimal digits, the key that seals traffic policies in the store; "+
			"default DATA-DIR/secret.key, made when it is missing; required with PostgreSQL")
	f.StringVar(&o.TLSCert, "tls-cert", "",
		"PEM `FILE` with the certificate's chain, leaf first; reloaded on change. Default: a certificate of the "+
			"service's own authority")
	f.StringVar(&o.TLSKey, "tls-key", "", "PEM `FILE` with the private key of --tls-cert")
	f.StringSliceVar(&o.TLSNames, "tls-san", nil,
		"further host `NAME` or IP address for the service's own certificate; may be repeated")
	f.StringSliceVar(&o.VersionHeaders, "version-header", nil,
		"further header `NAME` that may carry the API's version beside Service-Version; may be repeated")
	f.StringVar(&o.BootstrapFile, "bootstrap-file", "",
		"`FILE` for the secrets of the first start; default: the terminal, or DATA-DIR/bootstrap.txt without one")
	f.StringVar(&o.MetricsAddr, "metrics-addr", "127.0.0.1:9090",
		"`HOST:PORT` of /healthz, /readyz and /metrics, without TLS; empty for none")
	f.StringVar(&o.HealthAddr, "health-addr", "",
		"`HOST:PORT` of /healthz and /readyz alone, without TLS, for probes that may not read metrics; empty for none")
	f.IntVar(&o.MetricsSeries, "metrics-series", 2000,
		"how many endpoints, and backends, have metrics of their own; the others are counted together")
	f.StringSliceVar(&o.StaticAllow, "static-allow", nil,
		"`CIDR[:PORT]` or address that static backends may reach although it is private, loopback or link-local; "+
			"may be repeated")
	f.StringSliceVar(&o.LoginAllow, "login-allow", nil,
		"`CIDR[:PORT]` or address where identity providers of traffic policies and issuers of clusters may be, "+
			"although it is private or loopback; may be repeated")
	f.StringVar(&o.AccessLog, "access-log", "",
		"`FILE` for a line of JSON per request and connection, opened anew on SIGHUP; - for standard output, stderr "+
			"for standard error; default none")
	f.Float64Var(&o.AccessLogSample, "access-log-sample", 1,
		"the share, 0 to 1, of requests and connections that is logged; errors always are")
	f.StringArrayVar(&o.GeoIP, "geoip-database", nil,
		"`FILE` in MaxMind's format (.mmdb) with the locations of addresses, or the owners of networks; reloaded "+
			"on change; may be repeated")
	f.DurationVar(&o.DrainTimeout, "drain-timeout", 10*time.Second,
		"how long live traffic may take to end when the service stops")
	f.DurationVar(&o.EndpointGrace, "endpoint-grace", store.DefaultGrace,
		"how long an endpoint is kept after its agent was lost")
	f.DurationVar(&o.OperatorRetention, "operator-retention", store.DefaultKeepOperators,
		"how long Kubernetes operators are kept after they were last seen, at least 24h. 0: for ever")
	f.DurationVar(&o.IdentityRetention, "identity-retention", 0,
		"how long the identities that logged in at endpoints are kept after they were last active, at least 24h; "+
			"then all their data is deleted. 0: for ever")
	addPublicFlags(f, &o.Public)
	addReplicaFlags(f, &o.Replica)
}

// addReplicaFlags adds the flags of a server that is one of several.
func addReplicaFlags(f *pflag.FlagSet, o *service.ReplicaOptions) {
	f.StringVar(&o.RelayAddress, "relay-address", "",
		"`HOST:PORT` of this server for the other servers on the same PostgreSQL database, where it listens for "+
			"them; makes it one of several replicas. Default: it is alone")
	f.StringVar(&o.Address, "replica-address", "",
		"`HOST:PORT` at which agents and forwarders reach --addr of this replica past the balancer, for clients whose "+
			"connections the balancer leads to one replica; agents are told names and public addresses only. Default: "+
			"clients dial the service's name again and again")
	f.DurationVar(&o.ShutdownDelay, "shutdown-delay", service.DefaultShutdownDelay,
		"how long a stopping replica accepts connections while it reports that it is not ready; longer than the "+
			"health checks of the balancer take")
	f.DurationVar(&o.Lease, "revocation-lease", service.DefaultLease,
		"how long a replica may serve people who logged in without news from the database, 5s to 15s")
}

// addPublicFlags adds the flags of the public listeners.
func addPublicFlags(f *pflag.FlagSet, o *service.PublicOptions) {
	f.StringVar(&o.HTTPAddr, "public-http-addr", "",
		"`HOST:PORT` where the internet reaches http endpoints with the public binding, and is redirected to https "+
			"ones; default: none")
	f.StringVar(&o.HTTPSAddr, "public-https-addr", "",
		"`HOST:PORT` where the internet reaches https endpoints with the public binding; default: none")
	f.StringArrayVar(&o.TLSCerts, "public-tls-cert", nil,
		"PEM `FILE` with a certificate's chain for --public-https-addr, leaf first, or a directory of NAME.crt and "+
			"NAME.key, or of directories with tls.crt and tls.key; reloaded on change; may be repeated")
	f.StringArrayVar(&o.TLSKeys, "public-tls-key", nil,
		"PEM `FILE` with the private key of a --public-tls-cert; one for each that is a file, in their order")
	addACMEFlags(f, &o.ACME)
	f.StringSliceVar(&o.TrustedProxies, "trusted-proxies", nil,
		"`CIDR` of load balancers before the public edge or the dashboard, whose X-Forwarded-For and "+
			"X-Forwarded-Proto are believed; may be repeated")
	f.BoolVar(&o.ProxyProtocol, "proxy-protocol", false,
		"expect a PROXY protocol header, version 1 or 2, on each public connection from --trusted-proxies")
	f.IntVar(&o.MaxConns, "public-max-connections", public.DefaultMaxConns, "most public connections at a time")
	f.IntVar(&o.MaxConnsPerClient, "public-max-connections-per-client", public.DefaultMaxConnsPerClient,
		"most public connections at a time of one client: an IPv4 address, or an IPv6 /64")
}

// addACMEFlags adds the flags of certificates that the service orders.
func addACMEFlags(f *pflag.FlagSet, o *service.ACMEOptions) {
	f.StringVar(&o.Directory, "acme-directory", "",
		"`URL` of the ACME directory that issues certificates for the hosts of public https endpoints which no "+
			"--public-tls-cert covers, as https://acme-v02.api.letsencrypt.org/directory; default: none are ordered")
	f.BoolVar(&o.AgreeTOS, "acme-agree-tos", false, "accept the terms of service of the authority of --acme-directory")
	f.StringVar(&o.Email, "acme-email", "", "`ADDRESS` at which the authority of --acme-directory reaches you")
	f.StringVar(&o.CAFile, "acme-ca-file", "",
		"PEM `FILE` with authorities to trust for --acme-directory itself; default: the system's")
}

// newLogger makes the service's logger.
func newLogger(c console, format, level string) (*slog.Logger, error) {
	var least slog.Level
	if err := least.UnmarshalText([]byte(level)); err != nil {
		return nil, account.Invalid("--log-level", level, "must be debug, info, warn or error")
	}
	o := &slog.HandlerOptions{Level: least, ReplaceAttr: roundDuration}
	if format == "" {
		format = "json"
		if c.errTerminal {
			format = "text"
		}
	}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(c.err, o)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(c.err, o)), nil
	}
	return nil, account.Invalid("--log-format", format, "must be text or json")
}

// roundDuration writes durations rounded to microseconds, with a unit.
func roundDuration(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.StringValue(a.Value.Duration().Round(time.Microsecond).String())
	}
	return a
}
