{{/* Labels of every object; those of the pods, which select them, are the same. */}}
{{- define "tweed.labels" -}}
app.kubernetes.io/name: tweed
app.kubernetes.io/component: agent
{{- end }}

{{- define "tweed.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{/* Folders of the node; the pod has them at the same paths. */}}
{{- define "tweed.cniBinDir" -}}{{ .Values.agent.cniBinDir | default "/opt/cni/bin" }}{{- end }}
{{- define "tweed.cniConfDir" -}}{{ .Values.agent.cniConfDir | default "/etc/cni/net.d" }}{{- end }}
{{- define "tweed.runDir" -}}{{ .Values.agent.runDir | default "/run/tweed" }}{{- end }}

{{/* A flag's value as text; nothing if it is not set. Numbers come as floats, and large ones
     would be written as 1.6e+07; on and off without quotes are booleans. */}}
{{- define "tweed.text" -}}
{{- if kindIs "slice" . -}}{{ join "," . }}
{{- else if kindIs "float64" . -}}{{ int64 . }}
{{- else if kindIs "bool" . -}}{{ ternary "on" "off" . }}
{{- else -}}{{ . }}
{{- end -}}
{{- end }}

{{/* Not empty if the agent gets the rights for the fast path: where it is on, or is switched off
     and its programs may still be there. */}}
{{- define "tweed.fastPath" -}}
{{- $mode := include "tweed.text" (.Values.agent.fastPath | default "off") -}}
{{- if or .Values.fastPath (ne $mode "off") -}}on{{- end -}}
{{- end }}

{{/* The port behind the last colon of metricsAddr. */}}
{{- define "tweed.metricsPort" -}}
{{ splitList ":" .Values.agent.metricsAddr | last }}
{{- end }}

{{/* Where probes ask: the port of healthAddr, and its address. None stands for the
     pod's own, which is the node's. */}}
{{- define "tweed.healthAddr" -}}{{ .Values.agent.healthAddr | default "127.0.0.1:9117" }}{{- end }}
{{- define "tweed.healthPort" -}}
{{ splitList ":" (include "tweed.healthAddr" .) | last }}
{{- end }}
{{- define "tweed.healthHost" -}}
{{- $port := include "tweed.healthPort" . -}}
{{- $host := include "tweed.healthAddr" . | trimSuffix (printf ":%s" $port) | trimPrefix "[" | trimSuffix "]" -}}
{{- if not (has $host (list "$(NODE_IP)" "0.0.0.0" "::")) -}}{{ quote $host }}{{- end -}}
{{- end }}

