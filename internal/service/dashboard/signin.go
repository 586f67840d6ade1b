// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"cmp"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/clientlimit"
	"github.com/fairlead-dev/fairlead/internal/service/httpkit"
	"github.com/fairlead-dev/fairlead/internal/service/public"
)

// CookieName returns the name of the cookie that holds the secret of a sign-in at a host. Browsers
// send the cookies of a host to all of its ports, so that a port but the usual one is part of the
// name.
func CookieName(host string) string {
	if _, port, err := net.SplitHostPort(host); err == nil && port != "" && port != "443" {
		return cookiePrefix + "~" + port
	}
	return cookiePrefix
}

const (
	cookiePrefix = "__Host-fairlead-ui"
	noticeCookie = "__Host-fairlead-notice"
	signInPrefix = "fld_" // beginning of a sign-in's secret
)

// signIns signs people in with an API key. The cookie of a request then names the sign-in.
type signIns struct {
	store interface {
		account.Authenticator
		account.DashboardSessions
	}
	attempts       *clientlimit.Rate // attempts counts wrong keys by client.
	trustedProxies []netip.Prefix
}

// authenticate sets the key of the call by the sign-in of its cookie. It reads the store each time,
// so that deleting a key ends its sign-ins.
func (s *signIns) authenticate(c *call) error {
	cookie, err := c.Request.Cookie(CookieName(c.Request.Host))
	if err != nil || !strings.HasPrefix(cookie.Value, signInPrefix) {
		return account.Errorf(account.CodeNoCredential, "you are not signed in")
	}
	signIn, err := s.store.DashboardSession(c.Context(), account.HashSecret(cookie.Value))
	if err != nil {
		return err
	}
	c.setKey(&signIn.Key)
	return nil
}

// signInForm is the data of the sign-in page.
type signInForm struct {
	Return string
	Error  string
	Ended  bool // a page that needs a sign-in sent the browser here
}

func (s *signIns) showForm(c *call) error {
	back := localPath(c.Request.URL.Query().Get("return"), "")
	if back == "" && s.authenticate(c) == nil {
		http.Redirect(c.Writer, c.Request, Path, http.StatusSeeOther)
		return nil
	}
	return c.show(http.StatusOK, view{Page: "sign-in", Title: "Sign in",
		Data: signInForm{Return: back, Ended: back != ""}})
}

// signIn answers an API key with a cookie that holds a new secret. It counts wrong keys only: they
// must not keep out who has a right one at the same address.
func (s *signIns) signIn(c *call) error {
	form := signInForm{Return: localPath(c.Request.PostForm.Get("return"), "")}
	refuse := func(status int, reason string) error {
		form.Error = reason
		return c.show(status, view{Page: "sign-in", Title: "Sign in", Data: form})
	}
	secret := strings.TrimSpace(c.Request.PostForm.Get("key"))
	if secret == "" {
		return refuse(http.StatusBadRequest, "Paste an API key. It begins with "+account.APIKeyPrefix+".")
	}
	key, err := s.store.APIKeyBySecret(c.Context(), secret)
	var known *account.Error
	switch {
	case errors.As(err, &known) && known.Code.Status() == http.StatusUnauthorized:
		client, now := s.clientIP(c.Request), c.now()
		if !s.attempts.Allow(client, now) {
			seconds := int(s.attempts.Wait(client, now).Seconds()) + 1
			c.Writer.Header().Set("Retry-After", strconv.Itoa(seconds))
			return refuse(http.StatusTooManyRequests, "Too many wrong keys from your address, and this one is wrong, "+
				"too. Try again in "+strconv.Itoa(seconds)+" s.")
		}
		return refuse(http.StatusUnauthorized, sentence(known.Msg))
	case err != nil:
		return err
	case !key.HasAnyScope(account.ScopeRead, account.ScopeIdentities):
		return refuse(http.StatusForbidden, "This key has the scope "+httpkit.JoinScopes(key.Scopes, " and ")+
			". The dashboard needs admin, read or identities.")
	}
	token := account.NewSecret(signInPrefix)
	signIn, err := s.store.SignIn(c.Context(), key, account.HashSecret(token))
	if err != nil {
		return err
	}
	c.setKey(&signIn.Key)
	http.SetCookie(c.Writer,
		hostCookie(CookieName(c.Request.Host), token, int(signIn.ExpiresAt.Sub(c.now()).Seconds())))
	return c.redirect(cmp.Or(form.Return, Path), notice{})
}

// signOut ends the sign-in, if there is one.
func (s *signIns) signOut(c *call) error {
	if cookie, err := c.Request.Cookie(CookieName(c.Request.Host)); err == nil {
		if err := s.store.SignOut(c.Context(), account.HashSecret(cookie.Value)); err != nil &&
			account.CodeOf(err) != account.CodeUnknownCredential {
			return err
		}
	}
	http.SetCookie(c.Writer, hostCookie(CookieName(c.Request.Host), "", -1))
	return c.redirect(Path+"sign-in", notice{Code: noticeSignedOut})
}

// sentence returns the message with a capital letter and a full stop, unless it is a question.
func sentence(msg string) string {
	if msg == "" {
		return ""
	}
	msg = strings.ToUpper(msg[:1]) + msg[1:]
	if !strings.ContainsAny(msg[len(msg)-1:], ".?:") {
		msg += "."
	}
	return msg
}

// clientIP returns the address of the client of a request; the zero Addr when it is not known.
func (s *signIns) clientIP(r *http.Request) netip.Addr {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return public.ForwardedClient(r, at.Addr(), s.trustedProxies)
}
