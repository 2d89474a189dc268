// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/niclane/niclane/k8s/pods"
	"github.com/niclane/niclane/k8s/policy"
	"github.com/niclane/niclane/k8s/policy/adqk8s"
)

// between returns the part of s between the texts after and before.
func between(t *testing.T, s, after, before string) string {
	t.Helper()
	_, s, ok := strings.Cut(s, after)
	out, _, ok2 := strings.Cut(s, before)
	if !ok || !ok2 {
		t.Fatalf("the document has no %q with %q after it", after, before)
	}
	return out
}

// TestMigratingFromADQ tests the examples of docs/migrating-from-adq-k8s-plugins.md: it converts
// the ConfigMap, and puts the pod into a class of the resulting policy.
func TestMigratingFromADQ(t *testing.T) {
	b, err := os.ReadFile("../../../docs/migrating-from-adq-k8s-plugins.md")
	if err != nil {
		t.Fatal(err)
	}
	doc := string(b)
	config := between(t, doc, "adq-cluster-config.json <<EOF\n", "EOF\n")
	path := filepath.Join(t.TempDir(), "adq-cluster-config.json")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := convertADQ(&out, path); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(between(t, doc, "$ niclane-agent -convert-adq adq-cluster-config.json\n", "```"),
		out.String()); diff != "" {
		t.Errorf("(-document +converted)\n%s", diff)
	}
	var pod corev1.Pod
	if err := yaml.UnmarshalStrict([]byte(between(t, doc, "```yaml\n", "```")), &pod); err != nil {
		t.Fatal(err)
	}
	policies, _, err := adqk8s.Convert([]byte(config))
	if err != nil {
		t.Fatal(err)
	}
	var grants []pods.Grant
	for i := range policies[0].Spec.Classes {
		c := &policies[0].Spec.Classes[i]
		if _, asks := pod.Spec.Containers[0].Resources.Limits[corev1.ResourceName(policy.ResourceName(c))]; asks {
			unit := policy.UnitID(c.Name, 0)
			grants = append(grants, pods.Grant{Container: "redis", Class: c.Name, Units: []string{unit},
				Lane: policy.LaneOf(c, unit)})
		}
	}
	if len(grants) != 1 || grants[0].Lane != "adq-0" {
		t.Fatalf("the pod gets %+v, want lane adq-0", grants)
	}
	members, err := pods.Members(&pod, pods.Where{Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.5")}}, grants)
	if err != nil || len(members) != 1 || members[0].Protocol != "tcp" ||
		!cmp.Equal(members[0].Ports, []string{"6379"}) || members[0].RemotePorts != nil {
		t.Errorf("members %+v, %v", members, err)
	}
	// The policy with this pod must make a valid lanes file.
	var n policy.Node
	for i := range members {
		n.Members = append(n.Members, &members[i])
	}
	if _, err := policy.Make("k.yaml", &policies[0].Spec, n); err != nil {
		t.Error(err)
	}
}
