{{/* The name of everything that is made. It is a host's name, too: no dots, and a letter first. */}}
{{- define "loadmaster.name" -}}
{{- if not (regexMatch "^[a-z][-a-z0-9]*$" .Release.Name) }}
{{- fail (printf "the release is called %q, and its Service with it: begin with a letter, and use small letters, digits and - alone" .Release.Name) }}
{{- end }}
{{- contains "loadmaster" .Release.Name | ternary .Release.Name (printf "%s-loadmaster" .Release.Name) | trunc 46 | trimSuffix "-" }}
{{- end }}

{{/* What selects pods: it may never change. A dictionary of root and component. */}}
{{- define "loadmaster.selector" -}}
app.kubernetes.io/name: loadmaster
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "loadmaster.labels" -}}
{{ include "loadmaster.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- end }}

{{/* A dictionary of root and image. */}}
{{- define "loadmaster.image" -}}
image: {{ printf "%s:%s" .image.repository (.image.tag | default .root.Chart.AppVersion) | quote }}
imagePullPolicy: {{ .image.pullPolicy }}
{{- end }}

{{/* What every pod of ours says, with the same root. */}}
{{- define "loadmaster.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false # LOADMASTER_… are settings, and nothing else
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "loadmaster.database" -}}
- name: DATABASE_URL
  valueFrom: {secretKeyRef: {name: {{ .Values.database.existingSecret | quote }}, key: {{ .Values.database.key | quote }}}}
{{- end }}
