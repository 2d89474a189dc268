// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/niclane/niclane/bench/page"
	"github.com/niclane/niclane/bench/result"
	"github.com/niclane/niclane/cmd/internal/cli"
)

// Formats that this command adds to those of package result.
const (
	html = "html" // the page
	svg  = "svg"  // its main picture
)

// A report holds the command's arguments.
type report struct {
	*app
	format, out string
	fanOut      bool
	mixed       bool
	overServers bool
	probability float64
}

func (a *app) reportCommand() *cobra.Command {
	r := &report{app: a}
	cmd := &cobra.Command{
		Use:   "report RESULT | report A B | report --servers RESULT...",
		Short: "Print a result, compare two, or several servers",
		Long: `Report reads the result.json of "niclane bench run" (or the directory that has it)
and writes it as a table, as CSV, Markdown, in the format of Go's benchmarks for
benchstat, as an HTML page that needs no other file, or as an SVG picture of
latency by percentile. With two results it compares the second with the first.
The differences in the environment and in the experiment come first, then ratios
with their intervals. A ~ marks a ratio that noise alone may explain.

It also reads what "niclane waits --json" printed, and writes it as text or as a page.

With --servers it writes Gbit/s and Gbit/s per W over several servers, with one and
with two sockets, as a page, a table or CSV. Each argument is a server's result:

    [NAME=]RESULT             the variant without noise and lanes, or else the base
    [NAME=]RESULT#VARIANT     this variant
    paper:                    the servers of the content-delivery paper

NAME is the server's. Without it, a server is named by its sockets and processors.
Results with the same name are one server, for example one of live and one of VoD.`,
		Args: func(_ *cobra.Command, args []string) error {
			if r.overServers && len(args) > 0 {
				return nil
			}
			if len(args) < 1 || len(args) > 2 {
				return cli.Usagef("report: %d arguments, want a result, or two to compare", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return r.run(args) },
	}
	f := cmd.Flags()
	f.StringVar(&r.format, "format", "", "`format` of the output: "+
		strings.Join(formats, ", ")+" (default: by the name of --out, else text)")
	f.StringVar(&r.out, "out", "", "`file`, or directory for report.html and the like (default: standard output)")
	f.BoolVar(&r.overServers, "servers", false, "throughput and power of several servers, a result of each")
	f.BoolVar(&r.mixed, "mixed", false, "compare a run in virtual time with one in real time")
	f.BoolVar(&r.fanOut, "fan-out", false, "how many servers one request can ask in parallel")
	f.Float64Var(&r.probability, "probability", result.FanOutProbability,
		"probability that all servers answer in time, for --fan-out")
	return cmd
}

var formats = append([]string{html, svg}, result.Formats...)

// extensions are the file name extensions, by format.
var extensions = map[string]string{html: ".html", svg: ".svg", result.Text: ".txt", result.CSV: ".csv",
	result.Markdown: ".md",
	result.GoBench:  ".bench"}

// place returns the output path, "" for standard output, and the format.
func (r *report) place() (path, format string) {
	path, format = r.out, r.format
	if path == "" {
		return "", cmp.Or(format, result.Text)
	}
	if st, err := os.Stat(path); err == nil && st.IsDir() || strings.HasSuffix(path, "/") {
		format = cmp.Or(format, html)
		return filepath.Join(path, "report"+extensions[format]), format
	}
	if format == "" {
		for f, extension := range extensions {
			if filepath.Ext(path) == extension {
				return path, f
			}
		}
	}
	return path, cmp.Or(format, result.Text)
}

func (r *report) run(args []string) error {
	path, format := r.place()
	if r.overServers {
		return r.servers(args, path, format)
	}
	allowed := formats
	switch {
	case len(args) == 2:
		allowed = append([]string{html}, result.ComparisonFormats...)
	case r.fanOut && format != html:
		allowed = result.ComparisonFormats
	}
	if !slices.Contains(allowed, format) {
		return cli.Usagef("report: --format %s: want %s", format, strings.Join(allowed, ", "))
	}
	if len(args) == 1 {
		live, err := readWaits(args[0])
		if err != nil {
			return err
		}
		if live != nil {
			return r.waits(live, path, format)
		}
	}
	if len(args) == 2 && r.fanOut {
		return cli.Usagef("report: --fan-out with two results, want one")
	}
	if !(r.probability > 0 && r.probability < 1) {
		return cli.Usagef("report: --probability %v: want more than 0 and less than 1", r.probability)
	}
	var read []*result.Result
	for _, name := range args {
		x, err := readResult(name)
		if err != nil {
			return err
		}
		if x.Partial != nil {
			fmt.Fprintf(r.Stderr, "%s: partial: the run ended in phase %s: %s\n", name, x.Partial.Phase,
				x.Partial.Reason)
		}
		read = append(read, x)
	}
	write, err := r.writer(read, format)
	if err != nil {
		return err
	}
	return r.write(path, write)
}

// write writes to a file, or to standard output if path is "".
func (r *report) write(path string, write func(io.Writer) error) error {
	if path == "" {
		return write(r.Stdout)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return writeWhole(path, write)
}

// writer returns the function that writes the requested report.
func (r *report) writer(read []*result.Result, format string) (func(io.Writer) error, error) {
	asJSON := func(v any) func(io.Writer) error {
		return func(out io.Writer) error { return cli.WriteJSON(out, v) }
	}
	if len(read) == 2 {
		c, err := result.Compare(read[0], read[1], r.mixed)
		if err != nil {
			return nil, err
		}
		if r.JSON {
			return asJSON(c), nil
		}
		if format == html {
			return func(out io.Writer) error { return page.WriteComparison(out, c, read[0], read[1]) }, nil
		}
		return func(out io.Writer) error { return result.WriteComparison(out, c, format) }, nil
	}
	if r.fanOut && (r.JSON || format != html) {
		all, err := result.FanOuts(read[0], r.probability)
		if err != nil {
			return nil, err
		}
		if r.JSON {
			return asJSON(all), nil
		}
		return func(out io.Writer) error { return result.WriteFanOuts(out, all, format) }, nil
	}
	if r.JSON {
		return asJSON(result.Summarize(read[0])), nil
	}
	if format == html {
		return func(out io.Writer) error { return page.Write(out, read[0], page.Options{Probability: r.probability}) },
			nil
	}
	if format == svg {
		return func(out io.Writer) error { return page.WritePicture(out, read[0]) }, nil
	}
	return func(out io.Writer) error { return result.WriteFormat(out, read[0], format) }, nil
}

// Names of files in a run's directory.
const (
	resultFile = "result.json"
	pageFile   = "report.html"
)

// writePage writes report.html into dir, the directory with the run's result.json.
func writePage(dir string, r *result.Result) error {
	return writeWhole(filepath.Join(dir, pageFile),
		func(out io.Writer) error { return page.Write(out, r, page.Options{}) })
}

// writeWhole writes a whole file or nothing: if it fails, the old file stays.
func writeWhole(path string, write func(io.Writer) error) error {
	part := path + ".partial"
	f, err := os.Create(part)
	if err != nil {
		return err
	}
	if err := errors.Join(write(f), f.Close()); err != nil {
		return errors.Join(fmt.Errorf("%s: %w", path, err), os.Remove(part))
	}
	return os.Rename(part, path)
}
