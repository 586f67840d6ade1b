// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

// providers is the running program of test/idp; its control API is described there.
type providers struct {
	cmd   *exec.Cmd
	stdin io.Closer
	at    struct {
		Control   string
		Providers map[string]*provider
	}
}

// provider is one identity provider.
type provider struct {
	Kind     string
	URL      string
	Issuer   string
	Metadata string `json:"metadata_url"`

	name string
}

// recordedRequest is a request that a provider has received.
type recordedRequest struct {
	Method    string
	Path      string
	Query     url.Values
	GrantType string `json:"grant_type"`
}

func startProviders(program string) (*providers, error) {
	p := &providers{cmd: exec.Command(program)}
	p.cmd.Stderr = os.Stderr
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	p.stdin = stdin
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &p.at)
	}
	if err != nil {
		_ = p.close()
		return nil, fmt.Errorf("reading where the providers are: %w", err)
	}
	for name, at := range p.at.Providers {
		at.name = name
	}
	return p, nil
}

func (p *providers) close() error {
	_ = p.stdin.Close()
	return p.cmd.Wait()
}

// control calls the control API.
func (p *providers) control(method, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	if s, ok := in.(string); ok {
		body = []byte(s)
	}
	r, err := http.NewRequest(method, p.at.Control+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	res, err := tr.RoundTrip(r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	if res.StatusCode >= 300 {
		return fmt.Errorf("%s %s: %d %s", method, path, res.StatusCode, text)
	}
	if out != nil {
		return json.Unmarshal(text, out)
	}
	return nil
}

var providerCount atomic.Int32

// provider returns the provider of the kind that all tests share. Tests only add clients to it.
func (w *environment) provider(kind string) *provider { return w.idp.at.Providers[kind] }

// newProvider starts a provider for a test that changes or breaks it.
func newProvider(t testing.TB, kind string) *provider {
	t.Helper()
	p := &provider{name: fmt.Sprint(kind, providerCount.Add(1))}
	mustControl(t, "PUT", "/providers/"+p.name, map[string]string{"kind": kind}, p)
	return p
}

// mustControl calls the control API, and fails the test on an error.
func mustControl(t testing.TB, method, path string, in, out any) {
	t.Helper()
	must.Succeed(t, env.idp.control(method, path, in, out))
}

func (p *provider) control(t testing.TB, method, path string, in, out any) {
	t.Helper()
	mustControl(t, method, "/providers/"+p.name+path, in, out)
}

// fault breaks the provider's responses at paths with that end; mode "none" ends that.
func (p *provider) fault(t testing.TB, mode, path string) {
	t.Helper()
	p.control(t, "PUT", "/fault", map[string]string{"mode": mode, "path": path}, nil)
}

// requests returns the requests at paths with that end.
func (p *provider) requests(t testing.TB, path string) []recordedRequest {
	t.Helper()
	var all, found []recordedRequest
	p.control(t, "GET", "/requests", nil, &all)
	for _, a := range all {
		if strings.HasSuffix(a.Path, path) {
			found = append(found, a)
		}
	}
	return found
}
