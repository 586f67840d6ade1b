// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// planted is a part of each secret of secretMessage.
const planted = "pl4nt3d"

func secretMessage() *Message {
	return &Message{
		Method: "POST", URL: "/cb?code=" + planted + "&page=2&access_token=" + planted + "&user%5Bpassword%5D=" +
			planted,
		Header: http.Header{
			"Authorization": {"Bearer " + planted}, "Cookie": {"sid=" + planted},
			"Set-Cookie": {"a=" + planted, "b=" + planted},
			"X-Api-Key":  {planted}, "X-Auth-Token": {planted}, "X-Csrf": {planted}, "X-Marked": {planted},
			"Proxy-Authorization": {"Basic " + planted}, "Stripe-Signature": {planted}, "X-Access-Key": {planted},
			"Location": {"https://u:" + planted + "@host/cb?state=1#id_token=" + planted + "&x=1"},
			"Referer":  {"https://host/?token=" + planted},
			"Link":     {`<https://host/?page=2&api_key=` + planted + `>; rel="next"`}, "Accept": {"text/html"},
		},
		Trailer: http.Header{"X-Session-Id": {planted}, "X-Count": {"1"}},
	}
}

// maskedMessage masks a message whose exchange has no other.
func maskedMessage(m *Message, marked []string) Message {
	p := masking{marked: marked}
	return p.message(m)
}

func TestMask_HidesSecrets(t *testing.T) {
	t.Parallel()
	m := secretMessage()
	got := maskedMessage(m, []string{"x-marked"})
	if s := fmt.Sprintf("%+v", got); strings.Contains(s, planted) {
		t.Errorf("shown: %s", s)
	}
	for _, want := range []string{"page=2", "code=" + Masked, "access_token=" + Masked} {
		if !strings.Contains(got.URL, want) {
			t.Errorf("URL %s lacks %s", got.URL, want)
		}
	}
	if got.Header.Get("Accept") != "text/html" || got.Trailer.Get("X-Count") != "1" ||
		len(got.Header["Set-Cookie"]) != 2 ||
		!strings.Contains(got.Header.Get("Location"), "&x=1") || !strings.Contains(got.Header.Get("Link"), "page=2") {
		t.Errorf("masked too much: %+v", got)
	}
	if m.Header.Get("X-Api-Key") != planted || !strings.Contains(m.URL, planted) {
		t.Error("the message itself was changed")
	}
}

func TestMask_HidesSecretsOfBodies(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ contentType, body, keep string }{
		{"application/json", `{"user":"ann","password":"` + planted + `\"more","n":{"access_token" : "` + planted +
			`"}}`, "ann"},
		{"application/problem+json; charset=utf-8", `[{"clientSecret":"` + planted + `","apiKey":"` + planted +
			`","id":1}]`, `"id":1`},
		{"", `{"refresh_token":"` + planted + `","key":"kept"}`, "kept"},
		{"application/json", `{"secret":"` + planted, ""},
		{"application/x-www-form-urlencoded", "user=ann&password=" + planted + "&client_secret=" + planted,
			"user=ann&"},
		{"multipart/form-data; boundary=b", "--b\r\nContent-Disposition: form-data; name=\"password\"\r\n\r\n" +
			planted +
			"\r\n--b\r\nContent-Disposition: form-data; name=\"note\"\r\n\r\nkept\r\n--b--", "kept"},
	} {
		m := &Message{Header: http.Header{"Content-Type": {c.contentType}}, Body: []byte(c.body)}
		got := maskedMessage(m, nil)
		if strings.Contains(string(got.Body), planted) || !strings.Contains(string(got.Body), c.keep) ||
			!strings.Contains(string(got.Body), Masked) {
			t.Errorf("%s: %s", c.contentType, got.Body)
		}
		if json.Valid([]byte(c.body)) && !json.Valid(got.Body) {
			t.Errorf("no JSON any more: %s", got.Body)
		}
	}
	m := &Message{Header: http.Header{"Content-Encoding": {"gzip"}}, Body: []byte("compressed")}
	if got := maskedMessage(m, nil); got.Body != nil || !got.Truncated {
		t.Errorf("an encoded body is shown: %+v", got)
	}
}

func TestMask_KeepsOtherBodies(t *testing.T) {
	t.Parallel()
	for contentType, body := range map[string]string{
		"text/html": `<input name="password" value="">`, "application/json": `{"a":"b","token":null,"tokens":[1]}`,
		"application/x-www-form-urlencoded": "a=b&c=", "image/png": "\x89PNG\x00\xff",
	} {
		m := Message{Header: http.Header{"Content-Type": {contentType}}, Body: []byte(body)}
		if got := string(maskedMessage(&m, nil).Body); got != body {
			t.Errorf("%s: %q became %q", contentType, body, got)
		}
	}
}

// FuzzMask checks that a masked message keeps the values of its body valid, and is masked as a
// whole: masking it again changes nothing.
func FuzzMask(f *testing.F) {
	f.Add("/a?token=b", "application/json", []byte(`{"password":"x","n":1}`))
	f.Add("/?a[key]=1#code=2", "application/x-www-form-urlencoded", []byte("a=1&password=%zz&token="))
	f.Add("//u:p@h/?;sid=1", "multipart/form-data; boundary=b",
		[]byte("--b\r\nContent-Disposition: form-data; name=\"password\"\r\n\r\nx\r\n--b--"))
	f.Fuzz(func(t *testing.T, target, contentType string, body []byte) {
		m := Message{URL: target, Body: body, Header: http.Header{"Content-Type": {contentType},
			"Referer": {target}, "Cookie": {target}}}
		once := maskedMessage(&m, nil)
		if again := maskedMessage(&once, nil); again.URL != once.URL || !bytes.Equal(again.Body, once.Body) {
			t.Errorf("%q, %q: then %q, %q", once.URL, once.Body, again.URL, again.Body)
		}
		if json.Valid(body) && strings.Contains(contentType, "json") && !json.Valid(once.Body) {
			t.Errorf("%q is no JSON any more: %q", body, once.Body)
		}
		NewMasker(&Exchange{Request: m, Response: &m}, nil, false).Text(target)
	})
}
