// SPDX-License-Identifier: Apache-2.0

package config

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/niclane/niclane/intent"
)

// maxPorts of one list: each is a rule at least, and rule tables of cards have
// some thousand entries at best.
const maxPorts = 1024

func ports() kind[[]uint16] {
	return mapped(integers("a port", 1, 65535, maxPorts), func(ids []int) []uint16 {
		out := make([]uint16, len(ids))
		for i, id := range ids {
			out[i] = uint16(id)
		}
		return out
	})
}

// mapped changes the type of what a kind reads.
func mapped[A, B any](k kind[A], f func(A) B) kind[B] {
	return kind[B]{want: k.want, schema: k.schema, read: func(v value) (B, bool) {
		a, ok := k.read(v)
		return f(a), ok
	}}
}

// named changes the type of a word.
func named[T ~string](k kind[string]) kind[T] {
	return mapped(k, func(s string) T { return T(s) })
}

// processors is "auto", which gives none, or a list of processors.
func processors() kind[[]int] {
	list := integers("a processor", 0, 8191, 8192)
	return kind[[]int]{
		want:   "auto, or " + strings.Replace(list.want, "a processor", "processor numbers", 1),
		schema: schema{"anyOf": append([]any{schema{"const": "auto"}}, list.schema["anyOf"].([]any)...)},
		read: func(v value) ([]int, bool) {
			text, _, scalar := v.scalar()
			if text == "auto" {
				return nil, true
			}
			if scalar && !rangesExpr().MatchString(text) {
				v.wrong("auto, or processor numbers from 0 to 8191 such as 0-3,8")
				return nil, false
			}
			return list.read(v)
		},
	}
}

var rangesExpr = lazy(rangesPattern)

// numa is a policy or the number of a node.
func numa() kind[intent.NUMAPolicy] {
	k := kind[intent.NUMAPolicy]{
		want: "local, remote, all, or a node number from 0 to 1023",
		schema: schema{"anyOf": []any{
			schema{"enum": []string{"local", "remote", "all"}},
			schema{"type": "integer", "minimum": 0, "maximum": 1023},
		}},
	}
	k.read = func(v value) (intent.NUMAPolicy, bool) {
		text, plain, _ := v.scalar()
		if text == "local" || text == "remote" || text == "all" {
			return intent.NUMAPolicy(text), true
		}
		if n, err := strconv.Atoi(text); plain && decimal().MatchString(text) && err == nil && n >= 0 && n <= 1023 {
			return intent.NUMAPolicy(text), true
		}
		v.wrong(k.want)
		return "", false
	}
	return k
}

// microseconds is an integer, or text with a unit.
func microseconds(least, most int) kind[int] {
	number := integer(least, most)
	k := kind[int]{
		want: number.want + " (microseconds), or with a unit: 50us, 10ms",
		schema: schema{"anyOf": []any{
			number.schema,
			schema{"type": "string", "pattern": `^[0-9]+(us|ms|s)$`},
		}},
	}
	k.read = func(v value) (int, bool) {
		text, plain, _ := v.scalar()
		if plain && decimal().MatchString(text) {
			text += "us"
		} else if !durationExpr().MatchString(text) {
			v.wrong(k.want)
			return 0, false
		}
		if d, err := time.ParseDuration(text); err == nil && d >= time.Duration(least)*time.Microsecond && d <= time.Duration(most)*time.Microsecond {
			return int(d / time.Microsecond), true
		}
		v.wrong(k.want)
		return 0, false
	}
	return k
}

var durationExpr = lazy(`^[0-9]{1,12}(us|ms|s)$`)

const interfaceWant = "the name of a network device, 1 to 15 characters"

// netdev is the name of an interface as the kernel's dev_valid_name() has it.
func netdev() kind[string] {
	return pattern(interfaceWant, `^[^\s/:]{1,15}$`, func(s string) string {
		if s == "." || s == ".." || len(s) > 15 {
			return "want " + interfaceWant
		}
		return ""
	})
}

func netdevs() kind[[]string] {
	one := netdev()
	k := kind[[]string]{
		want:   interfaceWant + ", or a list of them",
		schema: schema{"anyOf": []any{one.schema, schema{"type": "array", "minItems": 1, "uniqueItems": true, "items": one.schema}}},
	}
	k.read = func(v value) ([]string, bool) {
		var out []string
		ok := true
		for _, item := range v.items() {
			name, good := one.read(item)
			if good && slices.Contains(out, name) {
				item.failf("found %s twice in one list", quote(name))
				good = false
			}
			ok = ok && good
			out = append(out, name)
		}
		if v.empty() {
			v.wrong(k.want)
		}
		return out, ok && len(out) > 0
	}
	return k
}

// cgroup is the path of a control group below the root of its hierarchy.
func cgroup() kind[string] {
	const want = "the path of a control group below its hierarchy's root, such as /system.slice/memcached.service"
	return pattern(want, `^(/[^/]+)+$`, func(s string) string {
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
