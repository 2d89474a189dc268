// SPDX-License-Identifier: Apache-2.0

package config

import (
	"net/netip"
	"strings"

	"github.com/niclane/niclane/internal/strictyaml"
)

const addressWant = "an IPv4 or IPv6 address (10.9.0.1) or network (fd00::/64)"

// maxAddresses is the largest number of addresses in one list.
const maxAddresses = 1024

// prefixes returns the reader and the schema of a value that is an address, a network, or a list
// of at most that many of these.
func prefixes(most int) strictyaml.Kind[[]netip.Prefix] {
	item := strictyaml.Schema{"type": "string", "pattern": `^[0-9A-Fa-f:., /]+$`}
	k := strictyaml.Kind[[]netip.Prefix]{
		Want: addressWant + ", or a list of these",
		Schema: strictyaml.Schema{"anyOf": []any{item,
			strictyaml.Schema{"type": "array", "minItems": 1, "items": item}}},
	}
	k.Read = func(v strictyaml.Value) ([]netip.Prefix, bool) {
		var out []netip.Prefix
		ok := true
		for _, item := range v.Items() {
			text, _, scalar := item.Scalar()
			if !scalar {
				item.Wrong(addressWant)
				ok = false
				continue
			}
			for part := range strings.SplitSeq(text, ",") {
				p, good := prefix(item, strings.TrimSpace(part), out)
				if !good {
					ok = false
					continue
				}
				if out = append(out, p); len(out) > most {
					item.Failf("found more than %d in one list, want at most that many", most)
					return nil, false
				}
			}
		}
		if v.Empty() {
			v.Wrong(k.Want)
		}
		return out, ok && len(out) > 0
	}
	return k
}

// prefix parses one address or network. It refuses a prefix that is already in earlier.
func prefix(v strictyaml.Value, text string, earlier []netip.Prefix) (p netip.Prefix, ok bool) {
	p, err := netip.ParsePrefix(text)
	if err != nil {
		a, aerr := netip.ParseAddr(text)
		switch {
		case aerr != nil:
			v.Failf("found %s, want %s", strictyaml.Quote(text), addressWant)
			return p, false
		case a.Zone() != "":
			v.Failf("found %s, want it without the zone: the device is given by globals.dev", strictyaml.Quote(text))
			return p, false
		case a.IsUnspecified():
			v.Failf("found %s, which no packet has; leave the key out, or want %s/0, to match every address", text,
				text)
			return p, false
		}
		p = netip.PrefixFrom(a, a.BitLen())
	}
	if a := p.Addr(); a.Is4In6() {
		want := a.Unmap().String()
		if p.Bits() != 128 && p.Bits() >= 96 {
			want = netip.PrefixFrom(a.Unmap(), p.Bits()-96).Masked().String()
		}
		v.Failf("found the IPv4-mapped address %s, want %s: such packets are IPv4 on the wire", text, want)
		return p, false
	}
	if m := p.Masked(); m != p {
		v.Failf("found %s, which has bits set behind its /%d, want the network %s or the address %s", text, p.Bits(), m,
			p.Addr())
		return p, false
	}
	for _, e := range earlier {
		if e.Overlaps(p) {
			v.Failf("found %s, which %s in the same list contains or repeats", text, addressText(e))
			return p, false
		}
	}
	return p, true
}

// addressText returns a prefix as a user writes it: a single address without /32 or /128.
func addressText(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}
