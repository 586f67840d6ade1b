// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
)

// TestServiceAccount_NeedsNoSecret checks that with credentials.serviceAccount no object of the chart
// is or names a Secret, and that each pod mounts a token for the account which its group may read.
func TestServiceAccount_NeedsNoSecret(t *testing.T) {
	t.Parallel()
	for audience, v := range map[string]values{
		"https://fairlead.example.com/accounts/ac-1": federatedValues().set("api.url", "https://fairlead.example.com/"),
		"https://other.example.com:8443/accounts/ac-1": federatedValues().set("credentials.serviceAccount.audience",
			"https://other.example.com:8443/accounts/ac-1"),
	} {
		all := render(t, v.set("export.enabled", true))
		deployments := 0
		for _, o := range all {
			if o.GetKind() == "Secret" {
				t.Errorf("Secret %s", o.GetName())
			}
			if o.GetKind() != "Deployment" {
				continue
			}
			deployments++
			pod := get[appsv1.Deployment](t, all, "Deployment", o.GetName()).Spec.Template.Spec
			for _, volume := range pod.Volumes {
				if volume.Secret != nil {
					t.Errorf("%s mounts Secret %s", o.GetName(), volume.Secret.SecretName)
				}
			}
			source := pod.Volumes[0].Projected
			if source == nil || *source.DefaultMode != 0o444 || *pod.SecurityContext.FSGroup != 65532 {
				t.Fatalf("%s: volume %+v, %+v", o.GetName(), pod.Volumes[0], pod.SecurityContext)
			}
			if token := source.Sources[0].ServiceAccountToken; token.Audience != audience ||
				*token.ExpirationSeconds != 3600 {
				t.Errorf("%s: token %+v, want audience %s", o.GetName(), token, audience)
			}
			if args := pod.Containers[0].Args; !slices.Contains(args,
				"--service-account-token-file=/etc/fairlead/credentials/token") {
				t.Errorf("%s: args %q", o.GetName(), args)
			}
		}
		if deployments != 3 {
			t.Errorf("%d Deployments, want 3", deployments)
		}
	}
}

func TestRefusals_ServiceAccount(t *testing.T) {
	t.Parallel()
	checkRefusals(t, template, map[string]refusal{
		"token and key": {federatedValues().set("credentials.apiKey", "flk_secret"),
			"credentials.serviceAccount.enabled excludes credentials.existingSecret, apiKey, authtoken"},
		"token and Secret": {federatedValues().set("credentials.existingSecret", "mine"),
			"credentials.serviceAccount.enabled excludes credentials.existingSecret"},
		"token without account": {federatedValues().set("credentials.serviceAccount.accountID", ""),
			"credentials.serviceAccount.accountID is required"},
		"token, bad account": {federatedValues().set("credentials.serviceAccount.accountID", "https://a.example"),
			`credentials.serviceAccount.accountID "https://a.example" is no id of an account`},
		"token, bad audience": {federatedValues().set("credentials.serviceAccount.audience", "https://a.example"),
			`credentials.serviceAccount.audience "https://a.example" is no audience of an account`},
		"token, audience of another": {federatedValues().set("credentials.serviceAccount.audience",
			"https://a.example/accounts/ac-2"), `is not of the account "ac-1"`},
		"account without token": {validValues().set("credentials.serviceAccount.accountID", "ac-1"),
			"no effect without credentials.serviceAccount.enabled"},
	})
	audienceAlone := federatedValues().set("credentials.serviceAccount", map[string]any{"enabled": true,
		"audience": "https://b.example:8443/accounts/ac-1"})
	if _, err := template(t, audienceAlone); err != nil {
		t.Errorf("an audience alone: %v", err)
	}
}
