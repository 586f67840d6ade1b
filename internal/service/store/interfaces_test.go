// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import "github.com/fairlead-dev/fairlead/internal/account"

// The interfaces that Store implements.
var (
	_ account.Endpoints       = (*Store)(nil)
	_ account.EventLog        = (*Store)(nil)
	_ account.AuditLog        = (*Store)(nil)
	_ account.Binder          = (*Store)(nil)
	_ account.SessionStarter  = (*Store)(nil)
	_ account.SessionLegs     = (*Store)(nil)
	_ account.TunnelSessions  = (*Store)(nil)
	_ account.TunnelStarter   = (*Store)(nil)
	_ account.LabelledTunnels = (*Store)(nil)
	_ account.Operators       = (*Store)(nil)
	_ account.Authenticator   = (*Store)(nil)

	_ account.TunnelAuthenticator = (*Store)(nil)
	_ account.APIKeys             = (*Store)(nil)
	_ account.Authtokens          = (*Store)(nil)
	_ account.Clusters            = (*Store)(nil)
	_ account.ClusterTokens       = (*Store)(nil)
	_ account.Domains             = (*Store)(nil)

	_ account.Identities        = (*Store)(nil)
	_ account.Logins            = (*Store)(nil)
	_ account.Revoker           = (*Store)(nil)
	_ account.DashboardSessions = (*Store)(nil)
)
