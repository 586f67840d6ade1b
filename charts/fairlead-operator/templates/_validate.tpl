{{/*
What the schema cannot say in a sentence. Each message names the value and the remedy, and none repeats a secret.
*/}}
{{- define "fairlead-operator.validate" -}}
{{- include "fairlead-operator.validateName" . -}}
{{- include "fairlead-operator.validateAddresses" . -}}
{{- include "fairlead-operator.validateSeal" . -}}
{{- include "fairlead-operator.validateCredentials" . -}}
{{- include "fairlead-operator.validateTexts" . -}}
{{- include "fairlead-operator.validateImage" . -}}
{{- include "fairlead-operator.validatePorts" . -}}
{{- include "fairlead-operator.validateProxy" . -}}
{{- include "fairlead-operator.validatePods" (list . "manager" .Values.manager) -}}
{{- include "fairlead-operator.validatePods" (list . "forwarder" .Values.forwarder) -}}
{{- include "fairlead-operator.validateAutoscaling" . -}}
{{- include "fairlead-operator.validatePods" (list . "export" .Values.export) -}}
{{- include "fairlead-operator.validateLabels" (list . "metrics.podMonitor.labels" .Values.metrics.podMonitor.labels) -}}
{{- include "fairlead-operator.validateLabels" (list . "metrics.prometheusRule.labels" .Values.metrics.prometheusRule.labels) -}}
{{- include "fairlead-operator.validateLabels" (list . "metrics.dashboards.labels" .Values.metrics.dashboards.labels) -}}
{{- include "fairlead-operator.validateLabels" (list . "binding.services.labels" .Values.binding.services.labels) -}}
{{- include "fairlead-operator.validateMonitoring" . -}}
{{- include "fairlead-operator.validateNamespaces" . -}}
{{- include "fairlead-operator.validateExport" . -}}
{{- end -}}

{{- define "fairlead-operator.validateName" -}}
{{- if gt (len .Release.Name) 40 -}}
{{- fail (printf "the release name %q has %d characters: choose one of at most 40, as Deployments and Roles are named after it" .Release.Name (len .Release.Name)) -}}
{{- end -}}
{{- end -}}

{{- define "fairlead-operator.validateAddresses" -}}
{{- $url := .Values.api.url -}}
{{- if not $url -}}
{{- fail "api.url is required: give the address of your fairlead-server, for example --set api.url=https://fairlead.example.com" -}}
{{- end -}}
{{- if not (regexMatch "^https://(\\[[0-9A-Fa-f:.]+\\]|[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?)(:[1-9][0-9]{0,4})?/?$" $url) -}}
{{- fail (printf "api.url %q: give it as https://HOST[:PORT], without user, path or query" $url) -}}
{{- end -}}
{{- include "fairlead-operator.validatePort" (list "api.url" $url) -}}
{{- if and .Values.binding.namespaces.allow .Values.forwarder.podIdentity.enabled -}}
{{- fail "forwarder.podIdentity.enabled and binding.namespaces.allow exclude each other: forwarders would read the pods of all namespaces" -}}
{{- end -}}
{{- range .Values.forwarder.podIdentity.annotations -}}
{{- if not $.Values.forwarder.podIdentity.enabled -}}
{{- fail "forwarder.podIdentity.annotations needs forwarder.podIdentity.enabled: without it no pod is known" -}}
{{- end -}}
{{- if not (regexMatch "^([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?([A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?|[A-Za-z0-9][A-Za-z0-9_.-]*\\*)$|^[a-z0-9]([a-z0-9.-]*[a-z0-9])?/\\*$" .) -}}
{{- fail (printf "forwarder.podIdentity.annotations %q: give names of annotations, or beginnings such as example.com/*" .) -}}
{{- end -}}
{{- end -}}
{{- $edge := .Values.edge.address -}}
{{- if and $edge (not (regexMatch "^(\\[[0-9A-Fa-f:.]+\\]|[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?):[1-9][0-9]{0,4}$" $edge)) -}}
{{- fail (printf "edge.address %q: give it as HOST:PORT, or leave it empty for the host and port of api.url" $edge) -}}
{{- end -}}
{{- include "fairlead-operator.validatePort" (list "edge.address" $edge) -}}
{{- if not (regexMatch "^[A-Za-z0-9_-]+$" .Values.api.versionHeader) -}}
{{- fail (printf "api.versionHeader %q is no name of a header: use letters, digits, '-' and '_', as in Service-Version" .Values.api.versionHeader) -}}
{{- end -}}
{{- include "fairlead-operator.validateCertificates" (list "api.caBundle" .Values.api.caBundle) -}}
{{- end -}}

{{/* Certificates of authorities: call with (list NAME TEXT). */}}
{{- define "fairlead-operator.validateCertificates" -}}
{{- $name := index . 0 -}}
{{- $ca := index . 1 -}}
{{- if contains "PRIVATE KEY-----" $ca -}}
{{- fail (printf "%s holds a private key: give only the certificates of the authority, and consider that key as known to others" $name) -}}
{{- end -}}
{{- if and $ca (not (contains "-----BEGIN CERTIFICATE-----" $ca)) -}}
{{- fail (printf "%s holds no PEM certificate: give the authority's certificates, for example --set-file %s=ca.crt" $name $name) -}}
{{- end -}}
{{- end -}}

{{- define "fairlead-operator.validateSeal" -}}
{{- $b := .Values.binding -}}
{{- $sealed := include "fairlead-operator.sealed" . -}}
{{- if eq $sealed "prefer" -}}
{{- fail "binding.sealed=prefer has no object that records which endpoints were sealed: give EndpointTrust objects mode: Prefer, one in each namespace" -}}
{{- end -}}
{{- if and (ne $sealed "off") (not $b.sealAccount) -}}
{{- fail (printf "binding.sealAccount is required with binding.sealed=%s: give the id (ac-…) of the account, which agents' certificates must name" $sealed) -}}
{{- end -}}
{{- if not (regexMatch "^([A-Za-z0-9][A-Za-z0-9_-]{0,127})?$" $b.sealAccount) -}}
{{- fail (printf "binding.sealAccount %q is no id of an account: give the one (ac-…) that agents' certificates name" $b.sealAccount) -}}
{{- end -}}
{{- if and (ne $sealed "off") (not $b.sealAuthority) -}}
{{- fail (printf "binding.sealAuthority is required with binding.sealed=%s: give the certificates of the authorities that sign the agents' certificates (--set-file)" $sealed) -}}
{{- end -}}
{{- if and $b.sealAuthority (not $b.sealAccount) -}}
{{- fail "binding.sealAuthority has no effect without binding.sealAccount: give the id (ac-…) of the account, too" -}}
{{- end -}}
{{- range list "sealCallerSecret" "sealCallerToken" -}}
{{- if and (get $b .) (not $b.sealAccount) -}}
{{- fail (printf "binding.%s has no effect without binding.sealAccount: give the id (ac-…) of the account, too" .) -}}
{{- end -}}
{{- end -}}
{{- if and $b.sealCallerToken (not $b.sealAuthority) -}}
{{- fail "binding.sealCallerToken has no effect without binding.sealAuthority: forwarders send the token to agents of these authorities alone" -}}
{{- end -}}
{{- include "fairlead-operator.validateCertificates" (list "binding.sealAuthority" $b.sealAuthority) -}}
{{- end -}}

{{- define "fairlead-operator.validatePort" -}}
{{- $port := regexFind ":[0-9]+/?$" (index . 1) | trimPrefix ":" | trimSuffix "/" | int -}}
{{- if gt $port 65535 -}}
{{- fail (printf "%s %q: the port must be a number from 1 to 65535" (index . 0) (index . 1)) -}}
{{- end -}}
{{- end -}}

{{- define "fairlead-operator.validateCredentials" -}}
{{- $c := .Values.credentials -}}
{{- $s := $c.serviceAccount -}}
{{- if $s.enabled -}}
{{- if or $c.existingSecret $c.apiKey $c.authtoken $c.exporterApiKey -}}
{{- fail "credentials.serviceAccount.enabled excludes credentials.existingSecret, apiKey, authtoken and exporterApiKey: pods present their ServiceAccount's token instead; leave the secrets empty" -}}
{{- end -}}
{{- if and (not $s.accountID) (not $s.audience) -}}
{{- fail "credentials.serviceAccount.accountID is required: give the id (ac-…) that `fairlead api clusters create` prints" -}}
{{- end -}}
{{- if not (regexMatch "^([A-Za-z0-9][A-Za-z0-9_-]{0,127})?$" $s.accountID) -}}
{{- fail (printf "credentials.serviceAccount.accountID %q is no id of an account: give the one (ac-…) that `fairlead api clusters create` prints" $s.accountID) -}}
{{- end -}}
{{- if not (regexMatch "^(https://[^\\s/?#@]+/accounts/[A-Za-z0-9][A-Za-z0-9_-]{0,127})?$" $s.audience) -}}
{{- fail (printf "credentials.serviceAccount.audience %q is no audience of an account: give it as BASE-URL/accounts/ACCOUNT-ID, with the server's --base-url, as `fairlead api clusters create` prints it" $s.audience) -}}
{{- end -}}
{{- if and $s.accountID $s.audience (not (hasSuffix (printf "/accounts/%s" $s.accountID) $s.audience)) -}}
{{- fail (printf "credentials.serviceAccount.audience %q is not of the account %q: give the same account in both, or accountID alone" $s.audience $s.accountID) -}}
{{- end -}}
{{- else if or $s.accountID $s.audience -}}
{{- fail "credentials.serviceAccount.accountID and audience have no effect without credentials.serviceAccount.enabled: set it to true, or leave both empty" -}}
{{- else if $c.existingSecret -}}
{{- if or $c.apiKey $c.authtoken $c.exporterApiKey -}}
{{- fail (printf "credentials.existingSecret %q excludes credentials.apiKey, credentials.authtoken and credentials.exporterApiKey: give either the Secret's name or the values" $c.existingSecret) -}}
{{- end -}}
{{- if not (regexMatch "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$" $c.existingSecret) -}}
{{- fail (printf "credentials.existingSecret %q is no name of a Secret: use a-z, 0-9, '-' and '.'" $c.existingSecret) -}}
{{- end -}}
{{- else -}}
{{- if not $c.apiKey -}}
{{- fail "credentials.apiKey is required: make one with `fairlead-server api-key create --scope operator`, or name a Secret in credentials.existingSecret" -}}
{{- end -}}
{{- if hasPrefix "flt_" $c.apiKey -}}
{{- fail "credentials.apiKey holds an authtoken (flt_…): give the API key (flk_…) here and the authtoken in credentials.authtoken" -}}
{{- end -}}
{{- if and .Values.binding.enabled (not $c.authtoken) -}}
{{- fail "credentials.authtoken is required while binding.enabled is true: make one with `fairlead-server authtoken create --connect '*'`, or name a Secret in credentials.existingSecret" -}}
{{- end -}}
{{- if hasPrefix "flk_" $c.authtoken -}}
{{- fail "credentials.authtoken holds an API key (flk_…): give the authtoken (flt_…) here and the API key in credentials.apiKey" -}}
{{- end -}}
{{- if and .Values.export.enabled (not $c.exporterApiKey) -}}
{{- fail "credentials.exporterApiKey is required while export.enabled is true: make one with `fairlead-server api-key create --scope exporter`, or name a Secret in credentials.existingSecret" -}}
{{- end -}}
{{- if hasPrefix "flt_" $c.exporterApiKey -}}
{{- fail "credentials.exporterApiKey holds an authtoken (flt_…): give an API key (flk_…) of the scope exporter" -}}
{{- end -}}
{{- if and $c.exporterApiKey (eq $c.exporterApiKey $c.apiKey) -}}
{{- fail "credentials.exporterApiKey is the same as credentials.apiKey: an exporter's key has the scope exporter and no other; make one with `fairlead-server api-key create --scope exporter`" -}}
{{- end -}}
{{- if regexMatch "\\s" (print $c.apiKey $c.authtoken $c.exporterApiKey) -}}
{{- fail "credentials.apiKey, credentials.authtoken and credentials.exporterApiKey must not contain spaces or line ends: give each secret alone" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "fairlead-operator.validateTexts" -}}
{{- if gt (len .Values.description) 255 -}}
{{- fail (printf "description has %d bytes: shorten it to at most 255" (len .Values.description)) -}}
{{- end -}}
{{- if gt (len .Values.clusterName) 253 -}}
{{- fail (printf "clusterName has %d bytes: shorten it to at most 253" (len .Values.clusterName)) -}}
{{- end -}}
{{- if and .Values.clusterDomain (not (regexMatch "^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$" .Values.clusterDomain)) -}}
{{- fail (printf "clusterDomain %q is no DNS domain: give it as cluster.local, without a dot at the end, or leave it empty" .Values.clusterDomain) -}}
{{- end -}}
{{- if not (regexMatch "^([A-Za-z0-9][A-Za-z0-9_-]{0,127})?$" .Values.binding.acceptAccount) -}}
{{- fail (printf "binding.acceptAccount %q is no id: give the one that the condition AccountChanged of the KubernetesOperator names, or leave it empty" .Values.binding.acceptAccount) -}}
{{- end -}}
{{- include "fairlead-operator.validateDuration" (list "binding.removalDelay" .Values.binding.removalDelay 86400) -}}
{{- include "fairlead-operator.validateDuration" (list "binding.takeoverDelay" .Values.binding.takeoverDelay 86400) -}}
{{- include "fairlead-operator.validateDuration" (list "forwarder.drainTimeout" .Values.forwarder.drainTimeout 86400) -}}
{{- include "fairlead-operator.validateDuration" (list "export.drainTimeout" .Values.export.drainTimeout 86400) -}}
{{- include "fairlead-operator.validateDuration" (list "metrics.podMonitor.interval" .Values.metrics.podMonitor.interval 86400) -}}
{{- end -}}

{{- define "fairlead-operator.validateDuration" -}}
{{- $value := index . 1 -}}
{{- if not (regexMatch "^(0|[1-9][0-9]{0,5})(s|m|h)$" $value) -}}
{{- fail (printf "%s %q is no duration: give a whole number with s, m or h, such as 30s or 15m" (index . 0) $value) -}}
{{- end -}}
{{- if gt (include "fairlead-operator.seconds" $value | int) (index . 2) -}}
{{- fail (printf "%s %q is too long: give at most 24h" (index . 0) $value) -}}
{{- end -}}
{{- end -}}
