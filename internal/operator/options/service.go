// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/apiclient"
	"github.com/fairlead-dev/fairlead/internal/operator/serviceaccounttoken"
	"github.com/fairlead-dev/fairlead/internal/trust"
	"github.com/fairlead-dev/fairlead/internal/tunnel/connectproxy"
	"github.com/fairlead-dev/fairlead/internal/version"
)

// Credentials are the files by which a process and the service authenticate each other.
type Credentials struct {
	// SecretFile holds an API key, or a forwarder's authtoken; it is read for every request and
	// session, so that a rotated one needs no restart.
	SecretFile string
	// ServiceAccountTokenFile holds a ServiceAccount token, which is presented instead of a secret,
	// and again on live sessions when it changes.
	ServiceAccountTokenFile string
	CAFile                  string // CAFile is PEM; empty: the system's roots.
	// AuthoritiesDir has the authorities that the service announced to the manager before this process
	// began; empty: only those of CAFile are trusted at first.
	AuthoritiesDir string
}

// ServiceAccountTokenFlag names the file with a ServiceAccount token, for all processes.
const ServiceAccountTokenFlag = "--service-account-token-file"

// Check checks that there is one of a secret's file, of the given flag, and a file for a
// ServiceAccount token, which need not exist yet, and that the authorities can be read.
func (o *Credentials) Check(c *Checker, secretFlag string) {
	switch {
	case o.ServiceAccountTokenFile == "" && o.SecretFile == "":
		c.Reject(secretFlag, "", "name a file that can be read, or give "+ServiceAccountTokenFlag)
	case o.ServiceAccountTokenFile == "":
		b, err := os.ReadFile(o.SecretFile)
		if err != nil {
			c.Reject(secretFlag, o.SecretFile, "name a file that can be read: "+err.Error())
		} else if strings.TrimSpace(string(b)) == "" {
			c.Reject(secretFlag, o.SecretFile, "the file is empty; put the credential into it")
		}
	case o.SecretFile != "":
		c.Reject(ServiceAccountTokenFlag, o.ServiceAccountTokenFile, "give either it or "+secretFlag+", not both")
	default:
		if err := serviceaccounttoken.CheckFile(o.ServiceAccountTokenFile); err != nil {
			c.Reject(ServiceAccountTokenFlag, o.ServiceAccountTokenFile, err.Error())
		}
	}
	if _, err := (trust.Options{CAFile: o.CAFile}).ClientConfig(); err != nil {
		c.Reject("--ca-file", o.CAFile, "name a PEM file with the certificates of authorities: "+err.Error())
	}
}

// Open returns what the process presents to the service.
func (o *Credentials) Open(log *slog.Logger) serviceaccounttoken.Credential {
	return serviceaccounttoken.NewCredential(o.ServiceAccountTokenFile, o.SecretFile, log)
}

// API is how a process calls the account's API.
type API struct {
	APIURL        string // APIURL is https://HOST[:PORT].
	VersionHeader string // VersionHeader is the name of the header that carries the API's version.
	Credentials
}

// Check checks the flags of the API.
func (o *API) Check(c *Checker) {
	_, err := account.ParseServerURL("--api-url", o.APIURL)
	c.AddError(err)
	o.Credentials.Check(c, "--api-key-file")
	if !httpguts.ValidHeaderFieldName(o.VersionHeader) {
		c.Reject("--version-header", o.VersionHeader, "give the name of an HTTP header, such as Service-Version")
	}
}

// Client returns a client of the API for the named program, and the options that it was made of.
func (o *API) Client(
	program string, credential serviceaccounttoken.Credential,
) (*apiclient.Client, apiclient.Options, error) {
	host := ""
	if u, err := account.ParseServerURL("--api-url", o.APIURL); err == nil {
		host = u.Hostname()
	}
	tls, authorities, err := trust.Options{CAFile: o.CAFile, Host: host, Kept: o.AuthoritiesDir}.Open()
	if err != nil {
		return nil, apiclient.Options{}, fmt.Errorf("reading the authorities to trust for the account's API: %w", err)
	}
	made := apiclient.Options{BaseURL: o.APIURL, TLS: tls, Authorities: authorities,
		VersionHeader: o.VersionHeader, APIKey: credential.Read, UserAgent: program + "/" + version.String()}
	api, err := apiclient.New(made)
	if err != nil {
		return nil, made, fmt.Errorf("preparing the client of the account: %w", err)
	}
	return api, made, nil
}

// Session is how a process that has a session with the service's edge connects and stops.
type Session struct {
	EdgeAddress  string // EdgeAddress is HOST:PORT.
	PodName      string // PodName distinguishes the processes of an installation.
	DrainTimeout time.Duration
}

// CheckAddress checks the address of the edge.
func (o *Session) CheckAddress(c *Checker) {
	host, port, err := net.SplitHostPort(o.EdgeAddress)
	if n, portErr := strconv.Atoi(port); err != nil || host == "" || portErr != nil || n < 1 || n > 65535 {
		c.Reject("--edge-address", o.EdgeAddress,
			"give the address of the edge as HOST:PORT; an IPv6 address stands in brackets, [::1]:443")
	}
}

// Trust returns how the process verifies the edge, and what learns the authorities that it announces.
func (o *Session) Trust(c *Credentials) (*tls.Config, *trust.Authorities, error) {
	host, _, _ := net.SplitHostPort(o.EdgeAddress) // CheckAddress has checked it
	cfg, authorities, err := trust.Options{CAFile: c.CAFile, Host: host, Kept: c.AuthoritiesDir}.Open()
	if err != nil {
		return nil, nil, fmt.Errorf("reading the authorities to trust for the edge: %w", err)
	}
	return cfg, authorities, nil
}

// CheckDrain checks how long connections may continue.
func (o *Session) CheckDrain(c *Checker) {
	if o.DrainTimeout < 0 {
		c.Reject("--drain-timeout", o.DrainTimeout.String(), "give a duration of 0s or more")
	}
}

// Dialer returns what dials the edge, through the proxy that the environment names.
// The authorities of tls are trusted for the proxy's own certificate, too.
func (o *Session) Dialer(tls *tls.Config) (connectproxy.DialFunc, error) {
	dial, err := connectproxy.Dialer(os.Getenv, o.EdgeAddress, nil, tls.RootCAs)
	if err != nil {
		return nil, fmt.Errorf("reading the proxy's address: %w", err)
	}
	return dial, nil
}
