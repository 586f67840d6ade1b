// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"net/http"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// Fields and columns of keys and authtokens.
var (
	expiry = Field{Name: "expires_at", Type: Time, Flag: "expires",
		Help: "`WHEN` it ends: a duration (720h), a time (2027-01-31T00:00:00Z), or never"}
	dates = []Column{{"CREATED", "created_at"}, {"EXPIRES", "expires_at"}}
)

var apiKeys = Resource{Path: APIKeys, Noun: "API key", IDPrefix: account.PrefixAPIKey, Read: watchScopes,
	Object: account.APIKey{}, List: page("ApiKeyList", "keys", account.APIKey{}), Secret: true,
	Columns: []Column{{"ID", "id"}, {"SCOPES", "scopes"}, {"LAST USED", "last_used_at"},
		{"DESCRIPTION", "description"}},
	Wide: append([]Column{{"RULES", "acl"}, {"CLUSTER", "cluster_uid"}}, dates...),
	Fields: common(expiry, ignored("owner_id"),
		Field{Name: "scopes", Type: ListOf, Max: len(account.Scopes()), Items: &Field{Values: account.Scopes()},
			Flag: "scope", Help: "`SCOPE`: admin, read, operator, identities or exporter; may be repeated"},
		Field{Name: "acl", Type: ListOf, Max: account.MaxACLRules,
			Items: &Field{Max: account.MaxACLRule, Pattern: "^(export|bind|backend|internal):."},
			Help: "`RULE` of a key with the scope exporter: export:<namespace>/<name>, bind:<url pattern>, " +
				"backend:<id> or internal:<host>; may be repeated"},
		Field{Name: "cluster_uid", Max: account.MaxUID, Help: "`UID` of the namespace kube-system of the cluster " +
			"that such a key belongs to; default the first that presents it"}),
}.with(
	op("GET", "", "listAPIKeys", "List API keys", paging...),
	op("POST", "", "createAPIKey", "Make an API key; token is its secret, this once"),
	op("GET", "/{id}", "getAPIKey", "Read an API key"),
	op("PATCH", "/{id}", "updateAPIKey", "Change an API key"),
	op("DELETE", "/{id}", "deleteAPIKey", "Delete an API key; its watches and sessions end"))

var credentials = Resource{Path: Credentials, Noun: "authtoken", IDPrefix: account.PrefixCredential, Read: readScopes,
	Object: account.Authtoken{}, List: page("AuthtokenList", "credentials", account.Authtoken{}), Secret: true,
	Columns: []Column{{"ID", "id"}, {"LAST USED", "last_used_at"}, {"DESCRIPTION", "description"}},
	Wide:    append([]Column{{"RULES", "acl"}}, dates...),
	Fields: common(expiry, ignored("owner_id"),
		Field{Name: "acl", Type: ListOf, Max: account.MaxACLRules,
			Items: &Field{Max: account.MaxACLRule, Pattern: "^(bind|connect):."}, Help: "`RULE`: bind:<url pattern>, " +
				"bind:<label>=<value>, connect:<operator id pattern> or connect:<url pattern>; may be repeated"}),
}.with(
	op("GET", "", "listCredentials", "List authtokens", paging...),
	op("POST", "", "createCredential", "Make an authtoken; token is its secret, this once"),
	op("GET", "/{id}", "getCredential", "Read an authtoken"),
	op("PATCH", "/{id}", "updateCredential", "Change an authtoken"),
	op("DELETE", "/{id}", "deleteCredential", "Delete an authtoken; its sessions end"))

var clusters = Resource{Path: Clusters, Noun: "cluster", IDPrefix: account.PrefixCluster, Read: readScopes,
	Object: account.Cluster{}, List: page("ClusterList", "clusters", account.Cluster{}),
	Columns: []Column{{"ID", "id"}, {"NAME", "name"}, {"LAST USED", "last_used_at"}},
	Wide: []Column{{"ISSUER", "issuer"}, {"KEYS", "jwks"}, {"ROLES", "subjects"},
		{"DESCRIPTION", "description"}},
	Fields: common(
		Field{Name: "name", NotNull: true, Help: "`NAME`, a DNS label that no other cluster has"},
		Field{Name: "issuer", Max: account.MaxIssuer,
			Help: "`URL` of the tokens' issuer (iss); default " + account.DefaultIssuer},
		Field{Name: "key_source",
			Values: []any{nil, "", account.KeysFromCluster, account.KeysFromIssuer, account.KeysByHand},
			Help: "`SOURCE` of new keys: cluster, whose manager hands them over, issuer, whose URL publishes them " +
				"(EKS, GKE, AKS; no --jwks-file then), or manual, by --add-jwks-file alone; default cluster"},
		Field{Name: "cluster_uid", Max: account.MaxUID,
			Help: "`UID` of the cluster's namespace kube-system; default the first that its exporter presents"},
		Field{Name: "jwks", Type: KeySet}, Field{Name: "add_jwks", Type: KeySet},
		Field{Name: "remove_keys", Type: ListOf, Max: account.MaxClusterKeys, Items: &Field{}},
		Field{Name: "subjects", Type: ListOf, Max: account.MaxClusterSubjects, Items: &Field{Type: Object,
			Fields: []Field{
				ignored("id"),
				{Name: "namespace", NotNull: true},
				{Name: "service_account", NotNull: true},
				{Name: "role", NotNull: true, Values: account.SubjectRoles()},
				{Name: "acl", Type: ListOf, Max: account.MaxACLRules, Items: &Field{Max: account.MaxACLRule}},
				{Name: "uid", Max: account.MaxUID}}}}),
}.with(
	op("GET", "", "listClusters", "List the clusters whose ServiceAccounts act for the account", paging...),
	op("POST", "", "createCluster", "Trust a cluster's ServiceAccounts"),
	op("GET", "/{id}", "getCluster", "Read a cluster"),
	op("PATCH", "/{id}", "updateCluster", "Change a cluster; what its tokens have open and may no longer ends"),
	op("DELETE", "/{id}", "deleteCluster", "Delete a cluster; what its tokens have open ends"))

var clusterKeys = Resource{Path: ClusterKeys, Write: operatorScopes,
	Fields: []Field{{Name: "jwks", Type: KeySet}},
}.with(
	op("POST", "", "handOverClusterKeys", "Add keys to the cluster whose operator's ServiceAccount token is presented").
		answering(map[int]any{http.StatusOK: account.KeyHandover{}}))
