// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/http"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/account/resource"
)

// clusterHandlers serve the clusters whose ServiceAccounts act for the account.
type clusterHandlers struct {
	store interface {
		account.Clusters
		account.ClusterKeys
	}
	uris uris
}

func (h *clusterHandlers) kind() writable[account.Cluster, account.ClusterPatch] {
	return writable[account.Cluster, account.ClusterPatch]{
		kind: newKind(func(c *account.Cluster) string { return c.ID },
			func(c *account.Cluster) {
				c.URI = h.uris.at(resource.Clusters, c.ID)
				c.Audience = account.TokenAudience(string(h.uris), c.AccountID)
			}),
		readPatch: readClusterPatch, defaults: account.Cluster{Issuer: account.DefaultIssuer},
		read:   inAccount(h.store.Cluster),
		create: h.store.CreateCluster, update: h.store.PatchCluster,
	}
}

func readClusterPatch(o *object) account.ClusterPatch {
	p := account.ClusterPatch{Name: o.text("name"), Issuer: o.text("issuer"), Description: o.text("description"),
		Metadata: o.text("metadata"), ClusterUID: o.text("cluster_uid"), JWKS: readKeySet(o, "jwks"),
		AddJWKS: readKeySet(o, "add_jwks"), KeySource: (*account.KeySource)(o.text("key_source"))}
	if kids := o.texts("remove_keys"); kids != nil {
		p.RemoveKeys = *kids
	}
	if _, given := o.fields["subjects"]; given {
		subjects := []account.SubjectPatch{}
		for _, one := range o.objects("subjects") {
			subjects = append(subjects, readSubject(one))
		}
		p.Subjects = &subjects
	}
	return p
}

// readKeySet reads a JSON Web Key Set; nil when it is absent. It rejects each broken rule of the
// set, and then returns a set that breaks none, so that no rule is reported twice.
func readKeySet(o *object, name string) *account.KeySet {
	value, _, present := o.takeField(name)
	if !present {
		return nil
	}
	keys, err := account.ParseKeySet(value)
	for _, broken := range account.FieldsOf(err) {
		keys.Keys = []account.ClusterKey{{}}
		o.reject(name+strings.TrimPrefix(broken.Field, "jwks"), broken.Value, broken.Rule)
	}
	return &keys
}

func readSubject(o *object) account.SubjectPatch {
	o.ignore("id")
	p := account.SubjectPatch{Namespace: valueOf(o.text("namespace")),
		ServiceAccount: valueOf(o.text("service_account")), Role: account.SubjectRole(valueOf(o.text("role"))),
		ACL: o.textsOrDefault("acl", nil), UID: o.text("uid")}
	o.rejectUnknown()
	return p
}

// handOverKeys adds the keys that the operator of a cluster hands over to that cluster.
func (h *clusterHandlers) handOverKeys(c *call) error {
	b, err := c.readBody()
	if err != nil {
		return err
	}
	keys := readKeySet(b.top, "jwks")
	b.top.rejectUnknown()
	if keys == nil {
		b.top.reject("jwks", "", "must be a JSON Web Key Set, as kubectl get --raw /openid/v1/jwks prints")
	}
	if err := b.err(nil); err != nil {
		return err
	}
	result, err := h.store.HandOverKeys(c.Context(), c.Caller(), c.Key.ServiceAccount, *keys)
	if err != nil {
		return err
	}
	return c.writeJSON(http.StatusOK, result)
}
