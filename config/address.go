// SPDX-License-Identifier: Apache-2.0

package config

import (
	"net/netip"
	"strings"
)

const addressWant = "an IPv4 or IPv6 address (10.9.0.1) or network (fd00::/64)"

// maxAddresses of one list.
const maxAddresses = 1024

// prefixes is a list of addresses and networks.
func prefixes() kind[[]netip.Prefix] {
	item := schema{"type": "string", "pattern": `^[0-9A-Fa-f:., /]+$`}
	k := kind[[]netip.Prefix]{
		want:   addressWant + ", or a list of these",
		schema: schema{"anyOf": []any{item, schema{"type": "array", "minItems": 1, "items": item}}},
	}
	k.read = func(v value) ([]netip.Prefix, bool) {
		var out []netip.Prefix
		ok := true
		for _, item := range v.items() {
			text, _, scalar := item.scalar()
			if !scalar {
				item.wrong(addressWant)
				ok = false
				continue
			}
			for part := range strings.SplitSeq(text, ",") {
				p, good := item.prefix(strings.TrimSpace(part), out)
				if !good {
					ok = false
					continue
				}
				if out = append(out, p); len(out) > maxAddresses {
					item.failf("found more than %d in one list, want at most that many", maxAddresses)
					return nil, false
				}
			}
		}
		if v.empty() {
			v.wrong(k.want)
		}
		return out, ok && len(out) > 0
	}
	return k
}

// prefix parses one address or network that is not in earlier yet.
func (v value) prefix(text string, earlier []netip.Prefix) (p netip.Prefix, ok bool) {
	p, err := netip.ParsePrefix(text)
	if err != nil {
		a, aerr := netip.ParseAddr(text)
		switch {
		case aerr != nil:
			v.failf("found %s, want %s", quote(text), addressWant)
			return p, false
		case a.Zone() != "":
			v.failf("found %s, want it without the zone: the device is given by globals.dev", quote(text))
			return p, false
		case a.IsUnspecified():
			v.failf("found %s, which no packet has; leave the key out, or want %s/0, to match every address", text, text)
			return p, false
		}
		p = netip.PrefixFrom(a, a.BitLen())
	}
	if a := p.Addr(); a.Is4In6() {
		want := a.Unmap().String()
		if p.Bits() != 128 && p.Bits() >= 96 {
			want = netip.PrefixFrom(a.Unmap(), p.Bits()-96).Masked().String()
		}
		v.failf("found the IPv4-mapped address %s, want %s: such packets are IPv4 on the wire", text, want)
		return p, false
	}
	if m := p.Masked(); m != p {
		v.failf("found %s, which has bits set behind its /%d, want the network %s or the address %s", text, p.Bits(), m, p.Addr())
		return p, false
	}
	for _, e := range earlier {
		if e.Overlaps(p) {
			v.failf("found %s, which %s in the same list contains or repeats", text, addressText(e))
			return p, false
		}
	}
	return p, true
}

// addressText is a prefix as a person writes it.
func addressText(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}
