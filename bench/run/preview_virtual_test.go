// SPDX-License-Identifier: Apache-2.0

package run

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/niclane/niclane/bench/experiment"
)

// noVirtual are the experiments without a form of the paper's size in virtual time, with the reason.
var noVirtual = map[string]string{
	"kubernetes-memcached": "pods need a cluster; its link is memcached-shared-link's",
	"first-lane":           "of no paper: the demo's link of 500 Mbit/s",
	"pollers":              "of no paper: who polls is processor time",
	"quiet-link":           "of no paper: what a lane costs is processor time",
	"switch-classes":       "of no paper: its link of 1 Gbit/s is for virtual time already",
}

var valuesLine = regexp.MustCompile(`(?m)^values: \$threads (\d+)[^$]*\$queues (\d+)`)

// described returns what the dry run of an experiment prints. Programs need not be on this machine.
func described(t *testing.T, name string, o experiment.Options) (*experiment.Experiment, string) {
	t.Helper()
	text, err := os.ReadFile("../../experiments/" + name + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	f, err := experiment.ParseWith(name+".yaml", text, o)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := Describe(&b, f); err != nil {
		t.Fatal(err)
	}
	return f.Experiment, b.String()
}

// TestVirtualForms: each experiment of a paper has a form for virtual time with the link of the paper's hosts
// file and the queues that its dry run prints, or a reason why it has none.
func TestVirtualForms(t *testing.T) {
	files, err := filepath.Glob("../../experiments/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	forms := map[string]struct {
		hosts   string
		parts   int      // of how many equal parts of the paper's load the form has one: cards, or hosts' ports
		threads int      // of the part
		want    []string // lines of the dry run
	}{
		"memcached-connections": {"memcached", 1, 110, []string{"lab: link 100gbit, 112 queues\n",
			"load point: 550 connections", "load point: 4400 connections",
			"lane memcached with 110 queues, aligned; server: -N 110\n"}},
		"memcached-client-lane": {"memcached", 1, 110, []string{"lab: link 100gbit, 112 queues\n"}},
		"memcached-shared-link": {"kubernetes", 1, 4, []string{"lab: link 100gbit, 64 queues\n",
			"load point: 35000/s, 8 connections\n", "load point: 100000/s, 8 connections\n"}},
		"redis-mixed": {"kubernetes", 1, 1, []string{"lab: link 100gbit, 64 queues\n"}},
		"aerospike-read": {"aerospike", 2, 56, []string{"lab: link 100gbit, 30 queues\n",
			"load point: 1278 connections", "lane aerospike with 28 queues, aligned\n"}},
		"web-cache-small":     {"ats", 4, 28, []string{"load point: 45000/s, 100 connections\n"}},
		"web-cache-small-tls": {"ats", 4, 28, []string{"load point: 45000/s, 100 connections\n"}},
		"web-cache-video":     {"ats", 4, 28, []string{"load point: 375/s, 100 connections\n"}},
		"web-cache-video-tls": {"ats", 4, 28, []string{"load point: 375/s, 100 connections\n"}},
		"live-linear":         {"varnish", 8, 36, []string{"lab: link 200gbit, 32 queues\n", "load point: 96 connections"}},
		"live-linear-ats":     {"varnish", 8, 36, []string{"lab: link 200gbit, 32 queues\n", "load point: 96 connections"}},
		"live-linear-nginx":   {"varnish", 8, 36, []string{"lab: link 200gbit, 32 queues\n", "load point: 96 connections"}},
		"live-linear-ktls":    {"varnish", 8, 36, []string{"lab: link 200gbit, 32 queues\n", "load point: 96 connections"}},
		"vod":                 {"varnish", 8, 36, []string{"lab: link 200gbit, 32 queues\n", "load point: 96 connections"}},
	}
	seen := 0
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		form, ok := forms[name]
		switch {
		case name == "hosts.example":
			continue
		case ok == (noVirtual[name] != ""):
			t.Errorf("%s: want a form for virtual time, or a reason why there is none", name)
			continue
		case !ok:
			continue
		}
		seen++
		h, err := ReadHosts("../../experiments/hosts/" + form.hosts + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		on, paper := described(t, name, experiment.Options{Hosts: h})
		e, virtual := described(t, name, experiment.Options{Virtual: true})
		if !slices.Contains(e.Sized, "sizes.virtual") || e.Lab.LinkRate != h.LinkRate {
			t.Errorf("%s: %v, link %d, want the hosts file's %d", name, e.Sized, e.Lab.LinkRate, h.LinkRate)
		}
		if e.Server.Queues != on.Server.Queues || e.Lab.Queues < e.Server.Queues+2 {
			t.Errorf("%s: %d of %d queues, want %d and some for the system", name, e.Server.Queues, e.Lab.Queues,
				on.Server.Queues)
		}
		if got := valuesLine.FindStringSubmatch(virtual); got == nil || got[2] != valuesLine.FindStringSubmatch(paper)[2] ||
			got[1] != fmt.Sprint(form.threads) {
			t.Errorf("%s: %v, want %d threads, and the queues of\n%s", name, got, form.threads, paper)
		}
		if all, part := last(on.Load.Rates), last(e.Load.Rates)*form.parts; form.hosts == "ats" && part != all {
			t.Errorf("%s: %d requests per second on %d cards, want %d", name, part, form.parts, all)
		}
		for _, want := range form.want {
			if !strings.Contains(virtual, want) {
				t.Errorf("%s: no %q in\n%s", name, want, virtual)
			}
		}
	}
	if seen != len(forms) {
		t.Errorf("%d experiments of %d", seen, len(forms))
	}
}

func last(s []int) int {
	if len(s) == 0 {
		return 0
	}
	return s[len(s)-1]
}
