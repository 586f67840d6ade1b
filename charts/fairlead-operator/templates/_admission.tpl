{{/* The label's value of what this installation makes. */}}
{{- define "fairlead-operator.mark" -}}
{{- printf "%s/%s" .Release.Namespace .Release.Name | sha256sum | trunc 32 -}}
{{- end -}}

{{/* Labels of an admission policy and of its binding, and the release's namespace as their owner, where it exists. */}}
{{- define "fairlead-operator.policyMetadata" -}}
{{- $namespace := lookup "v1" "Namespace" "" .Release.Namespace | default dict -}}
labels:
  {{- include "fairlead-operator.labels" . | nindent 2 }}
{{- with dig "metadata" "uid" "" $namespace }}
ownerReferences:
  - apiVersion: v1
    kind: Namespace
    name: {{ $.Release.Namespace | quote }}
    uid: {{ . | quote }}
{{- end }}
{{- end -}}

{{/* The condition of an admission policy that the manager asks. */}}
{{- define "fairlead-operator.byManager" -}}
- name: by-the-manager
  expression: request.userInfo.username == "system:serviceaccount:{{ .Release.Namespace }}:{{ include "fairlead-operator.fullname" . }}-manager"
{{- end -}}

{{/* The binding of the admission policy with the name: call with (list NAME METADATA). */}}
{{- define "fairlead-operator.denyBinding" }}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {{ index . 0 | quote }}
  {{- index . 1 | nindent 2 }}
spec:
  policyName: {{ index . 0 | quote }}
  validationActions: [Deny]
{{- end -}}

{{/*
Objects that an admission policy lets the manager change and make: call with (list . KIND). One that lost the label or the annotations of its place is still
this installation's, and gets them back.
*/}}
{{- define "fairlead-operator.oursOnly" -}}
{{- $root := index . 0 -}}
{{- $mark := include "fairlead-operator.mark" $root -}}
{{- $place := `metadata.?annotations[?"bindings.fairlead.dev/place"].orValue("") == request.namespace + "/" + request.name` -}}
- expression: >-
    request.operation == "CREATE" ||
    oldObject.metadata.?labels[?"bindings.fairlead.dev/installation"].orValue("") == "{{ $mark }}" ||
    oldObject.{{ $place }} &&
    oldObject.metadata.?annotations[?"bindings.fairlead.dev/installed-by"].orValue("") == "{{ $root.Release.Namespace }}/{{ $root.Release.Name }}"
  message: the {{ index . 1 }} is not of this Fairlead installation
- expression: >-
    request.operation == "DELETE" ||
    object.metadata.?labels[?"bindings.fairlead.dev/installation"].orValue("") == "{{ $mark }}" &&
    object.metadata.?annotations[?"bindings.fairlead.dev/place"].orValue("") == request.namespace + "/" + object.metadata.name
  message: the {{ index . 1 }} lacks the marks of this installation
{{- end -}}
