// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agentconfig

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

func noEnv(string) string { return "" }

func env(pairs ...string) Getenv {
	return func(name string) string {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

func TestLoad_Precedence(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := write(t, filepath.Join(dir, "config.yaml"), "server_url: https://file\nauthtoken: "+tokenA+
		"\nca_file: sub/ca.pem\n", 0o600)
	tokenFile := write(t, filepath.Join(dir, "token"), tokenB+"\n", 0o600)
	for name, c := range map[string]struct {
		flags                     Flags
		env                       Getenv
		server, token, caFile, fp string
		serverSource              string
	}{
		"file alone": {Flags{}, env(EnvConfig, path),
			"https://file", tokenA, filepath.Join(dir, "sub/ca.pem"), "", "server_url in " + path},
		"file by XDG": {Flags{}, env("XDG_CONFIG_HOME", dir, "HOME", "/nowhere"), "", "", "", "", ""},
		"environment over file": {Flags{},
			env(EnvConfig, path, EnvServerURL, "https://env", EnvAuthtoken, tokenB, EnvCAFile,
				"/env.pem"),
			"https://env", tokenB, "/env.pem", "", EnvServerURL},
		"flags over both": {Flags{Config: path, ServerURL: "https://flag", AuthtokenFile: tokenFile,
			CAFile: "flag.pem"},
			env(EnvConfig, "/no/such", EnvServerURL, "https://env", EnvAuthtoken, tokenA, EnvCAFile, "/env.pem"),
			"https://flag", tokenB, "flag.pem", "", "--server"},
		"token from standard input": {Flags{Config: path, AuthtokenFile: "-"}, noEnv, "https://file", tokenB,
			filepath.Join(dir, "sub/ca.pem"), "", "server_url in " + path},
		"fingerprint replaces a lower CA file": {Flags{Config: path, CASHA256: "ab"}, env(EnvCAFile, "/env.pem"),
			"https://file", tokenA, "", "ab", "server_url in " + path},
		"empty variables are not set": {Flags{Config: path}, env(EnvServerURL, "", EnvAuthtoken, ""),
			"https://file", tokenA, filepath.Join(dir, "sub/ca.pem"), "", "server_url in " + path},
		"no home, all given": {Flags{}, env(EnvServerURL, "https://env", EnvAuthtoken, tokenB), "https://env", tokenB,
			"", "",
			EnvServerURL},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := Load(c.flags, c.env, strings.NewReader(tokenB+"\n"))
			must.Succeed(t, err)
			got := fmt.Sprint(s.ServerURL.Text, " ", s.Authtoken(), " ", s.CAFile.Text, " ", s.CASHA256.Text, " ",
				s.ServerURL.Source)
			want := fmt.Sprint(c.server, " ", c.token, " ", c.caFile, " ", c.fp, " ", c.serverSource)
			if got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
}

func TestLoad_APIKeyPrecedence(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := write(t, filepath.Join(dir, "config.yaml"), "api_key: malformed\n", 0o600)
	keyFile := write(t, filepath.Join(dir, "key"), "flk_flag\n", 0o600)
	for want, c := range map[string]struct {
		flags Flags
		env   Getenv
	}{
		"flk_flag --api-key-file " + keyFile: {Flags{APIKeyFile: keyFile}, env(EnvConfig, path, EnvAPIKey, "flk_env")},
		"flk_env FAIRLEAD_API_KEY":           {Flags{}, env(EnvConfig, path, EnvAPIKey, "flk_env")},
		"malformed api_key in " + path:       {Flags{}, env(EnvConfig, path, EnvAPIKey, " ")},
		"flk_only FAIRLEAD_API_KEY":          {Flags{ServerURL: "https://s"}, env(EnvAPIKey, "flk_only")},
		" ":                                  {Flags{}, env("HOME", dir)},
	} {
		s, err := Load(c.flags, c.env, nil)
		if err != nil || s.APIKey()+" "+s.APIKeySource() != want || s.APIKeyStored() != strings.HasSuffix(want, path) {
			t.Errorf("got %s %s, %v; want %s", s.APIKey(), s.APIKeySource(), err, want)
		}
	}
}

func TestPath_XDG(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		env  Getenv
		want string
	}{
		"XDG_CONFIG_HOME":             {env("XDG_CONFIG_HOME", "/x", "HOME", "/h"), "/x/fairlead/config.yaml"},
		"relative XDG value, ignored": {env("XDG_CONFIG_HOME", "x", "HOME", "/h"), "/h/.config/fairlead/config.yaml"},
		"home":                        {env("HOME", "/h"), "/h/.config/fairlead/config.yaml"},
		"variable":                    {env(EnvConfig, "/c.yaml", "HOME", "/h"), "/c.yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got, _, err := Path("", c.env); err != nil || got != c.want {
				t.Errorf("got %q, %v; want %q", got, err, c.want)
			}
		})
	}
	if _, _, err := Path("", noEnv); err == nil || !strings.Contains(err.Error(), "--config") {
		t.Errorf("without a home directory: %v, want a remedy", err)
	}
	if dir, err := StateDir(env("HOME", "/h")); err != nil || dir != "/h/.local/state/fairlead" {
		t.Errorf("state directory %q, %v", dir, err)
	}
}

func TestLoad_RefusesBadSettings(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, c := range map[string]struct {
		flags Flags
		env   Getenv
		want  string
	}{
		"named file missing": {Flags{Config: filepath.Join(dir, "none.yaml")}, noEnv, "does not exist"},
		"named directory":    {Flags{Config: dir}, noEnv, "is a directory"},
		"both trust flags": {Flags{CAFile: "a", CASHA256: "b"}, env("HOME", dir),
			"--ca-file and --ca-sha256 exclude each other"},
		"both trust variables": {Flags{}, env("HOME", dir, EnvCAFile, "a", EnvCASHA256, "b"),
			"FAIRLEAD_CA_FILE and FAIRLEAD_CA_SHA256 exclude"},
		"token file missing": {Flags{AuthtokenFile: filepath.Join(dir, "none")}, env("HOME", dir),
			"reading --authtoken-file"},
		"no home, nothing elsewhere": {Flags{}, noEnv, "HOME"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := Load(c.flags, c.env, nil); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestCheckAuthtoken_HintsWithoutToken(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ token, want string }{
		"API key":      {"flk_SECRETSECRETSECRET", "is an API key"},
		"other prefix": {"SECRETSECRETSECRET", "those begin with flt_"},
		"prefix only":  {"flt_", "cut off"},
		"inner space":  {"flt_SECRET SECRET", "holds a character that no authtoken has"},
		"control":      {"flt_SECRET\x1b[31m", "holds a character that no authtoken has"},
		"too long":     {"flt_SECRET" + strings.Repeat("A", 300), "too long"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			tokenFile := write(t, filepath.Join(dir, "token"), c.token, 0o600)
			_, byEnv := Load(Flags{}, env("HOME", dir, EnvAuthtoken, c.token), nil)
			_, byFile := Load(Flags{AuthtokenFile: tokenFile}, env("HOME", dir), nil)
			_, byStdin := Load(Flags{AuthtokenFile: "-"}, env("HOME", dir), strings.NewReader(c.token))
			for from, err := range map[string]error{EnvAuthtoken: byEnv, tokenFile: byFile, "standard input": byStdin} {
				var bad *CredentialError
				if !errors.As(err, &bad) || !strings.Contains(err.Error(), c.want) ||
					!strings.Contains(err.Error(), from) {
					t.Errorf("got %v, want a CredentialError with %q and %q", err, from, c.want)
				}
				if strings.Contains(err.Error(), "SECRET") {
					t.Errorf("the secret is in the error: %v", err)
				}
			}
		})
	}
}

func TestAuthtoken_RereadsRotatedFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, flags := range map[string]Flags{
		"token file": {AuthtokenFile: filepath.Join(dir, "token"),
			Config: write(t, filepath.Join(dir, "empty.yaml"), "", 0o600)},
		"config file": {Config: filepath.Join(dir, "config.yaml")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path, format := flags.AuthtokenFile, "%s\n"
			if path == "" {
				path, format = flags.Config, "authtoken: %s\n"
			}
			write(t, path, fmt.Sprintf(format, tokenA), 0o600)
			s, err := Load(flags, noEnv, nil)
			if err != nil || s.Authtoken() != tokenA {
				t.Fatalf("got %q, %v", s.Authtoken(), err)
			}
			write(t, path, fmt.Sprintf(format, tokenB), 0o600)
			if got := s.Authtoken(); got != tokenB {
				t.Errorf("after rotation: %q", got)
			}
			write(t, path, fmt.Sprintf(format, "flk_x"), 0o600)
			if got := s.Authtoken(); got != tokenB {
				t.Errorf("after the file broke: %q", got)
			}
			must.Succeed(t, os.Remove(path))
			if got := s.Authtoken(); got != tokenB {
				t.Errorf("after the file went: %q", got)
			}
		})
	}
}

func TestLoad_WarnsOfReadableAuthtoken(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text string
		mode os.FileMode
		warn bool
	}{
		"private":            {"authtoken: " + tokenA, 0o600, false},
		"world can read":     {"authtoken: " + tokenA, 0o604, true},
		"group can read":     {"authtoken: " + tokenA, 0o640, true},
		"no secret in it":    {"server_url: https://a", 0o644, false},
		"authtoken is empty": {"authtoken:", 0o644, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := write(t, filepath.Join(t.TempDir(), "config.yaml"), c.text+"\n", c.mode)
			s, err := Load(Flags{Config: path}, noEnv, nil)
			if err != nil || (len(s.Warnings) > 0) != c.warn {
				t.Fatalf("warnings %q, %v", s.Warnings, err)
			}
			if c.warn && (!strings.Contains(s.Warnings[0], "chmod 600 "+path) ||
				strings.Contains(s.Warnings[0], tokenA)) {
				t.Errorf("warning %q", s.Warnings[0])
			}
		})
	}
}
