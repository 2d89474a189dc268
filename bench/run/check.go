// SPDX-License-Identifier: Apache-2.0

package run

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/bench/machine"
	"github.com/niclane/niclane/bench/noise"
	"github.com/niclane/niclane/bench/power"
	"github.com/niclane/niclane/bench/result"
	y "github.com/niclane/niclane/internal/strictyaml"
	"github.com/niclane/niclane/lab/virtual"
	"github.com/niclane/niclane/lane/config"
)

// maxFile is the size in bytes of the largest file that is read. No useful file is so large. The
// limit keeps a wrong path (a device, a log) from filling the memory.
const maxFile = 1 << 20

// ReadOn reads an experiment's file and checks everything that can be known before the start.
// on are the hosts of the experiment; nil: its lab. Errors name file and line.
func ReadOn(path string, on *experiment.Hosts) (*experiment.File, string, error) {
	return ReadWith(path, experiment.Options{Hosts: on})
}

// ReadWith does the same as ReadOn, with all options.
func ReadWith(path string, o experiment.Options) (*experiment.File, string, error) {
	text, err := readLimited(path)
	if err != nil {
		return nil, "", err
	}
	f, err := experiment.ParseWith(path, text, o)
	if err != nil {
		return nil, "", err
	}
	return f, string(text), check(f, o.Virtual && !virtual.Here())
}

func readLimited(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = fmt.Errorf("%s: larger than %d bytes", path, maxFile)
	}
	return text, err
}

// Check reports what this niclane cannot execute on this machine. The error is an
// experiment.Errors.
func Check(f *experiment.File) error { return check(f, false) }

// check does the same. elsewhere says that the experiment will run on another kernel: in virtual time.
func check(f *experiment.File, elsewhere bool) error {
	var errs experiment.Errors
	bad := func(path, format string, args ...any) {
		errs = append(errs, f.Problem(path, fmt.Sprintf(format, args...)))
	}
	e := f.Experiment
	for i, n := range e.Noise {
		if n.Protocol == noise.UDP && e.Lab != nil {
			if most := largestDatagram(cmp.Or(e.Lab.MTU, labMTU), false); n.Segment > most {
				bad(fmt.Sprintf("noise[%d].segment", i),
					"found %d with protocol: udp, want at most %d, which fits the MTU in one packet", n.Segment, most)
			}
		}
	}
	for i, c := range e.Power {
		if _, err := power.Open(c); err != nil {
			bad(powerPath(f, i), "%v", err)
		}
	}
	if s := e.Search; s != nil && !slices.Equal(s.LatencyAt, []int{100, 500, 900}) {
		bad("search.latency-at", "only 10%%, 50%%, 90%% are supported; leave it out")
	}
	if e.Hosts == nil { // on hosts, the agents look for programs
		checkPrograms(e, bad)
		if !elsewhere {
			checkKernelTLS(e, bad)
		}
	}
	for i, v := range e.Variants {
		if v.LanesFile == "" {
			continue
		}
		at := fmt.Sprintf("variants[%d].lanes-file", i)
		if text, err := readLimited(beside(f, v.LanesFile)); err != nil {
			bad(at, "%v", err)
		} else if _, err := config.Parse(v.LanesFile, text); err != nil {
			bad(at, "%v", err)
		}
	}
	if len(errs) > 0 {
		return errs
	}
	return nil
}

// powerPath returns the path of power source i in the file. A single source needs no list, so its
// path is "power".
func powerPath(f *experiment.File, i int) string {
	if len(f.Experiment.Power) == 1 {
		return "power"
	}
	return fmt.Sprintf("power[%d]", i)
}

// wanted says where to get programs that are in no Debian package.
var wanted = map[string]string{
	"asd": ": Aerospike's server has no Debian package; want Aerospike Community Edition's asd on the PATH, or the " +
		"file with kind: running and --hosts, for a server that already runs",
}

// checkPrograms reports programs that the run starts and that are not on this machine. The lab's
// hosts have this machine's files.
func checkPrograms(e *experiment.Experiment, bad func(path, format string, args ...any)) {
	look := func(path, program string) {
		if strings.Contains(program, "$") {
			return // known only at the start
		}
		if _, err := exec.LookPath(program); err != nil {
			bad(path, "%v%s", err, wanted[filepath.Base(program)])
		}
	}
	switch s := &e.Server; {
	case s.Kind == experiment.KindMemcached && s.Fallback == "":
		look("server.kind", "memcached")
	case s.Kind == experiment.KindCommand && len(s.Command) > 0:
		look("server.command", s.Command[0])
	}
	for i, p := range e.Server.Beside {
		if len(p.Command) > 0 {
			look(fmt.Sprintf("server.beside[%d].command", i), p.Command[0])
		}
	}
}

// checkKernelTLS reports a kernel without TLS if a variant needs it. The module must be loaded
// before: an unprivileged server cannot load it (net/ipv4/tcp_ulp.c).
func checkKernelTLS(e *experiment.Experiment, bad func(path, format string, args ...any)) {
	for i, v := range e.Variants {
		if v.Server == nil || !v.Server.KernelTLS {
			continue
		}
		if _, err := os.Stat(machine.TLSFile); err != nil {
			bad(fmt.Sprintf("variants[%d].server.kernel-tls", i), "found on, but this kernel has no TLS; want the "+
				"module tls: modprobe tls, as root, on a kernel with CONFIG_TLS")
			return
		}
	}
}

// beside resolves a path relative to the experiment's file.
func beside(f *experiment.File, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(filepath.Dir(f.Name), path)
}

// lanesOf returns the lanes file of a variant, "" without lanes.
func lanesOf(f *experiment.File, v experiment.Variant, values map[string]string) (string, error) {
	var text string
	switch {
	case v.LanesFile != "":
		b, err := readLimited(beside(f, v.LanesFile))
		if err != nil {
			return "", err
		}
		text = string(b)
	case v.Lanes == "":
		return "", nil
	default:
		lanes := v.Lanes
		if values[experiment.NameCgroup] == "" {
			// Without cpuset, the host has no control group for the server. Only the ports then
			// identify the server's lane.
			lanes = cgroupLine.ReplaceAllString(lanes, "")
		}
		var err error
		if text, err = experiment.Expand(lanes, values); err != nil {
			return "", err
		}
	}
	if len(v.Force) > 0 {
		var err error
		if text, err = force(text, v.Force); err != nil {
			return "", err
		}
	}
	if _, err := config.Parse("lanes of "+v.Name, []byte(text)); err != nil {
		return "", err
	}
	return text, nil
}

var cgroupLine = regexp.MustCompile(`(?m)^[ \t]+cgroup:[ \t]*\$cgroup[ \t]*(#.*)?(\n|\z)`)

// force replaces globals.force of a lanes file by mechanisms.
func force(text string, mechanisms map[string]string) (string, error) {
	var top yaml.MapSlice
	if err := yaml.UnmarshalWithOptions([]byte(text), &top, yaml.UseOrderedMap()); err != nil {
		return "", err
	}
	for i := range top {
		globals, ok := top[i].Value.(yaml.MapSlice)
		if top[i].Key != "globals" || !ok {
			continue
		}
		globals = slices.DeleteFunc(globals, func(m yaml.MapItem) bool { return m.Key == "force" })
		top[i].Value = append(globals, yaml.MapItem{Key: "force", Value: mechanisms})
		out, err := yaml.Marshal(top)
		return string(out), err
	}
	return "", errors.New("no globals, where force belongs")
}

// Describe prints what a run of f will do, and how long it takes.
func Describe(out io.Writer, f *experiment.File) error {
	e := f.Experiment
	least, most := experiment.Estimate(e)
	n, m := experiment.Windows(e)
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", e.Title)
	fmt.Fprintf(&b, "server: %s on port %d, workload: %s\n", e.Server.Kind, e.Server.Port, e.Workload.Protocol)
	describeSize(&b, e)
	for _, p := range points(e.Load) {
		fmt.Fprintf(&b, "load point: %s\n", p.Name())
	}
	for _, v := range e.Variants {
		text, err := variantText(e, v)
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "variant: %s\n", text)
	}
	if n == m {
		fmt.Fprintf(&b, "windows: %d of %s after %s", n, y.DurationText(e.Load.Window), y.DurationText(e.Load.Warmup))
	} else {
		fmt.Fprintf(&b, "windows: %d to %d of %s after %s", n, m, y.DurationText(e.Load.Window),
			y.DurationText(e.Load.Warmup))
	}
	b.WriteByte('\n')
	if s := e.Sweep; s != nil {
		fmt.Fprintf(&b, "sweep: %d windows of %s\n", len(s.Variants)*len(s.Noise)*max(1, len(s.SwitchBuffers)),
			y.DurationText(s.Window))
	}
	for _, s := range e.SLAs() {
		fmt.Fprintf(&b, "sla: %s at most %s\n", result.PercentileText(s.Percentile), y.DurationText(s.At))
	}
	for _, c := range e.Power {
		fmt.Fprintf(&b, "power: %s\n", c.Source)
	}
	fmt.Fprintf(&b, "time: at least %v, about %v at most", time.Duration(least).Round(time.Second),
		time.Duration(most).Round(time.Second))
	if more := experiment.PerInstance(e); more > 0 {
		fmt.Fprintf(&b, ", and %v more for each further NUMA node that the server is on",
			time.Duration(more).Round(time.Second))
	}
	fmt.Fprintf(&b, "; limit %v\n", time.Duration(e.TimeLimit))
	_, err := io.WriteString(out, b.String())
	return err
}
