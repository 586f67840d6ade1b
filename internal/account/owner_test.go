// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package account_test

import (
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
)

func TestOwner_Validated(t *testing.T) {
	t.Parallel()
	valid := account.Owner{Cluster: "1f0c3a52-8d57-4d52-9c1e-0a5b5cf0a001", Kind: account.KindAgentEndpoint,
		Namespace: "1234567", Name: "api.v1-0", UID: "00000000-0000-0000-0000-000000000001"}
	refused := func(change func(*account.Owner)) string {
		owner := valid
		change(&owner)
		u, err := account.ParseEndpointURL("http://a.b")
		if err != nil {
			t.Fatal(err)
		}
		r := account.BindRequest{Endpoint: account.NewEndpoint(account.BindingKubernetes, u)}
		r.Owner = &owner
		var names []string
		for _, f := range account.FieldsOf(r.Validate()) {
			names = append(names, f.Field)
		}
		return strings.Join(names, " ")
	}
	for _, c := range []struct {
		change func(*account.Owner)
		want   string
	}{
		{func(*account.Owner) {}, ""},
		{func(o *account.Owner) { o.Name = strings.Repeat("a", 253) }, ""},
		{func(o *account.Owner) { o.Name = strings.Repeat("a", 254) }, "owner.name"},
		{func(o *account.Owner) { o.Name = "" }, "owner.name"},
		{func(o *account.Owner) { o.Name = "a..b" }, "owner.name"},
		{func(o *account.Owner) { o.Name = "a.-b" }, "owner.name"},
		{func(o *account.Owner) { o.Name = "a_b" }, "owner.name"},
		{func(o *account.Owner) { o.Name = "a\nb" }, "owner.name"},
		{func(o *account.Owner) { o.Namespace = strings.Repeat("a", account.MaxNamespace) }, ""},
		{func(o *account.Owner) { o.Namespace = strings.Repeat("a", account.MaxNamespace+1) }, "owner.namespace"},
		{func(o *account.Owner) { o.Namespace = "a.b" }, "owner.namespace"},
		{func(o *account.Owner) { o.Namespace = "" }, "owner.namespace"},
		{func(o *account.Owner) { o.Cluster = "" }, "owner.cluster"},
		{func(o *account.Owner) { o.Cluster = "a/b" }, "owner.cluster"},
		{func(o *account.Owner) { o.UID = strings.Repeat("é", 4) }, "owner.uid"},
		{func(o *account.Owner) { o.UID = strings.Repeat("a", account.MaxUID+1) }, "owner.uid"},
		{func(o *account.Owner) { o.Kind = "Service" }, "owner.kind"},
		{func(o *account.Owner) { *o = account.Owner{} },
			"owner.cluster owner.kind owner.namespace owner.name owner.uid"},
	} {
		if got := refused(c.change); got != c.want {
			t.Errorf("broken rules %q, want %q", got, c.want)
		}
	}
}

func TestOwner_IsSameObject(t *testing.T) {
	t.Parallel()
	one := account.Owner{Cluster: "c", Kind: account.KindAgentEndpoint, Namespace: "a", Name: "b", UID: "1"}
	again, elsewhere, other := one, one, one
	again.UID, elsewhere.Cluster, other.Name = "2", "d", "c"
	for o, want := range map[*account.Owner]bool{&again: true, &elsewhere: false, &other: false, nil: false} {
		if got := one.Is(o); got != want {
			t.Errorf("%v is %v: %v", one, o, got)
		}
	}
	if none := (*account.Owner)(nil); !none.Is(nil) || none.Is(&one) {
		t.Error("none is not none, or another")
	}
}
