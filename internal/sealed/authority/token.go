// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package authority

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4/jwt"
)

// Token has the token of a ServiceAccount in a file, by which forwarders prove themselves to agents,
// and reads it again when it changes: at most every 10 seconds, when it is asked. It is safe for
// concurrent use.
type Token struct {
	File    string
	Account string // Account is named by the audience: other tokens, such as the pod's own, are not sent.

	followed followed[token]
}

type token struct {
	raw    string
	claims *jwt.Claims
}

// Token returns the last good token of the file; "" as long as there has been none.
func (t *Token) Token() string {
	if last, _ := t.followed.get(t.load, t.File); last != nil {
		return last.raw
	}
	return ""
}

// Subject returns whose token it is; "" without one.
func (t *Token) Subject() string {
	if last, _ := t.followed.get(t.load, t.File); last != nil {
		return last.claims.Subject
	}
	return ""
}

// Problem returns why the file has no better token than the one that Token returns, or that this one
// has ended; nil when all is well.
func (t *Token) Problem() error {
	last, err := t.followed.get(t.load, t.File)
	if err == nil && time.Now().After(last.claims.Expiry.Time()) {
		err = fmt.Errorf("%s: the token has ended at %s: does the kubelet renew it?", t.File,
			showTime(last.claims.Expiry.Time()))
	}
	return err
}

func (t *Token) load() (*token, error) {
	text, err := readFile(t.File, tokenLimit)
	if err != nil {
		return nil, err
	}
	raw := strings.TrimSpace(string(text))
	_, claims, err := parseToken(raw)
	if err == nil && !slices.Equal(claims.Audience, tokenAudience(t.Account)) {
		err = fmt.Errorf("its audience is not %s alone", tokenAudience(t.Account)[0])
	}
	if err != nil {
		return nil, fmt.Errorf("%s: the token: %w", t.File, err)
	}
	return &token{raw, claims}, nil
}
