// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"strings"
	"testing"
)

func TestServerChart_Refusals(t *testing.T) {
	t.Parallel()
	set := func(path string, value any) values { return values{}.set(path, value) }
	checkRefusals(t, templateServer, map[string]refusal{
		"unknown value":      {set("baseUrl", "x"), "additional properties 'baseUrl' not allowed"},
		"unknown deep value": {set("public.service.port", 1), "additional properties 'port' not allowed"},
		"removed group":      {set("tls", nil), "missing property 'tls'"},
		"number for a text":  {set("drainTimeout", 10), "'/drainTimeout': got number, want string"},
		"port":               {set("service.port", 70000), "'/service/port': maximum: got 70,000, want 65,535"},
		"service type":       {set("service.type", "ExternalName"), "'/service/type': value must be one of"},
		"access mode":        {set("persistence.accessMode", "RWO"), "'/persistence/accessMode': value must be one of"},
		"log level":          {set("logLevel", "loud"), "'/logLevel': value must be one of"},
		"claim":              {set("persistence.existingClaim", "My Claim"), "'/persistence/existingClaim'"},

		"base URL http": {set("baseURL", "http://a.example"),
			`baseURL "http://a.example": give it as https://HOST[:PORT]`},
		"base URL with path": {set("baseURL", "https://a.example/v1"), "without user, path or query"},
		"base URL, line end": {set("baseURL", "https://a.example\n--x"), "give it as https://HOST[:PORT]"},
		"base URL, port":     {set("baseURL", "https://a.example:70000"), "the port must be a number from 1 to 65535"},
		"tunnel URL":         {set("tunnelURL", "tunnels.example.com"), "tunnelURL"},
		"header": {set("versionHeaders", []string{"X Version"}),
			`versionHeaders "X Version" is no name of a header`},
		"name": {set("tls.names", []string{"a b"}), `tls.names "a b"`},
		"name and Secret": {set("tls", map[string]any{"names": []string{"a"}, "existingSecret": "b"}),
			"tls.names are for a certificate of the service's own"},
		"Secret": {set("tls.existingSecret", "My Secret"),
			`tls.existingSecret "My Secret" is no name of a Secret`},
		"database Secret": {set("database.urlSecret.name", "postgres://u:p@h/d"), "database.urlSecret.name"},
		"database key":    {set("database.urlSecret.key", ""), `database.urlSecret.key "" is no key of a Secret`},
		"database, no key": {set("database.urlSecret.name", "postgres"),
			"secretKey.name is required with database.urlSecret"},
	})
}

func TestServerChart_RefusesCombinations(t *testing.T) {
	t.Parallel()
	set := func(path string, value any) values { return values{}.set(path, value) }
	checkRefusals(t, templateServer, map[string]refusal{
		"public Secret": {set("public.tlsSecrets", []string{"good", "Not Good"}),
			`public.tlsSecrets[1] "Not Good" is no name of a Secret`},
		"terms of ACME": {set("public.enabled", true).set("public.acme.directory", "https://acme.example.com/d"),
			`public.acme.agreeToTerms is required with public.acme.directory "https://acme.example.com/d"`},
		"taken variable": {set("extraEnv", []any{map[string]any{"name": "POD_IP"}}),
			`extraEnv holds "POD_IP", which the chart sets itself`},
		"empty bootstrap": {set("bootstrap",
			map[string]any{"existingSecret": "a", "apiKeyKey": "", "authtokenKey": ""}),
			"holds nothing that is used"},
		"one for two":   {set("bootstrap.authtokenKey", "api-key"), "an API key and an authtoken are two secrets"},
		"size":          {set("persistence.size", "big"), `persistence.size "big" is no size`},
		"storage class": {set("persistence.storageClass", "My Class"), "is no name of a StorageClass"},
		"claim of nothing": {set("persistence", map[string]any{"enabled": false, "existingClaim": "mine"}),
			"has no effect while persistence.enabled is false"},
		"maps of nothing": {set("geoip.existingClaim", "maps"), "name its files in geoip.databases"},
		"maps nowhere":    {set("geoip.databases", []string{"a.mmdb"}), "name it in geoip.existingClaim"},
		"map elsewhere": {set("geoip", map[string]any{"existingClaim": "maps", "databases": []string{"../a.mmdb"}}),
			`geoip.databases "../a.mmdb" is no name of a file`},
		"metrics port": {set("metrics.port", 8443), "metrics.port 8443 is another listener's"},
		"monitor":      {set("metrics.podMonitor.enabled", true), "metrics.podMonitor.enabled needs metrics"},
		"alerts alone": {set("metrics.prometheusRule.enabled", true),
			"metrics.prometheusRule.enabled needs metrics: set metrics.enabled=true"},
		"unknown alert": {set("metrics.prometheusRule.disabledAlerts", []any{"FairleadManagerDown"}),
			`"FairleadManagerDown" is no alert of this chart: take one of FairleadRequestBudgetBurnsFast, `},
		"runbooks": {set("metrics.runbookURL", "docs/fix/runbooks"),
			`metrics.runbookURL "docs/fix/runbooks" is no address`},
		"runbooks, template": {set("metrics.runbookURL", "https://a/{{ $value }}"), "is no address"},
		"one public port":    {set("public.service.httpPort", 443), "one Service needs two ports"},
		"source range": {set("service.loadBalancerSourceRanges", []string{"all"}),
			`service.loadBalancerSourceRanges "all" is no network`},
		"public range": {set("public.service.loadBalancerSourceRanges", []string{"all"}),
			`public.service.loadBalancerSourceRanges "all" is no network`},
		"drain":      {set("drainTimeout", "10"), `drainTimeout "10" is no duration`},
		"long drain": {set("drainTimeout", "2h"), `drainTimeout "2h" is too long: give at most 1h`},
		"delay":      {set("shutdownDelay", "a while"), `shutdownDelay "a while" is no duration`},
		"long delay": {set("shutdownDelay", "6m"), `shutdownDelay "6m" is too long: give at most 5m`},
		"no grace":   {set("endpointGrace", "0s"), "is too short"},
		"long grace": {set("endpointGrace", "721h"), "give at most 720h"},
		"retention":  {set("identityRetention", "90d"), `identityRetention "90d" is no duration`},
		"short retention": {set("identityRetention", "23h"),
			`identityRetention "23h" is too short: give at least 24h`},
		"no retention":      {set("identityRetention", "0s"), "leave it empty to keep people for ever"},
		"long retention":    {set("identityRetention", "876001h"), "give at most 876000h"},
		"argument":          {set("extraArgs", []string{"serve"}), `extraArgs "serve" is no flag`},
		"tag in repository": {set("image.repository", "a/b:1"), "give it in image.tag"},
		"digest":            {set("image.digest", "0a"), "is no digest"},
		"label of ours": {set("podLabels", map[string]any{"app.kubernetes.io/name": "x"}),
			"which the chart sets itself"},
		"label value":    {set("podLabels", map[string]any{"a": "b c"}), "is no value of the label"},
		"priority class": {set("priorityClassName", "High"), "is no name of a PriorityClass"},
	})
}

func TestServerChart_RefusesReplicas(t *testing.T) {
	t.Parallel()
	set := func(path string, value any) values { return replicaValues().set("replicas", 3).set(path, value) }
	checkRefusals(t, templateServer, map[string]refusal{
		"no replica": {set("replicas", 0), "'/replicas': minimum: got 0, want 1"},
		"a text":     {set("replicas", "three"), "'/replicas': got string, want null or integer"},
		"SQLite": {set("database.urlSecret.name", ""),
			"replicas is 3 and database.urlSecret.name is empty: replicas share a PostgreSQL database"},
		"no key":   {set("secretKey.name", ""), "secretKey.name is required with database.urlSecret"},
		"a volume": {set("persistence.enabled", true), "a release with a volume is upgraded in two steps"},
		"no first credentials": {set("bootstrap.existingSecret", ""),
			"replicas is 3 and bootstrap.existingSecret is empty"},
		"the port of another": {set("metrics.port", 8445), "metrics.port 8445 is another listener's"},
	})
}

func TestServerChart_RefusesReleaseNames(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("r", 40)
	if _, err := helm(t, "/dev/null", nil, "template", long, serverDir, "--kube-version", kubeVersion); err == nil ||
		!strings.Contains(err.Error(), "has 40 characters: choose one of at most 39") {
		t.Errorf("a long name of the release: %v", err)
	}
	_, err := helm(t, "/dev/null", nil, "template", "1e3", serverDir, "--kube-version", "1.35.9")
	if err == nil || !strings.Contains(err.Error(), `the release name "1e3" begins with a digit`) {
		t.Errorf("a name of the release that no Service may have: %v", err)
	}
}
