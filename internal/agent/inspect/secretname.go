// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"
)

// secretHeaders always hold secrets; names for which isSecretWords is true do, too.
var secretHeaders = map[string]bool{
	"Cookie": true, "Set-Cookie": true, "Cookie2": true, "Set-Cookie2": true, "X-Forwarded-Client-Cert": true,
}

// The last word of a name tells whether its value is secret; the word before it does for a key, a
// code and an id.
var (
	secretLast = wordSet("apikey assertion auth authorization bearer credential credentials csrf hmac jsessionid jwt " +
		"otp pass passcode passphrase passwd password passwords phpsessid pwd samlrequest samlresponse secret " +
		"secrets session sessionid sid sig signature token tokens totp xsrf")
	// codeBefore make a code secret, as in device_code.
	codeBefore = wordSet("activation auth authorization backup device invite login mfa oob otp recovery reset " +
		"security totp user verification")
	// secretKeys make several keys secret; a single key is, unless it is one of plainKeys.
	secretKeys = wordSet("access api private secret")
	plainKeys  = wordSet("any arrow cache child column composite config dedup event feature field flag foreign group " +
		"home host hot i18n idempotency index issue item label lookup map message metric natural object page parent " +
		"partition press primary project pub public query range routing row s3 setting short sort state surrogate " +
		"tag translation unique websocket")
	// neutralLast are words behind the one that tells, as in password_confirmation or hmac-sha256.
	neutralLast = wordSet("again base64 binary confirm confirmation current hash hashed header hex hint new old " +
		"plain raw repeat sha sha1 sha256 sha512 string text value")
)

func wordSet(words string) map[string]bool {
	set := make(map[string]bool)
	for word := range strings.FieldsSeq(words) {
		set[word] = true
	}
	return set
}

// loginNames are parameters that hold secrets of logins in a query or form only: members of JSON
// with these names are mostly something else.
var loginNames = wordSet("code code_verifier key nonce relaystate session_state state ticket")

// IsSecret reports whether values of the header, parameter, field, element or setting are masked.
func IsSecret(name string) bool {
	return secretHeaders[http.CanonicalHeaderKey(name)] || isSecretWords(nameWords(name))
}

func isSecretWords(words []string) bool {
	last, before := "", ""
	for i := len(words) - 1; i >= 0; i-- {
		if i > 0 && neutralLast[words[i]] {
			continue
		}
		if last = words[i]; i > 0 {
			before = words[i-1]
		}
		break
	}
	switch last {
	case "key":
		return before != "" && !plainKeys[before]
	case "keys":
		return secretKeys[before]
	case "code":
		return codeBefore[before]
	case "id":
		return before == "session"
	case "request", "response":
		return before == "saml"
	}
	for _, end := range []string{"token", "secret", "password", "apikey"} { // as in csrfmiddlewaretoken
		if strings.HasSuffix(last, end) {
			return true
		}
	}
	return secretLast[last]
}

// isPluralName reports whether a name is of several secrets: a number in its place is a count.
func isPluralName(name string) bool {
	words := nameWords(name)
	return len(words) > 0 && strings.HasSuffix(words[len(words)-1], "s")
}

// nameWords returns the words of a name in lower case: parts between other characters than letters
// and digits, and those of camel case. Digits at the end of a word are left out, but from i18n,
// s3 and the names of hashes.
func nameWords(name string) []string {
	var words []string
	var word []rune
	end := func() {
		text := strings.ToLower(string(word))
		if bare := strings.TrimRight(text, "0123456789"); !neutralLast[text] && !plainKeys[text] {
			text = bare
		}
		if word = word[:0]; text != "" {
			words = append(words, text)
		}
	}
	runes := []rune(name)
	for i, r := range runes {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			end()
			continue
		}
		if i > 0 && unicode.IsUpper(r) && (unicode.IsLower(runes[i-1]) || unicode.IsUpper(runes[i-1]) &&
			i+1 < len(runes) && unicode.IsLower(runes[i+1])) {
			end()
		}
		word = append(word, r)
	}
	end()
	return words
}

// secretWords are parts of the names of headers that hold secrets if a policy sets them: the words
// by which the service redacts a policy's text.
var secretWords = []string{"secret", "password", "token", "private-key", "credential", "authorization", "api-key",
	"apikey"}

// MarkedBy returns the names of the headers that the add-headers actions of a traffic policy, YAML
// or JSON, set and that have one of secretWords in them. Of a text that is no policy it returns
// what can be read.
func MarkedBy(policy string) []string {
	type rule struct {
		Actions []struct {
			Type   string `yaml:"type"`
			Config struct {
				Headers map[string]yaml.Node `yaml:"headers"`
			} `yaml:"config"`
		} `yaml:"actions"`
	}
	var document struct {
		OnRequest  []rule `yaml:"on_http_request"`
		OnResponse []rule `yaml:"on_http_response"`
	}
	_ = yaml.Unmarshal([]byte(policy), &document) // the service has admitted the policy
	marked := make(map[string]bool)
	for _, r := range slices.Concat(document.OnRequest, document.OnResponse) {
		for _, a := range r.Actions {
			for name := range a.Config.Headers {
				if a.Type == "add-headers" && hasSecretWord(name) {
					marked[http.CanonicalHeaderKey(name)] = true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(marked))
}

func hasSecretWord(name string) bool {
	name = strings.ReplaceAll(strings.ToLower(name), "_", "-")
	return slices.ContainsFunc(secretWords, func(word string) bool { return strings.Contains(name, word) })
}
