// SPDX-License-Identifier: Apache-2.0

package policy

import (
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

// TestPaper: the LanePolicies of examples/papers and of the experiment's variant paper-on make the six
// queue sets of examples/papers/kubernetes.yaml, which has the pods too. A lane of an exclusive class is
// one for all members of its pod, which is mode shared.
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
	policies := map[string][]byte{"examples": read("examples/papers/kubernetes/lanepolicy.yaml")}
	for _, v := range experiment.Variants {
		if v.Name == "paper-on" {
			known := strings.NewReplacer("$device", "ens801f0", "$link", "100G")
			policies[v.Name] = []byte(known.Replace(v.Policy))
		}
	}
	if len(policies) != 2 {
		t.Fatal("the experiment has no variant paper-on")
	}
	want, err := config.Parse("kubernetes.yaml", read("examples/papers/kubernetes.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range policies {
		var policy v1alpha1.LanePolicy
		if err := yaml.UnmarshalStrict(text, &policy); err != nil {
			t.Fatal(name, err)
		}
		made, err := Make("lanes.yaml", &policy.Spec, Node{})
		if err != nil {
			t.Fatal(name, err)
		}
		if name == "examples" { // its four lanes are one class: none can name a processor
			made.Intent.Lanes[2].CPUs = want.Lanes[2].CPUs
		}
		if diff := cmp.Diff(want, made.Intent, cmpopts.IgnoreFields(intent.Intent{}, "Source"),
			cmpopts.IgnoreFields(intent.Group{}, "LinkRate"),
			cmpopts.IgnoreFields(intent.Lane{}, "Name", "Path", "Mode", "Members"),
			cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("(-kubernetes.yaml +%s):\n%s", name, diff)
		}
	}
}
