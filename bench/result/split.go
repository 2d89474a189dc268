// SPDX-License-Identifier: Apache-2.0

package result

import "bytes"

// split takes an array out of the JSON object b: that of the member name. It returns the elements,
// and b with the array empty. It looks only at strings and brackets; the caller's decoder finds
// invalid JSON. ok is false if b has no such array.
//
// split exists because package json scans each byte twice, and for a json.RawMessage a third time.
// That was a third of the time of a report.
func split(b []byte, name string) (rest []byte, elements [][]byte, ok bool) {
	i := space(b, 0)
	if i == len(b) || b[i] != '{' {
		return nil, nil, false
	}
	for i = space(b, i+1); i < len(b) && b[i] == '"'; i = space(b, i+1) {
		end := skip(b, i)
		found := string(b[i+1:max(end-1, i+1)]) == name
		i = space(b, end)
		if i == len(b) || b[i] != ':' {
			break
		}
		i = space(b, i+1)
		if found && i < len(b) && b[i] == '[' {
			elements, end, ok = array(b, i)
			if !ok {
				break
			}
			return bytes.Join([][]byte{b[:i], b[end:]}, []byte("[]")), elements, true
		}
		if i = space(b, skip(b, i)); i == len(b) || b[i] != ',' {
			break
		}
	}
	return nil, nil, false
}

// array returns the elements of the array that begins at b[i], and its end.
func array(b []byte, i int) (elements [][]byte, end int, ok bool) {
	i = space(b, i+1)
	if i < len(b) && b[i] == ']' {
		return nil, i + 1, true
	}
	for {
		end = skip(b, i)
		elements = append(elements, b[i:end])
		end = space(b, end)
		switch {
		case end < len(b) && b[end] == ',':
			i = space(b, end+1)
		case end < len(b) && b[end] == ']':
			return elements, end + 1, true
		default:
			return nil, 0, false
		}
	}
}

// skip returns the end of the value that begins at b[i], or len(b) if it has no end.
func skip(b []byte, i int) int {
	depth := 0
	for ; i < len(b); i++ {
		switch b[i] {
		case '"':
			if i = quoted(b, i); depth == 0 {
				return min(i+1, len(b))
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		case ',':
		default:
			continue
		}
		if depth < 0 || depth == 0 && b[i] == ',' { // the end of a number or of a word such as true
			return i
		}
	}
	return len(b)
}

// quoted returns the position of the closing quote of the string that begins at b[i].
func quoted(b []byte, i int) int {
	for i++; ; i++ {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			return len(b)
		}
		i += n
		backslashes := 0
		for b[i-1-backslashes] == '\\' {
			backslashes++
		}
		if backslashes%2 == 0 {
			return i
		}
	}
}

// space returns the end of the white space that begins at b[i].
func space(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\r' || b[i] == '\t') {
		i++
	}
	return i
}
