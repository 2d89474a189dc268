// SPDX-License-Identifier: Apache-2.0

package adqk8s

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/niclane/niclane/k8s/api/v1alpha1"
)

// paper is a configuration like that of the test in Intel's white paper: exclusive classes of
// several queues, and a shared class at the end.
const paper = `{"NodeConfigs":[{
	"Labels":{"kubernetes.io/hostname":"n1"},"EgressMode":"skbedit","FilterPrio":1,
	"Globals":{"Arpfilter":true,"Bpstop":false,"Busypoll":10000,"Cpus":"auto","Numa":"all","Dev":"eth3","Queues":16,"Rxadapt":false,"Rxusecs":0},
	"TrafficClass":[
		{"Queues":4,"Pollers":1,"PollerTimeout":10000,"Cpus":"auto","Numa":"local"},
		{"Queues":4,"Pollers":1,"PollerTimeout":10000,"Cpus":"auto","Numa":"local"},
		{"Queues":8,"Pollers":1},
		{"Mode":"shared","Queues":32}]}]}`

func TestConvert(t *testing.T) {
	out, notes, err := Convert([]byte(paper))
	if err != nil {
		t.Fatal(err)
	}
	if len(out) != 1 || out[0].Spec.Priority != 1 ||
		out[0].Spec.NodeSelector.MatchLabels["kubernetes.io/hostname"] != "n1" {
		t.Fatalf("%+v", out)
	}
	tuning := v1alpha1.Tuning{CPUs: "Auto", NUMA: ptr.To(intstr.FromString("Local")), Pollers: 1,
		PollerTimeout: "10ms"}
	want := []v1alpha1.Class{
		{Name: "adq", OfferedAs: v1alpha1.OfferedAsResource, ResourceName: "net.intel.com/adq", Queues: 4, Capacity: 2, Tuning: tuning},
		{Name: "adq-b", OfferedAs: v1alpha1.OfferedAsResource, Queues: 8, Capacity: 1, Tuning: v1alpha1.Tuning{Pollers: 1}},
		{Name: "adq-shared", Mode: v1alpha1.Shared, OfferedAs: v1alpha1.OfferedAsResource,
			ResourceName: "net.intel.com/adq-shared", Queues: 32, Capacity: 31},
	}
	if diff := cmp.Diff(want, out[0].Spec.Classes); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	u := out[0].Spec.Uplink
	if u.Dev != "eth3" || u.Queues != 16 || u.BusyPoll != "0us" || !*u.ARPFilter || u.CoalesceRx != "0us" {
		t.Errorf("%+v", u)
	}
	all := strings.Join(notes, "\n")
	for _, want := range []string{"FilterPrio", "Busypoll: found 10000; adqsetup sets 0", "TrafficClass[2]", "niclane.dev/adq-b"} {
		if !strings.Contains(all, want) {
			t.Errorf("no note of %s:\n%s", want, all)
		}
	}
	if strings.Contains(all, "Bpstop") {
		t.Errorf("a flag that is off was noted:\n%s", all)
	}
}

func TestRefused(t *testing.T) {
	for name, c := range map[string]struct{ in, want string }{
		"unknown key": {`{"NodeConfigs":[{"TrafficClases":[]}]}`, "TrafficClases"},
		"nothing":     {`{}`, "NodeConfigs is missing"},
		"no class":    {`{"NodeConfigs":[{}]}`, "NodeConfigs[0].TrafficClass is missing"},
		"egress mode": {`{"NodeConfigs":[{"EgressMode":"x","TrafficClass":[{"Queues":1}]}]}`,
			`EgressMode: found "x"`},
		"no queues":        {`{"NodeConfigs":[{"TrafficClass":[{"Queues":0}]}]}`, "TrafficClass[0].Queues"},
		"too many pollers": {`{"NodeConfigs":[{"TrafficClass":[{"Queues":1,"Pollers":2}]}]}`, "pollers"},
	} {
		if _, _, err := Convert([]byte(c.in)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", name, err, c.want)
		}
	}
}
