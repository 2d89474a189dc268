// SPDX-License-Identifier: Apache-2.0

package device

import (
	"fmt"
	"strconv"
	"strings"
)

// A Match is the set of fields that a rule or a classifier entry compares. A zero field matches
// everything. Family is 4 or 6 and never 0. Protocol is "tcp" or "udp"; "" only in the entry of a
// classifier that compares nothing but Remote (FilterEntry.Unshaped). Addresses are prefixes in canonical text
// ("10.9.0.1/32"). Local is this host's end, Remote the other end.
type Match struct {
	Family     int    `json:"family"`
	Protocol   string `json:"protocol"`
	Local      string `json:"local,omitempty"`
	LocalPort  uint16 `json:"localPort,omitempty"`
	Remote     string `json:"remote,omitempty"`
	RemotePort uint16 `json:"remotePort,omitempty"`
	// LocalPortBits and RemotePortBits are the number of leading bits of the port that are
	// compared, 1 to 15; 0: all 16. Only niclane's own programs compare blocks of ports.
	LocalPortBits  int `json:"localPortBits,omitempty"`
	RemotePortBits int `json:"remotePortBits,omitempty"`
	VLAN           int `json:"vlan,omitempty"`
}

// SamePort reports whether two blocks of ports have a port in common. Port 0 stands for all
// ports.
func SamePort(a uint16, aBits int, b uint16, bBits int) bool {
	mask := PortMask(aBits) & PortMask(bBits)
	return a == 0 || b == 0 || a&mask == b&mask
}

// PortMask returns the mask for the first bits of a port; 0 means all 16.
func PortMask(bits int) uint16 {
	if bits == 0 {
		bits = 16
	}
	return ^uint16(0) << (16 - bits)
}

// String returns m as one word, "tcp4,local=10.9.0.1/32,port=80", or without a protocol
// "ip4,remote=10.2.0.0/16". Equal matches give equal words.
func (m Match) String() string {
	var b [96]byte
	return string(m.AppendTo(b[:0]))
}

// anyProtocol stands for a Protocol that is "".
const anyProtocol = "ip"

// AppendTo appends String's text to b. It avoids an allocation per key: a plan has thousands of
// keys.
func (m Match) AppendTo(b []byte) []byte {
	protocol := m.Protocol
	if protocol == "" {
		protocol = anyProtocol
	}
	b = strconv.AppendInt(append(b, protocol...), int64(m.Family), 10)
	if m.VLAN != 0 {
		b = strconv.AppendInt(append(b, ",vlan="...), int64(m.VLAN), 10)
	}
	if m.Local != "" {
		b = append(append(b, ",local="...), m.Local...)
	}
	if m.LocalPort != 0 {
		b = appendPort(append(b, ",port="...), m.LocalPort, m.LocalPortBits)
	}
	if m.Remote != "" {
		b = append(append(b, ",remote="...), m.Remote...)
	}
	if m.RemotePort != 0 {
		b = appendPort(append(b, ",rport="...), m.RemotePort, m.RemotePortBits)
	}
	return b
}

// appendPort appends a port, "80", or a block, "30720/8".
func appendPort(b []byte, port uint16, bits int) []byte {
	b = strconv.AppendUint(b, uint64(port), 10)
	if bits != 0 {
		b = strconv.AppendInt(append(b, '/'), int64(bits), 10)
	}
	return b
}

// ParseMatch is the inverse of String.
func ParseMatch(s string) (Match, error) {
	var m Match
	word, rest, more := strings.Cut(s, ",")
	m.Protocol = strings.TrimRight(word, "0123456789")
	var err error
	if m.Family, err = strconv.Atoi(word[len(m.Protocol):]); err != nil {
		return Match{}, fmt.Errorf("match %q: want a protocol and a family first, as in tcp4", s)
	}
	if m.Protocol == anyProtocol {
		m.Protocol = ""
	}
	for more {
		word, rest, more = strings.Cut(rest, ",")
		if err := m.set(word); err != nil {
			return Match{}, fmt.Errorf("match %q: %q: %w", s, word, err)
		}
	}
	return m, nil
}

func (m *Match) set(word string) (err error) {
	name, value, _ := strings.Cut(word, "=")
	switch name {
	case "vlan":
		m.VLAN, err = strconv.Atoi(value)
	case "local":
		m.Local = value
	case "port":
		m.LocalPort, m.LocalPortBits, err = parsePort(value)
	case "remote":
		m.Remote = value
	case "rport":
		m.RemotePort, m.RemotePortBits, err = parsePort(value)
	default:
		err = fmt.Errorf("want vlan=, local=, port=, remote= or rport=")
	}
	return err
}

func parsePort(s string) (port uint16, bits int, err error) {
	s, length, block := strings.Cut(s, "/")
	n, err := strconv.ParseUint(s, 10, 16)
	if block && err == nil {
		if bits, err = strconv.Atoi(length); err == nil && (bits < 1 || bits > 15) {
			err = fmt.Errorf("want 1 to 15 bits of the port")
		}
	}
	return uint16(n), bits, err
}
