// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// The methods of this file return objects as the JSON of the answer, for callers that only show
// them.

// ListObjects reads every page of the list at a path of the API, newest first, or fails. key is the
// list's field.
func (c *Client) ListObjects(ctx context.Context, path, key string, query url.Values) ([]json.RawMessage, error) {
	all := []json.RawMessage{}
	err := c.EachObject(ctx, path, key, query, func(o json.RawMessage) bool {
		all = append(all, o)
		return true
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// EachObject calls visit with every object of the list at a path, newest first, until it returns
// false. It reads the next page when visit has had those before.
func (c *Client) EachObject(
	ctx context.Context, path, key string, query url.Values, visit func(json.RawMessage) bool,
) error {
	if query == nil {
		query = url.Values{}
	}
	errStopped := errors.New("no more objects are wanted")
	err := eachPage(ctx, c, path, query, func(p *objectPage) error {
		var some []json.RawMessage
		if err := json.Unmarshal((*p)[key], &some); err != nil || some == nil {
			return errNoList
		}
		for _, o := range some {
			if !visit(o) {
				return errStopped
			}
		}
		return nil
	})
	if errors.Is(err, errStopped) {
		return nil
	}
	return err
}

// objectPage is a page of any list.
type objectPage map[string]json.RawMessage

func (p *objectPage) next() *string {
	var uri *string
	if json.Unmarshal((*p)["next_page_uri"], &uri) != nil {
		return nil
	}
	return uri
}

// Object reads the object at a path.
func (c *Client) Object(ctx context.Context, path string) (json.RawMessage, error) {
	return c.callObject(ctx, http.MethodGet, path, nil)
}

// CreateObject posts a new object, a map or a struct, and returns the result.
func (c *Client) CreateObject(ctx context.Context, path string, fields any) (json.RawMessage, error) {
	return c.callObject(ctx, http.MethodPost, path, fields)
}

// UpdateObject changes the fields of the object at a path and returns the result.
func (c *Client) UpdateObject(ctx context.Context, path string, fields any) (json.RawMessage, error) {
	return c.callObject(ctx, http.MethodPatch, path, fields)
}

// DeleteObject deletes the object at a path.
func (c *Client) DeleteObject(ctx context.Context, path string) error {
	_, err := c.call(ctx, http.MethodDelete, path, nil, nil, nil)
	return err
}

// PostAction posts without a body to a path whose answer is empty.
func (c *Client) PostAction(ctx context.Context, path string) error {
	_, err := c.call(ctx, http.MethodPost, path, nil, nil, nil)
	return err
}

// callObject sends a request whose answer must be a JSON object.
func (c *Client) callObject(ctx context.Context, method, path string, in any) (json.RawMessage, error) {
	var out json.RawMessage
	if _, err := c.call(ctx, method, path, nil, in, &out); err != nil {
		return nil, err
	}
	if !strings.HasPrefix(string(out), "{") {
		return nil, fmt.Errorf("%s answered %s with something that is not an object", c.base.Host, path)
	}
	return out, nil
}
