{{/* The command line. */}}
{{- define "fairlead-server.args" -}}
- serve
{{- range .Values.extraArgs }}
- {{ . | replace "$" "$$" | quote }}
{{- end }}
- --addr=:8443
- --health-addr=:8081
{{- if .Values.metrics.enabled }}
- --metrics-addr=:{{ .Values.metrics.port }}
{{- else }}
- --metrics-addr=127.0.0.1:9090
{{- end }}
- {{ printf "--base-url=%s" (include "fairlead-server.baseURL" .) | quote }}
{{- with .Values.tunnelURL }}
- {{ printf "--tunnel-url=%s" . | quote }}
{{- end }}
{{- range .Values.versionHeaders }}
- --version-header={{ . }}
{{- end }}
- --data-dir=/var/lib/fairlead
{{- if .Values.database.urlSecret.name }}
- --database-url-file=/etc/fairlead/database/url
{{- end }}
{{- if .Values.secretKey.name }}
- --secret-key-file=/etc/fairlead/secret-key/key
{{- end }}
{{- if .Values.tls.existingSecret }}
- --tls-cert=/etc/fairlead/tls/tls.crt
- --tls-key=/etc/fairlead/tls/tls.key
{{- else }}
{{- $host := include "fairlead-server.host" . }}
- --tls-san={{ include "fairlead-server.fullname" . }}
- --tls-san={{ trimSuffix ".svc" $host }}
- --tls-san={{ $host }}
- --tls-san={{ $host }}.cluster.local
{{- range .Values.tls.names }}
- {{ printf "--tls-san=%s" . | quote }}
{{- end }}
{{- end }}
{{- if .Values.public.enabled }}
- --public-http-addr=:8080
{{- if include "fairlead-server.publicTLS" . }}
- --public-https-addr=:8444
{{- end }}
{{- with .Values.public.acme }}
{{- if .directory }}
- {{ printf "--acme-directory=%s" .directory | quote }}
- --acme-agree-tos={{ .agreeToTerms }}
{{- with .email }}
- {{ printf "--acme-email=%s" . | quote }}
{{- end }}
{{- end }}
{{- end }}
{{- range $i, $_ := .Values.public.tlsSecrets }}
- --public-tls-cert=/etc/fairlead/public-tls-{{ $i }}/tls.crt
- --public-tls-key=/etc/fairlead/public-tls-{{ $i }}/tls.key
{{- end }}
{{- end }}
{{- range .Values.geoip.databases }}
- --geoip-database=/etc/fairlead/geoip/{{ . }}
{{- end }}
- --drain-timeout={{ .Values.drainTimeout }}
{{- if .Values.replicas }}
- --relay-address=[$(POD_IP)]:8445
{{- if .Values.directAddresses }}
- --replica-address=[$(POD_IP)]:8443
{{- end }}
- --shutdown-delay={{ .Values.shutdownDelay }}
{{- end }}
- --endpoint-grace={{ .Values.endpointGrace }}
{{- with .Values.identityRetention }}
- --identity-retention={{ . }}
{{- end }}
- --log-format=json
- --log-level={{ .Values.logLevel }}
{{- end -}}

{{/* Where the Secrets that exist are mounted, as (dict folder (dict secret … items (dict key file))). */}}
{{- define "fairlead-server.secrets" -}}
{{- $pair := dict "tls.crt" "tls.crt" "tls.key" "tls.key" -}}
{{- $all := dict -}}
{{- with .Values.tls.existingSecret -}}
{{- $_ := set $all "tls" (dict "secret" . "items" $pair) -}}
{{- end -}}
{{- if .Values.public.enabled -}}
{{- range $i, $name := .Values.public.tlsSecrets -}}
{{- $_ := set $all (printf "public-tls-%d" $i) (dict "secret" $name "items" $pair) -}}
{{- end -}}
{{- end -}}
{{- with .Values.database.urlSecret -}}
{{- if .name -}}
{{- $_ := set $all "database" (dict "secret" .name "items" (dict .key "url")) -}}
{{- end -}}
{{- end -}}
{{- with .Values.database.caSecret -}}
{{- if .name -}}
{{- $_ := set $all "database-ca" (dict "secret" .name "items" (dict .key "ca.crt")) -}}
{{- end -}}
{{- end -}}
{{- with .Values.secretKey -}}
{{- if .name -}}
{{- $_ := set $all "secret-key" (dict "secret" .name "items" (dict .key "key")) -}}
{{- end -}}
{{- end -}}
{{- with .Values.bootstrap -}}
{{- if .existingSecret -}}
{{- $items := dict -}}
{{- with .apiKeyKey -}}
{{- $_ := set $items . "api-key" -}}
{{- end -}}
{{- with .authtokenKey -}}
{{- $_ := set $items . "authtoken" -}}
{{- end -}}
{{- $_ := set $all "bootstrap" (dict "secret" .existingSecret "items" $items) -}}
{{- end -}}
{{- end -}}
{{- toYaml $all -}}
{{- end -}}

{{/* Volumes of those Secrets; readable by whatever UID a policy gives the pod, as nothing else runs there. */}}
{{- define "fairlead-server.secretVolumes" -}}
{{- range $name, $from := include "fairlead-server.secrets" . | fromYaml }}
- name: {{ $name | quote }}
  secret:
    secretName: {{ $from.secret | quote }}
    defaultMode: 0444
    items:
      {{- range $key, $file := $from.items }}
      - key: {{ $key | quote }}
        path: {{ $file }}
      {{- end }}
{{- end }}
{{- end -}}

{{- define "fairlead-server.secretMounts" -}}
{{- range $name, $_ := include "fairlead-server.secrets" . | fromYaml }}
- name: {{ $name | quote }}
  mountPath: /etc/fairlead/{{ $name }}
  readOnly: true
{{- end }}
{{- end -}}

{{/* Not empty if there is a public listener with TLS. */}}
{{- define "fairlead-server.publicTLS" -}}
{{- if or .Values.public.tlsSecrets .Values.public.acme.directory }}true{{ end }}
{{- end -}}
