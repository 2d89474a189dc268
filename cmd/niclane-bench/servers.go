// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/niclane/niclane/bench/page"
	"github.com/niclane/niclane/bench/result"
	"github.com/niclane/niclane/cmd/internal/cli"
	"github.com/niclane/niclane/papers"
)

// serverFormats are the formats of "report --servers".
var serverFormats = append([]string{html}, result.ComparisonFormats...)

// servers writes throughput and power over several servers, each from a result.
func (r *report) servers(args []string, path, format string) error {
	if !slices.Contains(serverFormats, format) {
		return cli.Usagef("report: --servers --format %s: want %s", format, strings.Join(serverFormats, ", "))
	}
	if r.fanOut || r.mixed {
		return cli.Usagef("report: --servers with --fan-out or --mixed: want it alone")
	}
	var s result.Servers
	for _, arg := range args {
		if arg == fromPaper {
			papers.AddVarnish(&s, "paper: ")
			continue
		}
		name, file, variant := serverArgument(arg)
		x, err := readResult(file)
		if err != nil {
			return err
		}
		if err := s.Add(name, x, variant, file); err != nil {
			return fmt.Errorf("report: %w", err)
		}
	}
	if err := s.Finish(); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return r.write(path, func(out io.Writer) error {
		switch {
		case r.JSON:
			return cli.WriteJSON(out, s)
		case format == html:
			return page.WriteServers(out, &s, version)
		}
		return result.WriteServers(out, &s, format)
	})
}

// serverArgument splits [NAME=]RESULT[#VARIANT]. A file whose own name has one of these characters is
// taken as it is.
func serverArgument(arg string) (name, file, variant string) {
	if _, err := os.Stat(arg); err == nil {
		return "", arg, ""
	}
	file = arg
	if before, after, ok := strings.Cut(arg, "="); ok {
		name, file = before, after
	}
	file, variant, _ = strings.Cut(file, "#")
	return name, file, variant
}

// readResult reads a result.json, or that of a directory.
func readResult(name string) (*result.Result, error) {
	if st, err := os.Stat(name); err == nil && st.IsDir() {
		name = filepath.Join(name, resultFile)
	}
	return result.ReadFile(name)
}
