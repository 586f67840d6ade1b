// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
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
