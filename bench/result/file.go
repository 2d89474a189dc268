// SPDX-License-Identifier: Apache-2.0

package result

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
)

// ReadFile reads a file written by WriteFile.
func ReadFile(path string) (*Result, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r, err := decode(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

// Read reads a result. It is an error if the schema has another version, if a key is unknown, or if
// data follow the end.
func Read(in io.Reader) (*Result, error) {
	b, err := io.ReadAll(in)
	if err != nil {
		return nil, err
	}
	return decode(b)
}

func decode(b []byte) (*Result, error) {
	r := &Result{}
	if err := decodeParts(b, r); err != nil {
		// An error about the version explains more than one about a part.
		return nil, cmp.Or(checkVersion(b), err)
	}
	if r.Schema != Schema {
		return nil, checkVersion(b)
	}
	return r, r.Check()
}

// decodeParts decodes a result. It decodes the windows, which are nearly all of a file, one by one
// and in parallel.
func decodeParts(b []byte, r *Result) error {
	rest, windows, ok := split(b, "windows")
	if !ok {
		return strict(b, r)
	}
	if err := strict(rest, r); err != nil {
		return err
	}
	if len(r.Windows) > 0 {
		return errors.New("windows: found twice, want one")
	}
	r.Windows = make([]Window, len(windows))
	errs := make([]error, len(windows))
	parallel(len(windows), func(i int) {
		if err := strict(windows[i], &r.Windows[i]); err != nil {
			errs[i] = fmt.Errorf("windows[%d]: %w", i, err)
		}
	})
	return errors.Join(errs...)
}

// strict decodes JSON. It refuses unknown keys and data after the end.
func strict(b []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return err
	}
	if _, err := dec.Token(); err != io.EOF {
		return errors.New("found data after the end")
	}
	return nil
}

// checkVersion returns the reason why a file is not a result of this version; nil if it is one.
func checkVersion(b []byte) error {
	var version struct {
		Schema *string `json:"schema"`
	}
	if err := json.Unmarshal(b, &version); err != nil {
		var cut *json.SyntaxError
		if errors.As(err, &cut) && cut.Offset >= int64(len(b)) && bytes.HasPrefix(bytes.TrimSpace(b), []byte("{")) {
			return fmt.Errorf("the file ends in the middle, after %d bytes: %w; want all of it, or another copy",
				len(b), err)
		}
		return fmt.Errorf("not a result of niclane: %w", err)
	}
	if version.Schema == nil {
		return fmt.Errorf("not a result of niclane: no schema, want %q", Schema)
	}
	return checkSchema(*version.Schema)
}

// checkSchema returns an error that names the right version, if a file has another one.
func checkSchema(have string) error {
	if have == Schema {
		return nil
	}
	name, mine, _ := strings.Cut(Schema, "/")
	other, text, _ := strings.Cut(have, "/")
	n, err := strconv.Atoi(text)
	if m, _ := strconv.Atoi(mine); other == name && err == nil {
		if n > m {
			return fmt.Errorf("schema %q of a newer niclane, this one reads %q; want a niclane of the version that "+
				"wrote it", have, Schema)
		}
		return fmt.Errorf("schema %q of an older niclane, this one reads %q; measure again, or use a niclane of the "+
			"version that wrote it", have, Schema)
	}
	return fmt.Errorf("schema %q is not a result of niclane; want %q", have, Schema)
}

// Check returns an error with all contradictions in a result.
func (r *Result) Check() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if r.Experiment == nil {
		bad("experiment is missing")
	}
	for i, w := range r.Windows {
		at := fmt.Sprintf("windows[%d]", i)
		if !slices.ContainsFunc(r.Variants, func(v Variant) bool { return v.Name == w.Variant }) {
			bad("%s: variant %q is not one of the result's", at, w.Variant)
		}
		if !slices.Contains([]string{Repeat, Searching, Sweeping}, w.Purpose) {
			bad("%s: purpose %q, want %s, %s or %s", at, w.Purpose, Repeat, Searching, Sweeping)
		}
		if w.Purpose == Repeat && (w.Point < 0 || w.Point >= len(r.Points)) {
			bad("%s: load point %d of %d", at, w.Point, len(r.Points))
		}
		if w.Purpose == Sweeping && w.Sweep == nil {
			bad("%s: purpose %q, but sweep is missing", at, w.Purpose)
		}
		if w.Load.Latency == nil || w.Load.Duration <= 0 {
			bad("%s: no latency, or no duration", at)
		}
	}
	for i, s := range r.Searches {
		if s.Result == nil {
			bad("searches[%d]: no result", i)
		}
	}
	return errors.Join(errs...)
}

// Write writes a result as JSON.
func Write(out io.Writer, r *Result) error {
	enc := json.NewEncoder(out)
	enc.SetIndent("", " ")
	return enc.Encode(r)
}

// WriteFile writes a complete result, or leaves the file at path unchanged. So a full disk does not
// destroy an earlier result.
func WriteFile(path string, r *Result) (err error) {
	part := path + ".partial"
	f, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s: %w", path, err)
			if gone := os.Remove(part); gone != nil && !errors.Is(gone, fs.ErrNotExist) {
				err = errors.Join(err, gone)
			}
		}
	}()
	// Sync, because some file systems notice a full disk only when they allocate blocks.
	if err := errors.Join(Write(f, r), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(part, path)
}
