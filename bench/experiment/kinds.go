// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"net/netip"
	"strconv"
	"strings"

	y "github.com/niclane/niclane/internal/strictyaml"
)

// Limits of numbers. They catch a mistyped zero, which could make a run last a week. They also keep
// a run's result small enough for memory.
const (
	maxRate        = 100_000_000
	maxConnections = 1_000_000
	maxPoints      = 1000 // points of one series
	maxRepeats     = 1000
	maxGenerators  = 1024
	maxProcessors  = 8192
	maxThreads     = 1024
	maxQueues      = 1024 // of a lane, as in a lanes file
	maxLabQueues   = 128
)

const (
	namePattern = `^[a-z0-9][a-z0-9_-]{0,31}$`
	nameWant    = "1 to 32 of a-z 0-9 - _, the first of them a-z or 0-9"
)

func name() y.Kind[string] { return y.Pattern(nameWant, namePattern, nil) }

// line returns a Kind (type of value): a text on one line, of at most limit bytes.
func line(what string, limit int) y.Kind[string] {
	want := what + " of one line, at most " + strconv.Itoa(limit) + " bytes"
	k := y.Text(want, limit)
	read := k.Read
	k.Read = func(v y.Value) (string, bool) {
		s, ok := read(v)
		if ok && (strings.TrimSpace(s) == "" || strings.ContainsAny(s, "\n\r")) {
			v.Wrong(want)
			return "", false
		}
		return s, ok
	}
	return k
}

func port() y.Kind[int] { return y.Integer(1, 65535) }

func cpus() y.Kind[[]int] { return y.Integers("a processor", 0, maxProcessors-1, maxProcessors) }

func percentile() y.Kind[float64] { return y.Number(1, 99.999) }

// address returns a Kind (type of value): an IP address of one host, without a port.
func address() y.Kind[string] {
	const want = "an IPv4 or IPv6 address, without a port"
	return y.Pattern(want, `^[0-9A-Fa-f:.]{2,45}$`, func(s string) string {
		if a, err := netip.ParseAddr(s); err != nil || a.IsUnspecified() || a.IsMulticast() || a.Is4In6() {
			return "want " + want + ", of one host"
		}
		return ""
	})
}

// agent returns a Kind (type of value): the HOST:PORT on which an agent listens.
func agent() y.Kind[string] {
	const want = "HOST:PORT, the host by name or address ([fd00::1]:7411)"
	return y.Pattern(want, `^(\[[0-9A-Fa-f:.]{2,45}\]|[0-9A-Za-z]([0-9A-Za-z.-]{0,251}[0-9A-Za-z])?):[1-9][0-9]{0,4}$`,
		func(s string) string {
			host, port := s[:strings.LastIndexByte(s, ':')], s[strings.LastIndexByte(s, ':')+1:]
			if n, err := strconv.Atoi(port); err != nil || n > 65535 {
				return "want a port from 1 to 65535"
			}
			if inner, bracket := strings.CutPrefix(host, "["); bracket {
				if a, err := netip.ParseAddr(strings.TrimSuffix(inner, "]")); err != nil || !a.Is6() {
					return "want " + want
				}
			}
			return ""
		})
}

func serverName() y.Kind[string] {
	return y.Pattern("a host name or address", `^[0-9A-Za-z]([0-9A-Za-z:.-]{0,251}[0-9A-Za-z])?$`, nil)
}

// argument returns a Kind (type of value): a command's argument, in which Expand replaces names.
func argument() y.Kind[string] {
	k := y.Text("an argument, as text", 4096)
	read := k.Read
	k.Read = func(v y.Value) (string, bool) {
		s, ok := read(v)
		return s, ok && expands(v, s, commandNames)
	}
	return k
}

// expands reports whether Expand has a value for every $name in a text. If not, it reports the
// error.
func expands(v y.Value, s string, names []string) bool {
	n := 0
	for line := range strings.Lines(s) {
		n++
		if _, err := Expand(line, samples(names)); err != nil {
			v.FailLine(n, "%v", err)
			return false
		}
	}
	return true
}

const (
	filePattern = `^[A-Za-z0-9][A-Za-z0-9._-]{0,63}(/[A-Za-z0-9][A-Za-z0-9._-]{0,63}){0,7}$`
	maxFile     = 64 << 10
)

// files returns a Kind (type of value): texts of files, by their paths in the scratch directory.
func files() y.Kind[map[string]string] {
	text := y.Text("the text of a file, under its name and |", maxFile)
	read := text.Read
	text.Read = func(v y.Value) (string, bool) {
		s, ok := read(v)
		return s, ok && expands(v, s, commandNames)
	}
	return y.Mapping("a mapping from paths below $scratch to the texts of files", filePattern,
		"a path of letters, digits, dots, _ and -, none of its parts beginning with a dot", text)
}

func command() y.Kind[[]string] {
	const want = "a list of the program and its arguments: [memcached, -p, $port]"
	k := y.Texts(want, 256, argument())
	read := k.Read
	k.Read = func(v y.Value) ([]string, bool) {
		if text, _, scalar := v.Scalar(); scalar {
			v.Failf("found the text %s, want %s; no shell reads it", y.Quote(text), want)
			return nil, false
		}
		return read(v)
	}
	return k
}

const environmentPattern = `^[A-Za-z_][A-Za-z0-9_]{0,63}$`

func environment() y.Kind[map[string]string] {
	return y.Mapping("a mapping from names of environment variables to their values", environmentPattern,
		"letters, digits and _, at most 64, the first not a digit", argument())
}

// httpPath returns a Kind (type of value): an HTTP path with its query. It may use the given names,
// which Expand replaces.
func httpPath(names []string) y.Kind[string] {
	k := y.Pattern("a path that begins with a slash", `^/[!-~]{0,999}$`, nil)
	read := k.Read
	k.Read = func(v y.Value) (string, bool) {
		s, ok := read(v)
		return s, ok && expands(v, s, names)
	}
	return k
}

// ratio returns a Kind (type of value): a ratio of gets to sets, such as "4:1".
func ratio() y.Kind[[2]int] {
	k := y.Kind[[2]int]{
		Want:   "a ratio of gets to sets, each from 0 to 1000: 4:1",
		Schema: y.Schema{"type": "string", "pattern": `^[0-9]{1,4}:[0-9]{1,4}$`},
	}
	k.Read = func(v y.Value) (out [2]int, ok bool) {
		text, _, _ := v.Scalar()
		g, s, _ := strings.Cut(text, ":")
		gets, err1 := strconv.Atoi(g)
		sets, err2 := strconv.Atoi(s)
		if err1 != nil || err2 != nil || !y.IsDecimal(g) || !y.IsDecimal(s) ||
			gets < 0 || sets < 0 || gets > 1000 || sets > 1000 || gets+sets == 0 {
			v.Wrong(k.Want)
			return out, false
		}
		return [2]int{gets, sets}, true
	}
	return k
}

// tlsVersion returns a Kind (type of value): a TLS version. In the file it may be a YAML number or a
// string.
func tlsVersion() y.Kind[string] {
	k := y.Word("1.2", "1.3")
	k.Schema = y.Schema{"enum": []any{"1.2", "1.3", 1.2, 1.3}}
	return k
}
