// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package sdk_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/account/resource"
	"github.com/fairlead-dev/fairlead/sdk"
)

// jsonFields returns the types of a struct's fields, and of structs that it embeds, by JSON name.
func jsonFields(value any) map[string]reflect.Type {
	all := map[string]reflect.Type{}
	for _, f := range reflect.VisibleFields(reflect.TypeOf(value)) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
			all[name] = f.Type
		}
	}
	return all
}

// kindOf returns what the JSON of a type is: pointers may be null, times are texts.
func kindOf(of reflect.Type) string {
	switch of.Kind() {
	case reflect.Pointer:
		return kindOf(of.Elem())
	case reflect.Slice:
		return "list of " + kindOf(of.Elem())
	case reflect.Map:
		return "map of " + kindOf(of.Elem())
	case reflect.Struct:
		if of.Name() == "Time" || of.Name() == "ResourceVersion" {
			return "string"
		}
	}
	return of.Kind().String()
}

// TestTypes_MatchTheAPI requires that the API answers with every field of the SDK's objects, and
// takes every field that the SDK sends.
func TestTypes_MatchTheAPI(t *testing.T) {
	t.Parallel()
	for path, of := range map[string]struct{ object, fields any }{
		resource.Endpoints:      {sdk.Endpoint{}, sdk.EndpointFields{}},
		resource.TunnelSessions: {object: sdk.TunnelSession{}},
		resource.Operators:      {object: sdk.Operator{}},
		resource.Credentials:    {sdk.Authtoken{}, sdk.AuthtokenFields{}},
		resource.APIKeys:        {sdk.APIKey{}, sdk.APIKeyFields{}},
		resource.Users:          {object: sdk.User{}},
		resource.AppSessions:    {object: sdk.AppSession{}},

		resource.BackendPath(account.BackendFailover):     {sdk.FailoverBackend{}, sdk.FailoverBackendFields{}},
		resource.BackendPath(account.BackendWeighted):     {sdk.WeightedBackend{}, sdk.WeightedBackendFields{}},
		resource.BackendPath(account.BackendTunnelGroup):  {sdk.TunnelGroupBackend{}, sdk.TunnelGroupBackendFields{}},
		resource.BackendPath(account.BackendStatic):       {sdk.StaticBackend{}, sdk.StaticBackendFields{}},
		resource.BackendPath(account.BackendHTTPResponse): {sdk.HTTPResponseBackend{}, sdk.HTTPResponseBackendFields{}},
	} {
		r := resource.At(path)
		answered := jsonFields(r.Object)
		for name, kind := range jsonFields(of.object) {
			if answered[name] == nil || kindOf(answered[name]) != kindOf(kind) {
				t.Errorf("%s: %T has %s, %v; the API answers %v", path, of.object, name, kind, answered[name])
			}
		}
		if of.fields == nil {
			continue
		}
		taken := map[string]bool{}
		for _, f := range r.Fields {
			taken[f.Name] = true
		}
		for name := range jsonFields(of.fields) {
			if !taken[name] {
				t.Errorf("%s: %T sends %s, which the API does not take", path, of.fields, name)
			}
		}
	}
}
