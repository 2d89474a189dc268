// SPDX-License-Identifier: Apache-2.0

package adqsetup

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"

	"github.com/niclane/niclane/internal/strictyaml"
)

// readJSON reads a JSON object of objects. It reads one token after the other, to know the line of
// each.
func readJSON(r *strictyaml.Reader, data []byte) []section {
	j := &jsonReader{Reader: r, dec: json.NewDecoder(bytes.NewReader(data)), data: data}
	j.dec.UseNumber()
	var all []section
	_, _ = j.token() // the opening brace
	for j.more() {
		name := j.word()
		s := section{name: name, line: j.line()}
		twice := again(r, all, name, s.line)
		if name != globals && strings.EqualFold(name, globals) {
			fail(r, s.line, strictyaml.Join("", name),
				"adqsetup takes this for an application, did you mean \"globals\"?")
		}
		if t, _ := j.token(); t != json.Delim('{') {
			if !j.bad {
				fail(r, s.line, strictyaml.Join("", name), "want an object of keys: {\"queues\": 4, \"ports\": 80}")
			}
			return nil
		}
		for j.more() {
			key := j.word()
			line := j.line()
			text := j.value(strictyaml.Join(s.name, normal(key)), line)
			if j.bad {
				return nil
			}
			s.add(r, key, text, line)
		}
		_, _ = j.token()
		if !twice {
			all = append(all, s)
		}
	}
	_, _ = j.token()
	if _, err := j.dec.Token(); !j.bad && !errors.Is(err, io.EOF) {
		fail(r, j.line(), "", "found text after the object, want one object")
	}
	if j.bad {
		return nil
	}
	return all
}

type jsonReader struct {
	*strictyaml.Reader
	dec  *json.Decoder
	data []byte
	bad  bool // the rest of the file is unreadable
}

// line returns the line of the last token.
func (j *jsonReader) line() int { return j.lineAt(j.dec.InputOffset()) }

func (j *jsonReader) lineAt(offset int64) int {
	return 1 + bytes.Count(j.data[:min(offset, int64(len(j.data)))], []byte("\n"))
}

func (j *jsonReader) token() (json.Token, error) {
	if j.bad {
		return nil, io.EOF
	}
	t, err := j.dec.Token()
	if err != nil {
		j.bad = true
		line := j.line()
		if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
			line = j.lineAt(syntax.Offset)
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err, line = errors.New("it ends too early"), j.lineAt(int64(len(bytes.TrimRight(j.data, " \t\r\n"))))
		}
		fail(j.Reader, line, "", "not JSON: %v", err)
	}
	return t, err
}

func (j *jsonReader) more() bool { return !j.bad && j.dec.More() }

// word returns the next token, which the decoder ensures is a key.
func (j *jsonReader) word() string {
	t, _ := j.token()
	s, _ := t.(string)
	return s
}

// value returns a value as text. adqsetup joins the items of a list with commas.
func (j *jsonReader) value(path string, line int) string {
	t, err := j.token()
	if err != nil {
		return ""
	}
	if t != json.Delim('[') {
		return j.scalar(t, path, line)
	}
	var items []string
	for j.more() {
		t, _ := j.token()
		items = append(items, j.scalar(t, path, line))
	}
	_, _ = j.token()
	if len(items) == 0 && !j.bad {
		fail(j.Reader, line, path, "found an empty list, want the key left out")
	}
	return strings.Join(items, ",")
}

func (j *jsonReader) scalar(t json.Token, path string, line int) string {
	switch t := t.(type) {
	case string:
		return t
	case json.Number:
		return t.String()
	case bool:
		if t {
			return "true"
		}
		return "false"
	case nil:
		return ""
	}
	if !j.bad {
		fail(j.Reader, line, path, "found a list or an object inside the value, want text or a number")
		j.bad = true
	}
	return ""
}
