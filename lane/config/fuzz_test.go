// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/lane/config"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/intent"
)

// FuzzParse checks that Parse does not panic, that it gives the same answer twice, and that its
// errors have positions, are in file order and take one line each. The schema must accept every
// file that Parse accepts. An intent written as a file must parse to an equal intent.
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/*.txtar")
	must.Do(f, err)
	for _, name := range files {
		ar, err := txtar.ParseFile(name)
		must.Do(f, err)
		f.Add(ar.Files[0].Data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		in, err := config.Parse("lanes.yaml", data)
		again, err2 := config.Parse("lanes.yaml", data)
		if diff := cmp.Diff(in, again, comparePrefix); diff != "" {
			t.Fatalf("two answers (-first +second):\n%s", diff)
		}
		if (err == nil) != (err2 == nil) || err != nil && err.Error() != err2.Error() {
			t.Fatalf("two answers: %v; %v", err, err2)
		}
		if err == nil {
			if err := validate(t, data); err != nil {
				t.Errorf("the schema refuses it: %v", err)
			}
			sameAgain(t, in)
			return
		}
		var errs config.Errors
		if !errors.As(err, &errs) || len(errs) == 0 {
			t.Fatalf("got %T %v, want config.Errors", err, err)
		}
		lines := strings.Count(string(data), "\n") + 1
		for _, e := range errs {
			if e.Line < 1 || e.Line > lines || e.Column < 1 {
				t.Errorf("%d:%d of %d lines: %s", e.Line, e.Column, lines, e.Message)
			}
			if e.File != "lanes.yaml" || e.Message == "" || strings.ContainsAny(e.Error(), "\n\x00") {
				t.Errorf("bad message: %q", e.Error())
			}
		}
		if !slices.IsSortedFunc(errs, func(a, b config.Error) int {
			if a.Line != b.Line {
				return a.Line - b.Line
			}
			return a.Column - b.Column
		}) {
			t.Errorf("not in order:\n%v", errs)
		}
	})
}

var comparePrefix = cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })

// sameAgain writes an intent as a file, parses the file, and compares the two intents.
func sameAgain(t *testing.T, in *intent.Intent) {
	t.Helper()
	text := write(in)
	again, err := config.Parse(in.Source, []byte(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	// A member's path depends on whether the file lists the member. It is not compared.
	noPath := cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".Path" }, cmp.Ignore())
	if diff := cmp.Diff(in, again, comparePrefix, noPath); diff != "" {
		t.Fatalf("(-first +again):\n%s\n%s", diff, text)
	}
}

// write returns an intent as a lanes file.
func write(in *intent.Intent) string {
	b := &strings.Builder{}
	g := in.Group
	fmt.Fprint(b, "version: 1\nglobals:\n")
	if g.Bond != "" {
		fmt.Fprintf(b, "  bond: %q\n", g.Bond)
	} else {
		fmt.Fprintf(b, "  dev: %s\n", list(g.Devices, strconv.Quote))
	}
	put(b, "  ", "vlans", list(g.VLANs, strconv.Itoa), len(g.VLANs) > 0)
	put(b, "  ", "tunnels", list(g.Tunnels, func(t intent.Tunnel) string {
		return fmt.Sprintf("%s:%d", t.Protocol, t.Port)
	}), len(g.Tunnels) > 0)
	put(b, "  ", "link-rate", fmt.Sprintf("%dbit", g.LinkRate), g.LinkRate > 0)
	put(b, "  ", "unshaped", list(g.Unshaped, netip.Prefix.String), len(g.Unshaped) > 0)
	pointer(b, "  ", "busypoll", g.BusyPoll)
	pointer(b, "  ", "busyread", g.BusyRead)
	pointer(b, "  ", "arpfilter", g.ARPFilter)
	pointer(b, "  ", "optimize", g.Optimize)
	pointer(b, "  ", "rxring", in.Default.Rings.Rx)
	pointer(b, "  ", "txring", in.Default.Rings.Tx)
	if len(g.Force) > 0 {
		fmt.Fprint(b, "  force:\n")
		for _, part := range slices.Sorted(maps.Keys(g.Force)) {
			fmt.Fprintf(b, "    %s: %q\n", part, g.Force[part])
		}
	}
	writeLane(b, "  ", &in.Default)
	fmt.Fprint(b, "lanes:\n")
	for _, l := range in.Lanes {
		fmt.Fprintf(b, "  %q:\n    mode: %s\n", l.Name, l.Mode)
		writeLane(b, "    ", &l)
		if len(l.Members) == 0 {
			fmt.Fprint(b, "    members: []\n")
			continue
		}
		fmt.Fprint(b, "    members:\n")
		for _, m := range l.Members {
			fmt.Fprintf(b, "      - protocol: %s\n", m.Protocol)
			const in = "        "
			put(b, in, "name", strconv.Quote(m.Name), m.Name != "")
			put(b, in, "ports", list(m.Ports, decimal), len(m.Ports) > 0)
			put(b, in, "remote-ports", list(m.RemotePorts, decimal), len(m.RemotePorts) > 0)
			put(b, in, "addrs", list(m.Addrs, netip.Prefix.String), len(m.Addrs) > 0)
			put(b, in, "remote-addrs", list(m.RemoteAddrs, netip.Prefix.String), len(m.RemoteAddrs) > 0)
			put(b, in, "cgroup", strconv.Quote(m.Cgroup), m.Cgroup != "")
			put(b, in, "cgroup-cpus", strconv.Quote(device.FormatCPUList(m.CgroupCPUs)), len(m.CgroupCPUs) > 0)
			put(b, in, "cgroup-mems", strconv.Quote(device.FormatCPUList(m.CgroupMems)), len(m.CgroupMems) > 0)
			put(b, in, "aligned", "on", m.Aligned)
		}
	}
	return b.String()
}

func writeLane(b *strings.Builder, in string, l *intent.Lane) {
	put(b, in, "queues", strconv.Itoa(l.Queues), l.Queues != 0)
	put(b, in, "cpus", strconv.Quote(device.FormatCPUList(l.CPUs)), len(l.CPUs) > 0)
	put(b, in, "numa", string(l.NUMA), l.NUMA != "")
	put(b, in, "guarantee", rate(l.Bandwidth.Guarantee), !l.Bandwidth.Guarantee.IsZero())
	put(b, in, "ceiling", rate(l.Bandwidth.Ceiling), !l.Bandwidth.Ceiling.IsZero())
	put(b, in, "rank", strconv.Itoa(l.Rank), l.Rank > 0)
	put(b, in, "dscp", l.DSCP, l.DSCP != "")
	put(b, in, "pcp", l.PCP, l.PCP != "")
	p := l.Poller
	put(b, in, "poller", string(p.Kind), p.Kind != "")
	put(b, in, "pollers", strconv.Itoa(p.Count), p.Count > 0)
	put(b, in, "poller-timeout", fmt.Sprintf("%dus", p.TimeoutUsecs), p.TimeoutUsecs > 0)
	put(b, in, "poller-priority", strconv.Itoa(p.Priority), p.Policy == intent.PolicyFIFO)
	put(b, in, "poller-nice", strconv.Itoa(p.Nice), p.Policy == intent.PolicyOther)
	pointer(b, in, "rxadapt", l.Moderation.RxAdapt)
	pointer(b, in, "txadapt", l.Moderation.TxAdapt)
	pointer(b, in, "rxusecs", l.Moderation.RxUsecs)
	pointer(b, in, "txusecs", l.Moderation.TxUsecs)
}

func put(b *strings.Builder, in, key, value string, given bool) {
	if given {
		fmt.Fprintf(b, "%s%s: %s\n", in, key, value)
	}
}

func pointer[T any](b *strings.Builder, in, key string, v *T) {
	if v != nil {
		fmt.Fprintf(b, "%s%s: %v\n", in, key, *v)
	}
}

func list[T any](xs []T, text func(T) string) string {
	out := make([]string, len(xs))
	for i, x := range xs {
		out[i] = text(x)
	}
	return "[" + strings.Join(out, ", ") + "]"
}

func decimal(p uint16) string { return strconv.Itoa(int(p)) }

func rate(r intent.Rate) string {
	if r.Permille > 0 {
		return fmt.Sprintf("%d.%d%%", r.Permille/10, r.Permille%10)
	}
	return fmt.Sprintf("%dbit", r.BitsPerSecond)
}
