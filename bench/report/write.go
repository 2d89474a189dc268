// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/json"
	"fmt"
	"io"
)

// WriteJSON summarizes r and writes it as result.json.
func WriteJSON(w io.Writer, r *Result) error {
	if err := Summarize(r); err != nil {
		return err
	}
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

// ReadJSON reads a result.json and summarizes it anew.
func ReadJSON(rd io.Reader) (*Result, error) {
	var r Result
	if err := json.NewDecoder(rd).Decode(&r); err != nil {
		return nil, fmt.Errorf("result: %w", err)
	}
	if err := Summarize(&r); err != nil {
		return nil, err
	}
	return &r, nil
}
