// SPDX-License-Identifier: Apache-2.0

package result

import (
	"bytes"
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

// ReadFile reads a result that WriteFile wrote.
func ReadFile(path string) (*Result, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r, err := Read(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

// Read reads a result. Another version of the schema, a key that this one does
// not have, and anything after the end are errors.
func Read(in io.Reader) (*Result, error) {
	b, err := io.ReadAll(in)
	if err != nil {
		return nil, err
	}
	var version struct {
		Schema *string `json:"schema"`
	}
	if err := json.Unmarshal(b, &version); err != nil {
		var cut *json.SyntaxError
		if errors.As(err, &cut) && cut.Offset >= int64(len(b)) && bytes.HasPrefix(bytes.TrimSpace(b), []byte("{")) {
			return nil, fmt.Errorf("the file ends in the middle, after %d bytes: %w; want all of it, or another copy", len(b), err)
		}
		return nil, fmt.Errorf("not a result of niclane: %w", err)
	}
	if version.Schema == nil {
		return nil, fmt.Errorf("not a result of niclane: no schema, want %q", Schema)
	}
	if err := checkSchema(*version.Schema); err != nil {
		return nil, err
	}
	// Nearly all of it is windows, each with its histograms.
	type whole Result
	r := &Result{}
	file := struct {
		*whole
		Windows []json.RawMessage `json:"windows"`
	}{whole: (*whole)(r)}
	if err := strict(b, &file); err != nil {
		return nil, err
	}
	r.Windows = make([]Window, len(file.Windows))
	errs := make([]error, len(r.Windows))
	parallel(len(r.Windows), func(i int) {
		if err := strict(file.Windows[i], &r.Windows[i]); err != nil {
			errs[i] = fmt.Errorf("windows[%d]: %w", i, err)
		}
	})
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return r, r.Check()
}

// strict refuses keys that v does not have.
func strict(b []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	return dec.Decode(v)
}

// checkSchema says of another version what would be right.
func checkSchema(have string) error {
	if have == Schema {
		return nil
	}
	name, mine, _ := strings.Cut(Schema, "/")
	other, text, _ := strings.Cut(have, "/")
	n, err := strconv.Atoi(text)
	if m, _ := strconv.Atoi(mine); other == name && err == nil {
		if n > m {
			return fmt.Errorf("schema %q of a newer niclane, this one reads %q; want a niclane of the version that wrote it", have, Schema)
		}
		return fmt.Errorf("schema %q of an older niclane, this one reads %q; measure again, or use a niclane of the version that wrote it", have, Schema)
	}
	return fmt.Errorf("schema %q is not a result of niclane; want %q", have, Schema)
}

// Check returns everything that would mislead who reads the result.
func (r *Result) Check() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if r.Experiment == nil {
		bad("experiment is missing")
	}
	for i, w := range r.Windows {
		at := fmt.Sprintf("windows[%d]", i)
		if !slices.ContainsFunc(r.Variants, func(v Variant) bool { return v.Name == w.Variant }) {
			bad("%s: variant %q is none of the result's", at, w.Variant)
		}
		if !slices.Contains([]string{Repeat, Searching, Sweeping}, w.Purpose) {
			bad("%s: purpose %q, want %s, %s or %s", at, w.Purpose, Repeat, Searching, Sweeping)
		}
		if w.Purpose == Repeat && (w.Point < 0 || w.Point >= len(r.Points)) {
			bad("%s: load point %d of %d", at, w.Point, len(r.Points))
		}
		if w.Purpose == Sweeping && w.Sweep == nil {
			bad("%s: a sweep that does not say of what", at)
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

// Write writes a result.
func Write(out io.Writer, r *Result) error {
	enc := json.NewEncoder(out)
	enc.SetIndent("", " ")
	return enc.Encode(r)
}

// WriteFile writes a result whole, or leaves what is at path as it is: a full
// disk costs no earlier result.
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
	// Sync: a full disk may be noticed only when blocks are allocated.
	if err := errors.Join(Write(f, r), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(part, path)
}
