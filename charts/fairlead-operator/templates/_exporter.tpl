{{/* What an exporter may do with the objects of a namespace. It never reads Secrets. */}}
{{- define "fairlead-operator.exporterRules" -}}
- apiGroups: [bindings.fairlead.dev]
  resources: [agentendpoints, cloudendpoints]
  verbs: [get, list, watch]
- apiGroups: [bindings.fairlead.dev]
  resources: [agentendpoints/status, cloudendpoints/status]
  verbs: [update]
- apiGroups: [""]
  resources: [services]
  verbs: [get, list, watch]
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [get, list, watch]
{{- if .Values.export.policyConfigMaps }}
# Traffic policies.
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, list, watch]
{{- end }}
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
{{- if .Values.export.services }}
- apiGroups: [multicluster.x-k8s.io]
  resources: [serviceexports]
  verbs: [get, list, watch]
- apiGroups: [multicluster.x-k8s.io]
  resources: [serviceexports/status]
  verbs: [update]
{{- end }}
{{- end -}}

{{/* What this cluster is called in its cluster set: export.clusterID, or clusterName where that is a DNS label. */}}
{{- define "fairlead-operator.clusterID" -}}
{{- if .Values.export.clusterID -}}
{{- .Values.export.clusterID -}}
{{- else if regexMatch "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$" .Values.clusterName -}}
{{- .Values.clusterName -}}
{{- end -}}
{{- end -}}

{{/* The UID of kube-system is that of the cluster: the account's endpoints have it. */}}
{{- define "fairlead-operator.clusterUIDRule" -}}
- apiGroups: [""]
  resources: [namespaces]
  resourceNames: [kube-system]
  verbs: [get]
{{- end -}}

{{/* What a namespace gives the exporter when namespaces are listed: call with (list . "team-a"). */}}
{{- define "fairlead-operator.exporterRoles" -}}
{{- include "fairlead-operator.exporterRole" (list (index . 0) (index . 1) "exporter" (include "fairlead-operator.exporterRules" (index . 0))) -}}
{{- end -}}

{{/* The same for kube-system, once. */}}
{{- define "fairlead-operator.clusterUIDRoles" -}}
{{- include "fairlead-operator.exporterRole" (list . "kube-system" "exporter-cluster-uid" (include "fairlead-operator.clusterUIDRule" .)) -}}
{{- end -}}

{{/* A Role and its binding to the exporter: call with (list . NAMESPACE SUFFIX RULES). */}}
{{- define "fairlead-operator.exporterRole" -}}
{{- $root := index . 0 -}}
{{- $name := printf "%s-%s" (include "fairlead-operator.clusterName" $root) (index . 2) -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: "{{ $name }}"
  namespace: {{ index . 1 | quote }}
  labels:
    {{- include "fairlead-operator.labels" $root | nindent 4 }}
rules:
  {{- index . 3 | nindent 2 }}
---
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
    name: "{{ include "fairlead-operator.fullname" $root }}-exporter"
    namespace: {{ $root.Release.Namespace | quote }}
{{- end -}}

{{/* The ports that an exporter connects with outside of the cluster's pods, as JSON. */}}
{{- define "fairlead-operator.exporterPorts" -}}
{{- $ports := .Values.networkPolicy.apiServerPorts -}}
{{- $addresses := list (include "fairlead-operator.edgeAddress" .) (trimSuffix "/" .Values.api.url) -}}
{{- with .Values.proxy.httpsProxy -}}
{{- $addresses = append $addresses (trimSuffix "/" .) -}}
{{- end -}}
{{- range $addresses -}}
{{- $default := get (dict "http" "80" "socks5" "1080") (. | splitList "://" | first) | default "443" -}}
{{- $ports = append $ports (regexFind ":[0-9]+$" . | trimPrefix ":" | default $default | int) -}}
{{- end -}}
{{- $unique := list -}}
{{- range $ports -}}
{{- $unique = append $unique (int .) -}}
{{- end -}}
{{- $unique | uniq | toJson -}}
{{- end -}}

{{/* Names of the ClusterRoles that export.enabled brings, as JSON; with listed namespaces the manager owns nothing in the cluster. */}}
{{- define "fairlead-operator.exporterClusterRoles" -}}
{{- $name := include "fairlead-operator.clusterName" . -}}
{{- $roles := list -}}
{{- if and .Values.export.enabled (not .Values.binding.namespaces.allow) -}}
{{- $roles = append $roles (printf "%s-exporter" $name) -}}
{{- if .Values.export.aggregateRoles -}}
{{- $roles = concat $roles (list (printf "%s-exports-edit" $name) (printf "%s-exports-view" $name)) -}}
{{- end -}}
{{- end -}}
{{- $roles | toJson -}}
{{- end -}}
