// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/account/resource"
	"github.com/fairlead-dev/fairlead/internal/service/httpkit"
)

// writeJSON answers with a value.
func (c *call) writeJSON(status int, value any) error {
	body, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encoding answer: %w", err)
	}
	return c.writeBody(status, append(body, '\n'))
}

// writeList answers with the objects of the operation's list, and with the fields of the structs
// beside it.
func (c *call) writeList(objects any, beside ...any) error {
	list, _ := c.method.Answers[http.StatusOK].(resource.List)
	body := []byte(`{"` + list.Field + `":`)
	for i, value := range append([]any{objects}, beside...) {
		text, err := json.Marshal(value)
		if err != nil {
			return fmt.Errorf("encoding answer: %w", err)
		}
		if i > 0 { // its braces are those of the whole
			text[0], text = ',', text[:len(text)-1]
		}
		body = append(body, text...)
	}
	return c.writeBody(http.StatusOK, append(body, "}\n"...))
}

func (c *call) writeBody(status int, body []byte) error {
	c.Writer.Header().Set("Content-Type", "application/json")
	c.Writer.WriteHeader(status)
	if _, err := c.Writer.Write(body); err != nil {
		return httpkit.ClientGoneError{Cause: err}
	}
	return nil
}

// noContent answers 204, or returns the error.
func (c *call) noContent(err error) error {
	if err == nil {
		c.Writer.WriteHeader(http.StatusNoContent)
	}
	return err
}

// writeError answers with the error body. The cause of a domain error, and every other error, is
// only logged.
func (c *call) writeError(err error) {
	e := &account.Error{Code: account.CodeInternal, Msg: "internal error"}
	errors.As(err, &e)
	body := account.ErrorBody{Code: e.Code, Status: e.Code.Status(), Msg: e.Msg, Errors: e.Fields,
		Details: map[string]string{"operation_id": c.OperationID}}
	maps.Copy(body.Details, e.Details)
	switch body.Status {
	case http.StatusUnauthorized:
		c.Writer.Header().Set("WWW-Authenticate", `Bearer realm="fairlead"`)
	case http.StatusServiceUnavailable:
		c.SetRetryAfter(time.Second)
	}
	_ = c.writeBody(body.Status, body.JSON()) // a client that is gone needs no answer
}

// uris sets the addresses of objects, all below the base URL of the API.
type uris string

// at returns the absolute address of the object with the ID in the resource at a path.
func (u uris) at(path, id string) string { return string(u) + resource.ObjectPath(path, id) }

func (u uris) setEndpoint(e *account.Endpoint) {
	e.URI = u.at(resource.Endpoints, e.ID)
	if e.TunnelSession != nil {
		e.TunnelSession.URI = u.at(resource.TunnelSessions, e.TunnelSession.ID)
	}
	u.setPrincipal(e.Principal)
}

// setPrincipal sets the URI of an API key, an authtoken or a user. An identity provider, which
// can end sessions too, has none.
func (u uris) setPrincipal(ref *account.Ref) {
	switch {
	case ref == nil:
	case strings.HasPrefix(ref.ID, account.PrefixAPIKey+"-"):
		ref.URI = u.at(resource.APIKeys, ref.ID)
	case strings.HasPrefix(ref.ID, account.PrefixUser+"-"):
		ref.URI = u.at(resource.Users, ref.ID)
	case strings.HasPrefix(ref.ID, account.PrefixCredential+"-"):
		ref.URI = u.at(resource.Credentials, ref.ID)
	}
}

// setEndpointRef sets the URI of a reference, which is nil when the endpoint is deleted.
func (u uris) setEndpointRef(ref *account.Ref) {
	if ref != nil {
		ref.URI = u.at(resource.Endpoints, ref.ID)
	}
}

// setEvent sets the URIs of an event. An event outlives its object, so the object's URI may
// lead nowhere.
func (u uris) setEvent(e *account.AuditEvent) {
	e.URI = u.at(resource.Events, e.ID)
	u.setPrincipal(e.Principal)
	if e.Object == nil {
		return
	}
	if path := resource.PathOf(e.Object.ID); path != "" {
		e.Object.URI = string(u) + path
	}
}
