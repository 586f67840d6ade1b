// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package trafficpolicy

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// basicAuth requires a user name and a password. It keeps hashes; the store protects the document
// that has the passwords.
type basicAuth struct {
	hashes  [][sha256.Size]byte
	realm   string
	enforce bool
}

// Limits of basic-auth.
const (
	maxCredentials = 10
	minPassword    = 8
	maxPassword    = 128
	maxRealm       = 128
)

func (a *basicAuth) provision(c *config) {
	a.enforce = c.flag("enforce", true)
	a.realm = c.str("realm", "fairlead")
	if len(a.realm) > maxRealm || strings.ContainsFunc(a.realm, func(r rune) bool {
		return r < ' ' || r > '~' || r == '"' || r == '\\'
	}) {
		c.c.problem(c.values["realm"], "",
			"realm has at most %d printable ASCII characters, without quotes and backslashes", maxRealm)
	}
	items := c.items("credentials", maxCredentials)
	if len(items) > 0 {
		c.c.refuseSecret(c.keys["credentials"], "a password in credentials")
	}
	for _, item := range items {
		user, password, ok := strings.Cut(item.Value, ":")
		switch {
		case strings.Contains(item.Value, "${"):
			c.c.problem(item, "", "expressions in credentials are not offered by this version")
		case !ok:
			c.c.problem(item, "", "a credential is user:password")
		case len(password) < minPassword || len(password) > maxPassword:
			c.c.problem(item, "", "a password has between %d and %d bytes", minPassword, maxPassword)
		}
		a.hashes = append(a.hashes, credentialHash(user, password))
	}
	if len(items) == 0 && (c.values["credentials"] == nil || len(c.values["credentials"].Content) == 0) {
		c.missing("credentials", "a list of user:password")
	}
}

func credentialHash(user, password string) [sha256.Size]byte {
	return sha256.Sum256([]byte(user + ":" + password))
}

func (a *basicAuth) serve(x *exchange) {
	user, password, presented := x.r.BasicAuth()
	authorized := a.verify(user, password) && presented
	x.setResult("basic_auth.credentials.presented", presented)
	x.setResult("basic_auth.credentials.authorized", authorized)
	if presented {
		x.setResult("basic_auth.credentials.username", user)
	}
	if authorized || !a.enforce {
		x.next()
		return
	}
	x.w.Header().Set("WWW-Authenticate", `Basic realm="`+a.realm+`", charset="UTF-8"`)
	x.refuse(http.StatusUnauthorized, account.CodeLoginNeeded, "This endpoint asks for a user name and a password.")
}

// verify compares with every credential, so that its duration reveals nothing.
func (a *basicAuth) verify(user, password string) bool {
	given := credentialHash(user, password)
	found := 0
	for i := range a.hashes {
		found |= subtle.ConstantTimeCompare(given[:], a.hashes[i][:])
	}
	return found == 1
}
