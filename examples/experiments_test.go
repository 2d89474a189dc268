// SPDX-License-Identifier: Apache-2.0

package examples

import (
	"net/netip"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/lane/config"
	"github.com/niclane/niclane/lane/intent"
)

// TestExperiments: on the paper's hosts, the variant paper-on of an experiment has the lanes of the
// paper, on each card. The texts are in two files, so a change of one of them has to be made in both.
func TestExperiments(t *testing.T) {
	ats := []string{"ats-ens785f0", "ats-ens786f0", "ats-ens801f0", "ats-ens802f0"}
	for name, x := range map[string]struct {
		hosts string
		lanes []string // of papers/, for each card
	}{
		"memcached-connections": {"memcached", []string{"memcached"}},
		"aerospike-read":        {"aerospike", []string{"aerospike"}}, // the file is for the first card
		"web-cache-small":       {"ats", ats},
		"web-cache-small-tls":   {"ats", ats},
		"web-cache-video":       {"ats", ats},
		"web-cache-video-tls":   {"ats", ats},
	} {
		t.Run(name, func(t *testing.T) {
			e := onPaperHosts(t, name, x.hosts)
			i := variantOf(t, e, "paper-on")
			for card, file := range x.lanes {
				file = "papers/" + file + ".yaml"
				text, err := os.ReadFile(file)
				must.Do(t, err)
				want, err := config.Parse(file, text)
				must.Do(t, err)
				got, err := e.IntentOf(&e.Variants[i], card)
				must.Do(t, err)
				for _, m := range want.Lanes[0].Members { // the run puts the server on them
					if cpus := e.Placement.Server.CPUs; m.CgroupCPUs != nil && !slices.Equal(cpus, m.CgroupCPUs) {
						t.Errorf("the server has processors %v, %s says %v", cpus, file, m.CgroupCPUs)
					}
				}
				if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(intent.Intent{}, "Source"),
					cmpopts.IgnoreFields(intent.Member{}, "Cgroup", "CgroupCPUs", "CgroupMems"),
					cmpopts.EquateComparable(netip.Prefix{}), cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("%s, which experiments/%s.yaml has to have too (-%[1]s +experiment):\n%[3]s", file, name,
						diff)
				}
			}
			if cards := e.Hosts.SUT.Ports(); len(x.lanes) != len(cards) && name != "aerospike-read" {
				t.Errorf("%d cards, %d of the paper's files", len(cards), len(x.lanes))
			}
		})
	}
}

// onPaperHosts reads an experiment on the hosts of a paper.
func onPaperHosts(t *testing.T, name, hosts string) *experiment.Experiment {
	t.Helper()
	text, err := os.ReadFile("../experiments/hosts/" + hosts + ".yaml")
	must.Do(t, err)
	on, err := experiment.ParseHosts(hosts+".yaml", text)
	must.Do(t, err)
	text, err = os.ReadFile("../experiments/" + name + ".yaml")
	must.Do(t, err)
	f, err := experiment.ParseOn(name+".yaml", text, on)
	must.Do(t, err)
	return f.Experiment
}

func variantOf(t *testing.T, e *experiment.Experiment, name string) int {
	t.Helper()
	for i, v := range e.Variants {
		if v.Name == name {
			return i
		}
	}
	t.Fatalf("no variant %s", name)
	return 0
}
