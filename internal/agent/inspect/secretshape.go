// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// shape is what a secret looks like, whatever its name: the second of three groups.
type shape struct {
	hints     string // words of which every match has one
	needDigit bool   // the secret has a digit, and words of a sentence have not
	pattern   *regexp.Regexp
}

// minShape is the length in bytes of the shortest text that can match a shape.
const minShape = 12

var shapes = []shape{
	{"PRIVATE", false, regexp.MustCompile(`()(-----BEGIN[A-Z0-9 +%]*PRIVATE(?: |\+|%20)KEY(?:(?: |\+|%20)BLOCK)?-----` +
		`[\s\S]*?(?:-----END[A-Z0-9 +%]*PRIVATE(?: |\+|%20)KEY(?:(?: |\+|%20)BLOCK)?-----|\z))()`)},
	{"eyJ", false, regexp.MustCompile(`()(\beyJ[\w-]{6,}\.[\w-]{2,}(?:\.[\w-]*){0,3})()`)}, // JSON Web Token
	{"@", false, regexp.MustCompile(`(://)([^/@\s"'<>\\]{1,200})(@)`)},
	{"@", false, regexp.MustCompile(`([\w.-]:)([^\s@"'/]{1,200})(@(?:tcp|udp|unix)\()`)}, // Go's DSN of MySQL
	{"earer EARER asic BASIC oken TOKEN pikey piKey egotiate NTLM", true, regexp.MustCompile(
		`(?i)(\b(?:bearer|basic|token|apikey|negotiate|ntlm)(?: |\+|%20|: ?))([\w.~+/=-]{8,})()`)},
	{"gh github_pat_ glpat- xox xapp- sk- k_ whsec_ AKIA ASIA AIza ya29. hv npm_ pypi- SG. _v1_ shp AGE- fl :AA", false,
		regexp.MustCompile(`()((?:\b(?:gh[oprsu]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|xox[abeprs]-[\w-]{10,}|` +
			`xapp-[\w-]{10,}|sk-[\w-]{20,}|[prs]k_(?:live|test)_\w{10,}|whsec_[\w+/=]{16,}|(?:AKIA|ASIA)[A-Z0-9]{16}|` +
			`AIza[\w-]{30,}|ya29\.[\w-]{10,}|hv[bsr]\.[\w-]{20,}|npm_\w{30,}|pypi-[\w-]{30,}|` +
			`SG\.[\w-]{16,}\.[\w-]{16,}|do[op]_v1_[0-9a-f]{32,}|shp(?:at|ca|pa|ss)_\w{30,}|` +
			`AGE-SECRET-KEY-1\w{20,}|fl[krt]_[\w-]{20,})|` +
			`\d{8,10}:AA[\w-]{30,}))()`)},
}

// shaped masks what has the shape of a secret.
func (p *masking) shaped(text string) string {
	if len(text) < minShape {
		return text
	}
	for _, s := range shapes {
		if !slices.ContainsFunc(strings.Fields(s.hints), func(h string) bool { return strings.Contains(text, h) }) {
			continue
		}
		text = replaceMatches(s.pattern, text, func(m []string) string {
			if s.needDigit && !strings.ContainsAny(m[2], "0123456789") {
				return m[0]
			}
			if s.hints == "@" { // the password alone may be repeated elsewhere
				if _, password, ok := strings.Cut(m[2], ":"); ok {
					p.hide(password)
				}
			}
			return m[1] + p.hide(m[2]) + m[3]
		})
	}
	return text
}

// replaceMatches returns the text with edit's result in place of each match, whose groups it gets.
func replaceMatches(pattern *regexp.Regexp, text string, edit func(groups []string) string) string {
	var out strings.Builder
	done := 0
	for _, at := range pattern.FindAllStringSubmatchIndex(text, -1) {
		groups := make([]string, len(at)/2)
		for i := range groups {
			if at[2*i] >= 0 {
				groups[i] = text[at[2*i]:at[2*i+1]]
			}
		}
		out.WriteString(text[done:at[0]])
		out.WriteString(edit(groups))
		done = at[1]
	}
	if done == 0 {
		return text
	}
	return out.String() + text[done:]
}

// tokenAfter are segments of paths that a token follows, beside those with the name of a secret.
var tokenAfter = wordSet("activate activation confirm confirmation forgot hooks invitation invitations invite " +
	"invites login magic magic-link password-reset reset reset-password services share shared signin unsubscribe " +
	"verification verify verify-email webhook webhooks")

// maskPath masks the segments of a path that are tokens.
func (p *masking) maskPath(path string) string {
	segments := strings.Split(path, "/")
	before := ""
	for i, segment := range segments {
		plain, err := url.PathUnescape(segment)
		if err != nil {
			plain = segment
		}
		told := tokenAfter[strings.ToLower(before)] || IsSecret(before)
		if told && len(plain) >= 12 && strings.ContainsAny(plain, "0123456789") || isRandom(plain) {
			segments[i] = p.hide(segment)
		}
		before = plain
	}
	return strings.Join(segments, "/")
}

var (
	randomSegment = regexp.MustCompile(`^[\w~=-]{20,}$`)
	prefixedID    = regexp.MustCompile(`^[a-z]{2,5}_[A-Za-z0-9]+$`)
)

// isRandom reports whether a segment of a path looks like a token: long, with both cases and digits
// mixed more than words in camel case mix them. Names, UUIDs, hashes and identifiers of an upstream
// are none.
func isRandom(segment string) bool {
	if !randomSegment.MatchString(segment) || prefixedID.MatchString(segment) {
		return false
	}
	changes, seen, last := 0, map[int]bool{}, 0
	for _, r := range segment {
		kind := 0
		switch {
		case unicode.IsDigit(r):
			kind = 1
		case unicode.IsUpper(r):
			kind = 2
		case unicode.IsLower(r):
			kind = 3
		}
		if seen[kind] = true; kind != last {
			changes++
		}
		last = kind
	}
	return seen[1] && seen[2] && seen[3] && changes*5 >= len(segment)*2
}
