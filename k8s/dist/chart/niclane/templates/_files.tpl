{{- /* SPDX-License-Identifier: Apache-2.0 */ -}}
{{- /* niclane-cni-install writes two directories of root, and needs no other right. */ -}}
{{- define "niclane.files" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  seccompProfile: {type: RuntimeDefault}
  capabilities: {drop: [ALL]}
volumeMounts:
- {name: cni-bin, mountPath: /opt/cni/bin}
- {name: cni-conf, mountPath: /etc/cni/net.d}
{{- end }}
