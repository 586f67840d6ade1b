// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agentconfig

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

const (
	tokenA = "flt_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
	tokenB = "flt_BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBB"
)

func write(t *testing.T, path, text string, mode os.FileMode) string {
	t.Helper()
	must.Succeed(t, os.WriteFile(path, []byte(text), mode))
	must.Succeed(t, os.Chmod(path, mode))
	return path
}

func TestLoad_ErrorsNameFileLineAndRemedy(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, want string }{
		"unknown key": {"# mine\nserver_url: https://a\nserver: b\n",
			`line 3: unknown key "server"; known keys are server_url, authtoken`},
		"key twice":     {"ca_file: a\nca_file: b\n", "line 2: key \"ca_file\" appears twice"},
		"nested value":  {"server_url:\n  a: b\n", `line 2: the value of "server_url" must be a text`},
		"list":          {"- a\n", "line 1: the file must be a list of lines like"},
		"plain text":    {"hello\n", "line 1: the file must be a list of lines like"},
		"not YAML":      {"server_url: a\n\tauthtoken: b\n", "is not valid YAML: line 2"},
		"two documents": {"server_url: a\n---\nserver_url: b\n", "more than one document"},
		"alias":         {"server_url: &x a\nca_file: *x\n", `line 2: the value of "ca_file" must be a text`},
		"far too large": {strings.Repeat("# filler\n", 200000), "is larger than 1024 KiB"},
		"several mistakes": {"serve: a\nca_file: [a]\nca_file: b\n",
			`line 1: unknown key "serve"; known keys are ` +
				`server_url, authtoken, api_key, ca_file, ca_sha256, endpoints, tunnels`},
		"and the next":     {"serve: a\nca_file: [a]\n", `line 2: the value of "ca_file" must be a text`},
		"key is a mapping": {"? {a: b}\n: c\n", "unknown key"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := write(t, filepath.Join(t.TempDir(), "config.yaml"), c.text, 0o600)
			_, err := Load(Flags{Config: path}, noEnv, nil)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
				t.Fatalf("got %v, want the path and %q", err, c.want)
			}
			if err := Save(path, map[string]string{KeyAuthtoken: tokenA}); err == nil {
				t.Error("Save changed a file that does not load")
			}
			if after, _ := os.ReadFile(path); string(after) != c.text {
				t.Errorf("the file was changed to %q", after)
			}
		})
	}
}

func TestSave_KeepsKeysOrderAndComments(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ before, want string }{
		"replaced in place": {
			"# where\nserver_url: https://a:8443 # ours\n# secret\nauthtoken: " + tokenB + " # old\nca_file: ca.pem\n",
			"# where\nserver_url: https://a:8443 # ours\n# secret\nauthtoken: " + tokenA + " # old\nca_file: ca.pem\n"},
		"appended":      {"server_url: https://a\n", "server_url: https://a\nauthtoken: " + tokenA + "\n"},
		"empty file":    {"", "authtoken: " + tokenA + "\n"},
		"comments only": {"# nothing yet", "# nothing yet\nauthtoken: " + tokenA + "\n"},
		"null document": {"---\n", "authtoken: " + tokenA + "\n"},
		"null value":    {"authtoken:\n", "authtoken: " + tokenA + "\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := write(t, filepath.Join(t.TempDir(), "config.yaml"), c.before, 0o644)
			must.Succeed(t, Save(path, map[string]string{KeyAuthtoken: tokenA}))
			if got, _ := os.ReadFile(path); string(got) != c.want {
				t.Errorf("got:\n%s\nwant:\n%s", got, c.want)
			}
			if info, _ := os.Stat(path); info.Mode().Perm() != 0o600 {
				t.Errorf("mode %v, want 0600", info.Mode().Perm())
			}
			s, err := Load(Flags{Config: path}, noEnv, nil)
			if err != nil || s.Authtoken() != tokenA || len(s.Warnings) != 0 {
				t.Errorf("loaded %q, %v, %v", s.Authtoken(), s.Warnings, err)
			}
		})
	}
}

func TestSave_CreatesPrivateFile(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a", "fairlead")
	path := filepath.Join(dir, "config.yaml")
	for range 2 {
		must.Succeed(t, Save(path, map[string]string{KeyAuthtoken: tokenA, KeyCASHA256: strings.Repeat("1", 64),
			KeyCAFile: ""}))
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("directory: %v, %v; want 0700", info.Mode(), err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("directory holds %v, %v; want the config file only", entries, err)
	}
	s, err := Load(Flags{Config: path}, noEnv, nil)
	if err != nil || s.CASHA256.Text != strings.Repeat("1", 64) {
		t.Errorf("a value of digits came back as %q, %v", s.CASHA256.Text, err)
	}
}

func TestSave_FollowsSymbolicLink(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	real := write(t, filepath.Join(dir, "dotfiles.yaml"), "server_url: https://a\n", 0o600)
	link := filepath.Join(dir, "config.yaml")
	must.Succeed(t, os.Symlink(real, link))
	must.Succeed(t, Save(link, map[string]string{KeyAuthtoken: tokenA}))
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link was replaced: %v, %v", info.Mode(), err)
	}
	if got, _ := os.ReadFile(real); !strings.Contains(string(got), tokenA) {
		t.Errorf("the linked file holds %q", got)
	}
}

func TestSave_RemovesEmptyKeys(t *testing.T) {
	t.Parallel()
	path := write(t, filepath.Join(t.TempDir(), "config.yaml"), "ca_file: a\nserver_url: https://a\n", 0o600)
	must.Succeed(t, Save(path, map[string]string{KeyCAFile: "", KeyCASHA256: "ff"}))
	if got, _ := os.ReadFile(path); string(got) != "server_url: https://a\nca_sha256: ff\n" {
		t.Errorf("got %q", got)
	}
}

func TestSave_ConvertsUTF16ToUTF8(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"little endian":     "\xff\xfe" + wide("server_url: https://ä.example\n", 0),
		"big endian":        "\xfe\xff" + wide("server_url: https://ä.example\n", 1),
		"UTF-8 with a mark": "\xef\xbb\xbfserver_url: https://ä.example\n",
	} {
		path := write(t, filepath.Join(t.TempDir(), "config.yaml"), text, 0o600)
		if err := Save(path, map[string]string{KeyAuthtoken: tokenA}); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got, _ := os.ReadFile(path); string(got) != "server_url: https://ä.example\nauthtoken: "+tokenA+"\n" {
			t.Errorf("%s: got %q", name, got)
		}
	}
}

// wide is a text of characters below 256 in UTF-16, with the low byte of each at its place low.
func wide(text string, low int) string {
	var b []byte
	for _, r := range text {
		pair := []byte{byte(r), 0}
		if low == 1 {
			pair = []byte{0, byte(r)}
		}
		b = append(b, pair...)
	}
	return string(b)
}

func FuzzConfigFile(f *testing.F) {
	for _, s := range []string{"", "# c", "a: b", "server_url: x\n# c\nauthtoken: y", "---\n", "{}", "{server_url: a}",
		"? a\n: b", "- a", "!!binary x: y", "\xfe\xff", "\xff\xfea\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		path := filepath.Join(t.TempDir(), "config.yaml")
		must.Succeed(t, os.WriteFile(path, []byte(text), 0o600))
		before, err := readFile(path, true)
		if err != nil {
			return
		}
		if err := Save(path, map[string]string{KeyAuthtoken: tokenA}); err != nil {
			t.Fatalf("saving over %q: %v", text, err)
		}
		after, err := readFile(path, true)
		if err != nil {
			data, _ := os.ReadFile(path)
			t.Fatalf("%q became %q: %v", text, data, err)
		}
		before.values[KeyAuthtoken] = tokenA
		for k, v := range before.values {
			if after.values[k] != v {
				t.Errorf("key %s: %q became %q", k, v, after.values[k])
			}
		}
	})
}
