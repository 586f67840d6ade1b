{{/* The name of everything of this release. */}}
{{- define "fairlead-server.fullname" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name -}}
{{- end -}}
{{- end -}}

{{- define "fairlead-server.selectorLabels" -}}
app.kubernetes.io/name: fairlead-server
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "fairlead-server.commonLabels" -}}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/part-of: fairlead
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "fairlead-server.labels" -}}
app.kubernetes.io/name: fairlead-server
{{ include "fairlead-server.commonLabels" . }}
{{- end -}}

{{/* REPOSITORY:TAG, REPOSITORY@DIGEST, or with both REPOSITORY:TAG@DIGEST, where the tag is for people. */}}
{{- define "fairlead-server.image" -}}
{{- $image := .Values.image -}}
{{- $image.repository -}}
{{- if or $image.tag (not $image.digest) -}}
{{- printf ":%s" ($image.tag | default .Chart.AppVersion) -}}
{{- end -}}
{{- with $image.digest -}}
{{- printf "@%s" . -}}
{{- end -}}
{{- end -}}

{{/* The Service's name for the rest of the cluster. */}}
{{- define "fairlead-server.host" -}}
{{- printf "%s.%s.svc" (include "fairlead-server.fullname" .) .Release.Namespace -}}
{{- end -}}

{{- define "fairlead-server.baseURL" -}}
{{- if .Values.baseURL -}}
{{- trimSuffix "/" .Values.baseURL -}}
{{- else -}}
{{- printf "https://%s" (include "fairlead-server.host" .) -}}
{{- if ne (int .Values.service.port) 443 -}}
{{- printf ":%d" (int .Values.service.port) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "fairlead-server.claim" -}}
{{- .Values.persistence.existingClaim | default (printf "%s-data" (include "fairlead-server.fullname" .)) -}}
{{- end -}}

{{/*
The flags of the server of this release, and how many pods it has, as {"flags": [...], "pods": 1}; {} before the installation, and where the cluster
is not asked, as by `helm template`.
*/}}
{{- define "fairlead-server.running" -}}
{{- $live := lookup "apps/v1" "Deployment" .Release.Namespace (include "fairlead-server.fullname" .) | default dict -}}
{{- $containers := dig "spec" "template" "spec" "containers" list $live -}}
{{- $found := dict -}}
{{- range $containers -}}
{{- if eq .name "server" -}}
{{- $_ := set $found "flags" (.args | default list) -}}
{{- $_ := set $found "pods" (dig "spec" "replicas" 1 $live) -}}
{{- end -}}
{{- end -}}
{{- toJson $found -}}
{{- end -}}

{{/* Call with (list FLAGS "--relay-address="): "true" when a flag begins so. */}}
{{- define "fairlead-server.hasFlag" -}}
{{- $prefix := index . 1 -}}
{{- $has := false -}}
{{- range index . 0 -}}
{{- if hasPrefix $prefix . -}}
{{- $has = true -}}
{{- end -}}
{{- end -}}
{{- $has -}}
{{- end -}}

{{/*
"true" when new pods may start beside the old ones: with replicas, unless the server that runs is alone on its store, or has another base URL than
the new ones, which then do not start beside it.
*/}}
{{- define "fairlead-server.rolling" -}}
{{- $running := include "fairlead-server.running" . | fromJson -}}
{{- $replicas := not (empty .Values.replicas) -}}
{{- if and $replicas $running.pods -}}
{{- $isReplica := include "fairlead-server.hasFlag" (list $running.flags "--relay-address=") -}}
{{- and (eq $isReplica "true") (has (printf "--base-url=%s" (include "fairlead-server.baseURL" .)) $running.flags) -}}
{{- else -}}
{{- $replicas -}}
{{- end -}}
{{- end -}}

{{/* Seconds of a duration that the validation admitted: 90s, 15m, 2h. */}}
{{- define "fairlead-server.seconds" -}}
{{- $number := regexFind "^[0-9]+" . | int -}}
{{- if hasSuffix "h" . -}}
{{- mul $number 3600 -}}
{{- else if hasSuffix "m" . -}}
{{- mul $number 60 -}}
{{- else -}}
{{- $number -}}
{{- end -}}
{{- end -}}

{{/* What a pod of the Deployment or of the test may do: call with the value. A key that is null was removed. */}}
{{- define "fairlead-server.securityContext" -}}
{{- $keys := dict -}}
{{- range $name, $value := . -}}
{{- if not (kindIs "invalid" $value) -}}
{{- $_ := set $keys $name $value -}}
{{- end -}}
{{- end -}}
{{- with $keys -}}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end -}}
{{- end -}}

{{/* The images are of Linux: a pod that were put on a node of Windows would never start. */}}
{{- define "fairlead-server.nodeSelector" -}}
nodeSelector:
  {{- merge (deepCopy .Values.nodeSelector) (dict "kubernetes.io/os" "linux") | toYaml | nindent 2 }}
{{- end -}}

{{/* How replicas are spread: over the nodes where that is possible, unless the values say otherwise. */}}
{{- define "fairlead-server.spread" -}}
{{- $selector := dict "matchLabels" (include "fairlead-server.selectorLabels" . | fromYaml) -}}
{{- $spread := list -}}
{{- range .Values.topologySpreadConstraints -}}
{{- $spread = append $spread (merge (deepCopy .) (ternary dict (dict "labelSelector" $selector) (hasKey . "labelSelector"))) -}}
{{- end -}}
{{- if and .Values.replicas (not $spread) -}}
{{- $spread = list (dict "maxSkew" 1 "topologyKey" "kubernetes.io/hostname" "whenUnsatisfiable" "ScheduleAnyway" "matchLabelKeys" (list "pod-template-hash") "labelSelector" $selector) -}}
{{- end -}}
{{- toYaml $spread -}}
{{- end -}}

{{/* What a Service has beside its ports: call with .Values.service, or the public one. */}}
{{- define "fairlead-server.serviceSpec" -}}
type: {{ .type }}
{{- if ne .type "ClusterIP" }}
externalTrafficPolicy: {{ .externalTrafficPolicy }}
{{- end }}
{{- if eq .type "LoadBalancer" }}
{{- with .loadBalancerClass }}
loadBalancerClass: {{ . | quote }}
{{- end }}
{{- with .loadBalancerSourceRanges }}
loadBalancerSourceRanges:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Call with (list "NodePort" 30443). */}}
{{- define "fairlead-server.nodePort" -}}
{{- if and (ne (index . 0) "ClusterIP") (index . 1) -}}
nodePort: {{ index . 1 }}
{{- end -}}
{{- end -}}

{{/* Annotations. Not by toYaml, which changes U+0085 and drops what has control characters. */}}
{{- define "fairlead-server.annotations" -}}
{{- range $name, $value := . }}
{{ $name | quote }}: {{ $value | quote }}
{{- end }}
{{- end -}}

{{/* A file of the chart with the runbooks' address that the values name: call with (list . TEXT). */}}
{{- define "fairlead-server.withRunbooks" -}}
{{- $base := (index . 0).Values.metrics.runbookURL | trimSuffix "/" -}}
{{- index . 1 | replace "https://github.com/fairlead-dev/fairlead/blob/main/docs/fix/runbooks" $base -}}
{{- end -}}

{{- define "fairlead-server.rules" -}}
{{- include "fairlead-server.withRunbooks" (list . (.Files.Get "files/rules.yaml")) -}}
{{- end -}}

{{/* What the schema cannot say of alerts and dashboards. */}}
{{- define "fairlead-server.validateMonitoring" -}}
{{- with .Values.metrics -}}
{{- if and .prometheusRule.enabled (not .enabled) -}}
{{- fail "metrics.prometheusRule.enabled needs metrics: set metrics.enabled=true, or leave the PrometheusRule out" -}}
{{- end -}}
{{- if not (regexMatch "^https?://[^\\s\"'{}]+$" .runbookURL) -}}
{{- fail (printf "metrics.runbookURL %q is no address: give it as https://HOST/PATH, where server.md and operator.md are" .runbookURL) -}}
{{- end -}}
{{- $alerts := list -}}
{{- range (include "fairlead-server.rules" $ | fromYaml).groups -}}
{{- range .rules -}}
{{- with .alert -}}
{{- $alerts = append $alerts . -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range .prometheusRule.disabledAlerts -}}
{{- if not (has . $alerts) -}}
{{- fail (printf "metrics.prometheusRule.disabledAlerts: %q is no alert of this chart: take one of %s" . (join ", " $alerts)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
