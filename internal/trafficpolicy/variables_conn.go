// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package trafficpolicy

import (
	"net/netip"
	"time"

	"github.com/google/cel-go/cel"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// Conn is what is known of a connection. Empty fields are unknown: an expression that reads one
// fails.
type Conn struct {
	ClientIP   netip.Addr
	ClientPort int
	OperatorID string // the installation whose forwarder brought the connection
	Cluster    string
	Pod        *Pod // only as an operator's authenticated session has said
	Endpoint   *account.Endpoint
	TLS        bool
	ServerName string // the TLS handshake's server name
	Port       int    // Port is that of the client's URL where it is not the endpoint's; 0 otherwise.
	Started    time.Time
	Locator    Locator // Locator is asked when an expression reads the client's location; nil = unknown.
	Aborter    Aborter // Aborter is nil where the client's connection carries other requests too.

	geoCache *Geo // the answer to an earlier question
}

// Locator looks up where an address is; the zero Geo = unknown.
type Locator interface{ Locate(ip netip.Addr) Geo }

// Aborter resets a client's connection and drops what is queued for it.
type Aborter interface{ Abort() }

// Geo is the approximate location of an address; empty fields are unknown. Numbers are decimal, the
// radius in kilometres.
type Geo struct{ City, Country, CountryCode, Latitude, Longitude, Radius, Subdivision string }

// location looks the location up once.
func (c *Conn) location() *Geo {
	if c.geoCache == nil {
		c.geoCache = &Geo{}
		if c.Locator != nil {
			*c.geoCache = c.Locator.Locate(c.ClientIP)
		}
	}
	return c.geoCache
}

// Pod is the caller's identity in its cluster.
type Pod struct {
	Namespace, Name, ServiceAccount string
	Annotations                     map[string]string // nil: unknown
}

func connVariables() []variable {
	text := func(name string, get func(c *Conn) string) variable {
		return variable{name, cel.StringType, allPhases, func(x *exchange) (any, bool) { return nonEmpty(get(x.conn)) }}
	}
	pod := func(name string, get func(p *Pod) string) variable {
		return text(name, func(c *Conn) string {
			if c.Pod == nil {
				return ""
			}
			return get(c.Pod)
		})
	}
	annotations := func(name string) variable {
		return variable{name, cel.MapType(cel.StringType, cel.StringType), allPhases, func(x *exchange) (any, bool) {
			if x.conn.Pod == nil || x.conn.Pod.Annotations == nil {
				return nil, false
			}
			return x.conn.Pod.Annotations, true
		}}
	}
	serverName := func(c *Conn) string {
		if !c.TLS {
			return ""
		}
		return c.ServerName
	}
	all := []variable{
		text("conn.client_ip", func(c *Conn) string {
			if !c.ClientIP.IsValid() {
				return ""
			}
			return c.ClientIP.Unmap().WithZone("").String()
		}),
		{"conn.client_port", cel.IntType, allPhases, func(x *exchange) (any, bool) {
			return nonZero(x.conn.ClientPort)
		}},
		text("conn.operator.id", func(c *Conn) string { return c.OperatorID }),
		text("conn.cluster", func(c *Conn) string { return c.Cluster }),
		pod("conn.pod.namespace", func(p *Pod) string { return p.Namespace }),
		pod("conn.pod.name", func(p *Pod) string { return p.Name }),
		pod("conn.pod.service_account", func(p *Pod) string { return p.ServiceAccount }),
		annotations("conn.pod.annotations"),
		pod("conn.k8s.pod.metadata.namespace", func(p *Pod) string { return p.Namespace }),
		pod("conn.k8s.pod.metadata.name", func(p *Pod) string { return p.Name }),
		annotations("conn.k8s.pod.metadata.annotations"),
		text("conn.server_name", serverName),
		text("conn.tls.sni", serverName),
		{"conn.ts.start", cel.TimestampType, allPhases, func(x *exchange) (any, bool) {
			return x.conn.Started, !x.conn.Started.IsZero()
		}},
	}
	return append(all, geoVariables(text)...)
}

// geoVariables returns the variables of the caller's location, made by text.
func geoVariables(text func(name string, get func(c *Conn) string) variable) []variable {
	geo := func(name string, get func(g *Geo) string) variable {
		return text("conn.geo."+name, func(c *Conn) string { return get(c.location()) })
	}
	return []variable{
		geo("city", func(g *Geo) string { return g.City }),
		geo("country", func(g *Geo) string { return g.Country }),
		geo("country_code", func(g *Geo) string { return g.CountryCode }),
		geo("latitude", func(g *Geo) string { return g.Latitude }),
		geo("longitude", func(g *Geo) string { return g.Longitude }),
		geo("radius", func(g *Geo) string { return g.Radius }),
		geo("subdivision", func(g *Geo) string { return g.Subdivision }),
	}
}

func endpointVariables() []variable {
	text := func(name string, get func(e *account.Endpoint) string) variable {
		return variable{name, cel.StringType, allPhases, func(x *exchange) (any, bool) {
			if x.conn.Endpoint == nil {
				return nil, false
			}
			return nonEmpty(get(x.conn.Endpoint))
		}}
	}
	return []variable{
		text("endpoint.id", func(e *account.Endpoint) string { return e.ID }),
		text("endpoint.url", func(e *account.Endpoint) string { return e.URL }),
		text("endpoint.protocol", func(e *account.Endpoint) string { return e.Scheme }),
		text("endpoint.addr", func(e *account.Endpoint) string { return e.HostPort }),
		text("endpoint.host", func(e *account.Endpoint) string { return e.Host }),
		{"endpoint.port", cel.IntType, allPhases, func(x *exchange) (any, bool) {
			if x.conn.Endpoint == nil {
				return nil, false
			}
			return nonZero(x.conn.Endpoint.Port)
		}},
	}
}
