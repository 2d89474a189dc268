// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A skip is a test that is skipped on some kernels, with the reason. There is a problem if a test
// that is not listed is skipped, and if a listed test is not skipped. So the list stays true.
type skip struct {
	suite string
	test  string // full name
	// since and before limit the kernels on which the test is skipped; "" is no limit.
	since, before string
	// said is a part of the message with which the test is skipped.
	said string
	why  string
}

// splat matches messages in which the kernel reports an error of its own.
var splat = regexp.MustCompile(`\] (WARNING: |BUG: |Oops|general protection fault|kernel BUG at|` +
	`refcount_t: |unregister_netdevice: waiting)`)

// judge returns the problems in a guest's results; nil if there are none.
func (r *results) judge(chosen []suite, skips []skip, defects []defect) []string {
	var problems []string
	problem := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	skipped := map[skip]bool{}
	for _, want := range chosen {
		s := r.section(want.name)
		if s == nil {
			problem("%s: did not run", want.name)
			continue
		}
		if d := known(defects, r.release, s.name); d != nil {
			if s.outcome == "ok" {
				problem("%s: passed, but is known to fail: %s", s.name, d.why)
			}
			continue
		}
		before := len(problems)
		for _, t := range s.tests {
			switch t.outcome {
			case "FAIL":
				if !s.failsBelow(t.name) {
					problem("%s: %s failed: %s", s.name, t.name, t.said)
				}
			case "SKIP":
				if k, ok := listed(skips, r.release, s.name, t); ok {
					skipped[k] = true
				} else {
					problem("%s: %s was skipped, but this kernel should run it: %s", s.name, t.name, t.said)
				}
			}
		}
		if !want.builtin && want.bench == "" && len(s.tests) == 0 {
			problem("%s: no test ran", s.name)
		}
		// If a test has failed, a Go test program exits with 1. That needs no second message.
		if s.outcome != "ok" && (len(problems) == before || s.outcome != "exit status 1") {
			problem("%s: %s", s.name, s.outcome)
		}
		if s.name == probeSuite && s.outcome == "ok" {
			problems = append(problems, r.judgeCapabilities(s.text)...)
		}
	}
	if s := r.section(kernelSection); s != nil {
		for _, line := range s.text {
			if splat.MatchString(line) {
				problem("the kernel says: %s", line)
			}
		}
	}
	for _, k := range skips {
		if s := r.section(k.suite); s != nil && within(r.release, k.since, k.before) && !skipped[k] {
			problem("%s: %s is listed as skipped (%s), but was not skipped", k.suite, k.test, k.why)
		}
	}
	return problems
}

// suitesOf returns the suites that have problems. It returns none if a problem is the kernel's, not
// a suite's.
func suitesOf(problems []string, chosen []suite) []suite {
	var of []suite
	for _, p := range problems {
		i := slices.IndexFunc(chosen, func(s suite) bool { return strings.HasPrefix(p, s.name+": ") })
		if i < 0 {
			return nil
		}
		if !slices.ContainsFunc(of, func(s suite) bool { return s.name == chosen[i].name }) {
			of = append(of, chosen[i])
		}
	}
	return of
}

// failsBelow reports whether a subtest of the named test failed too.
func (s *section) failsBelow(name string) bool {
	return slices.ContainsFunc(s.tests, func(t test) bool {
		return t.outcome == "FAIL" &&
			strings.HasPrefix(t.name, name+"/")
	})
}

// listed returns the entry of the list that says that a test is skipped.
func listed(skips []skip, release, suite string, t test) (skip, bool) {
	for _, k := range skips {
		if k.suite == suite && k.test == t.name && within(release, k.since, k.before) &&
			strings.Contains(t.said, k.said) {
			return k, true
		}
	}
	return skip{}, false
}

// known returns the known defect of a suite on a release; nil if there is none.
func known(defects []defect, release, suite string) *defect {
	i := slices.IndexFunc(defects, func(d defect) bool {
		return d.suite == suite &&
			within(release, d.since, d.before)
	})
	if i < 0 {
		return nil
	}
	return &defects[i]
}

// within reports whether a release (uname -r) is at least since and older than before. "" means no
// limit.
func within(release, since, before string) bool {
	v := version(release)
	return (since == "" || cmpVersion(v, version(since)) >= 0) && (before == "" || cmpVersion(v, version(before)) < 0)
}

// version returns the first two numbers of a release.
func version(release string) [2]int {
	var v [2]int
	f := regexp.MustCompile(`^(\d+)\.(\d+)`).FindStringSubmatch(release)
	if f != nil {
		v[0], _ = strconv.Atoi(f[1]) // cannot fail: digits only
		v[1], _ = strconv.Atoi(f[2])
	}
	return v
}

func cmpVersion(a, b [2]int) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) }
