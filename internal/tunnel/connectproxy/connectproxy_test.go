// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package connectproxy_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead-dev/fairlead/internal/tunnel/connectproxy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeNetwork is a network with one proxy, at proxy.corp, and every other address reachable
// directly.
type fakeNetwork struct {
	t       *testing.T
	answer  string
	dialled chan string
	request chan *http.Request
}

func newFakeNetwork(t *testing.T, answer string) *fakeNetwork {
	t.Helper()
	return &fakeNetwork{t: t, answer: answer, dialled: make(chan string, 10), request: make(chan *http.Request, 10)}
}

// dial returns one end of a pipe; at the other end is a proxy, or a server that sends its name.
func (w *fakeNetwork) dial(_ context.Context, _, address string) (net.Conn, error) {
	w.dialled <- address
	client, other := net.Pipe()
	go func() {
		defer func() { _ = other.Close() }()
		_ = other.SetDeadline(time.Now().Add(20 * time.Second))
		if !strings.HasPrefix(address, "proxy.corp:") {
			_, _ = io.WriteString(other, "direct")
			return
		}
		req, err := http.ReadRequest(bufio.NewReader(other))
		if err != nil {
			return
		}
		w.request <- req
		if _, err := io.WriteString(other, w.answer); err != nil || !strings.Contains(w.answer, " 200 ") {
			return
		}
		_, _ = io.WriteString(other, "tunnelled")
	}()
	return client, nil
}

// environment returns a replacement of os.Getenv that knows pairs of names and values.
func environment(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

// dialCases are environments, and how the address is dialled in each.
var dialCases = map[string]struct {
	env           func(string) string
	address       string
	dialled       string
	got           string // what the server at the other end sends
	authorization string // for the proxy
}{
	"no proxy": {environment(), "fairlead.test:8443", "fairlead.test:8443", "direct", ""},
	"proxy": {environment("HTTPS_PROXY", "http://proxy.corp:3128"), "fairlead.test:8443",
		"proxy.corp:3128", "tunnelled", ""},
	"lower case": {environment("https_proxy", "http://proxy.corp:3128"), "fairlead.test:8443",
		"proxy.corp:3128", "tunnelled", ""},
	"without a scheme": {environment("HTTPS_PROXY", "proxy.corp:3128"), "fairlead.test:8443", "proxy.corp:3128",
		"tunnelled", ""},
	"without a port": {environment("HTTPS_PROXY", "http://proxy.corp"), "fairlead.test:8443", "proxy.corp:80",
		"tunnelled", ""},
	"IPv6 server": {environment("HTTPS_PROXY", "http://proxy.corp:3128"), "[2001:db8::1]:8443",
		"proxy.corp:3128", "tunnelled", ""},
	"user and password": {environment("HTTPS_PROXY", "http://u:p%40@proxy.corp:3128"), "fairlead.test:8443",
		"proxy.corp:3128", "tunnelled", "Basic dTpwQA=="},
	"exempt": {environment("HTTPS_PROXY", "http://proxy.corp:3128", "NO_PROXY", ".test"),
		"fairlead.test:8443", "fairlead.test:8443", "direct", ""},
	"loopback": {environment("HTTPS_PROXY", "http://proxy.corp:3128"), "127.0.0.1:8443",
		"127.0.0.1:8443", "direct", ""},
	"localhost": {environment("HTTPS_PROXY", "http://proxy.corp:3128"), "localhost:8443",
		"localhost:8443", "direct", ""},
	"any protocol": {environment("all_proxy", "http://proxy.corp:3128"), "fairlead.test:8443",
		"proxy.corp:3128", "tunnelled", ""},
	"the proxy for TLS before the one for any": {environment("ALL_PROXY", "socks5://other.corp",
		"HTTPS_PROXY", "http://proxy.corp:3128"), "fairlead.test:8443", "proxy.corp:3128", "tunnelled", ""},
	"an unusable proxy, exempt": {environment("ALL_PROXY", "ftp://proxy.corp:3128", "NO_PROXY", "fairlead.test"),
		"fairlead.test:8443", "fairlead.test:8443", "direct", ""},
	"HTTP_PROXY is not for TLS": {environment("HTTP_PROXY", "http://proxy.corp:3128"), "fairlead.test:8443",
		"fairlead.test:8443", "direct", ""},
}

func TestDialer_ChoosesProxyByEnvironment(t *testing.T) {
	t.Parallel()
	for name, c := range dialCases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newFakeNetwork(t, "HTTP/1.1 200 Connection established\r\n\r\n")
			dial, err := connectproxy.Dialer(c.env, c.address, w.dial, nil)
			if err != nil {
				t.Fatal(err)
			}
			conn, err := dial(t.Context(), "tcp", c.address)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			if got, err := io.ReadAll(conn); err != nil || string(got) != c.got {
				t.Errorf("read %q, %v; want %q", got, err, c.got)
			}
			if got := <-w.dialled; got != c.dialled {
				t.Errorf("dialled %s, want %s", got, c.dialled)
			}
			if c.got == "direct" {
				return
			}
			req := <-w.request
			if req.Method != http.MethodConnect || req.Host != c.address || req.RequestURI != c.address ||
				req.Header.Get("Proxy-Authorization") != c.authorization {
				t.Errorf("the proxy was asked %s %s with %q", req.Method, req.RequestURI,
					req.Header.Get("Proxy-Authorization"))
			}
		})
	}
}

func TestDialer_ErrorsHideThePassword(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ answer, want string }{
		"refuses": {"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n",
			`it answered "407 Proxy Authentication Required"; correct the user and the password in its URL`},
		"wants what is not known": {"HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Negotiate\r\n" +
			"Proxy-Authenticate: NTLM, Digest realm=\"a\", nonce=b\r\nContent-Length: 0\r\n\r\n",
			"it wants a login by Negotiate or NTLM or Digest, of which only Basic is known here: name a local proxy"},
		"wants Basic or NTLM": {"HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: NTLM\r\n" +
			"Proxy-Authenticate: basic realm=\"a\"\r\nContent-Length: 0\r\n\r\n", "correct the user and the password"},
		"forbids": {"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n",
			`it answered "403 Forbidden"; let it connect to this server, or add the server to NO_PROXY`},
		"no HTTP":         {"SSH-2.0-OpenSSH\r\n\r\n", "reading its answer"},
		"hangs up":        {"", "reading its answer"},
		"says more":       {"HTTP/1.1 200 OK\r\n\r\nsurprise", "more than its answer"},
		"endless headers": {"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 1<<16) + "\r\n\r\n", "reading its answer"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newFakeNetwork(t, c.answer)
			dial, err := connectproxy.Dialer(environment("HTTPS_PROXY", "http://user:hunter2@proxy.corp:3128"),
				"fairlead.test:8443", w.dial, nil)
			if err != nil {
				t.Fatal(err)
			}
			conn, err := dial(t.Context(), "tcp", "fairlead.test:8443")
			if err == nil || conn != nil || !strings.Contains(err.Error(), c.want) ||
				!strings.Contains(err.Error(), "proxy.corp:3128") || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestDialer_SilentProxyEndsWithContext(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{})
	dial, err := connectproxy.Dialer(environment("HTTPS_PROXY", "http://proxy.corp"), "fairlead.test:8443",
		func(context.Context, string, string) (net.Conn, error) {
			client, proxy := net.Pipe()
			go func() {
				_, _ = http.ReadRequest(bufio.NewReader(proxy))
				close(asked)
				_, _ = io.Copy(io.Discard, proxy)
			}()
			return client, nil
		}, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-asked; cancel() }()
	if _, err := dial(ctx, "tcp", "fairlead.test:8443"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestDialer_RefusesInvalidProxyURL(t *testing.T) {
	t.Parallel()
	for _, variable := range []string{"HTTPS_PROXY", "ALL_PROXY"} {
		for _, raw := range []string{"ftp://u:hunter2@proxy.corp:1080", "http://",
			"http://u:hunter2@%zz"} {
			_, err := connectproxy.Dialer(environment(variable, raw), "fairlead.test:8443", nil, nil)
			if err == nil || !strings.Contains(err.Error(), variable) || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%s: %v", raw, err)
			}
		}
	}
}

// TestDialer_NamesDeadProxy: the proxy that refuses is told, not the server behind it.
func TestDialer_NamesDeadProxy(t *testing.T) {
	t.Parallel()
	for _, proxy := range []string{"http://proxy.corp", "socks5://proxy.corp"} {
		dial, err := connectproxy.Dialer(environment("ALL_PROXY", proxy), "fairlead.test:8443",
			func(context.Context, string, string) (net.Conn, error) { return nil, syscall.ECONNREFUSED }, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = dial(t.Context(), "tcp", "fairlead.test:8443")
		var failed *connectproxy.Error
		if !errors.As(err, &failed) || !strings.HasPrefix(failed.Proxy, "proxy.corp:") ||
			failed.Variable != "ALL_PROXY" || !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("%s: %v", proxy, err)
		}
	}
}

func TestDialer_AsksSOCKSProxy(t *testing.T) {
	t.Parallel()
	asked := make(chan string, 1)
	dial, err := connectproxy.Dialer(environment("ALL_PROXY", "socks5h://u:p@proxy.corp"), "fairlead.test:8443",
		func(_ context.Context, _, address string) (net.Conn, error) {
			client, proxy := net.Pipe()
			go func() {
				defer func() { _ = proxy.Close() }()
				read := func(n int) []byte {
					b := make([]byte, n)
					_, _ = io.ReadFull(proxy, b)
					return b
				}
				read(int(read(2)[1]))                 // RFC 1928: version, methods
				_, _ = proxy.Write([]byte{5, 2})      // RFC 1929: user and password
				user := string(read(int(read(2)[1]))) // version, length
				password := string(read(int(read(1)[0])))
				_, _ = proxy.Write([]byte{1, 0})
				name := string(read(int(read(5)[4]))) // version, connect, 0, a name, its length
				port := read(2)
				asked <- fmt.Sprintf("%s %s:%s %s:%d", address, user, password, name, int(port[0])<<8|int(port[1]))
				_, _ = proxy.Write([]byte{5, 0, 0, 1, 0, 0, 0, 0, 0, 0})
				_, _ = io.WriteString(proxy, "tunnelled")
			}()
			return client, nil
		}, nil)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := dial(t.Context(), "tcp", "fairlead.test:8443")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if got, err := io.ReadAll(conn); err != nil || string(got) != "tunnelled" {
		t.Errorf("read %q, %v", got, err)
	}
	if got := <-asked; got != "proxy.corp:1080 u:p fairlead.test:8443" {
		t.Errorf("asked %s", got)
	}
}

// TestDialer_SecuresProxy checks that the way to an https proxy has TLS, and whose certificates are
// trusted for it.
func TestDialer_SecuresProxy(t *testing.T) {
	t.Parallel()
	proxy := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect || r.Header.Get("Proxy-Authorization") == "" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		w.WriteHeader(http.StatusOK)
		conn, _, _ := http.NewResponseController(w).Hijack()
		_, _ = io.WriteString(conn, "tunnelled")
		_ = conn.Close()
	}))
	t.Cleanup(proxy.Close)
	proxy.Config.ErrorLog = log.New(io.Discard, "", 0)
	roots := x509.NewCertPool()
	roots.AddCert(proxy.Certificate())
	toProxy := func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, proxy.Listener.Addr().String())
	}
	for _, tt := range []struct {
		host  string
		roots *x509.CertPool
		want  string
	}{
		{"127.0.0.1", roots, ""}, {"127.0.0.1", nil, "unknown authority"}, {"example.com", roots, ""},
		{"127.0.0.2", roots, "not 127.0.0.2"}, {"proxy.corp", roots, "not proxy.corp"},
	} {
		env := environment("HTTPS_PROXY", "https://u:hunter2@"+tt.host+":3129")
		dial, err := connectproxy.Dialer(env, "fairlead.test:8443", toProxy, tt.roots)
		if err != nil {
			t.Fatal(err)
		}
		conn, err := dial(t.Context(), "tcp", "fairlead.test:8443")
		if tt.want != "" {
			var server *tls.CertificateVerificationError
			if err == nil || !strings.Contains(err.Error(), tt.want) || errors.As(err, &server) {
				t.Errorf("got %v, want %q, which is not the server's", err, tt.want)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(conn); err != nil || string(got) != "tunnelled" {
			t.Errorf("read %q, %v", got, err)
		}
		_ = conn.Close()
	}
}
