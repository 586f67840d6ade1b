{{/*
What the pods of manager, forwarder and exporter have in common. "component" below is (list . "fairlead-manager" .Values.manager), or another's.
*/}}

{{/* What a pod may do: call with the value and how far it is indented. A key that is null was removed. */}}
{{- define "fairlead-operator.securityContext" -}}
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
{{- define "fairlead-operator.nodeSelector" -}}
nodeSelector:
  {{- merge (deepCopy .) (dict "kubernetes.io/os" "linux") | toYaml | nindent 2 }}
{{- end -}}

{{/* Ports and probes, the same for all components. */}}
{{- define "fairlead-operator.probes" -}}
ports:
  {{- if .Values.metrics.enabled }}
  - name: metrics
    containerPort: {{ .Values.metrics.port }}
  {{- end }}
  - name: health
    containerPort: 8081
livenessProbe:
  httpGet:
    path: /healthz
    port: health
  periodSeconds: 10
  failureThreshold: 6
readinessProbe:
  httpGet:
    path: /readyz
    port: health
  periodSeconds: 2
{{- end -}}

{{/* The addresses that all of them listen on. */}}
{{- define "fairlead-operator.listeners" -}}
- --metrics-addr={{ if .Values.metrics.enabled }}:{{ .Values.metrics.port }}{{ end }}
- --health-addr=:8081
{{- end -}}

{{/* Where a component's pods go: to different nodes where there are any, unless the values say otherwise. */}}
{{- define "fairlead-operator.scheduling" -}}
{{- $values := index . 2 -}}
{{- $selector := dict "matchLabels" (include "fairlead-operator.selectorLabels" . | fromYaml) -}}
{{- $spread := list -}}
{{- range $values.topologySpreadConstraints -}}
{{- if hasKey . "labelSelector" -}}
{{- $spread = append $spread . -}}
{{- else -}}
{{- $spread = append $spread (merge (dict "labelSelector" $selector) .) -}}
{{- end -}}
{{- else -}}
{{- $spread = list (dict "maxSkew" 1 "topologyKey" "kubernetes.io/hostname" "whenUnsatisfiable" "ScheduleAnyway" "matchLabelKeys" (list "pod-template-hash") "labelSelector" $selector) -}}
{{- end -}}
{{- with $values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{ include "fairlead-operator.nodeSelector" $values.nodeSelector }}
{{- with $values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
topologySpreadConstraints:
  {{- toYaml $spread | nindent 2 }}
{{- with (index . 0).Values.hostAliases }}
hostAliases:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Labels of a component's pods. */}}
{{- define "fairlead-operator.podLabels" -}}
{{- $own := include "fairlead-operator.componentLabels" . | fromYaml -}}
{{- toYaml (merge $own (index . 2).podLabels) -}}
{{- end -}}

{{/*
Annotations of a component's pods, which start anew when what they read at their start changes: call with the component and its credential.
Not by toYaml, which changes U+0085 and drops what has control characters.
*/}}
{{- define "fairlead-operator.podAnnotations" -}}
{{- $root := index . 0 -}}
{{- $own := dict "kubectl.kubernetes.io/default-container" (trimPrefix "fairlead-" (index . 1)) -}}
{{- if and $root.Values.metrics.enabled (not $root.Values.metrics.podMonitor.enabled) -}}
{{- $own = merge $own (dict "prometheus.io/scrape" "true" "prometheus.io/port" (toString $root.Values.metrics.port) "prometheus.io/path" "/metrics") -}}
{{- end -}}
{{- $own = mergeOverwrite $own (index . 2).podAnnotations -}}
{{- if not $root.Values.credentials.serviceAccount.enabled -}}
{{- $_ := set $own "checksum/credential" (printf "%s/%s" $root.Values.credentials.existingSecret (index . 3) | sha256sum) -}}
{{- end -}}
{{- $_ := set $own "checksum/ca" (print $root.Values.api.caBundle $root.Values.binding.sealAuthority | sha256sum) -}}
{{- with $root.Values.proxy.httpsProxy -}}
{{- $_ := set $own "checksum/proxy" (. | sha256sum) -}}
{{- end -}}
{{- range $name, $value := $own }}
{{ $name | quote }}: {{ $value | quote }}
{{- end }}
{{- end -}}

{{/*
The proxy's variables. Its address may hold a password, so it is in a Secret. client-go honours the proxy too: the Kubernetes API is excepted by the address
that the kubelet gives every pod.
*/}}
{{- define "fairlead-operator.proxy" -}}
{{- if .Values.proxy.httpsProxy -}}
- name: HTTPS_PROXY
  valueFrom:
    secretKeyRef:
      name: "{{ include "fairlead-operator.fullname" . }}-proxy"
      key: https-proxy
- name: NO_PROXY
  value: {{ prepend (.Values.proxy.noProxy | replace "$" "$$" | splitList "," | compact) "$(KUBERNETES_SERVICE_HOST)" | join "," | quote }}
{{- end }}
{{- end -}}

{{/*
Volumes of one component: call with (list . "api-key"), or another key of the Secret. A component sees its own credential only. Its file is
readable by whatever UID a policy gives the pod, as nothing else runs there; the kubelet renews a token when 80 % of its life have passed.
*/}}
{{- define "fairlead-operator.volumes" -}}
{{- $root := index . 0 -}}
volumes:
  - name: credentials
    {{- if $root.Values.credentials.serviceAccount.enabled }}
    projected:
      defaultMode: 0444
      sources:
        - serviceAccountToken:
            path: token
            audience: {{ include "fairlead-operator.audience" $root | quote }}
            expirationSeconds: 3600
    {{- else }}
    secret:
      secretName: {{ include "fairlead-operator.secretName" $root | quote }}
      defaultMode: 0444
      items:
        - key: {{ index . 1 }}
          path: {{ index . 1 }}
    {{- end }}
  {{- if or $root.Values.api.caBundle $root.Values.binding.sealAuthority }}
  - name: ca
    configMap:
      name: "{{ include "fairlead-operator.fullname" $root }}-ca"
  - name: authorities
    configMap:
      name: "{{ include "fairlead-operator.fullname" $root }}-authorities"
      optional: true
  {{- end }}
{{- end -}}

{{- define "fairlead-operator.volumeMounts" -}}
volumeMounts:
  - name: credentials
    mountPath: /etc/fairlead/credentials
    readOnly: true
  {{- if or .Values.api.caBundle .Values.binding.sealAuthority }}
  - name: ca
    mountPath: /etc/fairlead/ca
    readOnly: true
  - name: authorities
    mountPath: /etc/fairlead/authorities
    readOnly: true
  {{- end }}
{{- end -}}

{{/* A drain of nodes evicts one pod of a component after the other: call with (list . "fairlead-manager"). */}}
{{- define "fairlead-operator.budget" -}}
{{- $root := index . 0 -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: "{{ include "fairlead-operator.fullname" $root }}-{{ trimPrefix "fairlead-" (index . 1) }}"
  namespace: {{ $root.Release.Namespace | quote }}
  labels:
    {{- include "fairlead-operator.componentLabels" . | nindent 4 }}
spec:
  maxUnavailable: 1
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "fairlead-operator.selectorLabels" . | nindent 6 }}
{{- end -}}
