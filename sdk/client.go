// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"log/slog"
	"net/url"
	"os"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/account/resource"
	"github.com/fairlead-dev/fairlead/internal/apiclient"
	"github.com/fairlead-dev/fairlead/internal/version"
)

// Client calls the account's API. Every refusal is an [*Error]. It is safe for concurrent use.
type Client struct {
	Endpoints Endpoints

	FailoverBackends     Collection[FailoverBackend, FailoverBackendFields]
	WeightedBackends     Collection[WeightedBackend, WeightedBackendFields]
	TunnelGroupBackends  Collection[TunnelGroupBackend, TunnelGroupBackendFields]
	StaticBackends       Collection[StaticBackend, StaticBackendFields]
	HTTPResponseBackends Collection[HTTPResponseBackend, HTTPResponseBackendFields]

	TunnelSessions TunnelSessions      // the agents that are connected
	Operators      Removable[Operator] // the clusters' installations
	Authtokens     Collection[Authtoken, AuthtokenFields]
	APIKeys        Collection[APIKey, APIKeyFields]

	// Users are the people who logged in at endpoints, and AppSessions their sessions. When a Delete
	// returns, the sessions are dead.
	Users       Removable[User]
	AppSessions Removable[AppSession]

	api *apiclient.Client
}

// NewClient returns a client of the service's API. The API key is that of [WithAPIKey], or of
// FAIRLEAD_API_KEY; the other settings are those of an endpoint.
func NewClient(opts ...ClientOption) (*Client, error) {
	var opt clientOptions
	for _, o := range opts {
		o.applyClient(&opt)
	}
	key := cmp.Or(opt.apiKey, os.Getenv("FAIRLEAD_API_KEY"))
	if key == "" {
		return nil, &Error{Reason: ReasonCredentials, Code: "ERR_FL_1001",
			Message: "there is no API key: give WithAPIKey, or set FAIRLEAD_API_KEY"}
	}
	s, err := opt.resolve()
	if err != nil {
		return nil, publicError(err)
	}
	api, err := apiclient.New(apiclient.Options{BaseURL: s.url.String(), TLS: s.tls, Authorities: s.learns,
		APIKey: func() (string, error) { return key, nil }, UserAgent: "fairlead-sdk/" + version.String()})
	if err != nil {
		return nil, publicError(err)
	}
	return newClient(api, opt.log()), nil
}

func newClient(api *apiclient.Client, log *slog.Logger) *Client {
	of := func(path string) reader { return reader{api, path, resource.At(path).List.Field} }
	backends := func(kind account.BackendKind) reader { return of(resource.BackendPath(kind)) }
	return &Client{
		api: api,
		Endpoints: Endpoints{Collection[Endpoint, EndpointFields]{Removable[Endpoint]{Reader[Endpoint]{
			of(resource.Endpoints)}}}, log},
		FailoverBackends: collection[FailoverBackend, FailoverBackendFields](backends(account.BackendFailover)),
		WeightedBackends: collection[WeightedBackend, WeightedBackendFields](backends(account.BackendWeighted)),
		TunnelGroupBackends: collection[TunnelGroupBackend, TunnelGroupBackendFields](
			backends(account.BackendTunnelGroup)),
		StaticBackends: collection[StaticBackend, StaticBackendFields](backends(account.BackendStatic)),
		HTTPResponseBackends: collection[HTTPResponseBackend, HTTPResponseBackendFields](
			backends(account.BackendHTTPResponse)),
		TunnelSessions: TunnelSessions{Reader[TunnelSession]{of(resource.TunnelSessions)}},
		Operators:      Removable[Operator]{Reader[Operator]{of(resource.Operators)}},
		Authtokens:     collection[Authtoken, AuthtokenFields](of(resource.Credentials)),
		APIKeys:        collection[APIKey, APIKeyFields](of(resource.APIKeys)),
		Users:          Removable[User]{Reader[User]{of(resource.Users)}},
		AppSessions:    Removable[AppSession]{Reader[AppSession]{of(resource.AppSessions)}},
	}
}

// Close closes the connections that no call uses.
func (c *Client) Close() { c.api.CloseIdleConnections() }

// Filter narrows a list by the parameters of its route in docs/reference/api, such as
// {"binding": "kubernetes"}; nil = everything.
type Filter map[string]string

func (f Filter) query() url.Values {
	q := url.Values{}
	for name, value := range f {
		q.Set(name, value)
	}
	return q
}

// reader is a kind of object: where the API has it, and the field of its lists.
type reader struct {
	api        *apiclient.Client
	path, list string
}

func (r reader) object(id string) string { return resource.ObjectPath(r.path, id) }

// Reader reads the objects of one kind.
type Reader[T any] struct{ of reader }

// List yields the objects, newest first, and reads one page after the other. An error is the last
// pair.
func (r Reader[T]) List(ctx context.Context, filter Filter) iter.Seq2[*T, error] {
	return func(yield func(*T, error) bool) {
		var broken error
		err := r.of.api.EachObject(ctx, r.of.path, r.of.list, filter.query(), func(raw json.RawMessage) bool {
			object, err := decode[T](raw)
			if err != nil {
				broken = err
				return false
			}
			return yield(object, nil)
		})
		if err = cmp.Or(err, broken); err != nil {
			yield(nil, publicError(err))
		}
	}
}

// Get reads an object; [CodeNotFound] if there is none.
func (r Reader[T]) Get(ctx context.Context, id string) (*T, error) {
	raw, err := r.of.api.Object(ctx, r.of.object(id))
	return decoded[T](raw, err)
}

// Removable reads and deletes the objects of one kind.
type Removable[T any] struct{ Reader[T] }

// Delete deletes an object; [CodeNotFound] if there is none, [CodeInUse] while another one needs it.
func (r Removable[T]) Delete(ctx context.Context, id string) error {
	return publicError(r.of.api.DeleteObject(ctx, r.of.object(id)))
}

// Collection keeps the objects of one kind. Fields are what can be set of them; those that are nil or
// empty have their default in Create, and stay in Update.
type Collection[T, Fields any] struct{ Removable[T] }

func collection[T, Fields any](of reader) Collection[T, Fields] {
	return Collection[T, Fields]{Removable[T]{Reader[T]{of}}}
}

// Create makes an object and returns it.
func (c Collection[T, Fields]) Create(ctx context.Context, fields Fields) (*T, error) {
	raw, err := c.of.api.CreateObject(ctx, c.of.path, fields)
	return decoded[T](raw, err)
}

// Update changes an object and returns it.
func (c Collection[T, Fields]) Update(ctx context.Context, id string, fields Fields) (*T, error) {
	raw, err := c.of.api.UpdateObject(ctx, c.of.object(id), fields)
	return decoded[T](raw, err)
}

// TunnelSessions reads and ends the sessions of agents.
type TunnelSessions struct{ Reader[TunnelSession] }

// Stop ends a session for good: its agent exits. [Listen] and [Forward] end with [ReasonStopped].
func (t TunnelSessions) Stop(ctx context.Context, id string) error {
	return publicError(t.of.api.PostAction(ctx, t.of.object(id)+"/stop"))
}

// Restart ends a session, whose agent connects again with its endpoints.
func (t TunnelSessions) Restart(ctx context.Context, id string) error {
	return publicError(t.of.api.PostAction(ctx, t.of.object(id)+"/restart"))
}

// decoded decodes the answer of a call.
func decoded[T any](raw json.RawMessage, err error) (*T, error) {
	if err != nil {
		return nil, publicError(err)
	}
	return decode[T](raw)
}

func decode[T any](raw json.RawMessage) (*T, error) {
	object := new(T)
	if err := json.Unmarshal(raw, object); err != nil {
		return nil, publicError(&account.Error{Code: account.CodeBadAnswer, Cause: err,
			Msg: fmt.Sprintf("the answer is not a %T", *object)})
	}
	return object, nil
}
