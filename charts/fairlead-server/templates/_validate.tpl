{{/* What the schema cannot say, or not in a sentence. */}}
{{- define "fairlead-server.validate" -}}
{{- if gt (len (include "fairlead-server.fullname" .)) 55 -}}
{{- fail (printf "the release name %q has %d characters: choose one of at most 39" .Release.Name (len .Release.Name)) -}}
{{- end -}}
{{- if and (regexMatch "^[0-9]" .Release.Name) (semverCompare "<1.36.0-0" .Capabilities.KubeVersion.Version) -}}
{{- fail (printf "the release name %q begins with a digit, which before Kubernetes 1.36 no Service may: choose one that begins with a letter" .Release.Name) -}}
{{- end -}}
{{- include "fairlead-server.validateURL" (list "baseURL" .Values.baseURL) -}}
{{- include "fairlead-server.validateURL" (list "tunnelURL" .Values.tunnelURL) -}}
{{- range .Values.versionHeaders -}}
{{- if not (regexMatch "^[A-Za-z0-9-]{1,64}$" .) -}}
{{- fail (printf "versionHeaders %q is no name of a header: use letters, digits and '-'" .) -}}
{{- end -}}
{{- end -}}
{{- range .Values.tls.names -}}
{{- if not (regexMatch "^(\\*\\.)?[A-Za-z0-9_.:-]{1,253}$" .) -}}
{{- fail (printf "tls.names %q is no host name or address" .) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.tls.existingSecret .Values.tls.names -}}
{{- fail "tls.names are for a certificate of the service's own: leave them out with tls.existingSecret, whose certificate holds its names" -}}
{{- end -}}
{{- include "fairlead-server.validateSecrets" . -}}
{{- include "fairlead-server.validatePersistence" . -}}
{{- include "fairlead-server.validateReplicas" . -}}
{{- include "fairlead-server.validateServices" . -}}
{{- include "fairlead-server.validateDuration" (list "drainTimeout" .Values.drainTimeout 3600 "1h") -}}
{{- include "fairlead-server.validateDuration" (list "shutdownDelay" .Values.shutdownDelay 300 "5m") -}}
{{- include "fairlead-server.validateDuration" (list "endpointGrace" .Values.endpointGrace 2592000 "720h") -}}
{{- include "fairlead-server.validateDuration" (list "metrics.podMonitor.interval" .Values.metrics.podMonitor.interval 86400 "24h") -}}
{{- if lt (include "fairlead-server.seconds" .Values.endpointGrace | int) 1 -}}
{{- fail (printf "endpointGrace %q is too short: give at least 1s" .Values.endpointGrace) -}}
{{- end -}}
{{- with .Values.identityRetention -}}
{{- include "fairlead-server.validateDuration" (list "identityRetention" . 3153600000 "876000h") -}}
{{- if lt (include "fairlead-server.seconds" . | int) 86400 -}}
{{- fail (printf "identityRetention %q is too short: give at least 24h, or leave it empty to keep people for ever" .) -}}
{{- end -}}
{{- end -}}
{{- include "fairlead-server.validateGeoIP" . -}}
{{- range .Values.extraArgs -}}
{{- if not (regexMatch "^--[a-z][a-z0-9-]*(=|$)" .) -}}
{{- fail (printf "extraArgs %q is no flag: give it as --flag=value" .) -}}
{{- end -}}
{{- end -}}
{{- include "fairlead-server.validateImage" . -}}
{{- include "fairlead-server.validatePod" . -}}
{{- include "fairlead-server.validateMonitoring" . -}}
{{- end -}}

{{- define "fairlead-server.validateURL" -}}
{{- $url := index . 1 -}}
{{- if and $url (not (regexMatch "^https://(\\[[0-9A-Fa-f:.]+\\]|[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?)(:[1-9][0-9]{0,4})?/?$" $url)) -}}
{{- fail (printf "%s %q: give it as https://HOST[:PORT], without user, path or query" (index . 0) $url) -}}
{{- end -}}
{{- if gt (regexFind "[0-9]+$" (regexFind ":[0-9]+/?$" $url | trimSuffix "/") | int) 65535 -}}
{{- fail (printf "%s %q: the port must be a number from 1 to 65535" (index . 0) $url) -}}
{{- end -}}
{{- end -}}

{{- define "fairlead-server.validateDuration" -}}
{{- $value := index . 1 -}}
{{- if not (regexMatch "^(0|[1-9][0-9]{0,6})(s|m|h)$" $value) -}}
{{- fail (printf "%s %q is no duration: give a whole number with s, m or h, such as 30s or 15m" (index . 0) $value) -}}
{{- end -}}
{{- if gt (include "fairlead-server.seconds" $value | int) (index . 2) -}}
{{- fail (printf "%s %q is too long: give at most %s" (index . 0) $value (index . 3)) -}}
{{- end -}}
{{- end -}}

{{- define "fairlead-server.validateSecrets" -}}
{{- $names := dict "tls.existingSecret" .Values.tls.existingSecret "bootstrap.existingSecret" .Values.bootstrap.existingSecret "database.urlSecret.name" .Values.database.urlSecret.name "database.caSecret.name" .Values.database.caSecret.name "secretKey.name" .Values.secretKey.name -}}
{{- range $i, $name := .Values.public.tlsSecrets -}}
{{- $_ := set $names (printf "public.tlsSecrets[%d]" $i) $name -}}
{{- end -}}
{{- range $path, $name := $names -}}
{{- if and $name (not (regexMatch "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$" $name)) -}}
{{- fail (printf "%s %q is no name of a Secret: use a-z, 0-9, '-' and '.'" $path $name) -}}
{{- end -}}
{{- end -}}
{{- $keys := dict "database.urlSecret.key" .Values.database.urlSecret.key "database.caSecret.key" .Values.database.caSecret.key "secretKey.key" .Values.secretKey.key -}}
{{- range $path, $key := $keys -}}
{{- if not (regexMatch "^[-._A-Za-z0-9]{1,253}$" $key) -}}
{{- fail (printf "%s %q is no key of a Secret: use letters, digits, '-', '_' and '.'" $path $key) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.database.urlSecret.name (not .Values.secretKey.name) -}}
{{- fail "secretKey.name is required with database.urlSecret: the key that seals belongs beside the backup of the database, not into a volume; make a Secret with the output of `openssl rand -hex 32`" -}}
{{- end -}}
{{- with .Values.bootstrap -}}
{{- if and .existingSecret (not .apiKeyKey) (not .authtokenKey) -}}
{{- fail (printf "bootstrap.existingSecret %q holds nothing that is used: name its keys in bootstrap.apiKeyKey and bootstrap.authtokenKey" .existingSecret) -}}
{{- end -}}
{{- if and .apiKeyKey (eq .apiKeyKey .authtokenKey) -}}
{{- fail (printf "bootstrap.apiKeyKey and bootstrap.authtokenKey are both %q: an API key and an authtoken are two secrets" .apiKeyKey) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Replicas share a database and nothing else. A server that is alone on a store, and replicas, are never on the same one. */}}
{{- define "fairlead-server.validateReplicas" -}}
{{- $running := include "fairlead-server.running" . | fromJson -}}
{{- if .Values.replicas -}}
{{- if not .Values.database.urlSecret.name -}}
{{- fail (printf "replicas is %d and database.urlSecret.name is empty: replicas share a PostgreSQL database; leave replicas empty for one server on SQLite" (int .Values.replicas)) -}}
{{- end -}}
{{- if .Values.persistence.enabled -}}
{{- fail (printf "replicas is %d and persistence.enabled is true: replicas have no volume; a release with a volume is upgraded in two steps: first with database.urlSecret, secretKey and the volume, replicas empty, so that its authority gets into the database; then with replicas and persistence.enabled=false" (int .Values.replicas)) -}}
{{- end -}}
{{- if not .Values.bootstrap.existingSecret -}}
{{- fail (printf "replicas is %d and bootstrap.existingSecret is empty: no pod keeps a file with the first credentials; make a Secret with the keys api-key (flk_…) and authtoken (flt_…), and name it there" (int .Values.replicas)) -}}
{{- end -}}
{{- if and (hasKey $running "flags") (ne (include "fairlead-server.hasFlag" (list $running.flags "--database-url-file=")) "true") -}}
{{- fail (printf "replicas is %d, and the server of this release has its store in SQLite: upgrade it first with database.urlSecret, secretKey and its volume, replicas empty, so that its authority gets into the database; then with replicas and persistence.enabled=false" (int .Values.replicas)) -}}
{{- end -}}
{{- else if and .Values.database.urlSecret.name $running.pods (eq (include "fairlead-server.hasFlag" (list $running.flags "--relay-address=")) "true") -}}
{{- fail "replicas is empty, and the servers of this release share their database as replicas, where a server alone does not start: give replicas, 1 for one pod; or scale the Deployment to 0 and run `fairlead-server store single` first" -}}
{{- end -}}
{{- end -}}

{{- define "fairlead-server.validatePersistence" -}}
{{- with .Values.persistence -}}
{{- if and .existingClaim (not .enabled) -}}
{{- fail (printf "persistence.existingClaim %q has no effect while persistence.enabled is false: set it to true, or leave the claim out" .existingClaim) -}}
{{- end -}}
{{- if not (regexMatch "^[1-9][0-9]*(\\.[0-9]+)?(Ki|Mi|Gi|Ti|k|M|G|T)?$" .size) -}}
{{- fail (printf "persistence.size %q is no size: give it as 1Gi" .size) -}}
{{- end -}}
{{- if and .storageClass (ne .storageClass "-") (not (regexMatch "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$" .storageClass)) -}}
{{- fail (printf "persistence.storageClass %q is no name of a StorageClass: use a-z, 0-9, '-' and '.', or \"-\" for none" .storageClass) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "fairlead-server.validateGeoIP" -}}
{{- with .Values.geoip -}}
{{- if and .existingClaim (not .databases) -}}
{{- fail (printf "geoip.existingClaim %q holds nothing that is used: name its files in geoip.databases" .existingClaim) -}}
{{- end -}}
{{- if and .databases (not .existingClaim) -}}
{{- fail "geoip.databases lie in the volume of a claim: name it in geoip.existingClaim" -}}
{{- end -}}
{{- range .databases -}}
{{- if not (regexMatch "^[A-Za-z0-9_-][A-Za-z0-9._-]{0,251}$" .) -}}
{{- fail (printf "geoip.databases %q is no name of a file: use letters, digits, '-', '_' and '.'" .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "fairlead-server.validateServices" -}}
{{- $port := int .Values.metrics.port -}}
{{- $others := list 8080 8081 8443 8444 -}}
{{- if .Values.replicas -}}
{{- $others = append $others 8445 -}}
{{- end -}}
{{- if has $port $others -}}
{{- fail (printf "metrics.port %d is another listener's of the pod: choose another" $port) -}}
{{- end -}}
{{- if and .Values.metrics.podMonitor.enabled (not .Values.metrics.enabled) -}}
{{- fail "metrics.podMonitor.enabled needs metrics: set metrics.enabled=true, or leave the PodMonitor out" -}}
{{- end -}}
{{- $public := .Values.public.service -}}
{{- if eq (int $public.httpPort) (int $public.httpsPort) -}}
{{- fail (printf "public.service.httpPort and httpsPort are both %d: one Service needs two ports" (int $public.httpPort)) -}}
{{- end -}}
{{- if and .Values.public.enabled .Values.public.acme.directory (not .Values.public.acme.agreeToTerms) -}}
{{- fail (printf "public.acme.agreeToTerms is required with public.acme.directory %q: read the authority's terms of service, and accept them with true" .Values.public.acme.directory) -}}
{{- end -}}
{{- range $path, $service := dict "service" .Values.service "public.service" $public -}}
{{- range $service.loadBalancerSourceRanges -}}
{{- if not (regexMatch "^[0-9A-Fa-f.:]+/[0-9]{1,3}$" .) -}}
{{- fail (printf "%s.loadBalancerSourceRanges %q is no network: give it as 192.0.2.0/24" $path .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "fairlead-server.validateImage" -}}
{{- $image := .Values.image -}}
{{- if not (regexMatch "^[a-zA-Z0-9]([a-zA-Z0-9._:/-]*[a-zA-Z0-9])?$" $image.repository) -}}
{{- fail (printf "image.repository %q is no name of an image: give it as REGISTRY/NAME, and a digest in image.digest" $image.repository) -}}
{{- end -}}
{{- if contains ":" (last (splitList "/" $image.repository)) -}}
{{- fail (printf "image.repository %q holds a tag: give it in image.tag" $image.repository) -}}
{{- end -}}
{{- if and $image.tag (not (regexMatch "^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$" $image.tag)) -}}
{{- fail (printf "image.tag %q is no tag: use letters, digits, '.', '-' and '_', or leave it empty for the chart's appVersion" $image.tag) -}}
{{- end -}}
{{- if and $image.digest (not (regexMatch "^sha256:[0-9a-f]{64}$" $image.digest)) -}}
{{- fail (printf "image.digest %q is no digest: give it as sha256: and 64 hexadecimal digits" $image.digest) -}}
{{- end -}}
{{- end -}}

{{/* Labels of the chart's own select the pod. */}}
{{- define "fairlead-server.validatePod" -}}
{{- $own := include "fairlead-server.labels" . | fromYaml -}}
{{- range $name, $value := .Values.podLabels -}}
{{- if hasKey $own $name -}}
{{- fail (printf "podLabels holds %q, which the chart sets itself: choose another name" $name) -}}
{{- end -}}
{{- if not (regexMatch "^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$" $value) -}}
{{- fail (printf "podLabels: %q is no value of the label %q: use at most 63 letters, digits, '-', '_' and '.'" $value $name) -}}
{{- end -}}
{{- end -}}
{{- range .Values.extraEnv -}}
{{- if regexMatch "^(XDG_DATA_HOME|POD_IP|FAIRLEAD_BOOTSTRAP_(API_KEY|AUTHTOKEN)_FILE)$" .name -}}
{{- fail (printf "extraEnv holds %q, which the chart sets itself: leave it out" .name) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.priorityClassName (not (regexMatch "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$" .Values.priorityClassName)) -}}
{{- fail (printf "priorityClassName %q is no name of a PriorityClass: use a-z, 0-9, '-' and '.'" .Values.priorityClassName) -}}
{{- end -}}
{{- end -}}
