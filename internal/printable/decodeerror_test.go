// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package printable

import (
	"encoding/json"
	"fmt"
	"testing"
)

func TestDecodeError_HasNoWordsOfGo(t *testing.T) {
	t.Parallel()
	type Person struct {
		Mail string `json:"mail"`
	}
	type claims struct {
		Person
		At     int64            `json:"auth_time"`
		Name   string           `json:"name"`
		Groups []string         `json:"groups"`
		All    map[string]any   `json:"all"`
		Inner  struct{ B bool } `json:"inner"`
	}
	var anonymous struct {
		Party string `json:"azp"`
	}
	for text, c := range map[string]struct {
		into any
		want string
	}{
		`{"auth_time":"x"}`:     {&claims{}, "auth_time is a text and must be a whole number"},
		`{"auth_time":1.5}`:     {&claims{}, "auth_time is a number 1.5 and must be a whole number"},
		`{"name":{}}`:           {&claims{}, "name is an object and must be a text"},
		`{"groups":true}`:       {&claims{}, "groups is true or false and must be a list"},
		`{"all":[]}`:            {&claims{}, "all is a list and must be an object"},
		`{"inner":{"B":"yes"}}`: {&claims{}, "inner.B is a text and must be true or false"},
		`{"mail":1}`:            {&claims{}, "mail is a number and must be a text"},
		`{"azp":1}`:             {&anonymous, "azp is a number and must be a text"},
		`[]`:                    {&anonymous, "the value is a list and must be an object"},
		`"x"`:                   {&map[string]any{}, "the value is a text and must be an object"},
		`<html>`:                {&claims{}, "it is not JSON: '<' cannot stand there"},
		`{"name":"x"]`:          {&claims{}, "it is not JSON: ']' cannot stand there"},
		`{"name":`:              {&claims{}, "it is JSON that ends too early"},
	} {
		err := fmt.Errorf("oidc: failed to decode claims: %w", json.Unmarshal([]byte(text), c.into))
		if got, want := DecodeError(err.Error()), "oidc: cannot read claims: "+c.want; got != want {
			t.Errorf("%s:\n%s, want\n%s", text, got, want)
		}
	}
	if text := "the provider's keys: no route to host"; DecodeError(text) != text {
		t.Errorf("%q was changed", text)
	}
}
