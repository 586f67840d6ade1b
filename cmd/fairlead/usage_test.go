// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/fairlead-dev/fairlead/internal/agent/agentconfig"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

func TestMain(m *testing.M) {
	if os.Getenv(asProcess) != "" {
		main()
	}
	goleak.VerifyTestMain(m)
}

const goodToken = "flt_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"

type result struct {
	code     int
	out, err string
}

// fairlead runs a command line in a process environment of its own: home is an empty directory,
// unless env sets it.
func fairlead(t *testing.T, env map[string]string, stdin string, args ...string) result {
	t.Helper()
	if env == nil {
		env = map[string]string{}
	}
	if env["HOME"] == "" {
		env["HOME"] = t.TempDir()
	}
	var out, errOut bytes.Buffer
	code := run(t.Context(), args, console{
		in: strings.NewReader(stdin), out: &out, err: &errOut, env: func(k string) string { return env[k] },
		secret: func(string) (string, bool, error) { return "", false, nil },
	})
	return result{code, out.String(), errOut.String()}
}

// wrong is an invalid command line, and text of its error.
type wrong struct {
	args []string
	want string
}

// wrongForAgents are command lines of http and tcp; empty is the path of an empty file.
func wrongForAgents(empty string) map[string]wrong {
	ok := func(args ...string) []string {
		return append([]string{"http", "8080", "--url", "http://a.b", "--server", "https://s"}, args...)
	}
	secure := func(args ...string) []string {
		return append([]string{"http", "https://a", "--url", "http://a.b", "--server", "https://s"}, args...)
	}
	long := strings.Repeat("x", 5000)
	return map[string]wrong{
		"no target": {[]string{"http", "--url", "http://a.b"}, "fairlead http needs one argument"},
		"two targets": {[]string{"tcp", "1", "2", "--url", "tcp://a.b:1"},
			"fairlead tcp needs one argument, a PORT or HOST:PORT, and got 2"},
		"bad target":      {[]string{"http", "x y", "--url", "http://a.b"}, `the upstream "x y": only printable ASCII`},
		"no URL":          {[]string{"http", "8080"}, "--url is missing"},
		"tcp URL to http": {[]string{"http", "8080", "--url", "tcp://a.b:1"}, "use `fairlead tcp`"},
		"http URL to tcp": {[]string{"tcp", "8080", "--url", "http://a.b"}, "use `fairlead http`"},
		"other binding":   {ok("--binding", "cluster"), `--binding "cluster": must be kubernetes, internal or public`},
		"not public": {[]string{"http", "1", "--binding", "public", "--url", "https://app"},
			`--url "https://app": the hostname must be a full domain name`},
		"not internal": {ok("--binding", "internal"), "must end in .internal"},
		"tcp is not public": {[]string{"http", "1", "--binding", "public", "--url", "tcp://app.example.com:1"},
			"http or https"},
		"empty binding": {ok("--binding", ""), `--binding "": must be kubernetes, internal or public`},
		"two URLs": {[]string{"http", "1", "--url", "http://a.b", "--url", "http://c.d"},
			"one URL, and http://a.b was given before; write several into the config file"},
		"authority of a plain upstream": {ok("--upstream-ca-file", "ca.crt"),
			`--upstream-ca-file "ca.crt": is for an upstream with TLS`},
		"fingerprint of a plain upstream": {ok("--upstream-ca-sha256", "ab"),
			`--upstream-ca-sha256 "ab": is for an upstream with TLS`},
		"server name of a plain upstream": {ok("--upstream-server-name", "api.corp"),
			`--upstream-server-name "api.corp": is for an upstream with TLS`},
		"bad fingerprint of an upstream": {secure("--upstream-ca-sha256", "ab"),
			`--upstream-ca-sha256 "ab": must be the 64 hex digits`},
		"bad server name": {secure("--upstream-server-name", "api.corp:443"),
			`--upstream-server-name "api.corp:443": must be a name or an IP address`},
		"empty authority": {secure("--upstream-ca-file", empty),
			`holds no PEM certificate; it should begin with -----BEGIN CERTIFICATE-----`},
		"PROXY protocol to http": {ok("--proxy-protocol", "2"),
			`--proxy-protocol "2": is for tcp endpoints; an http upstream finds the caller's address in X-Forwarded`},
		"trust without an account": {[]string{"connect", "tcp://a.b:1", "--seal-authority", "x"},
			`--seal-account "": give the id of the account`},
		"trust without authorities": {[]string{"connect", "tcp://a.b:1", "--seal-account",
			"ac-06f0l2rj1qg4o3b5e6s7t8u9v0"}, "and --seal-authority, both"},
		"trust in no file": {[]string{"connect", "tcp://a.b:1", "--seal-account", "ac-06f0l2rj1qg4o3b5e6s7t8u9v0",
			"--seal-authority", "/does/not/exist"}, `--seal-authority "/does/not/exist": `},
		"sealed without a certificate": {[]string{"tcp", "1", "--url", "tcp://a.b:1", "--sealed", "/does/not/exist"},
			`--sealed "/does/not/exist": `},
		"callers of a plain endpoint": {[]string{"tcp", "1", "--url", "tcp://a.b:1", "--seal-callers", "x"},
			"is for a sealed endpoint: give --sealed"},
		"version of the PROXY protocol": {[]string{"tcp", "1", "--url", "tcp://a.b:1", "--proxy-protocol", "v2"},
			`--proxy-protocol "v2": must be 1 or 2`},
		"missing authority": {[]string{"http", "https://a", "--url", "http://a.b", "--upstream-ca-file", "/nowhere"},
			`--upstream-ca-file "/nowhere": reading CA file`},
		"protocol": {ok("--upstream-protocol", "h2"), `--upstream-protocol "h2": must be http1 or http2`},
		"protocol of tcp": {[]string{"tcp", "1", "--url", "tcp://a.b:1", "--upstream-protocol", "http2"},
			"unknown flag: --upstream-protocol"},
		"log format":           {ok("--log-format", "xml"), `--log-format "xml": must be text or json`},
		"log level":            {ok("--log-level", "trace"), `--log-level "trace": must be debug, info, warn or error`},
		"name too long":        {ok("--name", long), "has 5000 bytes, and 128 are allowed"},
		"description too long": {ok("--description", long), "has 5000 bytes, and 255 are allowed"},
		"metadata too long":    {ok("--metadata", long), "has 5000 bytes, and 4096 are allowed"},
		"metadata not UTF-8":   {ok("--metadata", "\xff"), "--metadata"},
		"NUL in a name":        {ok("--name", "a\x00"), "without NUL"},
		"server scheme":        {ok("--server", "http://s"), `--server "http://s": the scheme must be https`},
		"server path":          {ok("--server", "https://s/x"), "--server"},
		"server port":          {ok("--server", "https://s:99999"), "--server"},
		"no server": {[]string{"http", "8080", "--url", "http://a.b"},
			"no server is configured: give --server"},
		"no such CA file":  {ok("--ca-file", "/does/not/exist"), "--ca-file: reading CA file"},
		"empty CA file":    {ok("--ca-file", empty), "holds no PEM certificate"},
		"bad fingerprint":  {ok("--ca-sha256", "xyz"), `--ca-sha256: ca-sha256 "xyz": want the 64 hex digits`},
		"both trust flags": {ok("--ca-sha256", "xyz", "--ca-file", empty), "exclude each other"},
		"no such config":   {ok("--config", "/does/not/exist"), "does not exist"},
		"unknown flag":     {ok("--bogus"), "unknown flag: --bogus; run `fairlead http --help`"},
		"host header": {ok("--host-header", "a b"),
			`--host-header "a b": must be passthrough, rewrite, or a host name`},
		"host header of tcp": {[]string{"tcp", "1", "--url", "tcp://a.b:1", "--host-header", "x"},
			"unknown flag: --host-header"},
		"no such policy": {ok("--traffic-policy-file", "/does/not/exist"),
			`--traffic-policy-file: "/does/not/exist" does not exist`},
		"empty policy": {ok("--traffic-policy-file", empty), "is empty; write the policy, or leave the file out"},
		"policy of no pool": {ok("--replace-pool-policy"),
			`--replace-pool-policy "true": belongs to a pool: it needs --pooling-enabled`},
		"flag without value":   {[]string{"http", "8080", "--url"}, "flag needs an argument: --url"},
		"token as an argument": {ok("--authtoken", goodToken), "every user of this machine can read process arguments"},
	}
}

func wrongForConnect() map[string]wrong {
	ok := func(args ...string) []string {
		return append([]string{"connect", "http://a.b", "tcp://c.d:1"}, args...)
	}
	return map[string]wrong{
		"connects to nothing": {[]string{"connect"}, "give the URL of an endpoint"},
		"connects to a site":  {[]string{"connect", "https://a.b"}, `URL "https://a.b": the scheme must be http`},
		"connects to many":    {append([]string{"connect"}, make([]string, 65)...), "65 URLs are given"},
		"connects twice":      {ok("http://A.b:80"), "http://a.b is given twice"},
		"no such port":        {ok("--port", "http://a.b=0"), `--port "http://a.b=0": must be PORT or URL=PORT`},
		"port of which":       {ok("--port", "1"), `--port "1": must name one of the URLs, as URL=PORT`},
		"port of another":     {ok("--port", "http://x.y=1"), `--port "http://x.y=1": must name one of the URLs`},
		"port of a site":      {ok("--port", "ftp://x=1"), `--port: URL "ftp://x": the scheme`},
	}
}

func wrongForTunnels() map[string]wrong {
	return map[string]wrong{
		"no label":            {[]string{"tunnel", "8080"}, "--label is missing: give at least one"},
		"label without value": {[]string{"tunnel", "8080", "--label", "app"}, `--label "app": must be LABEL=VALUE`},
		"label twice":         {[]string{"tunnel", "8080", "--label", "app=a", "--label", "app=b"}, "is given twice"},
		"empty label": {[]string{"tunnel", "8080", "--label", "=a"},
			`--label "=a": neither the label nor its value may be empty`},
		"label with a space": {[]string{"tunnel", "8080", "--label", "app=a b"},
			`--label "app=a b": only printable ASCII`},
		"URL of a tunnel": {[]string{"tunnel", "8080", "--label", "app=a", "--url", "http://a.b"},
			"unknown flag: --url"},
		"target of a tunnel": {[]string{"tunnel", "ftp://x", "--label", "app=a"},
			"give PORT, HOST:PORT, or a URL with http, https or tcp"},
		"protocol of a tunnel": {[]string{"tunnel", "8080", "--label", "app=a", "--upstream-protocol", "h2"},
			"must be http1 or http2"},
	}
}

func wrongForOthers(empty string) map[string]wrong {
	return map[string]wrong{
		"no URL to doctor": {[]string{"doctor", "--context", "prod"}, "without a URL asks no cluster"},
		"two URLs to doctor": {[]string{"doctor", "http://a.b", "http://c.d"},
			"fairlead doctor takes one argument, the endpoint's URL, and got 2"},
		"https without binding": {[]string{"http", "8080", "--url", "https://a.example.com"},
			"https:// is for endpoints with the public binding"},
		"bad URL to doctor": {[]string{"doctor", "ftp://a.b"}, "the scheme must be http or tcp"},
		"export to doctor":  {[]string{"doctor", "svcex/hello"}, "give serviceexport/NAMESPACE/NAME"},
		"name in cluster":   {[]string{"doctor", "a.b.svc.cluster.local"}, "the scheme is missing"},
		"doctor's output":   {[]string{"doctor", "http://a.b", "-o", "yaml"}, `--output "yaml": must be table or json`},
		"doctor's pod": {[]string{"doctor", "http://a.b", "--from-pod", "--x/y"},
			`--from-pod "--x/y": give NAMESPACE/POD`},
		"doctor's namespace": {[]string{"doctor", "http://a.b", "--operator-namespace", "-A"},
			`--operator-namespace "-A"`},
		"doctor's key": {[]string{"doctor", "http://a.b", "--api-key-file", empty, "--server", "https://s"},
			"the file is empty"},
		"unknown command": {[]string{"htp"}, "did you mean `fairlead http`?"},
		"misspelt flag": {[]string{"http", "8080", "--ulr", "http://a.b"},
			"unknown flag: --ulr; did you mean --url?"},
		"unknown help topic": {[]string{"help", "htp"}, "unknown help topic \"htp\"; did you mean `fairlead http`?"},
		"unknown inner topic": {[]string{"help", "config", "nosuch"},
			"unknown help topic \"nosuch\"; run `fairlead config --help`"},
		"unknown shell":       {[]string{"completion", "bsh"}, "did you mean `fairlead completion bash`?"},
		"unknown subcommand":  {[]string{"config", "chek"}, "did you mean `fairlead config check`?"},
		"no authtoken to add": {[]string{"config", "add-authtoken"}, "needs one argument, the authtoken, or -"},
		"argument of version": {[]string{"version", "x"}, "takes no argument"},
		"argument of check":   {[]string{"config", "check", "x"}, "takes no argument"},
		"server of add-authtoken": {[]string{"config", "add-authtoken", goodToken, "--server", "ftp://x"},
			"the scheme must be https"},
		"CA of add-authtoken": {[]string{"config", "add-authtoken", goodToken, "--ca-file", empty},
			"holds no PEM certificate"},
	}
}

func TestRun_WrongUsageExitsWith2(t *testing.T) {
	t.Parallel()
	empty := filepath.Join(t.TempDir(), "ca.pem")
	must.Succeed(t, os.WriteFile(empty, nil, 0o600))
	cases := wrongForAgents(empty)
	maps.Copy(cases, wrongForTunnels())
	maps.Copy(cases, wrongForConnect())
	maps.Copy(cases, wrongForOthers(empty))
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			home := t.TempDir()
			r := fairlead(t, map[string]string{"HOME": home, agentconfig.EnvAuthtoken: goodToken}, "", c.args...)
			if r.code != exitUsage || r.out != "" || !strings.Contains(r.err, c.want) ||
				strings.Count(r.err, "\n") != 1 {
				t.Errorf("got %+v, want code 2 and one line with %q", r, c.want)
			}
			if strings.Contains(r.err, goodToken) {
				t.Errorf("the authtoken is in the error: %s", r.err)
			}
			if left, _ := os.ReadDir(home); len(left) != 0 {
				t.Errorf("wrong usage left %v behind", left)
			}
		})
	}
}

// TestConfigCheck_NamesEverythingWrong: one run is enough to mend a file.
func TestConfigCheck_NamesEverythingWrong(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "config.yaml")
	const text = "server_url: ftp://x\nauthtokn: flt_a\nauthtoken: flk_a\nca_sha256: zz\nendpoints:\n- name: " +
		"a\n  url: " +
		"http://a\n  upstream: 1\n- url: http://a.b\n"
	must.Succeed(t, os.WriteFile(path, []byte(text), 0o600))
	r := fairlead(t, nil, "", "config", "check", "--config", path)
	wants := []string{`unknown key "authtokn"`, "is an API key", "the scheme must be https", `ca-sha256 "zz"`,
		"each entry needs a name", "the hostname must be", "endpoints[1]: upstream is missing"}
	for _, want := range wants {
		if !strings.Contains(r.err, want) {
			t.Errorf("%q is not named", want)
		}
	}
	if r.code == 0 || strings.Count(r.err, "\n") != len(wants) {
		t.Errorf("exit code %d, errors:\n%s", r.code, r.err)
	}
}

func TestVersion_AcceptsFlag(t *testing.T) {
	t.Parallel()
	want := fairlead(t, nil, "", "version")
	for _, arg := range []string{"--version", "-v"} {
		if got := fairlead(t, nil, "", arg); got != want || got.code != 0 || !strings.HasPrefix(got.out, "fairlead ") {
			t.Errorf("%s: %+v, want %+v", arg, got, want)
		}
	}
}

func TestCompletion_OffersBindings(t *testing.T) {
	t.Parallel()
	for flag, want := range map[string]string{"--binding": "kubernetes\ninternal\npublic\n",
		"--upstream-protocol": "http1\nhttp2\n", "--log-format": "text\njson\n"} {
		if r := fairlead(t, nil, "", "__complete", "http", "8080", flag, ""); !strings.HasPrefix(r.out, want) {
			t.Errorf("%s: %q, want %q", flag, r.out, want)
		}
	}
}

func TestURLFlag_RefusesInvalidServiceNames(t *testing.T) {
	t.Parallel()
	const portRule, scheme, host = "port", "the scheme must be http or tcp", "the hostname must be"
	label64 := strings.Repeat("a", 64)
	for _, c := range []struct{ url, want string }{
		{"http://a.b", ""}, {"http://a.b/", ""}, {"http://a.b:", ""}, {"http://a.b:80", ""}, {"http://A.B", ""},
		{"tcp://a.b:5432", ""}, {"http://a.b:65535", ""},
		{"a.b:8080", `did you mean "http://a.b:8080"?`},
		{"tcp://a.b", portRule}, {"tcp://a.b:0", portRule}, {"tcp://a.b:70000", portRule},
		{"tcp://a.b:99999999999", portRule},
		{"tcp://a.b:-1", portRule}, {"tcp://a.b:080", portRule}, {"tcp://a.b:8x", portRule}, {"http://a.b:0", portRule},
		{"http://a.b:8x", portRule},
		{"https://a.b", scheme}, {"tls://a.b", scheme}, {"ftp://a.b", scheme},
		{"http://a", host}, {"http://a.b.c", host}, {"http://.b", host}, {"http://a.", host}, {"http://a.b.", host},
		{"http://*.b", host},
		{"http://10.0", host}, {"http://[::1]:80", host},
		{"http://a.b/path", "a path is not allowed"}, {"http://a.b?q", "a query is not allowed"},
		{"http://a.b#f", "a fragment is not allowed"},
		{"http://user:pw@a.b", "user name and password are not allowed"},
		{"http://" + label64 + ".b", host}, {"http://a." + label64, host}, {"http://a_b.c", host},
		{"http://bücher.b", "only printable ASCII"}, {"http://a\x1b.b", "only printable ASCII"},
		{"http://a\x00.b", "only printable ASCII"},
	} {
		t.Run(c.url, func(t *testing.T) {
			t.Parallel()
			command := "http"
			if strings.HasPrefix(c.url, "tcp:") {
				command = "tcp"
			}
			r := fairlead(t, map[string]string{agentconfig.EnvAuthtoken: goodToken}, "", command, "8080", "--url",
				c.url)
			want := c.want
			if want == "" {
				want = "no server is configured" // the URL was accepted, and the next check fails
			}
			if r.code != exitUsage || !strings.Contains(r.err, want) {
				t.Errorf("got %+v, want %q", r, want)
			}
			if c.want != "" && !strings.Contains(r.err, "--url ") {
				t.Errorf("the flag is not named: %s", r.err)
			}
		})
	}
}

func TestHTTP_InvalidAuthtokenIsExitCode3(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		token string
		want  string
	}{
		"missing": {"", "no authtoken is configured: run `fairlead config add-authtoken -`"},
		"API key": {"flk_SECRET", "FAIRLEAD_AUTHTOKEN is an API key"},
		"garbage": {"SECRET", "those begin with flt_"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := fairlead(t, map[string]string{agentconfig.EnvAuthtoken: c.token}, "", "http", "8080", "--url",
				"http://a.b",
				"--server", "https://s")
			if r.code != exitCredentials || !strings.Contains(r.err, c.want) || strings.Contains(r.err, "SECRET") {
				t.Errorf("got %+v, want code 3 and %q", r, c.want)
			}
		})
	}
}

func TestHTTP_JSONErrors(t *testing.T) {
	t.Parallel()
	r := fairlead(t, nil, "", "http", "8080", "--url", "ftp://a.b", "--log-format", "json")
	var line struct {
		Level, Event, Cause string
		ExitCode            int `json:"exit_code"`
	}
	if err := json.Unmarshal([]byte(r.err), &line); err != nil || line.Event != "failed" || line.ExitCode != 2 ||
		r.code != 2 || !strings.Contains(line.Cause, "--url") {
		t.Errorf("got %+v, %v", r, err)
	}
}

func TestHelp_HasExamples(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{}, {"http"}, {"tcp"}, {"tunnel"}, {"start"}, {"doctor"}, {"config"},
		{"config", "add-authtoken"}, {"config", "check"}, {"policy"}, {"policy", "check"}, {"version"},
		{"login"}, {"logout"}, {"status"}, {"seal"},
		{"seal", "init"}, {"seal", "request"}, {"seal", "sign"}, {"seal", "status"}, {"seal", "log"}} {
		r := fairlead(t, nil, "", append(args, "--help")...)
		if r.code != 0 || !strings.Contains(r.out, "fairlead "+strings.Join(args, " ")) {
			t.Errorf("%v: %+v", args, r)
		}
		if len(args) > 0 && args[len(args)-1] != "config" && args[len(args)-1] != "policy" &&
			!strings.Contains(r.out, "Examples:\n  fairlead "+strings.Join(args, " ")) {
			t.Errorf("%v: no example in\n%s", args, r.out)
		}
	}
	if r := fairlead(t, nil, "", "--help"); !strings.Contains(r.out, "Exit codes:") {
		t.Error("the exit codes are not documented")
	}
	if r := fairlead(t, nil, "", "version"); r.code != 0 || !strings.HasPrefix(r.out, "fairlead ") {
		t.Errorf("version: %+v", r)
	}
}

func TestHTTP_CancelledStartExits0(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out, errOut bytes.Buffer
	env := map[string]string{"HOME": t.TempDir(), agentconfig.EnvAuthtoken: goodToken}
	code := run(ctx, []string{"http", "8080", "--url", "http://a.b", "--server", "https://127.0.0.1:1"},
		console{in: strings.NewReader(""), out: &out, err: &errOut, env: func(k string) string { return env[k] }})
	if code != 0 || errOut.Len() > 0 || !strings.Contains(out.String(), "stopped") {
		t.Errorf("code %d, %q, %q", code, out.String(), errOut.String())
	}
}
