// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package trafficpolicy

import (
	"strings"
	"sync"
	"time"

	"github.com/google/cel-go/cel"
)

// variable is one row of the table of variables. get returns false when the value is absent:
// reading it is then an error.
type variable struct {
	name   string
	typ    *cel.Type
	phases []phase
	get    func(x *exchange) (any, bool)
}

// variables returns the table of variables.
var variables = sync.OnceValue(func() []variable {
	all := connVariables()
	all = append(all, endpointVariables()...)
	all = append(all, requestVariables()...)
	all = append(all, responseVariables()...)
	all = append(all, resultVariables()...)
	return append(all, variable{"time.now", cel.StringType, allPhases, func(x *exchange) (any, bool) {
		return x.policy.options.Clock().UTC().Format(time.RFC3339), true
	}})
})

// resultVariables are the results of actions of the same request, absent until one has run. Another
// product's documents have a further word in their names.
func resultVariables() []variable {
	names := []variable{
		{"restrict_ips.action", cel.StringType, allPhases, nil},
		{"basic_auth.credentials.presented", cel.BoolType, requestAndResponse, nil},
		{"basic_auth.credentials.username", cel.StringType, requestAndResponse, nil},
		{"basic_auth.credentials.authorized", cel.BoolType, requestAndResponse, nil},
		{"rate_limit.limited", cel.BoolType, requestAndResponse, nil},
	}
	for _, family := range loginNamespaces {
		for _, name := range []string{"identity.id", "identity.email", "identity.name", "identity.provider_user_id",
			"error.code"} {
			names = append(names, variable{family + "." + name, cel.StringType, requestAndResponse, nil})
		}
		names = append(names,
			variable{family + ".identity.groups", cel.ListType(cel.StringType), requestAndResponse, nil},
			variable{family + ".identity.attributes", cel.MapType(cel.StringType, cel.ListType(cel.StringType)),
				requestAndResponse, nil},
			variable{family + ".session_timed_out", cel.BoolType, requestAndResponse, nil})
	}
	var all []variable
	for _, prefix := range []string{"actions.", "actions.ngrok."} {
		for _, v := range names {
			name := v.name
			v.name = prefix + name
			v.get = func(x *exchange) (any, bool) { value, ok := x.results[name]; return value, ok }
			all = append(all, v)
		}
	}
	return all
}

type variableTable struct {
	byName map[string]*variable
	groups map[string][]*variable // conn.pod -> its variables
}

var variableIndex = sync.OnceValue(func() variableTable {
	ix := variableTable{map[string]*variable{}, map[string][]*variable{}}
	all := variables()
	for i := range all {
		name := all[i].name
		ix.byName[name] = &all[i]
		for {
			dot := strings.LastIndexByte(name, '.')
			if dot < 0 {
				break
			}
			name = name[:dot]
			ix.groups[name] = append(ix.groups[name], &all[i])
		}
	}
	return ix
})

func variableNamed(name string) *variable { return variableIndex().byName[name] }

func isGroup(name string) bool { return variableIndex().groups[name] != nil }

// ResolveName implements CEL's Activation.
func (x *exchange) ResolveName(name string) (any, bool) {
	if name == exchangeName {
		return x, true
	}
	name, asked := strings.CutPrefix(name, presencePrefix)
	ix := variableIndex()
	v := ix.byName[name]
	if !asked {
		if v == nil {
			return nil, false
		}
		return v.get(x)
	}
	if v != nil {
		_, known := v.get(x)
		return known, true
	}
	for _, member := range ix.groups[name] {
		if _, known := member.get(x); known {
			return true, true
		}
	}
	return false, true
}

func nonEmpty(s string) (any, bool) { return s, s != "" }

func nonZero(n int) (any, bool) { return int64(n), n != 0 }
