// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package clustertoken checks ServiceAccount tokens of Kubernetes clusters that an account trusts.
// A token comes in the place of an API key or an authtoken; its claims and signature are compared
// with the cluster that the store has. No cluster is asked, but the issuers of those with
// account.KeysFromIssuer, whose keys go to the store. What the token is good for goes out as an
// account.APIKey or account.TunnelCredential; a refusal goes to the caller as a sentence and to the
// account's audit log.
package clustertoken
