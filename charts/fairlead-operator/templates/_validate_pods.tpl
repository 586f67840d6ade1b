{{/* What the schema cannot say in a sentence about images, ports and pods. */}}
{{- define "fairlead-operator.validateImage" -}}
{{- $image := .Values.image -}}
{{- if not (regexMatch "^[a-zA-Z0-9]([a-zA-Z0-9._:/-]*[a-zA-Z0-9])?$" $image.repository) -}}
{{- fail (printf "image.repository %q is no name of an image: give it as REGISTRY/NAME, and a digest in image.digest" $image.repository) -}}
{{- end -}}
{{- if contains ":" (last (splitList "/" $image.repository)) -}}
{{- fail (printf "image.repository %q holds a tag: give it in image.tag" $image.repository) -}}
{{- end -}}
{{- if and $image.tag (not (regexMatch "^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$" $image.tag)) -}}
{{- fail (printf "image.tag %q is no tag: use letters, digits, '.', '-' and '_', or leave it empty for the chart's appVersion" $image.tag) -}}
{{- end -}}
{{- if and $image.digest (not (regexMatch "^sha256:[0-9a-f]{64}$" $image.digest)) -}}
{{- fail (printf "image.digest %q is no digest: give it as sha256: and 64 hexadecimal digits" $image.digest) -}}
{{- end -}}
{{- end -}}

{{- define "fairlead-operator.validatePorts" -}}
{{- $range := .Values.binding.portRange -}}
{{- $rule := "give the first and the last port as FIRST-LAST, both from 1024 to 65535, such as 10000-32767" -}}
{{- if not (regexMatch "^[1-9][0-9]{3,4}-[1-9][0-9]{3,4}$" $range) -}}
{{- fail (printf "binding.portRange %q: %s" $range $rule) -}}
{{- end -}}
{{- $first := include "fairlead-operator.firstPort" . | int -}}
{{- $last := include "fairlead-operator.lastPort" . | int -}}
{{- if or (lt $first 1024) (gt $last 65535) (gt $first $last) -}}
{{- fail (printf "binding.portRange %q: %s" $range $rule) -}}
{{- end -}}
{{- if and (le $first 8081) (ge $last 8081) -}}
{{- fail (printf "binding.portRange %q holds port 8081, where the pods' health is asked for: choose another range" $range) -}}
{{- end -}}
{{- $port := int .Values.metrics.port -}}
{{- if eq $port 8081 -}}
{{- fail "metrics.port 8081 is where the pods' health is asked for: choose another" -}}
{{- end -}}
{{- if and (le $first $port) (ge $last $port) -}}
{{- fail (printf "metrics.port %d lies within binding.portRange %q: choose one outside of it" $port $range) -}}
{{- end -}}
{{- if and .Values.metrics.podMonitor.enabled (not .Values.metrics.enabled) -}}
{{- fail "metrics.podMonitor.enabled needs metrics: set metrics.enabled=true, or leave the PodMonitor out" -}}
{{- end -}}
{{- end -}}

{{/* The proxy's address may hold a password: it is not repeated. */}}
{{- define "fairlead-operator.validateProxy" -}}
{{- $proxy := .Values.proxy.httpsProxy -}}
{{- if and $proxy (not (regexMatch "^(https?|socks5)://([^@/?#\\s]+@)?(\\[[0-9A-Fa-f:.]+\\]|[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?)(:[1-9][0-9]{0,4})?/?$" $proxy)) -}}
{{- fail "proxy.httpsProxy: give it as http://[USER:PASSWORD@]HOST[:PORT], https://... or socks5://..." -}}
{{- end -}}
{{- if and .Values.proxy.noProxy (not $proxy) -}}
{{- fail (printf "proxy.noProxy %q has no effect without a proxy: give its address in proxy.httpsProxy" .Values.proxy.noProxy) -}}
{{- end -}}
{{- if regexMatch "\\s" .Values.proxy.noProxy -}}
{{- fail (printf "proxy.noProxy %q holds spaces: separate hosts, domains and networks by commas alone" .Values.proxy.noProxy) -}}
{{- end -}}
{{- end -}}

{{- define "fairlead-operator.validateAutoscaling" -}}
{{- with .Values.forwarder.autoscaling -}}
{{- if gt (int .minReplicas) (int .maxReplicas) -}}
{{- fail (printf "forwarder.autoscaling.minReplicas %d is more than maxReplicas %d" (int .minReplicas) (int .maxReplicas)) -}}
{{- end -}}
{{- if and .enabled (not .targetCPU) (not .targetConnections) -}}
{{- fail "forwarder.autoscaling.enabled needs a target: give targetCPU or targetConnections" -}}
{{- end -}}
{{- if and .enabled .targetCPU (not (dig "requests" "cpu" "" $.Values.forwarder.resources)) -}}
{{- fail "forwarder.autoscaling.targetCPU is a part of forwarder.resources.requests.cpu, which is missing: give it, or set targetCPU=0 and targetConnections" -}}
{{- end -}}
{{- if and .enabled .targetConnections (not $.Values.metrics.enabled) -}}
{{- fail "forwarder.autoscaling.targetConnections needs metrics: set metrics.enabled=true, or scale by targetCPU alone" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Call with (list . "manager" .Values.manager). */}}
{{- define "fairlead-operator.validatePods" -}}
{{- $root := index . 0 -}}
{{- $path := index . 1 -}}
{{- $values := index . 2 -}}
{{- if and $values.priorityClassName (not (regexMatch "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$" $values.priorityClassName)) -}}
{{- fail (printf "%s.priorityClassName %q is no name of a PriorityClass: use a-z, 0-9, '-' and '.'" $path $values.priorityClassName) -}}
{{- end -}}
{{- range $values.extraEnv -}}
{{- if regexMatch "^(POD_(NAMESPACE|NAME|IPS)|FAIRLEAD_(DESCRIPTION|CLUSTER_NAME|ENDPOINT_SELECTOR)|HTTPS_PROXY|NO_PROXY)$" .name -}}
{{- fail (printf "%s.extraEnv holds %q, which the chart sets itself: use the value that is for it, such as proxy.httpsProxy" $path .name) -}}
{{- end -}}
{{- end -}}
{{- include "fairlead-operator.validateLabels" (list $root (printf "%s.podLabels" $path) $values.podLabels) -}}
{{- range $name, $_ := $values.podAnnotations -}}
{{- if hasPrefix "checksum/" $name -}}
{{- fail (printf "%s.podAnnotations holds %q, which the chart sets itself: choose another name" $path $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Labels of the chart's own select pods: call with (list . "manager.podLabels" .Values.manager.podLabels). */}}
{{- define "fairlead-operator.validateLabels" -}}
{{- $own := include "fairlead-operator.labels" (index . 0) | fromYaml -}}
{{- $path := index . 1 -}}
{{- range $name, $value := index . 2 -}}
{{- if hasKey $own $name -}}
{{- fail (printf "%s holds %q, which the chart sets itself: choose another name" $path $name) -}}
{{- end -}}
{{- if not (regexMatch "^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$" $value) -}}
{{- fail (printf "%s: %q is no value of the label %q: use at most 63 letters, digits, '-', '_' and '.'" $path $value $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
