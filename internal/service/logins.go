// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"fmt"
	"time"

	"github.com/fairlead-dev/fairlead/internal/service/backend"
	"github.com/fairlead-dev/fairlead/internal/service/login"
	"github.com/fairlead-dev/fairlead/internal/service/login/oidc"
	"github.com/fairlead-dev/fairlead/internal/service/login/saml"
	"github.com/fairlead-dev/fairlead/internal/service/traffic"
	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
)

// newLoginHandler constructs the handler of login actions.
func (s *service) newLoginHandler() *login.Handler {
	allow, err := backend.ParseAllow("--login-allow", s.opt.LoginAllow)
	if err != nil {
		panic(fmt.Sprintf("service: invalid options after validation: %v", err))
	}
	factory := oidc.Factory()
	l := login.New(login.Options{
		Store: s.loginStore, Revoker: s.revoker, Live: s.liveSessions, Key: s.key, Device: s.deviceOf, Allow: allow,
		Logger: s.log, CheckClock: s.checkClock, OnFailure: s.recordLoginFailure,
		Providers: map[trafficpolicy.LoginKind]login.Factory{
			trafficpolicy.LoginOAuth: factory, trafficpolicy.LoginOIDC: factory,
			trafficpolicy.LoginSAML: saml.Factory(time.Now),
		},
	})
	s.onClose(l.Close)
	return l
}

// recordLoginFailure keeps why a login failed for the owner of the endpoint.
func (s *service) recordLoginFailure(f login.Failure) {
	s.traffic.LoginFailed(f.Endpoint.AccountID, traffic.LoginFailure{
		At: time.Now(), EndpointID: f.Endpoint.ID, EndpointURL: f.Endpoint.URL, AuthID: f.AuthID, Provider: f.Provider,
		Step: f.Step, Code: f.Code, Shown: f.Shown, Reason: f.Reason,
	})
}
