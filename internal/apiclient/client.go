// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package apiclient owns the client's side of the account API: requests, paging, the watch, and
// errors for answers that are not the service's.
//
// What comes in: an address, an API key that may change, and calls by the operator and the CLI.
// Whom it hands over to: the service, over TLS. A list is whole or an error; an error is an
// *account.Error with the code that the service gave, CodeUnreachable when there was no answer, or
// CodeBadAnswer when the answer was HTML, garbage or cut off.
package apiclient

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/printable"
	"github.com/fairlead-dev/fairlead/internal/trust"
	"github.com/fairlead-dev/fairlead/internal/tunnel/connectproxy"
)

const (
	apiVersion = "2"

	maxBody     = 64 << 20 // bytes of an answer
	maxError    = 64 << 10 // bytes of an error's body
	maxMsg      = 1 << 10  // bytes of an error's message
	maxLine     = 1 << 20  // bytes of a watch's line
	maxPages    = 10_000
	pageLimit   = "1000"
	watchIdle   = 45 * time.Second
	callTimeout = 30 * time.Second
)

// Options are what New needs.
type Options struct {
	BaseURL          string                 // https://HOST[:PORT]
	APIKey           func() (string, error) // called for each request, so that a rotated key is used
	TLS              *tls.Config            // trust; the default trusts the system's roots
	Authorities      *trust.Authorities     // learns what the service announces with its answers; nil = nothing
	VersionHeader    string                 // default Service-Version
	UserAgent        string                 // default "fairlead"
	Timeout          time.Duration          // for a request, and for the beginning of a watch; default 30 s
	WatchIdleTimeout time.Duration          // after which a watch without a line fails; default 45 s
}

// Client calls the account API. It is safe for concurrent use.
type Client struct {
	opt  Options
	base *url.URL
	http *http.Client
}

// New returns a client. CodeInvalid for a BaseURL that is not a server's address. HTTPS_PROXY and
// NO_PROXY are honoured; redirects are not followed.
func New(opt Options) (*Client, error) {
	base, err := account.ParseServerURL("api url", opt.BaseURL)
	if err != nil {
		return nil, err
	}
	if opt.APIKey == nil {
		return nil, errors.New("apiclient: Options.APIKey is required")
	}
	opt.VersionHeader, opt.UserAgent = cmp.Or(opt.VersionHeader, "Service-Version"), cmp.Or(opt.UserAgent, "fairlead")
	opt.Timeout, opt.WatchIdleTimeout = cmp.Or(opt.Timeout, callTimeout), cmp.Or(opt.WatchIdleTimeout, watchIdle)
	// HTTP/1.1: each watch has a connection of its own, and a dead connection ends what runs on it
	// and nothing else.
	config := &tls.Config{MinVersion: tls.VersionTLS13}
	if opt.TLS != nil {
		config = opt.TLS.Clone()
	}
	config.NextProtos = []string{"http/1.1"}
	dial, err := connectproxy.Dialer(os.Getenv, account.ServerAddress(base),
		(&net.Dialer{Timeout: 10 * time.Second}).DialContext, config.RootCAs)
	if err != nil {
		return nil, fmt.Errorf("reading the proxy's address: %w", err)
	}
	transport := &http.Transport{
		DialContext: dial, TLSClientConfig: config,
		TLSHandshakeTimeout: 10 * time.Second, ResponseHeaderTimeout: opt.Timeout, MaxIdleConnsPerHost: 4,
		IdleConnTimeout: 45 * time.Second, DisableCompression: true, MaxResponseHeaderBytes: 64 << 10,
	}
	never := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Client{opt: opt, base: base, http: &http.Client{Transport: transport, CheckRedirect: never}}, nil
}

// CloseIdleConnections closes connections that no request uses.
func (c *Client) CloseIdleConnections() { c.http.CloseIdleConnections() }

// call sends a request and decodes the answer into out, which may be nil. It returns the status.
func (c *Client) call(ctx context.Context, method, path string, query url.Values, in, out any) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, c.opt.Timeout)
	defer cancel()
	res, err := c.send(ctx, method, path, query, in)
	if err != nil {
		return 0, err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode < 200 || res.StatusCode > 299 {
		return res.StatusCode, readError(res)
	}
	if out == nil {
		return res.StatusCode, nil
	}
	if contentType(res) != "application/json" {
		return res.StatusCode, badAnswer(res, nil, "instead of JSON")
	}
	if err := decode(res.Body, out); err != nil {
		return res.StatusCode, badAnswer(res, err, "and cannot be read as what was asked for")
	}
	return res.StatusCode, nil
}

// decode reads exactly one JSON value of limited size.
func decode(r io.Reader, out any) error {
	raw, err := io.ReadAll(io.LimitReader(r, maxBody+1))
	switch {
	case err != nil:
		return fmt.Errorf("reading answer: %w", err)
	case len(raw) > maxBody:
		return fmt.Errorf("reading answer: it has more than %d bytes", maxBody)
	}
	if err := json.Unmarshal(raw, out); err != nil {
		return fmt.Errorf("decoding answer: %s", printable.DecodeError(err.Error()))
	}
	return nil
}

// send sends a request; the answer's body is the caller's to close.
func (c *Client) send(ctx context.Context, method, path string, query url.Values, in any) (*http.Response, error) {
	var body io.Reader
	if in != nil {
		raw, err := json.Marshal(in)
		if err != nil {
			return nil, fmt.Errorf("encoding request: %w", err)
		}
		body = bytes.NewReader(raw)
	}
	target := *c.base
	target.Path, target.RawQuery = path, query.Encode()
	req, err := http.NewRequestWithContext(ctx, method, target.String(), body)
	if err != nil {
		return nil, fmt.Errorf("making request: %w", err)
	}
	key, err := c.key()
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set(c.opt.VersionHeader, apiVersion)
	req.Header.Set("User-Agent", c.opt.UserAgent)
	req.Header.Set("Accept", "application/json, application/x-ndjson")
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := c.http.Do(req)
	if err != nil {
		// idle connections are likely broken as well, and the next request would wait on one of
		// them
		c.CloseIdleConnections()
		return nil, unreachable(c.base.Host, err)
	}
	c.opt.Authorities.LearnFrom(res.Header)
	return res, nil
}

// key returns the API key as it is now, without the newline that files end with.
func (c *Client) key() (string, error) {
	key, err := c.opt.APIKey()
	if err != nil {
		return "", fmt.Errorf("reading API key: %w", err)
	}
	key = strings.TrimSpace(key)
	if key == "" || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return "", account.Invalid("api key", "(not shown)",
			"must be one word of printable characters; is it a whole file, or empty?")
	}
	return key, nil
}

// unreachable returns CodeUnreachable with the cause.
func unreachable(host string, err error) error {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err // without the URL, which says no more than the host
	}
	return &account.Error{Code: account.CodeUnreachable, Msg: "the service at " + host + " does not answer",
		Cause: withoutPort(err)}
}

// withoutPort removes the local port, which differs between attempts, from the error: callers log
// equal texts once.
func withoutPort(err error) error {
	var op *net.OpError
	if !errors.As(err, &op) || op.Source == nil {
		return err
	}
	plain := *op
	plain.Source = nil
	return &plain
}

func contentType(res *http.Response) string {
	kind, _, err := mime.ParseMediaType(res.Header.Get("Content-Type"))
	if err != nil {
		return ""
	}
	return kind
}

// badAnswer returns CodeBadAnswer with the status and content type of the answer.
func badAnswer(res *http.Response, cause error, what string) error {
	kind := cmp.Or(res.Header.Get("Content-Type"), "no content type")
	return &account.Error{Code: account.CodeBadAnswer, Status: res.StatusCode, Cause: cause,
		Msg: fmt.Sprintf("%s answered %d with %s %s; is it a fairlead-server, or a proxy before it?",
			res.Request.URL.Host, res.StatusCode, account.Shorten(kind), what)}
}

// readError maps an error's body back to a domain error.
func readError(res *http.Response) error {
	var body account.ErrorBody
	raw, err := io.ReadAll(io.LimitReader(res.Body, maxError))
	if err == nil && contentType(res) == "application/json" {
		err = json.Unmarshal(raw, &body)
	}
	if err != nil || body.Code == "" {
		return badAnswer(res, err, "instead of an error of the API")
	}
	if after := res.Header.Get("Retry-After"); after != "" {
		if body.Details == nil {
			body.Details = map[string]string{}
		}
		body.Details["retry_after"] = after
	}
	if len(body.Msg) > maxMsg {
		body.Msg = strings.ToValidUTF8(body.Msg[:maxMsg], "") + "…"
	}
	return &account.Error{Code: body.Code, Status: res.StatusCode, Msg: body.Msg, Details: body.Details,
		Fields: body.Errors}
}
