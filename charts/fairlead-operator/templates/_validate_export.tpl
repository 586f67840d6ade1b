{{/* What export and clusterset may not say. */}}
{{- define "fairlead-operator.validateExport" -}}
{{- $id := .Values.export.clusterID -}}
{{- if and .Values.export.services (not .Values.export.enabled) -}}
{{- fail "export.services needs export.enabled: exporters keep what ServiceExports name" -}}
{{- end -}}
{{- if and $id (not .Values.export.services) -}}
{{- fail (printf "export.clusterID %q has no effect without export.services: set it, or leave the id out" $id) -}}
{{- end -}}
{{- if and $id (not (regexMatch "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$" $id)) -}}
{{- fail (printf "export.clusterID %q is no DNS label: use at most 63 of a-z, 0-9 and '-', such as eu-1" $id) -}}
{{- end -}}
{{- if and .Values.export.services .Values.binding.namespaces.allow (not (include "fairlead-operator.clusterID" .)) -}}
{{- fail "export.clusterID is required with export.services and binding.namespaces.allow, unless clusterName is a DNS label: exporters then read no ClusterProperty" -}}
{{- end -}}
{{- if and .Values.clusterset.enabled .Values.binding.namespaces.allow -}}
{{- fail "clusterset.enabled and binding.namespaces.allow exclude each other: imports follow the namespaces of the cluster; give one of them" -}}
{{- end -}}
{{- if and .Values.clusterset.enabled (not .Values.binding.enabled) -}}
{{- fail "clusterset.enabled needs binding.enabled: pods reach exported Services through the forwarders" -}}
{{- end -}}
{{- if not (regexMatch "^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$" .Values.clusterset.domain) -}}
{{- fail (printf "clusterset.domain %q is no DNS domain: give it as clusterset.local, without a dot at the end" .Values.clusterset.domain) -}}
{{- end -}}
{{- if not (regexMatch "^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$" .Values.export.sealSecret) -}}
{{- fail (printf "export.sealSecret %q is no name of a Secret: use a-z, 0-9, '-' and '.'" .Values.export.sealSecret) -}}
{{- end -}}
{{- if not (regexMatch "^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$" .Values.export.sealCallers) -}}
{{- fail (printf "export.sealCallers %q is no name of a ConfigMap: use a-z, 0-9, '-' and '.'" .Values.export.sealCallers) -}}
{{- end -}}
{{- if and .Values.export.sealCallers (not .Values.export.sealSecret) -}}
{{- fail "export.sealCallers has no effect without export.sealSecret: only sealed endpoints ask callers to prove themselves" -}}
{{- end -}}
{{- range .Values.export.urls -}}
{{- if not (regexMatch "^\\*$|^(http|tcp)://[a-z0-9*]([-a-z0-9*]*[a-z0-9*])?\\.[a-z0-9*]([-a-z0-9*]*[a-z0-9*])?(:([1-9][0-9]{0,4}|\\*))?$" .) -}}
{{- fail (printf "export.urls %q: give patterns of URLs such as http://*.shared or tcp://db.*:5432" .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
