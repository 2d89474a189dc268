// SPDX-License-Identifier: Apache-2.0

package selftest

import (
	"net"
	"net/netip"
	"strings"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/plan"
	"github.com/niclane/niclane/lane/verify"
)

// Placeholders for texts that are removed.
const (
	ownText   = "$own"
	peerText  = "$peer"
	otherText = "$address"
	macText   = "$mac"
	nameText  = "$host"
	devText   = "$dev"
)

// A Scrubber removes texts that identify hosts: addresses, MAC addresses and the given names.
type Scrubber struct {
	// Own and Peer are the addresses of the two hosts.
	Own, Peer []netip.Addr
	// Names are names of hosts, Devices are names of devices.
	Names, Devices []string
}

// scrub replaces addresses and names in a text by placeholders. It keeps the prefix length or port
// after an address.
func (s *Scrubber) scrub(text string) string {
	var b strings.Builder
	for len(text) > 0 {
		n := strings.IndexFunc(text, func(r rune) bool { return !wordRune(r) })
		if n < 0 {
			n = len(text)
		}
		b.WriteString(s.word(text[:n]))
		if n < len(text) {
			b.WriteByte(text[n])
			n++
		}
		text = text[n:]
	}
	return b.String()
}

// wordRune reports whether a name or an address can contain r.
func wordRune(r rune) bool {
	return r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == '.' || r == ':' || r == '-' ||
		r == '_'
}

func (s *Scrubber) word(w string) string {
	if w == "" {
		return w
	}
	if out, ok := s.known(w); ok { // for example "fd00::"
		return out
	}
	core := strings.TrimRight(w, ".:-") // without punctuation at the end
	if out, ok := s.known(core); ok {
		return out + w[len(core):]
	}
	// For example "10.0.0.1:80", or a name and a colon.
	if head, rest, ok := strings.Cut(core, ":"); ok {
		if out, ok := s.known(head); ok {
			return out + ":" + rest + w[len(core):]
		}
	}
	return w
}

func (s *Scrubber) known(w string) (string, bool) {
	for _, n := range s.Names {
		if n != "" && strings.EqualFold(n, w) {
			return nameText, true
		}
	}
	for _, d := range s.Devices {
		if d == w {
			return devText, true
		}
	}
	if len(w) == 17 {
		if _, err := net.ParseMAC(w); err == nil {
			return macText, true
		}
	}
	a, err := netip.ParseAddr(w)
	if err != nil {
		return "", false
	}
	a = a.WithZone("").Unmap()
	for _, x := range s.Own {
		if x == a {
			return ownText, true
		}
	}
	for _, x := range s.Peer {
		if x == a {
			return peerText, true
		}
	}
	if a.IsUnspecified() || a.IsLoopback() {
		return "", false
	}
	return otherText, true
}

// Record scrubs every text of r that may contain an address. It keeps texts that come from the
// driver, because a version can look like an address.
func (s *Scrubber) Record(r *Record) {
	all := func(list []string) {
		for i := range list {
			list[i] = s.scrub(list[i])
		}
	}
	one := func(p *string) { *p = s.scrub(*p) }
	one(&r.Partial)
	all(r.Warnings)
	s.differences(r.Left)
	s.choices(r.Choices)
	for _, c := range []*device.Channels{r.Device.Channels, r.Device.MaxChannels} {
		if c != nil {
			one(&c.Dev)
		}
	}
	for name, f := range r.Device.Capabilities {
		one(&f.Why)
		r.Device.Capabilities[name] = f
	}
	for i := range r.Cases {
		c := &r.Cases[i]
		one(&c.Lanes)
		all(c.Reasons)
		all(c.Disruptive)
		s.differences(c.Differences)
		s.findings(c.Findings)
		for j := range c.Connections {
			one(&c.Connections[j].Error)
		}
	}
	if l := r.Latency; l != nil {
		one(&l.Lanes)
		all(l.Warnings)
	}
}

func (s *Scrubber) differences(list []Difference) {
	for i := range list {
		d := &list[i]
		d.Key, d.Before, d.After = s.scrub(d.Key), s.scrub(d.Before), s.scrub(d.After)
	}
}

func (s *Scrubber) choices(list []plan.Choice) {
	for i := range list {
		list[i].Device, list[i].Reason = s.scrub(list[i].Device), s.scrub(list[i].Reason)
		for j := range list[i].Rejected {
			list[i].Rejected[j].Why = s.scrub(list[i].Rejected[j].Why)
		}
	}
}

func (s *Scrubber) findings(list []verify.Finding) {
	for i := range list {
		f := &list[i]
		for _, p := range []*string{&f.Device, &f.Key, &f.Want, &f.Found, &f.Meaning, &f.Repair} {
			*p = s.scrub(*p)
		}
		for j := range f.With {
			f.With[j] = s.scrub(f.With[j])
		}
	}
}
