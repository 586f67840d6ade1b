// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/account/resource"
)

// handler serves one method of a route.
type handler func(*call) error

// selfLink returns the address of the request's list.
func (c *call) selfLink() resource.SelfLink {
	return resource.SelfLink{URI: string(c.server.uris) + c.Request.URL.Path}
}

// pageLinks returns the links of a page of the list at the request's path. lastID is the position
// after which the next page begins; extra are query parameters to add to its address.
func (c *call) pageLinks(q *query, more bool, lastID string, extra url.Values) resource.PageLinks {
	links := resource.PageLinks{SelfLink: c.selfLink()}
	if more {
		next := links.URI + "?" + q.nextPage(lastID, extra).Encode()
		links.NextPageURI = &next
	}
	return links
}

// kind is a kind of objects: how the API lists and shows them.
type kind[T any] struct {
	id  func(*T) string
	one func(*call, *T) (any, error)  // an object as it is answered
	all func(*call, []T) (any, error) // the objects of a list as they are answered
}

// newKind returns a kind whose objects are answered as they are stored, after prepare has set their
// URIs.
func newKind[T any](id func(*T) string, prepare func(*T)) kind[T] {
	return kind[T]{id: id,
		one: func(_ *call, o *T) (any, error) {
			prepare(o)
			return o, nil
		},
		all: func(_ *call, objects []T) (any, error) {
			for i := range objects {
				prepare(&objects[i])
			}
			return objects, nil
		},
	}
}

// answer answers with an object, or returns the error.
func (k kind[T]) answer(c *call, status int, o *T, err error) error {
	if err != nil {
		return err
	}
	shown, err := k.one(c, o)
	if err != nil {
		return err
	}
	return c.writeJSON(status, shown)
}

// listHandler answers with a page of the list, which has no parameters but those of paging.
func (k kind[T]) listHandler(read func(*call, account.Page) (objects []T, more bool, err error)) handler {
	return func(c *call) error {
		q := c.parseQuery()
		page := q.page()
		if err := q.err(); err != nil {
			return err
		}
		objects, more, err := read(c, page)
		if err != nil {
			return err
		}
		return k.writePage(c, q, objects, more, nil)
	}
}

// writePage answers with a page of the list. The fields of beside follow the links.
func (k kind[T]) writePage(c *call, q *query, objects []T, more bool, extra url.Values, beside ...any) error {
	lastID := ""
	if n := len(objects); n > 0 {
		lastID = k.id(&objects[n-1])
	}
	all, err := k.all(c, objects)
	if err != nil {
		return err
	}
	return c.writeList(all, append([]any{c.pageLinks(q, more && lastID != "", lastID, extra)}, beside...)...)
}

// getHandler answers with the object that read returns.
func (k kind[T]) getHandler(read func(c *call, id string) (*T, error)) handler {
	return func(c *call) error {
		found, err := read(c, c.ID())
		return k.answer(c, http.StatusOK, found, err)
	}
}

// inAccount calls a method of the store for the account of the call.
func inAccount[T any](
	read func(ctx context.Context, accountID, id string) (*T, error),
) func(*call, string) (*T, error) {
	return func(c *call, id string) (*T, error) { return read(c.Context(), c.AccountID(), id) }
}

// pageInAccount calls a method of the store for the account of the call.
func pageInAccount[T any](
	read func(ctx context.Context, accountID string, p account.Page) (page []T, more bool, err error),
) func(*call, account.Page) ([]T, bool, error) {
	return func(c *call, p account.Page) ([]T, bool, error) { return read(c.Context(), c.AccountID(), p) }
}

// patchOf is what a client sends of a T. Apply returns CodeInvalid with every rule that the patched
// object breaks.
type patchOf[T any] interface{ Apply(T, time.Time) (T, error) }

// writable is a kind of objects that the API creates, updates and deletes.
type writable[T any, P patchOf[T]] struct {
	kind[T]
	readPatch func(*object) P
	defaults  T                                    // a new object before its patch
	read      func(c *call, id string) (*T, error) // the object before a patch
	create    func(ctx context.Context, by account.Caller, p P) (*T, error)
	update    func(ctx context.Context, by account.Caller, id string, p P) (*T, error)
}

// handlers returns the handlers of the operations of the objects with this name.
func (w writable[T, P]) handlers(
	name string, list func(*call, account.Page) ([]T, bool, error),
	remove func(ctx context.Context, by account.Caller, id string) error,
) map[string]handler {
	return map[string]handler{"list" + name + "s": w.listHandler(list), "create" + name: w.createHandler,
		"get" + name: w.getHandler(w.read), "update" + name: w.updateHandler, "delete" + name: deleteHandler(remove)}
}

// readRequest reads the patch from the body of the call.
func (w writable[T, P]) readRequest(c *call) (b *body, p P, err error) {
	if b, err = c.readRequest(); err != nil {
		return nil, p, err
	}
	p = w.readPatch(b.top)
	b.top.rejectUnknown()
	return b, p, nil
}

// createHandler answers with the new object. When the body breaks rules, the error lists those that
// the object would break as well.
func (w writable[T, P]) createHandler(c *call) error {
	b, patch, err := w.readRequest(c)
	if err != nil {
		return err
	}
	if len(b.fieldErrors) > 0 {
		_, broken := patch.Apply(w.defaults, c.now())
		return b.err(broken)
	}
	created, err := w.create(c.Context(), c.Caller(), patch)
	return w.answer(c, http.StatusCreated, created, err)
}

// updateHandler answers with the object as it is after the update. Errors are as in createHandler.
func (w writable[T, P]) updateHandler(c *call) error {
	b, patch, err := w.readRequest(c)
	if err != nil {
		return err
	}
	if len(b.fieldErrors) > 0 {
		existing, err := w.read(c, c.ID())
		if err != nil {
			return err
		}
		_, broken := patch.Apply(*existing, c.now())
		return b.err(broken)
	}
	updated, err := w.update(c.Context(), c.Caller(), c.ID(), patch)
	return w.answer(c, http.StatusOK, updated, err)
}

// deleteHandler deletes an object and answers nothing.
func deleteHandler(remove func(ctx context.Context, by account.Caller, id string) error) handler {
	return func(c *call) error {
		return c.noContent(remove(c.Context(), c.Caller(), c.ID()))
	}
}

// actionHandler does something with an object and answers nothing. The request has no fields.
func actionHandler(act func(ctx context.Context, by account.Caller, id string) error) handler {
	return func(c *call) error {
		if err := c.noFields(); err != nil {
			return err
		}
		return deleteHandler(act)(c)
	}
}
