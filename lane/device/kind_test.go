// SPDX-License-Identifier: Apache-2.0

package device

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestKinds checks that every type with a Kind method is in kinds.
func TestKinds(t *testing.T) {
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(
			`(?m)^func \((?:\w+ )?(\w+)\) Kind\(\) string { return "(.*)" }$`).FindAllStringSubmatch(string(text), -1) {
			found++
			if k := kinds[m[2]]; k.name != m[2] {
				t.Errorf("%s: %s is not among kinds in kind.go", name, m[1])
			}
		}
	}
	if found != len(kinds) {
		t.Errorf("%d types with a Kind, %d in kind.go", found, len(kinds))
	}
}

func TestStandsOn(t *testing.T) {
	tests := map[string]struct {
		o    Object
		want string
	}{
		"root qdisc":  {Qdisc{Dev: "d0", Parent: "root"}, ""},
		"clsact":      {Qdisc{Dev: "d0", Parent: "clsact"}, ""},
		"inner qdisc": {Qdisc{Dev: "d0", Parent: "1:10"}, "class/d0/1:10 qdisc/d0/root"},
		"class":       {Class{Dev: "d0", ID: "1:10", Parent: "1:1"}, "class/d0/1:1 qdisc/d0/root"},
		"filter":      {Filter{Dev: "d0", Parent: "egress"}, "qdisc/d0/clsact"},
		"TCX program": {Filter{Dev: "d0", Parent: AttachTCXEgress}, ""},
		"entry":       {FilterEntry{Filter: "filter/d0/egress/1/1"}, "filter/d0/egress/1/1 qdisc/d0/clsact"},
		"default":     {FilterDefault{Filter: "filter/d0/egress/1/1"}, "filter/d0/egress/1/1 qdisc/d0/clsact"},
		"tunnels":     {Tunnels{Filter: "filter/d0/egress/1/1"}, "filter/d0/egress/1/1 qdisc/d0/clsact"},
		"XDP tunnels": {Tunnels{Filter: "xdp/d0"}, "xdp/d0"},
		"thread":      {Thread{Dev: "d0", Queue: 3}, "napi/d0/3"},
		"poller":      {Poller{Dev: "d0", Queues: []int{2, 3}}, "napi/d0/2"},
		"CPU queue":   {CPUQueue{Dev: "d0", CPU: 1}, "xdp/d0"},
		"CPU thread":  {CPUThread{Dev: "d0", CPU: 1}, "cpuqueue/d0/1 xdp/d0"},
		"CPU lane":    {CPULane{Dev: "d0", Lane: 1}, "xdp/d0"},
		"XDP entry":   {XDPEntry{Dev: "d0"}, "xdp/d0"},
		"XDP program": {XDP{Dev: "d0"}, ""},
		"setting":     {Feature{Dev: "d0", Name: "rx-gro"}, ""},
	}
	for name, tt := range tests {
		if got := strings.Join(StandsOn(tt.o), " "); got != tt.want {
			t.Errorf("%s stands on %q, want %q", name, got, tt.want)
		}
	}
}
