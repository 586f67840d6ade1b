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

{{- define "fairlead-operator.image" -}}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- end -}}

{{/* The Secret with the keys api-key and authtoken. */}}
{{- define "fairlead-operator.secretName" -}}
{{- .Values.credentials.existingSecret | default (printf "%s-credentials" (include "fairlead-operator.fullname" .)) -}}
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
{{- . | replace "$" "$$" | toJson -}}
{{- end -}}

{{- define "fairlead-operator.podSecurityContext" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "fairlead-operator.containerSecurityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/* Ports and probes, the same for manager and forwarder. */}}
{{- define "fairlead-operator.probes" -}}
ports:
  - name: metrics
    containerPort: 8080
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

{{/* Pods of one component go to different nodes where there are any: call with (list . "fairlead-manager"). */}}
{{- define "fairlead-operator.spread" -}}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    matchLabelKeys: [pod-template-hash]
    labelSelector:
      matchLabels:
        {{- include "fairlead-operator.selectorLabels" . | nindent 8 }}
{{- end -}}

{{/*
Volumes of one component: call with (list . "api-key") or (list . "authtoken"). A component sees its own credential only.
*/}}
{{- define "fairlead-operator.volumes" -}}
{{- $root := index . 0 -}}
volumes:
  - name: credentials
    secret:
      secretName: {{ include "fairlead-operator.secretName" $root }}
      defaultMode: 0440
      items:
        - key: {{ index . 1 }}
          path: {{ index . 1 }}
  {{- if $root.Values.api.caBundle }}
  - name: ca
    configMap:
      name: {{ include "fairlead-operator.fullname" $root }}-ca
  {{- end }}
{{- end -}}

{{- define "fairlead-operator.volumeMounts" -}}
volumeMounts:
  - name: credentials
    mountPath: /etc/fairlead/credentials
    readOnly: true
  {{- if .Values.api.caBundle }}
  - name: ca
    mountPath: /etc/fairlead/ca
    readOnly: true
  {{- end }}
{{- end -}}

{{/* Pods start anew when what they read at their start changes: call with (list . .Values.credentials.apiKey). */}}
{{- define "fairlead-operator.checksums" -}}
{{- $root := index . 0 -}}
checksum/credential: {{ printf "%s/%s" $root.Values.credentials.existingSecret (index . 1) | sha256sum }}
checksum/ca: {{ $root.Values.api.caBundle | sha256sum }}
{{- end -}}
