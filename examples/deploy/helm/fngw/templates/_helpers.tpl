{{- define "fngw.selectorLabels" -}}
app.kubernetes.io/name: fngw
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "fngw.metadata" -}}
name: {{ .Release.Name }}
namespace: {{ .Release.Namespace }}
labels:
  {{- include "fngw.selectorLabels" . | nindent 2 }}
  app.kubernetes.io/version: {{ .Values.image.tag | quote }}
  app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "fngw.scaling" -}}
# Jobs that still run when a pod stops may be interrupted, so pods are removed slowly.
scaleDown:
  stabilizationWindowSeconds: 300
  policies:
    - type: Pods
      value: 1
      periodSeconds: 60
{{- end }}
