// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/httpkit"
)

// CookieName is the name of the cookie that holds the secret of a sign-in.
const CookieName = "__Host-fairlead-ui"

const (
	noticeCookie = "__Host-fairlead-notice"
	signInPrefix = "fld_" // of the secret of a sign-in
)

// authenticate sets the key of the call by the sign-in of its cookie. It reads the store each time,
// so that deleting a key ends its sign-ins.
func (s *server) authenticate(c *call) error {
	cookie, err := c.Request.Cookie(CookieName)
	if err != nil || !strings.HasPrefix(cookie.Value, signInPrefix) {
		return account.Errorf(account.CodeNoCredential, "you are not signed in")
	}
	signIn, err := s.opt.Store.DashboardSession(c.Context(), account.HashSecret(cookie.Value))
	if err != nil {
		return err
	}
	c.Key = &signIn.Key
	s.opt.OnAuthenticated(c.Request)
	return nil
}

// signInForm is the data of the sign-in page.
type signInForm struct {
	Return string
	Error  string
	Ended  bool   // a page that needs a sign-in sent the browser here
	Kept   string // the form that was sent to Return, sealed
}

func (s *server) signInPage(c *call) error {
	back := localPath(c.Request.URL.Query().Get("return"), "")
	if back == "" && s.authenticate(c) == nil {
		http.Redirect(c.Writer, c.Request, Path, http.StatusSeeOther)
		return nil
	}
	return c.show(http.StatusOK, view{Page: "sign-in", Title: "Sign in",
		Data: signInForm{Return: back, Ended: back != ""}})
}

// signIn answers an API key with a cookie that holds a new secret.
func (s *server) signIn(c *call) error {
	form := signInForm{Return: localPath(c.Request.PostForm.Get("return"), ""),
		Kept: c.Request.PostForm.Get(keptInput)}
	refuse := func(status int, reason string) error {
		form.Error = reason
		return c.show(status, view{Page: "sign-in", Title: "Sign in", Data: form})
	}
	if client, now := s.opt.ClientIP(c.Request), s.opt.Clock(); !s.attempts.Allow(client, now) {
		seconds := int(s.attempts.Wait(client, now).Seconds()) + 1
		c.Writer.Header().Set("Retry-After", strconv.Itoa(seconds))
		return refuse(http.StatusTooManyRequests, "Too many attempts from your address. Try again in "+
			strconv.Itoa(seconds)+
			" s.")
	}
	secret := strings.TrimSpace(c.Request.PostForm.Get("key"))
	if secret == "" {
		return refuse(http.StatusBadRequest, "Paste an API key. It begins with "+account.APIKeyPrefix+".")
	}
	key, err := s.opt.Store.APIKeyBySecret(c.Context(), secret)
	var known *account.Error
	switch {
	case errors.As(err, &known) && known.Code.Status() == http.StatusUnauthorized:
		return refuse(http.StatusUnauthorized, sentence(known.Msg))
	case err != nil:
		return err
	case !key.HasAnyScope(account.ScopeRead, account.ScopeIdentities):
		return refuse(http.StatusForbidden, "This key has the scope "+httpkit.JoinScopes(key.Scopes, " and ")+
			". The dashboard needs admin, read or identities.")
	}
	token := account.NewSecret(signInPrefix)
	signIn, err := s.opt.Store.SignIn(c.Context(), key, account.HashSecret(token))
	if err != nil {
		return err
	}
	c.Key = &signIn.Key
	s.opt.OnAuthenticated(c.Request)
	http.SetCookie(c.Writer, &http.Cookie{Name: CookieName, Value: token, Path: "/",
		MaxAge: int(signIn.ExpiresAt.Sub(s.opt.Clock()).Seconds()),
		Secure: true, HttpOnly: true, SameSite: http.SameSiteStrictMode})
	to := form.Return
	if to == "" {
		to = Path
	}
	if form.Kept != "" && form.Return != "" {
		setNotice(c.Writer.Header(), notice{Code: noticeFormKept})
		http.Redirect(c.Writer, c.Request, to, http.StatusTemporaryRedirect) // with the form
		return nil
	}
	return c.redirect(to, notice{})
}

// signOut ends the sign-in, if there is one.
func (s *server) signOut(c *call) error {
	if cookie, err := c.Request.Cookie(CookieName); err == nil {
		if err := s.opt.Store.SignOut(c.Context(), account.HashSecret(cookie.Value)); err != nil &&
			account.CodeOf(err) != account.CodeUnknownCredential {
			return err
		}
	}
	http.SetCookie(c.Writer, &http.Cookie{Name: CookieName, Path: "/", MaxAge: -1, Secure: true, HttpOnly: true,
		SameSite: http.SameSiteStrictMode})
	return c.redirect(Path+"sign-in", notice{Code: noticeSignedOut})
}

// sentence returns the message with a capital letter and a full stop, unless it is a question.
func sentence(msg string) string {
	if msg == "" {
		return ""
	}
	msg = strings.ToUpper(msg[:1]) + msg[1:]
	if !strings.HasSuffix(msg, ".") && !strings.HasSuffix(msg, "?") {
		msg += "."
	}
	return msg
}

func connectionIP(r *http.Request) netip.Addr {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return netip.Addr{}
	}
	return ip
}
