// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Every value that cannot work is refused before anything is installed, with a sentence, and without showing a secret.
func TestRefusals(t *testing.T) {
	t.Parallel()
	set := func(path string, value any) values { return good().set(path, value) }
	for name, tt := range map[string]struct {
		values values
		want   string
	}{
		"unknown value":            {set("bindings", map[string]any{}), "additional properties 'bindings' not allowed"},
		"unknown nested value":     {set("binding.selector", "true"), "additional properties 'selector' not allowed"},
		"unknown deep value":       {set("manager.resources.limit", map[string]any{}), "additional properties 'limit' not allowed"},
		"removed value":            {set("binding.enabled", nil), "missing property 'enabled'"},
		"removed group":            {set("api", nil), "missing property 'api'"},
		"text for a boolean":       {set("binding.enabled", "yes"), "'/binding/enabled': got string, want boolean"},
		"number for a text":        {set("description", 7), "'/description': got number, want string"},
		"text for replicas":        {set("manager.replicas", "two"), "'/manager/replicas': got string, want integer"},
		"no replicas":              {set("forwarder.replicas", 0), "'/forwarder/replicas': minimum: got 0, want 1"},
		"pull policy":              {set("image.pullPolicy", "Sometimes"), "'/image/pullPolicy': value must be one of"},
		"pull secret without name": {set("imagePullSecrets", []any{map[string]any{"secret": "x"}}), "'/imagePullSecrets/0'"},

		"no API URL":            {set("api.url", ""), "api.url is required: give the address of your fairlead-server"},
		"API URL http":          {set("api.url", "http://a.example"), `api.url "http://a.example": give it as https://HOST[:PORT]`},
		"API URL with path":     {set("api.url", "https://a.example/v1"), "without user, path or query"},
		"API URL with user":     {set("api.url", "https://u:p@a.example"), "give it as https://HOST[:PORT]"},
		"API URL without host":  {set("api.url", "https://:8443"), "give it as https://HOST[:PORT]"},
		"API URL, port":         {set("api.url", "https://a.example:70000"), "the port must be a number from 1 to 65535"},
		"API URL, port 0":       {set("api.url", "https://a.example:0"), "give it as https://HOST[:PORT]"},
		"API URL, line end":     {set("api.url", "https://a.example\n--x"), "give it as https://HOST[:PORT]"},
		"edge without port":     {set("edge.address", "edge.example"), `edge.address "edge.example": give it as HOST:PORT`},
		"edge with scheme":      {set("edge.address", "https://edge.example:443"), "give it as HOST:PORT"},
		"edge, port":            {set("edge.address", "edge.example:65536"), "the port must be a number from 1 to 65535"},
		"CA without certs":      {set("api.caBundle", "ca.crt"), "api.caBundle holds no PEM certificate"},
		"CA with a private key": {set("api.caBundle", "-----BEGIN CERTIFICATE-----\n-----BEGIN PRIVATE KEY-----\nflk_secret"), "api.caBundle holds a private key"},

		"no API key":           {set("credentials.apiKey", ""), "credentials.apiKey is required"},
		"no authtoken":         {set("credentials.authtoken", ""), "credentials.authtoken is required while binding.enabled is true"},
		"authtoken as API key": {set("credentials.apiKey", "flt_secret"), "credentials.apiKey holds an authtoken"},
		"API key as authtoken": {set("credentials.authtoken", "flk_secret"), "credentials.authtoken holds an API key"},
		"secret with line end": {set("credentials.apiKey", "flk_secret\n"), "must not contain spaces or line ends"},
		"both kinds":           {set("credentials.existingSecret", "mine"), `credentials.existingSecret "mine" excludes credentials.apiKey`},
		"bad Secret name": {good().set("credentials", map[string]any{"existingSecret": "My Secret"}),
			`credentials.existingSecret "My Secret" is no name of a Secret`},

		"long description":    {set("description", strings.Repeat("ü", 128)), "description has 256 bytes: shorten it to at most 255"},
		"cluster domain":      {set("clusterDomain", "cluster.local."), `clusterDomain "cluster.local." is no DNS domain`},
		"delay without unit":  {set("binding.removalDelay", "30"), `binding.removalDelay "30" is no duration: give a whole number with s, m or h`},
		"delay in days":       {set("binding.removalDelay", "1d"), "is no duration"},
		"negative delay":      {set("binding.removalDelay", "-1s"), "is no duration"},
		"delay with an octal": {set("binding.removalDelay", "010s"), "is no duration"},
		"long delay":          {set("binding.removalDelay", "25h"), `binding.removalDelay "25h" is too long: give at most 24h`},
		"drain":               {set("forwarder.drainTimeout", "15 min"), `forwarder.drainTimeout "15 min" is no duration`},
		"long drain":          {set("forwarder.drainTimeout", "86401s"), "is too long"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := template(t, tt.values)
			if err == nil {
				t.Fatalf("rendered:\n%s", out)
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("said %q; want %q", err, tt.want)
			}
			if strings.Contains(err.Error(), "secret-of") || strings.Contains(err.Error(), "flk_secret") || strings.Contains(err.Error(), "flt_secret") {
				t.Errorf("shows a secret: %s", err)
			}
		})
	}
}

func TestRefusedSurroundings(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"chart requires kubeVersion: >=1.30.0-0":      {release, "--kube-version", "1.29.9"},
		"has 41 characters: choose one of at most 40": {strings.Repeat("r", 41), "--kube-version", kubeVersion},
	} {
		all := append([]string{"template", args[0], chartDir, "--namespace", namespace}, args[1:]...)
		if out, err := helm(t, os.DevNull, good(), all...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v\n%s\nwant %q", err, out, want)
		}
	}
}

// What is allowed: the edges of the rules above.
func TestAccepted(t *testing.T) {
	t.Parallel()
	for name, v := range map[string]values{
		"port":              good().set("api.url", "https://10.99.0.2:8443"),
		"trailing slash":    good().set("api.url", "https://a.example/"),
		"IPv6":              good().set("api.url", "https://[fd00::1]"),
		"IPv6 edge":         good().set("edge.address", "[fd00::1]:8443"),
		"no delay":          good().set("binding.removalDelay", "0s"),
		"longest delay":     good().set("binding.removalDelay", "24h"),
		"parent's globals":  good().set("global", map[string]any{"anything": 1}),
		"no limits":         good().set("manager.resources", map[string]any{}),
		"extended resource": good().set("forwarder.resources.limits", map[string]any{"example.com/nic": 1}),
		"long description":  good().set("description", strings.Repeat("x", 255)),
	} {
		if _, err := template(t, v); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The schema is closed: an object that allows any key must say what the keys' values are, and only these few may.
func TestSchemaIsClosed(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile(filepath.Join(chartDir, "values.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	var schema map[string]any
	if err := json.Unmarshal(b, &schema); err != nil {
		t.Fatal(err)
	}
	open := map[string]bool{"/properties/global": true, "/$defs/quantities": true}
	var walk func(path string, node any)
	walk = func(path string, node any) {
		object, ok := node.(map[string]any)
		if !ok {
			return
		}
		if object["type"] == "object" && object["additionalProperties"] != false && !open[path] {
			t.Errorf("%s: additionalProperties is not false", path)
		}
		for key, child := range object {
			walk(path+"/"+key, child)
		}
	}
	walk("", schema)
}
