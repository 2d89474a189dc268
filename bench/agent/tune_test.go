// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestMayTune(t *testing.T) {
	for _, tt := range []struct {
		devices      []string
		config, want string
	}{
		{nil, `{"device": "eth2"}`, "started without --lanes"},
		{[]string{"eth2"}, `{"device": "eth3"}`, "tune eth3: this agent was started with --lanes eth2"},
		{[]string{"eth2"}, `[]`, "cannot unmarshal"},
		{[]string{"eth1", "eth2"}, `{"device": "eth2", "sysctls": {"net.core.somaxconn": "4096"}}`, ""},
	} {
		a := &Agent{}
		a.Devices = tt.devices
		s := &session{agent: a}
		err := s.mayTune(Request{Part: PartTune, Config: json.RawMessage(tt.config)})
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v, %s: %v, want %q", tt.devices, tt.config, err, tt.want)
		}
	}
}
