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
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// CookieName is the name of the cookie that holds the secret of a sign-in.
const CookieName = "__Host-fairlead-ui"

const (
	noticeCookie = "__Host-fairlead-notice"
	signInPrefix = "fld_" // of the secret of a sign-in
)

// recognise finds the sign-in of a request. It reads the store every time, so that a key that is
// deleted ends what was signed in with it.
func (s *server) recognise(c *call) error {
	cookie, err := c.r.Cookie(CookieName)
	if err != nil || !strings.HasPrefix(cookie.Value, signInPrefix) {
		return account.Errorf(account.CodeNoCredential, "you are not signed in")
	}
	signIn, err := s.opt.SignIns.SignedIn(c.ctx(), account.HashSecret(cookie.Value))
	if err != nil {
		return err
	}
	c.signIn = signIn
	if s.opt.OnAuthenticated != nil {
		s.opt.OnAuthenticated(c.r)
	}
	return nil
}

// signInForm is what the sign-in page shows.
type signInForm struct {
	Return string
	Error  string
	Ended  bool // somebody was sent here from a page
}

func (s *server) signInPage(c *call) error {
	back := localPath(c.r.URL.Query().Get("return"), "")
	if back == "" && s.recognise(c) == nil {
		http.Redirect(c.w, c.r, Path, http.StatusSeeOther)
		return nil
	}
	return c.show(http.StatusOK, view{Page: "sign-in", Title: "Sign in",
		Data: signInForm{Return: back, Ended: back != ""}})
}

// signIn takes an API key and gives the browser a secret of its own for it, a new one each time.
func (s *server) signIn(c *call) error {
	form := signInForm{Return: localPath(c.r.PostForm.Get("return"), "")}
	refuse := func(status int, why string) error {
		form.Error = why
		return c.show(status, view{Page: "sign-in", Title: "Sign in", Data: form})
	}
	if wait := s.attempts.take(s.opt.ClientIP(c.r), s.opt.Clock()); wait > 0 {
		seconds := int(wait.Seconds()) + 1
		c.w.Header().Set("Retry-After", strconv.Itoa(seconds))
		return refuse(http.StatusTooManyRequests, "Too many attempts from your address. Try again in "+strconv.Itoa(seconds)+
			" s.")
	}
	secret := strings.TrimSpace(c.r.PostForm.Get("key"))
	if secret == "" {
		return refuse(http.StatusBadRequest, "Paste an API key. It begins with "+account.APIKeyPrefix+".")
	}
	key, err := s.opt.Authenticator.APIKeyBySecret(c.ctx(), secret)
	var known *account.Error
	switch {
	case errors.As(err, &known) && known.Code.Status() == http.StatusUnauthorized:
		return refuse(http.StatusUnauthorized, sentence(known.Msg))
	case err != nil:
		return err
	case !key.Has(account.ScopeRead, account.ScopeIdentities):
		return refuse(http.StatusForbidden, "This key has the scope "+joinScopes(key.Scopes, " and ")+
			". The dashboard needs admin, read or identities.")
	}
	token := account.NewSecret(signInPrefix)
	signIn, err := s.opt.SignIns.SignIn(c.ctx(), key, account.HashSecret(token))
	if err != nil {
		return err
	}
	c.signIn = signIn
	if s.opt.OnAuthenticated != nil {
		s.opt.OnAuthenticated(c.r)
	}
	http.SetCookie(c.w, &http.Cookie{Name: CookieName, Value: token, Path: "/",
		MaxAge: int(signIn.ExpiresAt.Sub(s.opt.Clock()).Seconds()),
		Secure: true, HttpOnly: true, SameSite: http.SameSiteStrictMode})
	to := form.Return
	if to == "" {
		to = Path
	}
	return c.redirect(to, notice{})
}

// signOut ends the sign-in; without one there is nothing to end.
func (s *server) signOut(c *call) error {
	if cookie, err := c.r.Cookie(CookieName); err == nil {
		if err := s.opt.SignIns.SignOut(c.ctx(), account.HashSecret(cookie.Value)); err != nil &&
			account.CodeOf(err) != account.CodeUnknownCredential {
			return err
		}
	}
	http.SetCookie(c.w, &http.Cookie{Name: CookieName, Path: "/", MaxAge: -1, Secure: true, HttpOnly: true,
		SameSite: http.SameSiteStrictMode})
	return c.redirect(Path+"sign-in", notice{Code: noticeSignedOut})
}

// sentence makes a sentence of a message.
func sentence(msg string) string {
	if msg == "" {
		return ""
	}
	msg = strings.ToUpper(msg[:1]) + msg[1:]
	if !strings.HasSuffix(msg, ".") {
		msg += "."
	}
	return msg
}

// maxAttempters bounds the clients whose attempts are counted one by one; the others share.
const maxAttempters = 10_000

// attempts holds a token bucket per client that tries to sign in: an IPv4 address, or a /64 of
// IPv6, which is what one gets.
type attempts struct {
	every time.Duration
	burst int

	mu      sync.Mutex
	buckets map[netip.Prefix]*rate.Limiter
	swept   time.Time
}

// take takes a token of the client, or says how long until there is one.
func (a *attempts) take(ip netip.Addr, now time.Time) (wait time.Duration) {
	client := clientOf(ip)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sweep(now)
	if a.buckets[client] == nil && len(a.buckets) >= maxAttempters {
		client = netip.Prefix{}
	}
	b := a.buckets[client]
	if b == nil {
		b = rate.NewLimiter(rate.Every(a.every), a.burst)
		a.buckets[client] = b
	}
	if b.AllowN(now, 1) {
		return 0
	}
	return time.Duration((1 - b.TokensAt(now)) * float64(a.every))
}

func (a *attempts) sweep(now time.Time) {
	if a.buckets == nil {
		a.buckets = map[netip.Prefix]*rate.Limiter{}
	}
	if now.Sub(a.swept) < time.Minute {
		return
	}
	a.swept = now
	for client, b := range a.buckets {
		if b.TokensAt(now) >= float64(a.burst) {
			delete(a.buckets, client)
		}
	}
}

func clientOf(ip netip.Addr) netip.Prefix {
	ip = ip.Unmap().WithZone("")
	bits := 64
	if ip.Is4() {
		bits = 32
	}
	client, err := ip.Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return client
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
