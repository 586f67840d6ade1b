// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import "github.com/fairlead-dev/fairlead/internal/account"

// keySetFields is a JSON Web Key Set in a body.
func keySetFields() schema {
	member := schema{"type": "string"}
	key := schema{"type": "object", "required": []string{"kid", "kty"}, "properties": schema{"kid": member,
		"kty": schema{"enum": []string{"RSA", "EC"}}, "alg": member, "use": schema{"enum": []string{"sig"}},
		"n": member, "e": member, "crv": member, "x": member, "y": member}}
	return schema{"type": "object", "required": []string{"keys"}, "properties": schema{"keys": schema{"type": "array",
		"items": key, "maxItems": account.MaxClusterKeys}},
		"description": "public keys, as kubectl get --raw /openid/v1/jwks prints; other members are dropped"}
}

// clusterFields is the body of a request that creates or changes a cluster.
func clusterFields() schema {
	member, keys := schema{"type": "string"}, keySetFields()
	subject := fields(schema{"id": ignored(), "namespace": member, "service_account": member,
		"role": schema{"type": "string", "enum": account.SubjectRoles()},
		"acl":  texts(schema{"type": "string", "maxLength": account.MaxACLRule}, account.MaxACLRules),
		"uid":  text(account.MaxUID)})
	return fields(schema{"id": sameID(), "name": member, "issuer": text(account.MaxIssuer),
		"description": text(account.MaxDescription), "metadata": text(account.MaxMetadata),
		"cluster_uid": text(account.MaxUID), "jwks": keys, "add_jwks": keys,
		"remove_keys": texts(member, account.MaxClusterKeys),
		"key_source":  schema{"type": []string{"string", "null"}, "enum": keySources()},
		"subjects":    texts(subject, account.MaxClusterSubjects)})
}

// keySources returns the values of key_source in a body; null is the default.
func keySources() []any {
	values := []any{nil, ""}
	for _, source := range account.KeySources() {
		values = append(values, source)
	}
	return values
}
