// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/niclane/niclane/internal/strictyaml"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/intent"
)

func ports() strictyaml.Kind[[]uint16] {
	return strictyaml.Mapped(strictyaml.Integers("a port", 1, 65535, 65535), func(ids []int) []uint16 {
		out := make([]uint16, len(ids))
		for i, id := range ids {
			out[i] = uint16(id)
		}
		return out
	})
}

// processors returns the reader and the schema of a list of processors. For "auto", the reader
// returns nil.
func processors() strictyaml.Kind[[]int] {
	list := strictyaml.Integers("a processor", 0, 8191, 8192)
	return strictyaml.Kind[[]int]{
		Want: "auto, or " + strings.Replace(list.Want, "a processor", "processor numbers", 1),
		Schema: strictyaml.Schema{"anyOf": append([]any{strictyaml.Schema{"const": "auto"}},
			list.Schema["anyOf"].([]any)...)},
		Read: func(v strictyaml.Value) ([]int, bool) {
			text, _, scalar := v.Scalar()
			if text == "auto" {
				return nil, true
			}
			if scalar && !strictyaml.IsRanges(text) {
				v.Wrong("auto, or processor numbers from 0 to 8191 such as 0-3,8")
				return nil, false
			}
			return list.Read(v)
		},
	}
}

// numa returns the reader and the schema of a NUMA policy or a node number.
func numa() strictyaml.Kind[intent.NUMAPolicy] {
	k := strictyaml.Kind[intent.NUMAPolicy]{
		Want: "local, remote, all, or a node number from 0 to 1023",
		Schema: strictyaml.Schema{"anyOf": []any{
			strictyaml.Schema{"enum": []string{"local", "remote", "all"}},
			strictyaml.Schema{"type": "integer", "minimum": 0, "maximum": 1023},
		}},
	}
	k.Read = func(v strictyaml.Value) (intent.NUMAPolicy, bool) {
		text, plain, _ := v.Scalar()
		if text == "local" || text == "remote" || text == "all" {
			return intent.NUMAPolicy(text), true
		}
		if n, err := strconv.Atoi(text); plain && strictyaml.IsDecimal(text) && err == nil && n >= 0 && n <= 1023 {
			return intent.NUMAPolicy(text), true
		}
		v.Wrong(k.Want)
		return "", false
	}
	return k
}

// tunnels returns the reader and the schema of a tunnel, or of a list of tunnels.
func tunnels() strictyaml.Kind[[]intent.Tunnel] {
	one := strictyaml.Pattern("vxlan or geneve and a UDP port, such as vxlan:8472", `^(vxlan|geneve):[1-9][0-9]{0,4}$`,
		nil)
	k := strictyaml.Kind[[]intent.Tunnel]{
		Want: fmt.Sprintf("%s, or a list of at most %d", one.Want, intent.MaxTunnels),
		Schema: strictyaml.Schema{"anyOf": []any{one.Schema,
			strictyaml.Schema{"type": "array", "minItems": 1, "maxItems": intent.MaxTunnels, "items": one.Schema}}},
	}
	k.Read = func(v strictyaml.Value) ([]intent.Tunnel, bool) {
		var out []intent.Tunnel
		ok := true
		for _, item := range v.Items() {
			text, good := one.Read(item)
			if !good {
				ok = false
				continue
			}
			protocol, number, _ := strings.Cut(text, ":")
			port, err := strconv.ParseUint(number, 10, 16)
			if err != nil {
				item.Failf("found the port %s, want 1 to 65535", number)
				ok = false
			}
			if slices.ContainsFunc(out, func(t intent.Tunnel) bool { return t.Port == uint16(port) }) {
				item.Failf("found port %s twice, want one tunnel for each port", number)
				ok = false
			}
			out = append(out, intent.Tunnel{Protocol: protocol, Port: uint16(port)})
		}
		switch {
		case v.Empty():
			v.Wrong(k.Want)
		case len(out) > intent.MaxTunnels:
			v.Failf("found %d tunnels, want at most %d", len(out), intent.MaxTunnels)
			ok = false
		}
		return out, ok && len(out) > 0
	}
	return k
}

// DSCP returns the reader and the schema of a DSCP. The reader returns it as device.FormatDSCP writes
// it.
func DSCP() strictyaml.Kind[string] {
	k := strictyaml.Kind[string]{
		Want: fmt.Sprintf("a DSCP: ef, cs0 to cs7, af11 to af43, va, le, or a number from 0 to %d", device.MaxDSCP),
		Schema: strictyaml.Schema{"anyOf": []any{
			strictyaml.Schema{"enum": device.DSCPNames()},
			strictyaml.Schema{"type": "integer", "minimum": 0, "maximum": device.MaxDSCP},
		}},
	}
	k.Read = func(v strictyaml.Value) (string, bool) {
		text, plain, _ := v.Scalar()
		n, err := device.ParseDSCP(text)
		if err != nil || !plain && strictyaml.IsDecimal(text) {
			v.Wrong(k.Want)
			return "", false
		}
		return device.FormatDSCP(n), true
	}
	return k
}

func netdevs() strictyaml.Kind[[]string] {
	one := strictyaml.AnyNetworkDevice()
	k := strictyaml.Kind[[]string]{
		Want: one.Want + ", or a list of them",
		Schema: strictyaml.Schema{"anyOf": []any{one.Schema,
			strictyaml.Schema{"type": "array", "minItems": 1, "uniqueItems": true, "items": one.Schema}}},
	}
	k.Read = func(v strictyaml.Value) ([]string, bool) {
		var out []string
		ok := true
		for _, item := range v.Items() {
			name, good := one.Read(item)
			if good && slices.Contains(out, name) {
				item.Failf("found %s twice in one list", strictyaml.Quote(name))
				good = false
			}
			ok = ok && good
			out = append(out, name)
		}
		if v.Empty() {
			v.Wrong(k.Want)
		}
		return out, ok && len(out) > 0
	}
	return k
}

// cgroup returns the reader and the schema of a control group's path, relative to the root of its
// hierarchy.
func cgroup() strictyaml.Kind[string] {
	const want = "the path of a control group below its hierarchy's root, such as /system.slice/memcached.service"
	return strictyaml.Pattern(want, `^(/[^/]+)+$`, func(s string) string {
		if len(s) > 4095 {
			return "want at most 4095 characters"
		}
		for dir := range strings.SplitSeq(s[1:], "/") {
			if dir == "." || dir == ".." {
				return "want it without " + dir
			}
			if len(dir) > 255 {
				return "want at most 255 characters between slashes"
			}
		}
		if strings.HasPrefix(s, "/sys/fs/cgroup/") {
			return "want it without the mount point: " + cutMount(s)
		}
		return ""
	})
}

func cutMount(s string) string { return strings.TrimPrefix(s, "/sys/fs/cgroup") }
