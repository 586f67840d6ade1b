// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package sealed

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/trust"
)

// IdentityOptions configure an Identity. Account and Certificate are required.
type IdentityOptions struct {
	Account     string // id of the account, never what the service says
	Certificate CertificateSource

	Callers       Callers // nil = callers are not asked for a certificate
	RequireCaller bool    // RequireCaller refuses callers that have proven nothing.
	Files         []File  // Files are those of the certificate and of the callers' roots.
}

// Callers is what callers prove themselves by, as *authority.Callers is. It is asked for every connection.
type Callers interface {
	// Pool returns the roots of callers' certificates.
	Pool() *x509.CertPool
	// VerifyToken returns the caller whose token it is. Errors do not have the token.
	VerifyToken(token string) (caller string, err error)
}

// File is what an identity is read from, as *authority.Source and *authority.Callers are.
type File interface {
	// Problem returns why it is of no use, or soon will be; nil when all is well.
	Problem() error
}

// Identity is an agent's: it accepts sealed connections to the endpoints that its certificate names.
// It is safe for concurrent use.
type Identity struct {
	options IdentityOptions

	mu      sync.Mutex
	current *credential // never nil once NewIdentity has returned
	err     error       // err is why what the source returns now is of no use.
}

// credential is a certificate with what depends on it. Its TLS configuration has ticket keys of its
// own: sessions that began with an earlier certificate are not resumed.
type credential struct {
	certificate *tls.Certificate
	key         trust.Pin
	names       []*url.URL
	config      *tls.Config
}

// NewIdentity returns an Identity.
func NewIdentity(o IdentityOptions) (*Identity, error) {
	switch {
	case o.Account == "":
		return nil, errors.New("sealed endpoints: the account's id is missing")
	case o.RequireCaller && o.Callers == nil:
		return nil, errors.New("sealed endpoints: callers cannot prove themselves without an authority of theirs")
	}
	i := &Identity{options: o}
	var err error
	if i.current, err = i.readCredential(); err != nil {
		return nil, err
	}
	return i, nil
}

// Key returns the fingerprint of the public key.
func (i *Identity) Key() trust.Pin { return i.credential().key }

// Covers reports whether the certificate names an endpoint.
func (i *Identity) Covers(u account.EndpointURL) bool {
	return Covers(i.credential().names, i.options.Account, u)
}

// credential returns what belongs to the certificate that the source returns now, or to the one
// before if that is of no use.
func (i *Identity) credential() *credential {
	i.mu.Lock()
	defer i.mu.Unlock()
	var own *credential
	if own, i.err = i.readCredential(); i.err == nil {
		i.current = own
	}
	return i.current
}

// Problem returns why connections to an endpoint of the agent's are refused, or soon will be, which its
// owner can change; nil when all is well.
func (i *Identity) Problem(u account.EndpointURL) error {
	own := i.credential()
	i.mu.Lock()
	err := i.err
	i.mu.Unlock()
	if err == nil && !Covers(own.names, i.options.Account, u) {
		err = fmt.Errorf("the agent's certificate does not name %s", u)
	}
	for _, file := range i.options.Files {
		err = cmp.Or(err, file.Problem())
	}
	return err
}

// readCredential calls the source. mu must be held.
func (i *Identity) readCredential() (*credential, error) {
	cert, err := i.options.Certificate()
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading the agent's certificate: %w", err)
	case cert == nil || len(cert.Certificate) == 0:
		return nil, errors.New("the agent has no certificate")
	case i.current != nil && sameCertificate(cert, i.current.certificate):
		return i.current, nil
	}
	leaf, err := x509.ParseCertificate(cert.Certificate[0])
	if err != nil {
		return nil, fmt.Errorf("reading the agent's certificate: %w", err)
	}
	if !slices.ContainsFunc(leaf.URIs, func(u *url.URL) bool {
		return u.Scheme == NameScheme && u.Host == i.options.Account
	}) {
		return nil, fmt.Errorf("the agent's certificate names no endpoint of account %s", i.options.Account)
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{alpn}, Certificates: []tls.Certificate{*cert},
		DynamicRecordSizingDisabled: true}
	if i.options.Callers != nil {
		cfg.ClientAuth = tls.RequestClientCert // verifyCaller verifies it, also when a session is resumed
	}
	return &credential{certificate: cert, key: keyOf(leaf), names: leaf.URIs, config: cfg}, nil
}

// Incoming is a sealed connection whose header was read. Its owner must call Open or Refuse, or abort
// the stream below.
type Incoming struct {
	Header Header
	Caller string // name that the caller has proven by its certificate or token; "" = none
	conn   *Conn

	by  *Identity
	own *credential
}

// Accept runs the handshake and reads the header on a stream that the agent has accepted. It refuses
// a URL that the certificate does not name, and a caller that has to prove itself. After an error the
// stream is aborted.
func (i *Identity) Accept(ctx context.Context, below Below) (*Incoming, error) {
	in, err := i.Handshake(ctx, below)
	if err == nil {
		err = in.Receive(ctx)
	}
	if err != nil {
		return nil, err
	}
	return in, nil
}

// Handshake is the first half of Accept: Receive is the other one.
func (i *Identity) Handshake(ctx context.Context, below Below) (*Incoming, error) {
	in := &Incoming{by: i, own: i.credential()}
	in.conn = newConn(below, tls.Server, in.own.config)
	if err := run(ctx, below, in.conn.shake); err != nil {
		return nil, fmt.Errorf("accepting a sealed connection: %w", err)
	}
	return in, nil
}

// Receive reads the header, and refuses what the agent must not serve. Header has no URL if none was
// read.
func (in *Incoming) Receive(ctx context.Context) error {
	if err := run(ctx, in.conn.records.Below, in.receive); err != nil {
		return fmt.Errorf("accepting a sealed connection: %w", err)
	}
	return nil
}

func (in *Incoming) receive() error {
	own, o, state := in.own, in.by.options, in.conn.tls.ConnectionState()
	if state.NegotiatedProtocol != alpn {
		return errors.New("the caller does not speak " + alpn)
	}
	var frame headerFrame
	err := readFrame(in.conn, &frame)
	if err != nil {
		return fmt.Errorf("reading the header: %w", err)
	}
	var code string
	if in.Header, err = frame.parse(); err != nil {
		code, err = CodeHeader, fmt.Errorf("the header: %w", err)
	} else if !Covers(own.names, o.Account, in.Header.URL) {
		code, err = CodeWrongURL, fmt.Errorf("the agent's certificate does not name %s", in.Header.URL)
	} else if err = in.verifyCaller(state.PeerCertificates, frame.Token, o); err != nil && o.RequireCaller {
		code, err = CodeCallerNotProven, fmt.Errorf("the caller is not proven: %w", err)
	}
	if code == "" {
		return nil
	}
	_ = in.Refuse(code, err.Error())
	return err
}

// verifyCaller sets Caller if its token or certificate proves it. A certificate that is not made for clients proves
// nothing: an agent's is not. A session that is resumed has the certificate with which it began, so
// that its authority and its dates still count.
func (in *Incoming) verifyCaller(chain []*x509.Certificate, token string, o IdentityOptions) (err error) {
	if token != "" && o.Callers != nil {
		if in.Caller, err = o.Callers.VerifyToken(token); err == nil || len(chain) == 0 {
			return err
		}
	}
	if len(chain) == 0 || o.Callers == nil {
		return errors.New("it has no certificate")
	}
	leaf := chain[0]
	name := callerOf(leaf.URIs, o.Account)
	switch {
	case !slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageClientAuth):
		return errors.New("its certificate is not for clients")
	case name == "":
		return fmt.Errorf("its certificate names no caller of account %s", o.Account)
	}
	err = verifyChain(chain, o.Callers.Pool(), x509.ExtKeyUsageClientAuth)
	if err == nil {
		in.Caller = name
	}
	return err
}

// Open tells the caller that the connection is open.
func (in *Incoming) Open() (*Conn, error) {
	if err := writeFrame(in.conn, answerFrame{Opened: true}); err != nil {
		_ = in.conn.Abort()
		return nil, fmt.Errorf("opening a sealed connection: %w", err)
	}
	return in.conn, nil
}

// Refuse sends the caller a code and a sentence, of which 512 bytes are used, and ends the
// connection. It waits for up to a second until the caller has ended it, too.
func (in *Incoming) Refuse(code string, text string) error {
	err := writeFrame(in.conn, answerFrame{RefusedError: RefusedError{code, shorten(text)}})
	// The caller may end the connection as soon as it has read that.
	if err == nil && in.conn.SetDeadline(time.Now().Add(time.Second)) == nil && in.conn.CloseWrite() == nil {
		_, _ = io.Copy(io.Discard, struct{ io.Reader }{in.conn})
	}
	_ = in.conn.Close()
	return err
}

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
