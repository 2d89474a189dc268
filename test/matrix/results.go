// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// Marks around the output of a suite in a guest.
const (
	beginMark = "=#= begin "
	endMark   = "=#= end "
	doneMark  = "=#= done"
	// kernelSection is the name of the last section, the kernel's log.
	kernelSection = "kernel messages"
)

// A section is the output of one suite.
type section struct {
	name    string
	text    []string
	seconds string
	outcome string // "ok" or an error
	tests   []test
}

func (s section) String() string {
	var pass, skip, fail int
	for _, t := range s.tests {
		switch t.outcome {
		case "PASS":
			pass++
		case "SKIP":
			skip++
		default:
			fail++
		}
	}
	counts := ""
	if pass+skip+fail > 0 {
		counts = fmt.Sprintf("%d passed, %d skipped, %d failed, ", pass, skip, fail)
	}
	return fmt.Sprintf("%-18s %s%s s, %s", s.name, counts, s.seconds, s.outcome)
}

// A test is the outcome of one test or subtest.
type test struct {
	name    string
	outcome string // PASS, SKIP, FAIL
	said    string // its last log message, otherwise its last line of output
}

// results are the results from one guest.
type results struct {
	release  string
	sections []section
}

// count returns the number of tests with an outcome.
func (r *results) count(outcome string) int {
	n := 0
	for _, s := range r.sections {
		for _, t := range s.tests {
			if t.outcome == outcome {
				n++
			}
		}
	}
	return n
}

// section returns the section with a name, nil if there is none.
func (r *results) section(name string) *section {
	for i := range r.sections {
		if r.sections[i].name == name {
			return &r.sections[i]
		}
	}
	return nil
}

var (
	endLine    = regexp.MustCompile(`^` + regexp.QuoteMeta(endMark) + `(.*) in ([0-9.]+)s: (.*)$`)
	runLine    = regexp.MustCompile(`^=== (?:RUN|NAME|CONT) +(\S+)$`)
	saidLine   = regexp.MustCompile(`^[^ :]+\.go:[0-9]+: `)
	resultLine = regexp.MustCompile(`^ *--- (PASS|SKIP|FAIL): (\S+) \([0-9.]+s\)$`)
)

// parse parses the output of a guest. It returns an error if the last mark is missing, because then
// the guest did not finish.
func parse(release string, text []byte) (*results, error) {
	r := &results{release: release}
	var s *section
	done := false
	said := map[string]string{}
	running := ""
	in := bufio.NewScanner(bytes.NewReader(text))
	in.Buffer(nil, 64<<20)
	for in.Scan() {
		line := strings.TrimSuffix(in.Text(), "\r")
		if name, ok := strings.CutPrefix(line, beginMark); ok {
			r.sections = append(r.sections, section{name: name, outcome: "no end"})
			s = &r.sections[len(r.sections)-1]
			clear(said)
			running = ""
			continue
		}
		if line == doneMark {
			done = true
		}
		if s == nil {
			continue
		}
		if m := endLine.FindStringSubmatch(line); m != nil && m[1] == s.name {
			s.seconds, s.outcome = m[2], m[3]
			s = nil
			continue
		}
		s.text = append(s.text, line)
		switch m := resultLine.FindStringSubmatch(line); {
		case m != nil:
			s.tests = append(s.tests, test{name: m[2], outcome: m[1], said: said[m[2]]})
		case runLine.MatchString(line):
			running = runLine.FindStringSubmatch(line)[1]
		case running != "":
			// Keep the test's own message, even if log lines of the tested program follow it.
			if line = strings.TrimSpace(line); saidLine.MatchString(line) || !saidLine.MatchString(said[running]) {
				said[running] = line
			}
		}
	}
	if err := in.Err(); err != nil {
		return nil, err
	}
	if !done {
		if n := len(r.sections); n > 0 {
			return nil, errors.New("the guest ended in or after " + r.sections[n-1].name)
		}
		return nil, errNoBoot
	}
	return r, nil
}

// errNoBoot says that the guest ended before it ran the first suite.
var errNoBoot = errors.New("the guest ended before the first suite")
