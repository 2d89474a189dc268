// SPDX-License-Identifier: Apache-2.0

package selftest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// maxFile is the largest size of a file, in bytes, far above that of any record.
const maxFile = 64 << 20

// Write writes the record as indented JSON.
func Write(w io.Writer, r *Record) error {
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	e.SetEscapeHTML(false)
	return e.Encode(r)
}

// ReadFile reads a record. It returns an error if the record has another version.
func ReadFile(path string) (*Record, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(b) > maxFile {
		return nil, fmt.Errorf("%s: larger than %d bytes, no record of a selftest", path, maxFile)
	}
	r, err := decode(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

func decode(b []byte) (*Record, error) {
	var head struct {
		Schema *string `json:"schema"`
	}
	if err := json.Unmarshal(b, &head); err != nil {
		var end *json.SyntaxError
		if errors.As(err, &end) && end.Offset == int64(len(b)) {
			return nil, fmt.Errorf("it ends in the middle, after %d bytes", len(b))
		}
		return nil, err
	}
	switch {
	case head.Schema == nil:
		return nil, fmt.Errorf("not a record of a selftest: no schema, want %q", Schema)
	case *head.Schema != Schema:
		return nil, fmt.Errorf("schema %.60q, this niclane reads %q", *head.Schema, Schema)
	}
	r := new(Record)
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(r); err != nil {
		return nil, err
	}
	return r, nil
}
