// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestMayTune(t *testing.T) {
	for _, tt := range []struct {
		devices, tune string
		config, want  string
	}{
		{"", "", `{"devices": ["eth2"]}`, "started without --lanes"},
		{"eth2", "", `{"devices": ["eth2", "eth3"]}`, "tune eth3: this agent was started with --lanes eth2"},
		{"", "", `{"sysctls": {"net.core.somaxconn": "4096"}}`, "started without --lanes"},
		{"", "processors", `{"governor": "performance"}`, ""},
		{"eth2", "", `[]`, "cannot unmarshal"},
		{"eth1 eth2", "", `{"devices": ["eth2"], "sysctls": {"net.core.somaxconn": "4096"}}`, ""},
		{"eth2", "", `{"governor": "performance"}`, "tune processors: this agent was started without --allow-tune"},
		{"eth2", "irqbalance", `{"energy": "performance"}`,
			"tune processors: this agent was started with --allow-tune irqbalance"},
		{"eth2", "processors", `{"governor": "performance", "stopServices": ["sshd"]}`,
			"tune sshd: this agent was started with --allow-tune processors"},
		{"eth2", "processors irqbalance", `{"governor": "performance", "stopServices": ["irqbalance"]}`, ""},
	} {
		a := &Agent{}
		a.Devices, a.Tune = strings.Fields(tt.devices), strings.Fields(tt.tune)
		s := &session{agent: a}
		err := s.mayTune(Request{Part: PartTune, Config: json.RawMessage(tt.config)})
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v, %s: %v, want %q", tt.devices, tt.config, err, tt.want)
		}
	}
}

// TestRestoreTuned: if the process that tunes was killed with its agent, the next agent, or the
// keeper, restores the values in its record.
func TestRestoreTuned(t *testing.T) {
	dir := t.TempDir()
	setting := filepath.Join(dir, "somaxconn")
	for path, text := range map[string]string{setting: "4097\n", recordPath(dir): `{"session": "x"}`,
		tunePath(dir): fmt.Sprintf("{\"file\": %q, \"value\": \"128\"}\n", setting)} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := restore(dir); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(setting); err != nil || string(b) != "128\n" {
		t.Errorf("it has %q, %v", b, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestMayLead: only an agent that makes lanes can direct connections, because both need root.
func TestMayLead(t *testing.T) {
	s := &session{agent: &Agent{}}
	wantError(t, s.mayLead(), "started without --lanes")
	s.agent.Devices = []string{"eth2"}
	wantError(t, s.mayLead(), "no control group")
	s.group.Path = "/one"
	if err := s.mayLead(); err != nil {
		t.Error(err)
	}
}

func TestGroupBelow(t *testing.T) {
	for group, ok := range map[string]bool{"instance1": true, "": true, "../x": false, "Instance": false} {
		r := Request{What: "x", Command: []string{"x"}, CPUs: []int{1}, Mems: []int{0}, Member: true, Group: group}
		if err := r.check(); (err == nil) != ok {
			t.Errorf("%q: %v", group, err)
		}
	}
	if err := (Request{What: "x", Command: []string{"x"}, Group: "one"}).check(); err == nil {
		t.Error("a group of nobody's")
	}
}

func TestMemoryOfNodes(t *testing.T) {
	for want, r := range map[string]Request{
		"":                         {What: "x", Command: []string{"x"}, CPUs: []int{1}, Mems: []int{0, 1}},
		"NUMA node 1024":           {What: "x", Command: []string{"x"}, CPUs: []int{1}, Mems: []int{1024}},
		"without processors: want": {What: "x", Command: []string{"x"}, Mems: []int{0}},
	} {
		err := r.check()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", r, err, want)
		}
	}
}
