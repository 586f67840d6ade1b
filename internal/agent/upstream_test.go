// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"net/url"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
)

func TestParseUpstream_ValidForms(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ scheme, raw, want string }{
		{"http", "8080", "http://localhost:8080"},
		{"http", ":8080", "http://localhost:8080"},
		{"http", "localhost:8080", "http://localhost:8080"},
		{"http", "127.0.0.1:8080", "http://127.0.0.1:8080"},
		{"http", "[::1]:8080", "http://[::1]:8080"},
		{"http", "[fe80::1%eth0]:8080", "http://[fe80::1%25eth0]:8080"},
		{"http", "http://[fe80::1%25eth0]:8080", "http://[fe80::1%25eth0]:8080"},
		{"http", "my_service.local:3000", "http://my_service.local:3000"},
		{"http", "http://x:1", "http://x:1"},
		{"http", "http://x", "http://x:80"},
		{"http", "http://x/", "http://x:80"},
		{"http", "http://x:", "http://x:80"},
		{"http", "HTTP://x", "http://x:80"},
		{"http", "https://x", "https://x:443"},
		{"http", "https://x:8443/", "https://x:8443"},
		{"http", "https://[::1]", "https://[::1]:443"},
		{"http", "65535", "http://localhost:65535"},
		{"tcp", "5432", "tcp://localhost:5432"},
		{"tcp", "db.intern:5432", "tcp://db.intern:5432"},
		{"tcp", "[fd00::7]:22", "tcp://[fd00::7]:22"},
		{"tcp", "tcp://db:5432", "tcp://db:5432"},
	} {
		u, err := ParseUpstream(c.scheme, c.raw)
		if err != nil || u.String() != c.want {
			t.Errorf("%s %q: got %q, %v; want %q", c.scheme, c.raw, u, err, c.want)
		}
		if wantProtocol := map[string]string{"http": ProtocolHTTP1, "tcp": ""}[c.scheme]; u.Protocol != wantProtocol {
			t.Errorf("%s %q: protocol %q", c.scheme, c.raw, u.Protocol)
		}
	}
}

const (
	wrongPort = "the port must be a number from 1 to 65535"
	wrongHost = "the host must be a name or an IP address"
)

var invalidUpstreams = []struct{ scheme, raw, want string }{
	{"http", "", "the port is missing; give PORT"},
	{"http", "0", wrongPort},
	{"http", "70000", wrongPort},
	{"http", "99999999999999999999", wrongPort},
	{"http", "080", wrongPort},
	{"http", "-1", wrongHost},
	{"http", "+80", wrongHost},
	{"http", "8x", "the port is missing"},
	{"http", ":", "the port is missing"},
	{"http", "localhost", "the port is missing"},
	{"http", "localhost:", "the port is missing"},
	{"http", "localhost:0", wrongPort},
	{"http", "localhost:-1", wrongPort},
	{"http", "localhost:http", wrongPort},
	{"http", "localhost:80:80", "in brackets"},
	{"http", "::1", "in brackets"},
	{"http", "::1:8080", "in brackets"},
	{"http", "[::1", "in brackets"},
	{"http", "[::1]", "the port is missing"},
	{"http", "[::1]8080", "in brackets"},
	{"http", "[127.0.0.1]:80", "in brackets"},
	{"http", "[x]:80", "in brackets"},
	{"http", "[fe80::1%a%b]:80", "in brackets"},
	{"http", "http://", wrongHost},
	{"http", "http://:80", wrongHost},
	{"http", "2130706433:80", wrongHost},
	{"http", "127.1:80", wrongHost},
	{"http", "a..b:80", wrongHost},
	{"http", "-a:80", wrongHost},
	{"http", "ftp://x", "the scheme must be http or https"},
	{"http", "tcp://x:1", "the scheme must be http or https"},
	{"http", "://x:1", "the scheme must be http or https"},
	{"http", "http://x/path", "a path is not allowed"},
	{"http", "x:80/path", "a path is not allowed"},
	{"http", "http://x//", "a path is not allowed"},
	{"http", "http://x?q=1", "a query is not allowed"},
	{"http", "http://x/?q=1", "a query is not allowed"},
	{"http", "http://x#f", "a fragment is not allowed"},
	{"http", "http://user:pw@x", "user name and password are not allowed"},
	{"http", "user:pw@x:80", "user name and password are not allowed"},
	{"http", "local host:80", "only printable ASCII"},
	{"http", "x\x00:80", "only printable ASCII"},
	{"http", "x\x1b[31m:80", "only printable ASCII"},
	{"http", "bücher:80", "only printable ASCII"},
	{"tcp", "http://x:80", "a tcp endpoint forwards to PORT or HOST:PORT"},
	{"tcp", "tcp://x", "the port is missing"},
	{"tcp", "x", "the port is missing"},
}

func TestParseUpstream_ErrorsNameValueAndRemedy(t *testing.T) {
	t.Parallel()
	for _, c := range invalidUpstreams {
		u, err := ParseUpstream(c.scheme, c.raw)
		if err == nil || account.CodeOf(err) != account.CodeInvalid || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %q: got %v, %v; want %q", c.scheme, c.raw, u, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), "pw") {
			t.Errorf("the password is in the error: %v", err)
		}
	}
}

func FuzzParseUpstream(f *testing.F) {
	for _, s := range []string{"8080", ":1", "localhost:80", "[::1]:80", "http://x:1", "https://x/", "tcp://x:1",
		"fe80::1%a", "[fe80::1%a/b]:1", "a@b:1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		for _, scheme := range []string{"http", "tcp"} {
			u, err := ParseUpstream(scheme, raw)
			if err != nil {
				continue
			}
			again, err := ParseUpstream(scheme, u.String())
			if err != nil || again != u {
				t.Fatalf("%q became %q, which became %q, %v", raw, u, again, err)
			}
			parsed, err := url.Parse(u.String())
			if err != nil || parsed.Hostname() != u.Host || parsed.User != nil || parsed.Path != "" {
				t.Fatalf("%q became %q, which net/url reads as %+v, %v", raw, u, parsed, err)
			}
		}
	})
}
