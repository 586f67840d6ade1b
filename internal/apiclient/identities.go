// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiclient

import (
	"context"
	"net/url"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// User reads a person who logged in at an endpoint.
func (c *Client) User(ctx context.Context, id string) (*account.User, error) {
	return get[account.User](ctx, c, "/app/users/"+url.PathEscape(id))
}

// AppSession reads a session of a person.
func (c *Client) AppSession(ctx context.Context, id string) (*account.AppSession, error) {
	return get[account.AppSession](ctx, c, "/app/sessions/"+url.PathEscape(id))
}

// RevokeUser deletes a person with all that is known of them. When it returns, their sessions are
// dead.
func (c *Client) RevokeUser(ctx context.Context, id string) error {
	return c.DeleteObject(ctx, "/app/users/"+url.PathEscape(id))
}

// EndAppSessions ends all sessions of a person, who stays known. When it returns, they are dead.
func (c *Client) EndAppSessions(ctx context.Context, userID string) error {
	return c.DeleteObject(ctx, "/app/users/"+url.PathEscape(userID)+"/sessions")
}

// RevokeAppSession ends one session. When it returns, it is dead.
func (c *Client) RevokeAppSession(ctx context.Context, id string) error {
	return c.DeleteObject(ctx, "/app/sessions/"+url.PathEscape(id))
}
