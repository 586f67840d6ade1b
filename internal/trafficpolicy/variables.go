// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package trafficpolicy

import (
	"strings"
	"sync"
	"time"

	"github.com/google/cel-go/cel"
)

// variable is one row of the table of what expressions can read. get says false when the value is
// absent: then it is not there at all, and reading it is an error.
type variable struct {
	name   string
	typ    *cel.Type
	phases []phase
	get    func(x *exchange) (any, bool)
}

var (
	always     = []phase{onTCPConnect, onHTTPRequest, onHTTPResponse}
	withHTTP   = []phase{onHTTPRequest, onHTTPResponse}
	inResponse = []phase{onHTTPResponse}
)

// variables is the table.
var variables = sync.OnceValue(func() []variable {
	all := connVariables()
	all = append(all, endpointVariables()...)
	all = append(all, requestVariables()...)
	all = append(all, responseVariables()...)
	all = append(all, findings()...)
	return append(all, variable{"time.now", cel.StringType, always, func(x *exchange) (any, bool) {
		return x.policy.clock().UTC().Format(time.RFC3339), true
	}})
})

// findings are what actions of the same request have found out, absent until one has run. Another
// product's documents have a further word in their names.
func findings() []variable {
	found := []variable{
		{"restrict_ips.action", cel.StringType, always, nil},
		{"basic_auth.credentials.presented", cel.BoolType, withHTTP, nil},
		{"basic_auth.credentials.username", cel.StringType, withHTTP, nil},
		{"basic_auth.credentials.authorized", cel.BoolType, withHTTP, nil},
		{"rate_limit.limited", cel.BoolType, withHTTP, nil},
	}
	for _, family := range loginFamilies {
		for _, name := range []string{"identity.id", "identity.email", "identity.name", "identity.provider_user_id",
			"error.code"} {
			found = append(found, variable{family + "." + name, cel.StringType, withHTTP, nil})
		}
		found = append(found,
			variable{family + ".identity.groups", cel.ListType(cel.StringType), withHTTP, nil},
			variable{family + ".identity.attributes", cel.MapType(cel.StringType, cel.ListType(cel.StringType)), withHTTP, nil},
			variable{family + ".session_timed_out", cel.BoolType, withHTTP, nil})
	}
	var all []variable
	for _, prefix := range []string{"actions.", "actions.ngrok."} {
		for _, v := range found {
			name := v.name
			v.name = prefix + name
			v.get = func(x *exchange) (any, bool) { value, ok := x.found[name]; return value, ok }
			all = append(all, v)
		}
	}
	return all
}

type index struct {
	byName map[string]*variable
	groups map[string][]*variable // conn.pod -> its variables
}

var variableIndex = sync.OnceValue(func() index {
	ix := index{map[string]*variable{}, map[string][]*variable{}}
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
	name, asked := strings.CutPrefix(name, presence)
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

func textIf(s string) (any, bool) { return s, s != "" }

func numberIf(n int) (any, bool) { return int64(n), n != 0 }
