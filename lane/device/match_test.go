// SPDX-License-Identifier: Apache-2.0

package device

import (
	"strings"
	"testing"
)

func TestMatchString(t *testing.T) {
	for _, tt := range []struct {
		match Match
		want  string
	}{
		{Match{Family: 4, Protocol: "tcp"}, "tcp4"},
		{Match{Family: 6, Remote: "fd00:2::/48"}, "ip6,remote=fd00:2::/48"},
		{Match{Family: 4, Protocol: "udp", Local: "10.9.0.1/32", LocalPort: 11211},
			"udp4,local=10.9.0.1/32,port=11211"},
		{Match{Family: 6, Protocol: "tcp", VLAN: 7, Remote: "fd00::/64", RemotePort: 65535},
			"tcp6,vlan=7,remote=fd00::/64,rport=65535"},
		{
			Match{Family: 4, Protocol: "tcp", VLAN: 4094, Local: "10.0.0.0/8", LocalPort: 1, Remote: "10.9.0.2/32",
				RemotePort: 2},
			"tcp4,vlan=4094,local=10.0.0.0/8,port=1,remote=10.9.0.2/32,rport=2",
		},
		{Match{Family: 4, Protocol: "udp", LocalPort: 30720, LocalPortBits: 8, RemotePort: 49152, RemotePortBits: 2},
			"udp4,port=30720/8,rport=49152/2"},
	} {
		if got := tt.match.String(); got != tt.want {
			t.Errorf("%+v: %q, want %q", tt.match, got, tt.want)
		}
		if got, err := ParseMatch(tt.want); err != nil || got != tt.match {
			t.Errorf("%q: %+v, %v, want %+v", tt.want, got, err, tt.match)
		}
	}
	for word, want := range map[string]string{
		"": "family", "tcp": "family", "tcp4,port": "port", "tcp4,port=65536": "port", "tcp4,colour=red": "colour",
		"tcp4,": "vlan=", "tcp4,vlan=x": "vlan",
	} {
		if m, err := ParseMatch(word); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %+v, %v, want an error about %s", word, m, err, want)
		}
	}
}
