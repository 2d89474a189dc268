// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"sigs.k8s.io/yaml"

	"github.com/niclane/niclane/k8s/api/v1alpha1"
	"github.com/niclane/niclane/lane/config"
	"github.com/niclane/niclane/lane/intent"
)

// TestPaper: the LanePolicy of the experiment's variant paper-on makes the six queue sets of
// examples/papers/kubernetes.yaml, which has the pods too. A lane of an exclusive class is one for all
// members of its pod, which is mode shared.
func TestPaper(t *testing.T) {
	read := func(name string) []byte {
		t.Helper()
		text, err := os.ReadFile("../../" + name)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	var experiment struct {
		Variants []struct {
			Name   string
			Policy string `json:"lane-policy"`
		}
	}
	if err := yaml.Unmarshal(read("experiments/kubernetes-memcached.yaml"), &experiment); err != nil {
		t.Fatal(err)
	}
	var policy v1alpha1.LanePolicy
	for _, v := range experiment.Variants {
		if v.Name != "paper-on" {
			continue
		}
		known := strings.NewReplacer("$device", "ens801f0", "$link", "100G")
		text, err := yaml.YAMLToJSON([]byte(known.Replace(v.Policy)))
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(text, &policy); err != nil {
			t.Fatal(err)
		}
	}
	made, err := Make("lanes.yaml", &policy.Spec, Node{})
	if err != nil {
		t.Fatal(err)
	}
	want, err := config.Parse("kubernetes.yaml", read("examples/papers/kubernetes.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, made.Intent, cmpopts.IgnoreFields(intent.Intent{}, "Source"),
		cmpopts.IgnoreFields(intent.Group{}, "LinkRate"),
		cmpopts.IgnoreFields(intent.Lane{}, "Name", "Path", "Mode", "Members"),
		cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("(-kubernetes.yaml +experiment):\n%s", diff)
	}
}
