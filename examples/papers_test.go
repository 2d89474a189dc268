// SPDX-License-Identifier: Apache-2.0

package examples

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/lane/config"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/plan"
)

var update = flag.Bool("update", false, "rewrite the goldens; read the diff")

// TestPapers plans each papers/NAME.yaml for a card with ADQ, on a host of the papers' size, and
// compares the plan with papers/NAME.plan. papers/NAME.txt is the listing from the paper. Readers
// can compare it.
func TestPapers(t *testing.T) {
	files, err := filepath.Glob("papers/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(file, ".yaml")
		t.Run(filepath.Base(name), func(t *testing.T) {
			text, err := os.ReadFile(file)
			must.Do(t, err)
			if _, err := os.Stat(name + ".txt"); err != nil {
				t.Errorf("the paper's listing: %v", err)
			}
			in, err := config.Parse(file, text)
			must.Do(t, err)
			st := host(t, in.Group.Devices[0])
			p, err := plan.Make(in, st, plan.Owned{})
			must.Do(t, err)
			got := brief(p)
			if *update {
				must.Do(t, os.WriteFile(name+".plan", got, 0o644))
				return
			}
			want, err := os.ReadFile(name + ".plan")
			must.Do(t, err)
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// numbered matches a queue number or processor number in a command line, with the word before it.
var numbered = regexp.MustCompile(`(/tx-|/rx-|rx-|queue_mask 0x|TxRx-)[0-9a-f]+`)

// brief returns the command lines of the plan's steps. If several steps differ only in queue or
// processor numbers, it prints the first one and how many there are. Then it returns the lanes' queues
// and processors.
func brief(p *plan.Plan) []byte {
	var b bytes.Buffer
	last, first, n := "", "", 0
	flush := func() {
		switch {
		case n > 1:
			fmt.Fprintf(&b, "%s\n    ... %d such steps\n", first, n)
		case n == 1:
			fmt.Fprintln(&b, first)
		}
	}
	for _, s := range p.Steps {
		if len(s.Commands()) == 0 {
			continue
		}
		what := string(s.Part) + " " + s.Object().Kind()
		for _, line := range s.Commands() {
			what += " " + fold(line)
		}
		if what == last {
			n++
			continue
		}
		flush()
		last, first, n = what, strings.Join(s.Commands(), "\n"), 1
	}
	flush()
	for _, l := range p.Lanes {
		fmt.Fprintf(&b, "lane %s: queues %s on %d processors, %s\n", l.Name, device.FormatCPUList(l.Queues),
			len(l.CPUs), device.FormatCPUList(l.CPUs))
	}
	for _, note := range p.Notes {
		fmt.Fprintf(&b, "note: %s\n", note)
	}
	return b.Bytes()
}

func fold(line string) string {
	if value, path, ok := strings.Cut(line, " > "); ok && strings.HasPrefix(value, "echo ") {
		line = "echo > " + path
	}
	return numbered.ReplaceAllString(line, "$1")
}

// host returns a host with the recorded state of the simulated ADQ card. It enlarges the host to
// the papers' size: 128 queues, 144 processors on 2 nodes, 100 Gbit/s.
func host(t *testing.T, dev string) *device.State {
	t.Helper()
	const queues, processors, firstIRQ, firstNAPI = 128, 144, 200, 9000
	text, err := os.ReadFile("../lane/plan/testdata/simcard-ice.json")
	must.Do(t, err)
	st := &device.State{}
	must.Do(t, json.Unmarshal(bytes.ReplaceAll(text, []byte("sim0"), []byte(dev)), st))
	st.CPUs = nil
	for id := range processors {
		// Processors N and N+72 are the two threads of a core, as on the host of the ATS paper.
		st.CPUs = append(st.CPUs, device.CPU{ID: id, Online: true, Node: id / 36 % 2, Core: id % 36,
			Package: id / 36 % 2})
	}
	d := &st.Devices[0]
	d.PrivFlags["channel-pkt-inspect-optimize"] = true // as the driver starts (ice_main.c: ice_init)
	d.Node, d.Speed, d.RxQueues, d.TxQueues = 0, 100e9, queues, queues
	d.Channels.Combined, d.MaxChannels.Combined = queues, queues
	coalesce, napi, irq, qdisc := d.QueueCoal[0], d.NAPIs[0], d.IRQs[0], d.Qdiscs[0]
	d.QueueCoal, d.NAPIs, d.IRQs, d.Queues, d.Qdiscs = nil, nil, nil, nil, d.Qdiscs[len(d.Qdiscs)-1:]
	oldIRQ := fmt.Sprintf("/proc/irq/%d/", irq.Number)
	files := map[string]device.File{}
	perQueue := regexp.MustCompile(`/queues/[rt]x-[0-9]+/|/proc/irq/`)
	for path, f := range st.Files {
		if !perQueue.MatchString(path) {
			files[path] = f
		}
	}
	copyFile := func(f device.File, old, next string) {
		f.Path = strings.Replace(f.Path, old, next, 1)
		files[f.Path] = f
	}
	for q := range queues {
		coalesce.Queue, napi.Config.Queue, irq.Queue = q, q, q
		napi.ID, napi.IRQ, irq.Number = uint32(firstNAPI+q), firstIRQ+q, firstIRQ+q
		irq.Name = fmt.Sprintf("ice-%s-TxRx-%d", dev, q)
		qdisc.Parent = fmt.Sprintf("0:%x", q+1)
		d.QueueCoal, d.NAPIs, d.IRQs, d.Qdiscs = append(d.QueueCoal, coalesce), append(d.NAPIs, napi),
			append(d.IRQs, irq), append(d.Qdiscs, qdisc)
		for _, f := range st.Files {
			switch {
			case strings.HasPrefix(f.Path, oldIRQ):
				copyFile(f, oldIRQ, fmt.Sprintf("/proc/irq/%d/", irq.Number))
			case strings.Contains(f.Path, "x-0/"):
				copyFile(f, "x-0/", fmt.Sprintf("x-%d/", q))
			}
		}
	}
	for _, kind := range []string{"rx", "tx"} {
		for q := range queues {
			d.Queues = append(d.Queues, device.Queue{ID: q, Type: kind, NAPI: uint32(firstNAPI + q)})
		}
	}
	for i := range d.RSS[0].Queues {
		d.RSS[0].Queues[i] = i % queues
	}
	for _, name := range []string{"cpuset.cpus", "cpuset.mems"} { // of the paper's cgcreate
		path := "/sys/fs/cgroup/ats/" + name
		files[path] = device.File{Path: path, Format: device.FileCPUList}
	}
	st.Cgroups.Groups, st.Cgroups.V2Groups = map[string]bool{"/ats": true}, map[string]bool{"/ats": true}
	st.Files = maps.Clone(files)
	return st
}
