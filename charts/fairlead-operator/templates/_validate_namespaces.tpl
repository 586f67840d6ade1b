{{/* What binding.namespaces may not say. */}}
{{- define "fairlead-operator.validateNamespaces" -}}
{{- $n := .Values.binding.namespaces -}}
{{- $name := "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$" -}}
{{- range $n.deny -}}
{{- if not (regexMatch "^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?|([a-z0-9][-a-z0-9]{0,62})?\\*)$" .) -}}
{{- fail (printf "binding.namespaces.deny %q: give names of namespaces, or prefixes such as kube-*" .) -}}
{{- end -}}
{{- end -}}
{{- range $allowed := $n.allow -}}
{{- if not (regexMatch $name $allowed) -}}
{{- fail (printf "binding.namespaces.allow %q is no name of a namespace: use a-z, 0-9 and '-'" $allowed) -}}
{{- end -}}
{{- if eq $allowed $.Release.Namespace -}}
{{- fail (printf "binding.namespaces.allow %q is the operator's own namespace, which never gets endpoints: take it off the list" $allowed) -}}
{{- end -}}
{{- range $n.deny -}}
{{- if or (eq . $allowed) (and (hasSuffix "*" .) (hasPrefix (trimSuffix "*" .) $allowed)) -}}
{{- fail (printf "binding.namespaces.allow %q is denied by %q in binding.namespaces.deny: take it off one of the lists" $allowed .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and $n.allow $n.selector -}}
{{- fail "binding.namespaces.allow and binding.namespaces.selector exclude each other: with a list the manager may not read the labels of namespaces; give one of them" -}}
{{- end -}}
{{- include "fairlead-operator.validateSelector" $n.selector -}}
{{- end -}}

{{/* A label selector, as kubectl takes it. */}}
{{- define "fairlead-operator.validateSelector" -}}
{{- $key := "([A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?" -}}
{{- $value := "([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?" -}}
{{- $one := printf " *(!? *%s|%s *(=|==|!=) *%s|%s +(in|notin) *\\( *%s *(, *%s *)*\\)) *" $key $key $value $key $value $value -}}
{{- if and . (not (regexMatch (printf "^%s(,%s)*$" $one $one) .)) -}}
{{- fail (printf "binding.namespaces.selector %q is no label selector: give one as fairlead=yes or team in (a,b)" .) -}}
{{- end -}}
{{- end -}}
