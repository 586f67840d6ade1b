{{/* What export may not say. */}}
{{- define "fairlead-operator.validateExport" -}}
{{- range .Values.export.urls -}}
{{- if not (regexMatch "^\\*$|^(http|tcp)://[a-z0-9*]([-a-z0-9*]*[a-z0-9*])?\\.[a-z0-9*]([-a-z0-9*]*[a-z0-9*])?(:([1-9][0-9]{0,4}|\\*))?$" .) -}}
{{- fail (printf "export.urls %q: give patterns of URLs such as http://*.shared or tcp://db.*:5432" .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
