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

{{/* A flag's value as text. Numbers come as floats, and large ones would be
     written as 1.6e+07. */}}
{{- define "tweed.text" -}}
{{- if kindIs "slice" . -}}{{ join "," . }}
{{- else if kindIs "float64" . -}}{{ int64 . }}
{{- else -}}{{ . }}
{{- end -}}
{{- end }}

{{/* The port behind the last colon of metricsAddr. */}}
{{- define "tweed.metricsPort" -}}
{{ splitList ":" .Values.agent.metricsAddr | last }}
{{- end }}

{{/* Where a probe asks: nothing for the pod's own address, which is the node's;
     an address, if metricsAddr names one that is not "any". */}}
{{- define "tweed.probeHost" -}}
{{- $port := include "tweed.metricsPort" . -}}
{{- $host := .Values.agent.metricsAddr | trimSuffix (printf ":%s" $port) | trimPrefix "[" | trimSuffix "]" -}}
{{- if not (has $host (list "$(NODE_IP)" "0.0.0.0" "::")) -}}{{ $host }}{{- end -}}
{{- end }}

{{- define "tweed.admissionPolicy" -}}
{{- if eq (toString .Values.admissionPolicy) "auto" -}}
{{- if semverCompare ">=1.30.0-0" .Capabilities.KubeVersion.Version -}}yes{{- end -}}
{{- else if .Values.admissionPolicy -}}yes
{{- end -}}
{{- end }}
