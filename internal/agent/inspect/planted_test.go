// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// Secrets that have a shape; each has plantedShape in it.
const (
	plantedShape  = "PL4nt3dPL4nt3dPL4nt3dPL4nt3d"
	plantedJWT    = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0." + plantedShape
	plantedPEM    = "-----BEGIN RSA PRIVATE KEY-----\nMII" + plantedShape + "\n-----END RSA PRIVATE KEY-----"
	plantedGitHub = "ghp_" + plantedShape + "12345678"
)

// plantedBodies are bodies with § for a secret.
var plantedBodies = []struct{ kind, text string }{
	{"application/json", `{"password":"§"}`}, {"application/json", `{"tokens":["§","§"]}`},
	{"application/json", `{"apiKeys":["§"],"user_passwords":[ "§" , "§"]}`}, {"application/json", `{"pin":1,"otp":"§"}`},
	{"application/json", `{"device_code":"§","passwordConfirmation":"§","SecretAccessKey":"§","sessionId":"§"}`},
	{"application/json", `{"value":"` + plantedJWT + `"}`},
	{"application/json", `{"pem":` + quote(plantedPEM) + `}`},
	{"application/json", `{"url":"amqp://u:§@host/v"}`}, {"application/json", `["x", "` + plantedGitHub + `"]`},
	{"application/json", `{"dsn":"app:§@tcp(db:3306)/orders"}`},
	{"application/json", `{"c":"Server=db;Password=§;Encrypt=yes"}`},
	{"application/json", `{"query":"mutation { login(user: \"ann\", password: \"§\") { id } }"}`},
	{"application/json", `{"inner":"{\"token\":\"§\"}"}`}, {"application/json", `{"log":"retry with token=§ now"}`},
	{"application/json", `{"env":[{"name":"DB_PASSWORD","value":"§"}]}`},
	{"application/json", `{"webhook":"https://x.example/hook?state=§&a=1"}`},
	{"application/graphql", `mutation { login(password: "§") { id } }`},
	{"application/xml", `<a><password>§</password></a>`}, {"text/xml", `<x:ApiKey a="1">§</x:ApiKey>`},
	{"text/xml", `<token><![CDATA[§]]></token>`}, {"text/xml", `<user name="ann" password="§"/>`},
	{"text/xml", `<add key="ClientSecret" value="§"/>`},
	{"text/html", `<input type="hidden" name="csrf_token" value="§">`},
	{"text/html", `<meta content='§' name=csrf-token>`}, {"text/html", `<script>const apiKey = "§"</script>`},
	{"application/yaml", "user: ann\npassword: § two words\n"}, {"application/yaml", "tokens:\n  - §\n  - §\n"},
	{"text/yaml", "tokens:\n- §\nuser: ann\n"}, {"application/yaml", "client_secret: >-\n  §\n  §\nuser: ann\n"},
	{"application/yaml", "db: {user: ann, password: §}\n"}, {"application/yaml", "tokens: [§, §]\n"},
	{"application/yaml", "env:\n- name: API_TOKEN\n  value: §\n"}, {"application/yaml", "key: |\n  " +
		strings.ReplaceAll(plantedPEM, "\n", "\n  ")},
	{"text/plain", "A=1\nexport DB_PASSWORD=§\nSTRIPE_KEY='§'\nTOKEN=\"§\"\n"}, {"text/plain", plantedPEM},
	{"", "DATABASE_URL=postgres://app:§@db/x\n"}, {"text/plain", "Authorization: Bearer §"},
	{"application/x-www-form-urlencoded", "a=1&password=§&assertion=" + plantedJWT},
	{"multipart/form-data; boundary=b", "--b\r\nContent-Disposition: form-data; name=\"config\"\r\n\r\ntoken: §" +
		"\r\n--b--"},
	{"text/event-stream", "event: login\ndata: {\"access_token\":\"§\"}\n\n"},
	{"application/grpc", "\x00\x00\x00\x00\x30\x0a\xff" + plantedJWT},
}

// TestMask_HidesPlantedSecrets shows a message with each secret as the page, the export and the API
// do.
func TestMask_HidesPlantedSecrets(t *testing.T) {
	t.Parallel()
	const s = planted + "-77aa"
	request := func(url string, header ...string) Exchange {
		e := Exchange{Request: Message{Method: "GET", URL: url, Header: http.Header{}}}
		for i := 0; i < len(header); i += 2 {
			e.Request.Header.Set(header[i], header[i+1])
		}
		return e
	}
	body := func(contentType, body string) Exchange {
		return Exchange{Request: Message{Method: "POST", URL: "/", Header: http.Header{"Content-Type": {contentType}},
			Body: []byte(body)}}
	}
	plantings := map[string]Exchange{}
	for _, name := range []string{"Authorization", "Cookie", "Ocp-Apim-Subscription-Key", "X-Jwt-Assertion",
		"Cf-Access-Jwt-Assertion", "X-Api-Key", "X-Shopify-Hmac-Sha256", "X-Hub-Signature-256", "X-Amz-Security-Token",
		"X-Goog-Api-Key", "Apikey", "X-Secret-Key", "X-Vault-Token", "X-Csrftoken", "X-Session-Id", "Private-Token"} {
		plantings["header "+name] = request("/", name, s)
	}
	for name, value := range map[string]string{"a JWT": plantedJWT, "a key": "a=1, " + plantedGitHub,
		"a scheme": "via Bearer " + s, "a DSN": "postgres://app:" + s + "@db/orders", "a link": "https://x/reset/" + s,
		"an AWS key": "AKIA" + strings.ToUpper(plantedShape[:16])} {
		plantings["header with "+name] = request("/", "X-Other", value)
	}
	for _, parameter := range []string{"state", "hmac", "token", "code", "access_token", "id_token_hint", "api_key",
		"subscription-key", "sig", "X-Amz-Signature", "user%5Bpassword%5D", "client_secret", "SAMLResponse", "nonce",
		"reset_password_token", "key"} {
		plantings["query "+parameter] = request("/cb?page=2&" + parameter + "=" + s)
	}
	for _, path := range []string{"/reset-password/", "/verify/", "/invite/", "/bot123456789:AA" + plantedShape + "xx/",
		"/services/T000/B000/" + plantedShape + "/", "/unsubscribe/", "/files/" + plantedShape + "/", "/x/" + plantedJWT +
			"/"} {
		plantings["path "+path] = request(path + s + plantedShape)
	}
	for _, c := range plantedBodies {
		plantings[c.kind+" "+c.text] = body(c.kind, strings.ReplaceAll(c.text, "§", s))
	}
	frames := request("/socket")
	for _, data := range []string{`{"op":"auth","token":"` + s + `"}`, "welcome " + s, `data: {"secret":"` + s + `"}`} {
		frames.Frames = append(frames.Frames, Frame{Kind: FrameText, Data: []byte(data)})
	}
	plantings["frames"] = frames
	shown := 0
	for name, e := range plantings {
		if text := shownText(&e); strings.Contains(text, planted) || strings.Contains(text, plantedShape[5:15]) ||
			!strings.Contains(text, Masked) {
			shown++
			t.Errorf("%s is shown as %s", name, text)
		}
	}
	t.Logf("%d of %d planted secrets are shown", shown, len(plantings))
}

func quote(text string) string {
	quoted, _ := json.Marshal(text) // a string always encodes
	return string(quoted)
}

// shownText returns what can be seen of the request of an exchange.
func shownText(e *Exchange) string {
	mask := NewMasker(e, nil, false)
	text := fmt.Sprintf("%s %v %s", mask.Request.URL, mask.Request.Header, mask.WireBody(&e.Request))
	for _, f := range e.Frames {
		data, _ := mask.Body("", f.Data)
		text += "\n" + string(data)
	}
	return text
}

// TestMask_KeepsReadable compares messages without secrets, which stay as they are.
func TestMask_KeepsReadable(t *testing.T) {
	t.Parallel()
	for _, target := range []string{"/orders?state=open&page=2", "/api/v1/users/550e8400-e29b-41d4-a716-446655440000",
		"/commit/0123456789abcdef0123456789abcdef01234567", "/blog/how-we-moved-to-http2-in-2024", "/static/app.3f2A9cD1.js",
		"/MyControllerServiceV2Implementation/Get", "/customers/cus_9s6XKzkNRiz8i3abcdef", "/search?q=password+reset&sort=key",
		"/endpoints/ep-06j1q3r5t7v9x1z3b5d7f9h1k3", "/webhooks/github", "/login/callback", "/verify/email", "/tokens/count",
		"/keyboards?keyword=a&monkey=b&status_code=200&country_code=de", "/package/@scope/name"} {
		e := Exchange{Request: Message{URL: target, Header: http.Header{}}}
		if got := NewMasker(&e, nil, false).Request.URL; got != target {
			t.Errorf("%s is shown as %s", target, got)
		}
	}
	for name, value := range map[string]string{"Sec-Websocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", "Idempotency-Key": "a-1",
		"User-Agent": "Mozilla/5.0 (X11; Linux x86_64)", "Etag": `"33a64df551425fcc55e4d42a148795d9f25f89d4"`,
		"X-Request-Id": "550e8400-e29b-41d4-a716-446655440000", "Www-Authenticate": `Bearer realm="api", error="invalid_token"`,
		"Traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "X-Author": "ann", "Host": "api.example.com",
		"X-Ratelimit-Remaining-Tokens-Count": "7", "Content-Type": "application/json", "Link": `<https://x/?page=2>; rel=next`} {
		e := Exchange{Request: Message{URL: "/", Header: http.Header{name: {value}}}}
		if got := NewMasker(&e, nil, false).Request.Header.Get(name); got != value {
			t.Errorf("%s: %s is shown as %s", name, value, got)
		}
	}
	for _, c := range []struct{ kind, text string }{
		{"application/json", `{"token_type":"Bearer","expires_in":3600,"max_tokens":4096,"usage":{"total_tokens":12}}`},
		{"application/json", `{"error":"invalid token: expected a string","code":"E42","key":"orders","state":"open"}`},
		{"application/json", `{"keys":[{"kty":"RSA","kid":"2024","n":"0vx7ago"}],"public_key":"MIIB","primaryKey":"id"}`},
		{"application/json", `{"author":"ann","authorized":true,"token":null,"passwords":3,"password_min_length":8}`},
		{"application/json", `{"monkey":"x","tokenizer":"bpe","secretary":"bob","status_code":200,"zip_code":"10115"}`},
		{"application/json", `{"email":"ann@example.com","url":"https://example.com/@ann","at":"2026-01-02T03:04:05Z"}`},
		{"text/html", `<h1>Password reset</h1><p>Basic understanding of Bearer authentication</p><label>Token: </label>`},
		{"application/javascript", `const token=getToken(); password = form.password.value; if (a<b) {x}`},
		{"text/css", `.token { color: red } a::before { content: "password" }`},
		{"application/yaml", "name: ann\nport: 8080\ntoken_url: https://example.com/token\ntokens: 5\n"},
		{"text/plain", "The password must have 8 letters, and no token is needed.\nAuthor: ann\n"},
		{"text/xml", `<ListBucketResult><Key>a/b.txt</Key><Code>AccessDenied</Code></ListBucketResult>`},
		{"application/graphql", `query { user(id: "42") { name token { expires } } }`},
		{"text/csv", "id,token_type,n\n1,Bearer,2\n"},
		{"text/event-stream", "event: tick\ndata: {\"n\":1}\n\n"},
	} {
		m := Message{Header: http.Header{"Content-Type": {c.kind}}, Body: []byte(c.text)}
		if masked := maskedMessage(&m, nil); string(masked.Body) != c.text {
			t.Errorf("%s: %s is shown as %s", c.kind, c.text, masked.Body)
		}
	}
}

// BenchmarkMask masks a large body of JSON, as a page does once.
func BenchmarkMask(b *testing.B) {
	text := strings.Repeat(`{"id":12,"name":"ann","note":"some words of text","token":"`+planted+`-77aa","n":[1,2,3]},`, 10_000)
	m := Message{Header: http.Header{"Content-Type": {"application/json"}}, Body: []byte("[" + text + "1]")}
	b.SetBytes(int64(len(m.Body)))
	for b.Loop() {
		maskedMessage(&m, nil)
	}
}
