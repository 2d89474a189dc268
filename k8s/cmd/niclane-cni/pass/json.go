// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package pass

// Of JSON, what advance needs: encoding/json wants a heap. These functions take what
// encoding/json takes (RFC 8259), no more; and less, where it would have to be said
// what is meant: twice the same name, names in other letters, escapes in what is
// compared.

// A span is a part of a text: from, and up to.
type span struct{ from, to int }

// A field is a member of an object that is looked for. Its value is empty if there is
// none.
type field struct {
	name  string
	value span
}

const deepest = 64 // of what is in each other

// plainly is understand, for what is plain: what it takes, understand takes for the
// same. No socket is cniproto.DefaultSocket.
func plainly(in []byte, del bool) (socket, result span, ok bool) {
	conf := [...]field{{name: "cniVersion"}, {name: "socket"}, {name: "prevResult"}}
	end := object(in, 0, conf[:])
	if end < 0 || blank(in, end) != len(in) {
		return span{}, span{}, false
	}
	version, ok := words(in, conf[0].value)
	if !ok {
		return span{}, span{}, false
	}
	if socket, ok = words(in, conf[1].value); !ok || del {
		return socket, span{}, ok
	}
	prev := [...]field{{name: "cniVersion"}}
	if result = conf[2].value; result == (span{}) || object(in, result.from, prev[:]) < 0 {
		return span{}, span{}, false
	}
	// A result in the words of another version is to be translated.
	its, ok := words(in, prev[0].value)
	if !ok || version == (span{}) || string(in[version.from:version.to]) != string(in[its.from:its.to]) {
		return span{}, span{}, false
	}
	return socket, result, true
}

// words is what a member's value says, which is a string without escapes or not there;
// an empty string is not taken.
func words(in []byte, value span) (span, bool) {
	if value == (span{}) {
		return span{}, true
	}
	said := span{value.from + 1, value.to - 1}
	if in[value.from] != '"' || said.from >= said.to || !plain(in[said.from:said.to]) {
		return span{}, false
	}
	return said, true
}

// plain reports whether a string has printable characters of ASCII and no escapes.
func plain(s []byte) bool {
	for _, c := range s {
		if c < ' ' || c > '~' || c == '\\' {
			return false
		}
	}
	return true
}

// alike reports whether two names are the same but for capitals, as encoding/json
// compares those that are plain.
func alike(a []byte, b string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range len(a) {
		x, y := a[i], b[i]
		if x|0x20 != y|0x20 || x != y && (x|0x20 < 'a' || x|0x20 > 'z') {
			return false
		}
	}
	return true
}

// object finds fields in the object that is the next of in, and returns where it
// ends; below 0 if there is none, or it is not plain which of its members is meant.
func object(in []byte, i int, fields []field) int {
	if i = blank(in, i); i == len(in) || in[i] != '{' {
		return -1
	}
	if i = blank(in, i+1); i < len(in) && in[i] == '}' {
		return i + 1
	}
	for {
		from := blank(in, i)
		if i = quoted(in, from); i < 0 || !plain(in[from+1:i-1]) {
			return -1
		}
		name := in[from+1 : i-1]
		if i = colon(in, i); i < 0 {
			return -1
		}
		from = blank(in, i)
		if i = value(in, from); i < 0 {
			return -1
		}
		for n := range fields {
			f := &fields[n]
			if !alike(name, f.name) {
				continue
			}
			if string(name) != f.name || f.value != (span{}) {
				return -1
			}
			f.value = span{from, i}
		}
		if i = blank(in, i); i == len(in) || in[i] != ',' && in[i] != '}' {
			return -1
		}
		if i++; in[i-1] == '}' {
			return i
		}
	}
}

// value returns where the next value of in ends, below 0 if there is none.
func value(in []byte, i int) int {
	var ends [deepest]byte // of the objects and arrays that the value is in
	depth := 0
	for {
		if i = blank(in, i); i == len(in) {
			return -1
		}
		switch c := in[i]; c {
		case '{', '[':
			if depth == deepest {
				return -1
			}
			ends[depth] = c + 2 // '}' and ']' are the second after them
			depth++
			if i = blank(in, i+1); i == len(in) {
				return -1
			}
			if in[i] != c+2 {
				if c == '{' {
					i = name(in, i)
				}
				if i < 0 {
					return -1
				}
				continue
			}
		case '"':
			i = quoted(in, i)
		case 't':
			i = word(in, i, "true")
		case 'f':
			i = word(in, i, "false")
		case 'n':
			i = word(in, i, "null")
		default:
			i = number(in, i)
		}
		if i < 0 {
			return -1
		}
		for depth > 0 {
			if i = blank(in, i); i == len(in) {
				return -1
			}
			end := ends[depth-1]
			if in[i] == end {
				depth--
				i++
				continue
			}
			if in[i] != ',' {
				return -1
			}
			if i++; end == '}' {
				i = name(in, i)
			}
			if i < 0 {
				return -1
			}
			break
		}
		if depth == 0 {
			return i
		}
	}
}

// name returns where the next member's value begins.
func name(in []byte, i int) int {
	if i = quoted(in, blank(in, i)); i < 0 {
		return -1
	}
	return colon(in, i)
}

func colon(in []byte, i int) int {
	if i = blank(in, i); i == len(in) || in[i] != ':' {
		return -1
	}
	return i + 1
}

func blank(in []byte, i int) int {
	for i < len(in) && (in[i] == ' ' || in[i] == '\t' || in[i] == '\n' || in[i] == '\r') {
		i++
	}
	return i
}

// quoted returns where the string ends that begins at in[i], below 0 if none does.
func quoted(in []byte, i int) int {
	if i >= len(in) || in[i] != '"' {
		return -1
	}
	for i++; i < len(in); i++ {
		switch c := in[i]; {
		case c == '"':
			return i + 1
		case c < ' ':
			return -1
		case c == '\\':
			if i++; i == len(in) {
				return -1
			}
			switch in[i] {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			case 'u':
				for n := 1; n <= 4; n++ {
					if i+n >= len(in) || !hex(in[i+n]) {
						return -1
					}
				}
			default:
				return -1
			}
		}
	}
	return -1
}

func hex(c byte) bool { return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'f' }

func word(in []byte, i int, want string) int {
	if len(in)-i < len(want) || string(in[i:i+len(want)]) != want {
		return -1
	}
	return i + len(want)
}

func number(in []byte, i int) int {
	if i < len(in) && in[i] == '-' {
		i++
	}
	if i < len(in) && in[i] == '0' {
		i++
	} else if i = digits(in, i); i < 0 {
		return -1
	}
	if i < len(in) && in[i] == '.' {
		if i = digits(in, i+1); i < 0 {
			return -1
		}
	}
	if i < len(in) && in[i]|0x20 == 'e' {
		if i++; i < len(in) && (in[i] == '+' || in[i] == '-') {
			i++
		}
		return digits(in, i)
	}
	return i
}

// digits returns where the digits end that begin at in[i], below 0 if none does.
func digits(in []byte, i int) int {
	from := i
	for i < len(in) && in[i] >= '0' && in[i] <= '9' {
		i++
	}
	if i == from {
		return -1
	}
	return i
}
