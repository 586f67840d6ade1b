// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"cmp"
	"encoding/json"
	"reflect"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/account/resource"
)

// schema is a JSON object of the API's description.
type schema = map[string]any

func reference(kind, name string) schema { return schema{"$ref": "#/components/" + kind + "/" + name} }

// schemas are the types of answers, by name.
type schemas struct{ all schema }

// schemaNames are the names of schemas that are not those of their types, as clients know them.
var schemaNames = map[reflect.Type]string{
	reflect.TypeFor[account.AccessedEndpoint](): "Accessed",
	reflect.TypeFor[account.AuditWatchEvent]():  "AuditLine",

	reflect.TypeFor[resource.HTTPResponseBackend](): "HttpResponseBackend",
}

// reference returns a reference to the type of the value, or the type itself if it has no name.
func (s *schemas) reference(value any) schema {
	list, ok := value.(resource.List)
	if !ok {
		return s.ofType(reflect.TypeOf(value))
	}
	properties := schema{list.Field: schema{"type": "array", "items": s.reference(list.Of)}}
	required := []string{list.Field}
	for _, beside := range list.Beside {
		required = append(required, s.addFields(properties, list.Name, reflect.TypeOf(beside))...)
	}
	s.all[list.Name] = closedObject(properties)
	s.all[list.Name].(schema)["required"] = required
	return reference("schemas", list.Name)
}

func (s *schemas) ofType(t reflect.Type) schema {
	switch t {
	case reflect.TypeFor[time.Time]():
		return schema{"type": "string", "format": "date-time"}
	case reflect.TypeFor[json.RawMessage]():
		return schema{"type": "object"}
	case reflect.TypeFor[account.ResourceVersion]():
		return schema{"type": "string"}
	case reflect.TypeFor[account.Scope]():
		return schema{"type": "string", "enum": account.Scopes()}
	case reflect.TypeFor[account.SubjectRole]():
		return schema{"type": "string", "enum": account.SubjectRoles()}
	case reflect.TypeFor[account.EventType]():
		return schema{"type": "string", "enum": []account.EventType{account.Added, account.Modified, account.Deleted,
			account.Bookmark}}
	case reflect.TypeFor[account.Code]():
		return schema{"type": "string", "enum": apiCodes()}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return orNull(s.ofType(t.Elem()))
	case reflect.Slice:
		return schema{"type": "array", "items": s.ofType(t.Elem())}
	case reflect.Map:
		return schema{"type": "object", "additionalProperties": s.ofType(t.Elem())}
	case reflect.Bool:
		return schema{"type": "boolean"}
	case reflect.Int, reflect.Int32, reflect.Int64:
		return schema{"type": "integer"}
	case reflect.Float64:
		return schema{"type": "number"}
	case reflect.Struct:
		return s.ofStruct(t)
	default:
		return schema{"type": "string"}
	}
}

func (s *schemas) ofStruct(t reflect.Type) schema {
	name := cmp.Or(schemaNames[t], strings.ToUpper(t.Name()[:1])+t.Name()[1:])
	if s.all[name] == nil {
		properties := schema{}
		of := closedObject(properties)
		s.all[name] = of
		of["required"] = s.addFields(properties, name, t)
	}
	return reference("schemas", name)
}

// addFields describes the fields of a struct, and of structs that it embeds, by their JSON tags. It
// returns those that are required: the fields without omitempty.
func (s *schemas) addFields(properties schema, name string, t reflect.Type) []string {
	required := []string{}
	for _, f := range reflect.VisibleFields(t) {
		field, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if field == "-" || field == "" {
			continue
		}
		of := f.Type
		if options == "omitempty" && of.Kind() == reflect.Pointer {
			of = of.Elem() // it is never null
		}
		property := s.ofType(of)
		if allowed := resource.AnswerValues(name, field); allowed != nil {
			property["enum"] = allowed
		}
		properties[field] = property
		if options != "omitempty" {
			required = append(required, field)
		}
	}
	return required
}

func orNull(of schema) schema {
	if kind, ok := of["type"].(string); ok {
		of["type"] = []string{kind, "null"}
		return of
	}
	return schema{"anyOf": []any{of, schema{"type": "null"}}}
}

func closedObject(properties schema) schema {
	return schema{"type": "object", "properties": properties, "additionalProperties": false}
}

// describeFields describes an object of a body. None of its fields is required.
func describeFields(all []resource.Field) schema {
	properties := schema{}
	for _, f := range all {
		properties[f.Name] = describeField(f)
	}
	return closedObject(properties)
}

func describeField(f resource.Field) schema {
	kind, of, most := "string", schema{}, ""
	switch f.Type {
	case resource.Text:
		most = "maxLength"
	case resource.Choice:
		kind = ""
	case resource.Bool:
		kind = "boolean"
	case resource.Number:
		kind, of["minimum"], of["maximum"] = "integer", f.Min, f.Max
	case resource.Time:
		of["format"] = "date-time"
	case resource.ListOf:
		kind, most, of["items"] = "array", "maxItems", describeItem(*f.Items)
	case resource.MapOf:
		kind, most, of["additionalProperties"] = "object", "maxProperties", describeItem(*f.Items)
	case resource.Object:
		kind, of = "object", describeFields(f.Fields)
	case resource.KeySet:
		return describeKeySet()
	}
	if f.Max > 0 && most != "" {
		of[most] = f.Max
	}
	for keyword, value := range map[string]any{"enum": f.Values, "default": f.Default, "pattern": f.Pattern,
		"description": f.Description} {
		if value != nil && value != "" {
			of[keyword] = value
		}
	}
	switch {
	case kind != "" && f.NotNull:
		of["type"] = kind
	case kind != "":
		of["type"] = []string{kind, "null"}
	}
	return of
}

// describeItem describes an item of a list or a map, which is never null.
func describeItem(f resource.Field) schema {
	f.NotNull = true
	return describeField(f)
}

func describeKeySet() schema {
	member := schema{"type": "string"}
	key := schema{"type": "object", "required": []string{"kid", "kty"}, "properties": schema{"kid": member,
		"kty": schema{"enum": []string{"RSA", "EC"}}, "alg": member, "use": schema{"enum": []string{"sig"}},
		"n": member, "e": member, "crv": member, "x": member, "y": member}}
	return schema{"type": "object", "required": []string{"keys"}, "properties": schema{"keys": schema{"type": "array",
		"items": key, "maxItems": account.MaxClusterKeys}},
		"description": "public keys, as kubectl get --raw /openid/v1/jwks prints; other members are dropped"}
}

// apiCodes returns the error codes that the API answers with.
func apiCodes() []account.Code {
	var all []account.Code
	for _, info := range account.Codes() {
		if isAPICode(info.Code) {
			all = append(all, info.Code)
		}
	}
	return all
}
