{{/* The name of everything of this release that lives in its namespace. */}}
{{- define "fairlead-operator.fullname" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name -}}
{{- end -}}
{{- end -}}

{{/* The same for objects without a namespace. A namespace has no dot, so no two releases can meet. */}}
{{- define "fairlead-operator.clusterName" -}}
{{- printf "%s.%s" .Release.Namespace (include "fairlead-operator.fullname" .) -}}
{{- end -}}

{{/* Labels that every object has, besides app.kubernetes.io/name. */}}
{{- define "fairlead-operator.commonLabels" -}}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/part-of: fairlead
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "fairlead-operator.labels" -}}
app.kubernetes.io/name: fairlead-operator
{{ include "fairlead-operator.commonLabels" . }}
{{- end -}}

{{/* Labels that select the pods of one component: call with (list . "fairlead-manager"). Upstream Services select forwarders by them. */}}
{{- define "fairlead-operator.selectorLabels" -}}
app.kubernetes.io/name: {{ index . 1 }}
app.kubernetes.io/instance: {{ (index . 0).Release.Name | quote }}
{{- end -}}

{{- define "fairlead-operator.componentLabels" -}}
app.kubernetes.io/name: {{ index . 1 }}
{{ include "fairlead-operator.commonLabels" (index . 0) }}
{{- end -}}

{{/* REPOSITORY:TAG, REPOSITORY@DIGEST, or with both REPOSITORY:TAG@DIGEST, where the tag is for people. */}}
{{- define "fairlead-operator.image" -}}
{{- $image := .Values.image -}}
{{- $image.repository -}}
{{- if or $image.tag (not $image.digest) -}}
{{- printf ":%s" ($image.tag | default .Chart.AppVersion) -}}
{{- end -}}
{{- with $image.digest -}}
{{- printf "@%s" . -}}
{{- end -}}
{{- end -}}

{{/* The Secret with the keys api-key, authtoken and exporter-api-key. */}}
{{- define "fairlead-operator.secretName" -}}
{{- .Values.credentials.existingSecret | default (printf "%s-credentials" (include "fairlead-operator.fullname" .)) -}}
{{- end -}}

{{/* The audience of the pods' tokens: one account of one server. */}}
{{- define "fairlead-operator.audience" -}}
{{- with .Values.credentials.serviceAccount -}}
{{- .audience | default (printf "%s/accounts/%s" (trimSuffix "/" $.Values.api.url) .accountID) -}}
{{- end -}}
{{- end -}}

{{/* The flag for a component's credential: call with (list . "api-key-file" "api-key"), the flag for a secret and its key. */}}
{{- define "fairlead-operator.credentialFlag" -}}
{{- if (index . 0).Values.credentials.serviceAccount.enabled -}}
- --service-account-token-file=/etc/fairlead/credentials/token
{{- else -}}
- --{{ index . 1 }}=/etc/fairlead/credentials/{{ index . 2 }}
{{- end -}}
{{- end -}}

{{/* off or require; YAML 1.1 reads an off without quotes as false. */}}
{{- define "fairlead-operator.sealed" -}}
{{- .Values.binding.sealed | default "off" -}}
{{- end -}}

{{/* Whose agents may answer for endpoints, for manager and forwarders. */}}
{{- define "fairlead-operator.sealFlags" -}}
- --sealed={{ include "fairlead-operator.sealed" . }}
{{- with .Values.binding.sealAccount }}
- --seal-account={{ . }}
{{- end }}
{{- if .Values.binding.sealAuthority }}
- --seal-authority-file=/etc/fairlead/ca/seal.crt
{{- end }}
{{- end -}}

{{/* host:port of the edge. */}}
{{- define "fairlead-operator.edgeAddress" -}}
{{- if .Values.edge.address -}}
{{- .Values.edge.address -}}
{{- else -}}
{{- $host := trimSuffix "/" (trimPrefix "https://" .Values.api.url) -}}
{{- if regexMatch ":[0-9]+$" $host -}}
{{- $host -}}
{{- else -}}
{{- printf "%s:443" $host -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Seconds of a duration that the validation admitted: 90s, 15m, 2h. */}}
{{- define "fairlead-operator.seconds" -}}
{{- $number := regexFind "^[0-9]+" . | int -}}
{{- if hasSuffix "h" . -}}
{{- mul $number 3600 -}}
{{- else if hasSuffix "m" . -}}
{{- mul $number 60 -}}
{{- else -}}
{{- $number -}}
{{- end -}}
{{- end -}}

{{/*
A text as the value of an environment variable or an argument: quoted for YAML, and with every $ doubled, because Kubernetes replaces $(NAME)
and $$ in both.
*/}}
{{- define "fairlead-operator.text" -}}
{{- . | replace "$" "$$" | quote -}}
{{- end -}}

{{/* The first and the last of the forwarders' ports. */}}
{{- define "fairlead-operator.firstPort" -}}
{{- regexFind "^[0-9]+" .Values.binding.portRange -}}
{{- end -}}

{{- define "fairlead-operator.lastPort" -}}
{{- regexFind "[0-9]+$" .Values.binding.portRange -}}
{{- end -}}

{{- define "fairlead-operator.serviceRule" -}}
- apiGroups: [""]
  resources: [services]
  verbs: [get, list, watch, create, update, delete]
{{- end -}}

{{/* What a forwarder reads of a namespace. */}}
{{- define "fairlead-operator.accessRule" -}}
- apiGroups: [bindings.fairlead.dev]
  resources: [endpointaccesses, endpointtrusts]
  verbs: [list, watch]
{{- end -}}

{{/* What projects into a namespace. The policies of admission.yaml restrict the EndpointSlices. */}}
{{- define "fairlead-operator.targetRules" -}}
{{ include "fairlead-operator.serviceRule" . }}
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [get, list, watch, create, update, delete]
# Who may call what, whose agents may answer, and whether that is enforced.
- apiGroups: [bindings.fairlead.dev]
  resources: [endpointaccesses, endpointtrusts]
  verbs: [get, list, watch]
- apiGroups: [bindings.fairlead.dev]
  resources: [endpointaccesses/status, endpointtrusts/status]
  verbs: [update]
{{- if not .Values.binding.namespaces.allow }}{{/* without clusterset.enabled, too: to remove what there was */}}
- apiGroups: [multicluster.x-k8s.io]
  resources: [serviceimports]
  verbs: [get, list, watch, {{ if .Values.clusterset.enabled }}create, update, {{ end }}delete]
{{- if .Values.clusterset.enabled }}
- apiGroups: [multicluster.x-k8s.io]
  resources: [serviceimports/status]
  verbs: [update]
{{- end }}
{{- end }}
{{- end -}}

{{/* The Service whose EndpointSlices have the forwarders' addresses. A release's name may be none of a Service. */}}
{{- define "fairlead-operator.forwarderService" -}}
{{- if regexMatch "^[a-z][-a-z0-9]*$" .Release.Name -}}
{{- printf "%s-forwarders" .Release.Name -}}
{{- else -}}
{{- printf "forwarders-%s" (.Release.Name | sha256sum | trunc 12) -}}
{{- end -}}
{{- end -}}

{{/* The Role and the RoleBinding that own what the operator makes in a namespace: call with (list . NAMESPACE NAME), without -anchor. */}}
{{- define "fairlead-operator.anchorRole" -}}
{{- $root := index . 0 -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: "{{ index . 2 }}-anchor"
  namespace: {{ index . 1 | quote }}
  labels:
    {{- include "fairlead-operator.labels" $root | nindent 4 }}
rules: []
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: "{{ index . 2 }}-anchor"
  namespace: {{ index . 1 | quote }}
  labels:
    {{- include "fairlead-operator.labels" $root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: "{{ index . 2 }}-anchor"
subjects: []
{{- end -}}

{{/*
What a namespace gives the manager and the forwarders when namespaces are listed: call with (list . "team-a"). The Role without rules and its binding own
the Services there: when both go, they go.
*/}}
{{- define "fairlead-operator.targetRoles" -}}
{{- $root := index . 0 -}}
{{- $namespace := index . 1 -}}
{{- $name := include "fairlead-operator.clusterName" $root -}}
{{ include "fairlead-operator.anchorRole" (list $root $namespace $name) }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: "{{ $name }}-manager"
  namespace: {{ $namespace | quote }}
  labels:
    {{- include "fairlead-operator.labels" $root | nindent 4 }}
rules:
  {{- include "fairlead-operator.targetRules" $root | nindent 2 }}
  - apiGroups: [rbac.authorization.k8s.io]
    resources: [roles, rolebindings]
    resourceNames: ["{{ $name }}-anchor"]
    verbs: [get]
---
{{ include "fairlead-operator.roleBinding" (list $root $namespace "manager") }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: "{{ $name }}-forwarder"
  namespace: {{ $namespace | quote }}
  labels:
    {{- include "fairlead-operator.labels" $root | nindent 4 }}
rules:
  {{- include "fairlead-operator.accessRule" $root | nindent 2 }}
---
{{ include "fairlead-operator.roleBinding" (list $root $namespace "forwarder") }}
{{- end -}}

{{/* The binding of a listed namespace's Role to the ServiceAccount: call with (list . NAMESPACE COMPONENT). */}}
{{- define "fairlead-operator.roleBinding" -}}
{{- $root := index . 0 -}}
{{- $name := printf "%s-%s" (include "fairlead-operator.clusterName" $root) (index . 2) -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: "{{ $name }}"
  namespace: {{ index . 1 | quote }}
  labels:
    {{- include "fairlead-operator.labels" $root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: "{{ $name }}"
subjects:
  - kind: ServiceAccount
    name: "{{ include "fairlead-operator.fullname" $root }}-{{ index . 2 }}"
    namespace: {{ $root.Release.Namespace | quote }}
{{- end -}}

{{/* A file of the chart with the runbooks' address that the values name: call with (list . TEXT). */}}
{{- define "fairlead-operator.withRunbooks" -}}
{{- $base := (index . 0).Values.metrics.runbookURL | trimSuffix "/" -}}
{{- index . 1 | replace "https://github.com/fairlead-dev/fairlead/blob/main/docs/fix/runbooks" $base -}}
{{- end -}}

{{- define "fairlead-operator.rules" -}}
{{- include "fairlead-operator.withRunbooks" (list . (.Files.Get "files/rules.yaml")) -}}
{{- end -}}

{{/* What the schema cannot say of alerts and dashboards. */}}
{{- define "fairlead-operator.validateMonitoring" -}}
{{- with .Values.metrics -}}
{{- if and .prometheusRule.enabled (not .enabled) -}}
{{- fail "metrics.prometheusRule.enabled needs metrics: set metrics.enabled=true, or leave the PrometheusRule out" -}}
{{- end -}}
{{- if not (regexMatch "^https?://[^\\s\"'{}]+$" .runbookURL) -}}
{{- fail (printf "metrics.runbookURL %q is no address: give it as https://HOST/PATH, where server.md and operator.md are" .runbookURL) -}}
{{- end -}}
{{- $alerts := list -}}
{{- range (include "fairlead-operator.rules" $ | fromYaml).groups -}}
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
