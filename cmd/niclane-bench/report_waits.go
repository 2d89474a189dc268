// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/niclane/niclane/bench/page"
	"github.com/niclane/niclane/bench/result"
	"github.com/niclane/niclane/cmd/internal/cli"
	"github.com/niclane/niclane/live/waits"
)

// maxWaits is the size of the largest file of waits in bytes.
const maxWaits = 64 << 20

// readWaits reads the document of niclane waits; nil if the file is another one.
func readWaits(name string) (*waits.Report, error) {
	if st, err := os.Stat(name); err != nil || st.IsDir() {
		return nil, nil // readResult reports it
	}
	text, err := cli.ReadFile(name, maxWaits, "a document of niclane waits")
	if err != nil {
		return nil, err
	}
	var kind struct {
		Schema string `json:"schema"`
	}
	if json.Unmarshal(text, &kind) != nil || kind.Schema != waits.Schema {
		return nil, nil
	}
	r := &waits.Report{}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return r, nil
}

// waits writes a document of niclane waits.
func (r *report) waits(live *waits.Report, path, format string) error {
	switch {
	case r.JSON:
		return cli.WriteJSON(r.Stdout, live)
	case format == result.Text:
		return r.write(path, live.Write)
	case format == html:
		return r.write(path, func(out io.Writer) error { return page.WriteWaits(out, *live) })
	}
	return cli.Usagef("report: --format %s: want %s or %s for the waits of live requests", format, result.Text, html)
}
