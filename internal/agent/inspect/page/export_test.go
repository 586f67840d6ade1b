// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"encoding/json"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/fairlead-dev/fairlead/internal/agent/inspect"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// wordsOf runs a command in a shell in which curl writes its arguments and its input.
func wordsOf(t *testing.T, command string) (words []string, input string) {
	t.Helper()
	script := "curl() { for word in \"$@\"; do printf '%s\\0' \"$word\"; done; printf '\\1'; " +
		"case \"$*\" in *@-*) cat;; esac; }\n" + command + "\n"
	cmd := exec.CommandContext(t.Context(), "sh")
	cmd.Stdin, cmd.Dir, cmd.Env = strings.NewReader(script), t.TempDir(), []string{"PATH=/usr/bin:/bin", "LC_ALL=C"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s\n%s", err, out, command)
	}
	list, input, _ := strings.Cut(string(out), "\x00\x01")
	return strings.Split(list, "\x00"), input
}

func contains(words []string, pair ...string) bool {
	return strings.Contains("\x00"+strings.Join(words, "\x00")+"\x00", "\x00"+strings.Join(pair, "\x00")+"\x00")
}

func TestCurl_PassesEveryTextAsOneWord(t *testing.T) {
	t.Parallel()
	for _, hostile := range []string{"plain", "'; touch /tmp/x; '", "$(id)", "`id`", "\\", "!!", "a\nb", "\x1b[201~id",
		"*",
		"é", "-K/etc/passwd", "@/etc/passwd", "%s%n", "a\u202eb", "\xff\xfe"} {
		e := exchange("a", "PUT", "/x?q="+hostile, 200, "", "")
		e.Request.Header["X-One"] = []string{hostile}
		e.Request.Header["X-Empty"] = []string{""}
		e.Request.Header["Bad Name"] = []string{"x"}
		e.Request.Header["Content-Type"] = []string{"text/plain"}
		e.Request.Body = []byte(hostile)
		command, _ := curlCommand(e, newMasker(e, nil, true))
		words, input := wordsOf(t, command)
		if !contains(words, "--url", "http://api.demo/x?q="+hostile) ||
			!contains(words, "--header", "X-One: "+hostile) ||
			!contains(words, "--header", "X-Empty;") || !contains(words, "--request", "PUT") ||
			contains(words, "--header", "Host: api.demo") {
			t.Errorf("%q: %q", hostile, words)
		}
		if !contains(words, "--data-raw", hostile) && input != hostile {
			t.Errorf("%q: the body is %q", hostile, input)
		}
		if strings.ContainsAny(command, "\x1b\u202e") || !utf8.ValidString(command) {
			t.Errorf("%q: the command has characters that a terminal acts on: %q", hostile, command)
		}
	}
}

func FuzzShellQuote(f *testing.F) {
	for _, text := range []string{"", "a", "'", "\x00", "a\nb", "\\'", "é", "\x1b"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		quoted := shellQuote(text)
		if rest, ok := strings.CutPrefix(quoted, `"$(printf '`); ok {
			if strings.ContainsAny(strings.TrimSuffix(rest, `')"`), "'\n ") {
				t.Errorf("%q became %q", text, quoted)
			}
			return
		}
		if plain := strings.ReplaceAll(quoted, `'\''`, ""); strings.Count(plain, "'") != 2 || plain[0] != '\'' ||
			plain[len(plain)-1] != '\'' {
			t.Errorf("%q became %q", text, quoted)
		}
	})
}

// harFile is what readers of HTTP Archives need.
type harFile struct {
	Log struct {
		Version string
		Creator struct{ Name, Version string }
		Entries []harEntry
	}
}

func harOf(t *testing.T, text string) harFile {
	t.Helper()
	var file harFile
	if err := json.Unmarshal([]byte(text), &file); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return file
}

func TestHAR_IsComplete(t *testing.T) {
	t.Parallel()
	e := exchange("a", "POST", "/x?a=1&b=%20", 201, "application/json", "")
	e.Response.Header.Set("Content-Encoding", "gzip")
	e.Response.Body = gzipOf([]byte(`{"ok":true}`))
	e.Request.Body, e.Request.BodySize = []byte{0, 1, 0xff}, 3
	open := exchange("b", "GET", "/open", 0, "", "")
	open.Response, open.Done = nil, false
	s := newSite(t, nil, e, open)
	res, body := s.do(http.MethodGet, "/har", "")
	if !strings.HasPrefix(res.Header.Get("Content-Disposition"), "attachment;") {
		t.Errorf("headers: %v", res.Header)
	}
	file := harOf(t, body)
	if file.Log.Version != "1.2" || file.Log.Creator.Name != "Fairlead" || len(file.Log.Entries) != 2 {
		t.Fatalf("%+v", file)
	}
	one := file.Log.Entries[0]
	if one.Request.URL != "http://api.demo/x?a=1&b=%20" || len(one.Request.Query) != 2 ||
		one.Request.Query[1].Value != " " ||
		one.Request.Body == nil || one.Request.Body.Encoding != "base64" || one.Response.Status != 201 ||
		one.Response.Content.Text != `{"ok":true}` || one.Time != 12 || one.Timings.Wait != 9 ||
		one.Timings.Receive != 3 {
		t.Errorf("%+v", one)
	}
	if entry := harOf(t, s.get("/requests/b/har")).Log.Entries; len(entry) != 1 || entry[0].Response.Status != 0 {
		t.Errorf("an open request: %+v", entry)
	}
}

func FuzzHAR(f *testing.F) {
	f.Add("GET", "/x?a=b", "gzip", "text/plain", []byte("body"))
	f.Fuzz(func(t *testing.T, method, target, encoding, contentType string, body []byte) {
		e := exchange("a", method, target, 200, contentType, string(body))
		e.Response.Header["Content-Encoding"] = []string{encoding}
		e.Request.Header["Authorization"] = []string{"Bearer " + secretBearer}
		e.Request.Body = append([]byte(secretBearer), body...)
		left := int64(maxHARBodies)
		data, err := json.Marshal(entryOf(e, newMasker(e, nil, false), &left))
		must.Succeed(t, err)
		if strings.Contains(string(data), secretBearer) && !strings.Contains(method+target+string(body), "planted") {
			t.Errorf("a secret is in the file: %s", data)
		}
	})
}

func TestCurl_NeedsHTTP(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil, rawExchange(), &inspect.Exchange{ID: "empty", Done: true})
	for _, id := range []string{"raw", "empty"} {
		if res, _ := s.do(http.MethodGet, "/requests/"+id+"/curl", ""); res.StatusCode != http.StatusConflict {
			t.Errorf("%s: %s", id, res.Status)
		}
		s.get("/requests/" + id)
		harOf(t, s.get("/requests/"+id+"/har"))
	}
}
