// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"time"

	"github.com/fairlead-dev/fairlead/internal/service/clustertoken"
	"github.com/fairlead-dev/fairlead/internal/service/login"
	"github.com/fairlead-dev/fairlead/internal/service/login/oidc"
	"github.com/fairlead-dev/fairlead/internal/service/login/saml"
	"github.com/fairlead-dev/fairlead/internal/service/traffic"
	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
)

// wireClusterTokens constructs the checks of ServiceAccounts' tokens.
func (s *service) wireClusterTokens() {
	s.issuers = clustertoken.NewIssuers(s.store, login.NewClient(s.loginAllow), s.log, s.opt.storeClock)
	s.clusterTokens = clustertoken.New(clustertoken.Options{Store: s.store, Issuers: s.issuers,
		BaseURL: s.baseURL.String(), Logger: s.log, Clock: s.opt.storeClock})
}

// newLoginHandler constructs the handler of login actions.
func (s *service) newLoginHandler() *login.Handler {
	factory := oidc.Factory()
	l := login.New(login.Options{
		Store: s.loginStore, Revoker: s.revoker, Live: s.liveSessions, Key: s.key, Device: s.deviceOf,
		Allow: s.loginAllow, Logger: s.log, CheckClock: s.checkClock, OnFailure: s.recordLoginFailure,
		Providers: map[trafficpolicy.LoginKind]login.Factory{
			trafficpolicy.LoginOAuth: factory, trafficpolicy.LoginOIDC: factory,
			trafficpolicy.LoginSAML: saml.Factory(time.Now),
		},
	})
	s.onClose(l.Close)
	s.loginCertificates = &loginCertificates{store: s.store, logins: l, log: s.log}
	return l
}

// recordLoginFailure keeps why a login failed for the owner of the endpoint.
func (s *service) recordLoginFailure(f login.Failure) {
	s.traffic.LoginFailed(f.Endpoint.AccountID, traffic.LoginFailure{
		At: time.Now(), EndpointID: f.Endpoint.ID, EndpointURL: f.Endpoint.URL, AuthID: f.AuthID, Provider: f.Provider,
		Client: f.Client, Person: f.Person, Step: f.Step, Code: f.Code, Shown: f.Shown, Reason: f.Reason,
	})
}
