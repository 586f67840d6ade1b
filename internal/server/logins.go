// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/backend"
	"github.com/fairlead-dev/fairlead/internal/live"
	"github.com/fairlead-dev/fairlead/internal/login"
	"github.com/fairlead-dev/fairlead/internal/login/oidc"
	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
)

// logins makes what carries login actions out.
func (s *service) logins() *login.Logins {
	allow, err := backend.ParseAllow("--login-allow", s.opt.LoginAllow)
	if err != nil {
		panic(fmt.Sprintf("server: options that were validated: %v", err))
	}
	l := login.New(login.Options{
		Store: s.store, Revoker: s.revoker, Live: s.live, Key: s.key, Device: s.device, Allow: allow, Logger: s.log,
		Providers: map[trafficpolicy.LoginKind]login.Factory{trafficpolicy.LoginOAuth: oidc.New, trafficpolicy.LoginOIDC: oidc.New},
	})
	s.onClose(l.Close)
	return l
}

// revoker ends sessions: first what is stored, then what is being served.
type revoker struct {
	stored account.Revoker
	live   *live.Registry
}

// Revoke implements account.Revoker.
func (r *revoker) Revoke(ctx context.Context, by account.Caller, sel account.RevokeSelector, reason string) (*account.Revocation, error) {
	done, err := r.stored.Revoke(ctx, by, sel, reason)
	if err != nil {
		return nil, err
	}
	done.Streams = r.live.Cut(done.SessionIDs)
	return done, nil
}
