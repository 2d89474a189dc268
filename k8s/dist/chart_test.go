// SPDX-License-Identifier: Apache-2.0

// Package dist_test tests the Helm chart: it renders the chart as Helm does, and checks the result.
package dist_test

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write the plain manifests anew")

const chartDir = "chart/niclane"

// render does what helm template does. It returns the rendered files, by the template's name.
// values are in YAML.
func render(values string) (map[string]string, error) {
	return renderFor(values, chartutil.ReleaseOptions{Revision: 1, IsInstall: true})
}

// renderFor renders an installation or an upgrade.
func renderFor(values string, release chartutil.ReleaseOptions) (map[string]string, error) {
	c, err := loader.Load(chartDir)
	if err != nil {
		return nil, err
	}
	v := map[string]any{}
	if err := yaml.Unmarshal([]byte(values), &v); err != nil {
		return nil, err
	}
	release.Name, release.Namespace = "niclane", "niclane-system"
	with, err := chartutil.ToRenderValues(c, v, release, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	return engine.Render(c, with)
}

// isManifest reports whether a template contains objects that an installation makes.
func isManifest(name string) bool {
	return !strings.HasSuffix(name, ".tpl") && !strings.HasSuffix(name, "/NOTES.txt") && name != removal
}

// removal is the template with the objects that helm uninstall makes.
const removal = "niclane/templates/remove.yaml"

// objects returns the objects of all templates, one for each kind.
func objects(t *testing.T, values string) map[string]map[string]any {
	t.Helper()
	rendered, err := render(values)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(rendered)) {
		if !isManifest(name) {
			continue
		}
		for document := range strings.SplitSeq(rendered[name], "\n---\n") {
			var o map[string]any
			if err := yaml.UnmarshalStrict([]byte(document), &o); err != nil {
				t.Fatalf("%s: %v\n%s", name, err, document)
			}
			if o != nil {
				out[o["kind"].(string)] = o
			}
		}
	}
	return out
}

// TestPlainManifests checks the manifests for users without Helm. One equals the chart with default
// values, the other the chart with NRI instead of niclane-cni.
func TestPlainManifests(t *testing.T) {
	for path, c := range map[string]struct{ values, made string }{
		"manifests/niclane.yaml": {"", "with its own values"},
		"manifests/niclane-nri.yaml": {"{nri: {enabled: true}, cni: {enabled: false}}",
			"with nri.enabled=true and cni.enabled=false"},
	} {
		rendered, err := render(c.values)
		if err != nil {
			t.Fatal(err)
		}
		var text bytes.Buffer
		fmt.Fprintf(&text, "# SPDX-License-Identifier: Apache-2.0\n# Made from the chart, %s: go test . -update\n",
			c.made)
		text.WriteString("apiVersion: v1\nkind: Namespace\nmetadata:\n  name: niclane-system\n  labels: " +
			"{pod-security.kubernetes.io/enforce: privileged}\n")
		for _, name := range []string{"lanenodes", "lanepolicies"} {
			crd, err := os.ReadFile(chartDir + "/crds/" + name + ".yaml")
			if err != nil {
				t.Fatal(err)
			}
			text.WriteString("---\n" + string(crd))
		}
		for _, name := range slices.Sorted(maps.Keys(rendered)) {
			if body := strings.TrimSpace(rendered[name]); body != "" && isManifest(name) {
				text.WriteString("---\n" + body + "\n")
			}
		}
		committed(t, path, text.Bytes())
	}
}

// committed compares a plain manifest with what the chart gives.
func committed(t *testing.T, path string, text []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	has, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(has), string(text)); diff != "" {
		t.Errorf("%s is not what the chart gives: go test . -update (-committed +chart):\n%s", path, diff)
	}
}

// TestRemoval checks the manifest with which users without Helm do what helm uninstall does first,
// and that all its objects are hooks: an installation must not make them.
func TestRemoval(t *testing.T) {
	rendered, err := render("{remove: {patience: 9m}}")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(rendered[removal], "-patience=9m") {
		t.Error("the Job does not get the value remove.patience")
	}
	if rendered, err = render(""); err != nil {
		t.Fatal(err)
	}
	text := strings.TrimSpace(rendered[removal]) + "\n"
	for document := range strings.SplitSeq(text, "\n---\n") {
		var o struct {
			Kind     string
			Metadata struct{ Annotations map[string]string }
		}
		if err := yaml.Unmarshal([]byte(document), &o); err != nil {
			t.Fatal(err)
		}
		if o.Metadata.Annotations["helm.sh/hook"] != "pre-delete" ||
			(o.Metadata.Annotations["helm.sh/hook-weight"] == "-1") == (o.Kind == "Job") {
			t.Errorf("%s: annotations %v", o.Kind, o.Metadata.Annotations)
		}
	}
	committed(t, "manifests/niclane-remove.yaml",
		[]byte("# Made from the chart, with its own values: go test . -update\n"+text))
}

// TestDefinitions checks that an upgrade has the definitions (CRDs), as the directory crds has them,
// and that an installation does not, which gets them from that directory. Helm must never delete
// them: that would delete all policies.
func TestDefinitions(t *testing.T) {
	const template = "niclane/templates/crds.yaml"
	for _, upgrade := range []bool{false, true} {
		rendered, err := renderFor("", chartutil.ReleaseOptions{Revision: 2, IsInstall: !upgrade, IsUpgrade: upgrade})
		if err != nil {
			t.Fatal(err)
		}
		n := strings.Count(rendered[template], "\nkind: CustomResourceDefinition\n")
		if want := map[bool]int{true: 2}[upgrade]; n != want {
			t.Errorf("upgrade %v: %d definitions, want %d", upgrade, n, want)
		}
		for _, name := range []string{"lanenodes", "lanepolicies"} {
			crd, err := os.ReadFile(chartDir + "/crds/" + name + ".yaml")
			if err != nil {
				t.Fatal(err)
			}
			if upgrade && !strings.Contains(rendered[template], string(crd)) {
				t.Errorf("the definition of %s is not that of crds", name)
			}
			if !strings.Contains(string(crd), "\n    helm.sh/resource-policy: keep ") {
				t.Errorf("Helm may delete the definition of %s", name)
			}
		}
	}
}

// TestKubeletDir checks that no path of kubelet's usual directory is left if a node has it elsewhere.
func TestKubeletDir(t *testing.T) {
	rendered, err := render("kubeletDir: /data/kubelet")
	if err != nil {
		t.Fatal(err)
	}
	daemon := rendered["niclane/templates/daemonset.yaml"]
	if strings.Contains(daemon, "/var/lib/kubelet") || !strings.Contains(daemon, "-kubelet-dir=/data/kubelet\n") {
		t.Errorf("with another directory of kubelet:\n%s", daemon)
	}
}

// TestMetrics checks what the chart makes for Prometheus, and that it makes nothing by default.
func TestMetrics(t *testing.T) {
	for values, want := range map[string]string{
		"": "", "{metrics: {enabled: true}}": "ClusterRole Service",
		"{metrics: {enabled: true, port: 9999, serviceMonitor: true}}": "ClusterRole Service ServiceMonitor",
	} {
		rendered, err := render(values)
		if err != nil {
			t.Fatal(err)
		}
		text := rendered["niclane/templates/metrics.yaml"]
		var kinds []string
		for line := range strings.Lines(text) {
			if kind, ok := strings.CutPrefix(line, "kind: "); ok {
				kinds = append(kinds, strings.TrimSpace(kind))
			}
		}
		if got := strings.Join(kinds, " "); got != want {
			t.Errorf("with %q: %s, want %s", values, got, want)
		}
		daemon := rendered["niclane/templates/daemonset.yaml"]
		if on := strings.Contains(daemon, "-metrics=:"); on != (want != "") ||
			strings.Contains(values, "9999") != strings.Contains(daemon, "-metrics=:9999") {
			t.Errorf("with %q:\n%s", values, daemon)
		}
		if got := strings.Contains(rendered["niclane/templates/rbac.yaml"], "tokenreviews"); got != (want != "") {
			t.Errorf("with %q: tokenreviews %v", values, got)
		}
	}
}

// TestNotes checks that the chart's notes say that a LanePolicy is missing, but only if it is.
func TestNotes(t *testing.T) {
	for values, want := range map[string]string{"": "only when a LanePolicy selects it",
		"{policy: {classes: [{name: redis}]}}": "kubectl get lanepolicy niclane\n"} {
		rendered, err := render(values)
		if err != nil {
			t.Fatal(err)
		}
		notes := rendered["niclane/templates/NOTES.txt"]
		if !strings.Contains(notes, want) || strings.Contains(notes, "LanePolicy selects") == (values != "") ||
			strings.Contains(notes, "SPDX") {
			t.Errorf("with %q:\n%s", values, notes)
		}
	}
}

// TestSchema checks that the chart refuses unknown keys and invalid values.
func TestSchema(t *testing.T) {
	for values, want := range map[string]string{
		"agnet: {}":                              "agnet",
		"image: {pullPolicy: Sometimes}":         "pullPolicy",
		"kubeletDir: var/lib/kubelet":            "kubeletDir",
		"cni: {enabled: maybe}":                  "enabled",
		"agent: {extraArgs: [v]}":                "extraArgs",
		"agent: {nodeSelector: {network: true}}": "nodeSelector",
		"cni: {statusOfAgent: sometimes}":        "statusOfAgent",
		"nri: {enabled: maybe}":                  "enabled",
		"nri: {socket: nri.sock}":                "socket",
		"nri: {path: /x}":                        "path",
		"services: {enabled: all}":               "enabled",
		"remove: {patience: long}":               "patience",
	} {
		if _, err := render(values); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error about %s", values, err, want)
		}
	}
}

// TestLeastPrivilege checks that the chart does not give the agent rights that it never needs.
func TestLeastPrivilege(t *testing.T) {
	all := objects(t, "")
	for _, r := range all["ClusterRole"]["rules"].([]any) {
		rule := r.(map[string]any)
		for _, key := range []string{"apiGroups", "resources", "verbs"} {
			for _, v := range rule[key].([]any) {
				switch v {
				case "*", "secrets", "configmaps", "nodes/proxy", "escalate", "bind", "impersonate", "pods/exec":
					t.Errorf("the agent may %v", rule)
				}
			}
		}
	}
	pod := all["DaemonSet"]["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)
	for _, c := range pod["containers"].([]any) {
		container := c.(map[string]any)
		security := container["securityContext"].(map[string]any)
		if security["privileged"] == true || security["allowPrivilegeEscalation"] != false ||
			security["readOnlyRootFilesystem"] != true {
			t.Errorf("container %v: %v", container["name"], security)
		}
		capabilities := security["capabilities"].(map[string]any)
		if diff := cmp.Diff([]any{"ALL"}, capabilities["drop"]); diff != "" {
			t.Errorf("container %v keeps capabilities", container["name"])
		}
		if container["name"] != "agent" && capabilities["add"] != nil {
			t.Errorf("container %v: %v", container["name"], capabilities)
		}
	}
}

// TestValues checks that values turn parts of the chart off, and that a policy in them is rendered.
func TestValues(t *testing.T) {
	all := objects(t, `
dra: {enabled: false}
cni: {enabled: false}
policy: {classes: [{name: redis, queues: 4}]}
`)
	if _, ok := all["DeviceClass"]; ok {
		t.Error("a DeviceClass without dra")
	}
	policy := all["LanePolicy"]["spec"]
	if diff := cmp.Diff(map[string]any{"classes": []any{map[string]any{"name": "redis", "queues": 4.0}}},
		policy); diff != "" {
		t.Errorf("policy (-want +got):\n%s", diff)
	}
	pod := all["DaemonSet"]["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)
	if n := len(pod["containers"].([]any)); n != 1 {
		t.Errorf("%d containers without cni, want the agent alone", n)
	}
	if n := len(pod["initContainers"].([]any)); n != 1 {
		t.Errorf("%d init containers, want the one that takes niclane-cni away", n)
	}
}

// TestNoPolicy checks that the value policy: null renders no LanePolicy.
func TestNoPolicy(t *testing.T) {
	if policy, ok := objects(t, "policy: null")["LanePolicy"]; ok {
		t.Errorf("a policy: %v", policy)
	}
}

// TestNRI checks that the agent gets the runtime's socket only if NRI is enabled.
func TestNRI(t *testing.T) {
	for values, want := range map[string]bool{"": false,
		"nri: {enabled: true, socket: /run/other/nri.sock, bandwidth: false}": true} {
		text, err := yaml.Marshal(objects(t, values)["DaemonSet"])
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range []string{"- -nri=/run/other/nri.sock\n", "- -nri-bandwidth=false\n",
			"mountPath: /run/other\n", "path: /run/other\n"} {
			if got := strings.Contains(string(text), part); got != want {
				t.Errorf("%q: %v has %q", values, got, part)
			}
		}
		if !want && strings.Contains(string(text), "nri") {
			t.Errorf("without it:\n%s", text)
		}
	}
}

// TestStatusOfAgent checks that the value cni.statusOfAgent becomes an option of
// niclane-cni-install.
func TestStatusOfAgent(t *testing.T) {
	for values, want := range map[string]string{"": "-status-of-agent=false",
		"cni: {statusOfAgent: true}": "-status-of-agent=true"} {
		text, err := yaml.Marshal(objects(t, values)["DaemonSet"])
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), "- "+want+"\n") {
			t.Errorf("%q: no %s", values, want)
		}
	}
}

// TestServices checks that the agent reads Services, and has the right to do so, only if the value
// services.enabled is true.
func TestServices(t *testing.T) {
	for values, want := range map[string]bool{"": false, "services: {enabled: true}": true} {
		all := objects(t, values)
		for kind, part := range map[string]string{"DaemonSet": "- -services\n", "ClusterRole": "- services\n"} {
			text, err := yaml.Marshal(all[kind])
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Contains(string(text), part); got != want {
				t.Errorf("%q: %s has %q: %v", values, kind, part, got)
			}
		}
	}
}
