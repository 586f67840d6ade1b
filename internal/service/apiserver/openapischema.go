// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"cmp"
	"reflect"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// schema is a JSON object of the API's description.
type schema = map[string]any

func reference(kind, name string) schema { return schema{"$ref": "#/components/" + kind + "/" + name} }

// schemas are the types of answers, by name.
type schemas struct{ all schema }

var bindings = []string{account.BindingKubernetes, account.BindingInternal, account.BindingPublic,
	account.BindingClusterset}

// values of fields of a ServiceExport.
var (
	exportTypes      = []string{account.ExportClusterSetIP, account.ExportHeadless}
	affinities       = []string{"None", "ClientIP"}
	internalPolicies = []string{"", "Cluster", "Local"}
	protocols        = []string{"TCP", "UDP", "SCTP"}
)

// values lists the values of fields that have few, by type and field.
var values = map[string]any{
	"Endpoint.type":              []string{account.TypeAgent, account.TypeCloud},
	"Endpoint.status":            []string{account.StatusOnline, account.StatusOffline},
	"Endpoint.upstream_protocol": []string{"", "http1", "http2"},
	"Endpoint.scheme":            []string{"http", "https", "tcp", account.SchemeService},
	"Endpoint.proto":             []string{"http", "https", "tcp", account.SchemeService},
	"Owner.kind": []string{account.KindAgentEndpoint, account.KindCloudEndpoint,
		account.KindServiceExport},
	"ServiceExport.type":                    exportTypes,
	"ServiceExport.session_affinity":        affinities,
	"ServiceExport.internal_traffic_policy": internalPolicies,
	"ServiceExportPort.protocol":            protocols,
}

// schemaNames are the names of schemas that are not those of their types, as clients know them.
var schemaNames = map[reflect.Type]string{
	reflect.TypeFor[account.AccessedEndpoint](): "Accessed",
	reflect.TypeFor[account.AuditWatchEvent]():  "AuditLine",
}

// reference returns a reference to the type of the value, or the type itself if it has no name.
func (s *schemas) reference(value any) schema {
	if own, ok := value.(schema); ok {
		return own
	}
	return s.ofType(reflect.TypeOf(value))
}

func (s *schemas) ofType(t reflect.Type) schema {
	switch t {
	case reflect.TypeFor[time.Time]():
		return schema{"type": "string", "format": "date-time"}
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

// ofStruct describes a struct by the JSON tags of its fields and of structs that it embeds. Fields
// without omitempty are required.
func (s *schemas) ofStruct(t reflect.Type) schema {
	name := cmp.Or(schemaNames[t], strings.ToUpper(t.Name()[:1])+t.Name()[1:])
	if s.all[name] != nil {
		return reference("schemas", name)
	}
	properties, required := schema{}, []string{}
	s.all[name] = schema{"type": "object", "properties": properties, "additionalProperties": false}
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
		if allowed := values[name+"."+field]; allowed != nil {
			property["enum"] = allowed
		}
		properties[field] = property
		if options != "omitempty" {
			required = append(required, field)
		}
	}
	s.all[name].(schema)["required"] = required
	return reference("schemas", name)
}

func orNull(of schema) schema {
	if kind, ok := of["type"].(string); ok {
		of["type"] = []string{kind, "null"}
		return of
	}
	return schema{"anyOf": []any{of, schema{"type": "null"}}}
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
