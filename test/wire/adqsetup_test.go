// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/lane/config"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/plan"
	"github.com/niclane/niclane/migrate/adqsetup"
)

var update = flag.Bool("update", false, "rewrite the comparisons; read the diff")

// reasons explain requests that only one side makes: "-" adqsetup, "+" niclane. prefix is the start
// of the request. A request of one side without a reason fails the test.
var reasons = []struct{ side, prefix, why string }{
	{"-", "delete root qdisc ", "adqsetup clears the device first; niclane changes what is different"},
	{"-", "delete all filters of ", "they may be others'"},
	{"-", "priority ", "any program can set a low priority"},
	{"+", "priority ", "niclane's are 8 to 15, and what no lane matches has none of them"},
	{"-", "filter egress flower ", "niclane's classifier does it"},
	{"+", "classifier: ", "one program for all lanes, in place of a filter with an action for each match"},
	{"+", "filter ingress flower ipv6 ", "without addrs niclane matches IPv6, too"},
	{"-", "private flag ", "of Intel's own driver; on is the default there, and pollers have tcN_inline_fd"},
	{"-", "devlink tc1_poller_timeout 10000", "it is so already"},
	{"+", "devlink tc", "connections come in where they go out, by class instead of by the device's private flag"},
	{"-", "poller thread of queue ", "cpus = auto: adqsetup gives the default lane's queues processors first"},
	{"+", "poller thread of queue ", "cpus = auto: the lanes' pollers have processors from the first"},
	{"-", "rule ", "a queue for each port: niclane spreads the lane's connections (docs/migrating-from-adqsetup.md)"},
	{"-", "interrupt of queue ", "adqsetup gives all queues processors in turn, those of the default lane, too; " +
		"niclane moves what is not where the lane is polled"},
	{"+", "interrupt of queue ", "the lanes' queues have processors in turn from the first"},
	{"-", "feature rx-ntuple-filter", "nothing is asked for: it is as it was"},
}

// TestAdqsetup compares adqsetup's recorded requests with niclane's. For traffic control, it
// compares messages; for everything else, adqsetup's requests with the objects in niclane's plan.
func TestAdqsetup(t *testing.T) {
	files, err := filepath.Glob("testdata/*.conf")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files: %v", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(file, ".conf")
		t.Run(filepath.Base(name), func(t *testing.T) {
			theirs, ours := recorded(t, name+".adqsetup"), niclanes(t, file)
			var lines []string
			for _, l := range slices.Sorted(maps.Keys(theirs)) {
				if ours[l] {
					lines = append(lines, "= "+l)
				} else {
					lines = append(lines, "- "+l+reason(t, "-", l))
				}
			}
			for _, l := range slices.Sorted(maps.Keys(ours)) {
				if !theirs[l] {
					lines = append(lines, "+ "+l+reason(t, "+", l))
				}
			}
			got := strings.Join(lines, "\n") + "\n"
			if *update {
				must.Do(t, os.WriteFile(name+".compared", []byte(got), 0o644))
			}
			want, err := os.ReadFile(name + ".compared")
			must.Do(t, err)
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func reason(t *testing.T, side, line string) string {
	for _, r := range reasons {
		if r.side == side && strings.HasPrefix(line, r.prefix) {
			return "\n    " + r.why
		}
	}
	t.Errorf("%s %s: no reason", side, line)
	return ""
}

// recorded returns the requests of adqsetup in a file. For each setting it returns only the last
// value, and it leaves out requests that change nothing.
func recorded(t *testing.T, file string) map[string]bool {
	text, err := os.ReadFile(file)
	must.Do(t, err)
	asked, settings := map[string]bool{}, map[string]string{}
	set := func(of, value string) { settings[of] = value }
	var interrupts [][2]string // number, from 0, and processor
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		switch f[0] {
		case "route":
			lines, err := traffic(unhex(t, f[1]))
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			for _, l := range lines {
				asked[l] = true
			}
		case "ioctl":
			ioctl(unhex(t, f[1]), set)
		case "devlink":
			set("devlink "+f[1], f[2])
		case "affinity":
			set("poller thread of "+strings.Replace(f[1], "-", " ", 1)+" on processor", f[2])
		case "write":
			var irq int
			if n, _ := fmt.Sscanf(f[1], "/proc/irq/%d/smp_affinity_list", &irq); n == 1 {
				interrupts = append(interrupts, [2]string{strconv.Itoa(irq - firstIRQ), f[2]})
			} else {
				set("write "+f[1], f[2])
			}
		default:
			t.Fatalf("%s: %q", file, line)
		}
	}
	for _, i := range interrupts {
		set("interrupt of queue "+strconv.Itoa(servedQueue(t, i[0], settings))+" on processor", i[1])
	}
	for of, value := range settings {
		if initial := map[string]string{"0": "", "off": ""}; !strings.Contains(of, "processor") &&
			!strings.HasPrefix(of, "moderation") {
			if _, as := initial[value]; as {
				continue
			}
		}
		asked[of+" "+value] = true
	}
	return asked
}

// firstIRQ is the number of the first interrupt, and defaultQueues that of the default lane's queues
// (record.py; all files).
const firstIRQ, defaultQueues = 42, 2

// servedQueue returns the first queue that the nth interrupt serves. Intel's driver frees the
// interrupts of the queues that another queue's poller polls (ice_vsi_req_single_irq_msix), so
// adqsetup counts one interrupt for each poller.
func servedQueue(t *testing.T, nth string, settings map[string]string) int {
	n, err := strconv.Atoi(nth)
	must.Do(t, err)
	each, _ := strconv.Atoi(settings["devlink tc1_qps_per_poller"])
	if n < defaultQueues || each == 0 {
		return n
	}
	return defaultQueues + (n-defaultQueues)*each
}

// niclanes returns niclane's requests for the same file and the same card.
func niclanes(t *testing.T, file string) map[string]bool {
	asked := map[string]bool{}
	var messages []device.Object
	for _, s := range planned(t, file, "sim0").Steps {
		switch o := s.New.(type) {
		case device.Qdisc, device.Flower:
			messages = append(messages, o)
		case device.Feature:
			asked["feature "+o.Name+" "+map[bool]string{true: "on", false: "off"}[o.On]] = true
		case device.Coalesce:
			asked[fmt.Sprintf("moderation of queue %d adaptive-rx %s adaptive-tx %s rx-usecs %d tx-usecs %d", o.Queue,
				map[bool]string{true: "on", false: "off"}[o.RxAdapt],
				map[bool]string{true: "on", false: "off"}[o.TxAdapt], o.RxUsecs, o.TxUsecs)] = true
		case device.PrivFlag:
			asked["private flag "+o.Name+" "+map[bool]string{true: "on", false: "off"}[o.On]] = true
		case device.Ring:
			asked[fmt.Sprintf("rings rx %d tx %d", o.RX, o.TX)] = true
		case device.DriverParam:
			asked["devlink "+o.Name+" "+o.Value] = true
		case device.File:
			asked["write "+o.Path+" "+o.Value] = true
		case device.Thread:
			cpus := device.FormatCPUList(o.CPUs)
			asked[fmt.Sprintf("poller thread of queue %d on processor %s", o.Queue, cpus)] = true
		case device.Affinity:
			asked[fmt.Sprintf("interrupt of queue %d on processor %s", o.Queue, strings.Join(o.CPUs, ","))] = true
		case device.Filter, device.FilterEntry, device.FilterDefault, device.Tunnels:
			asked["classifier: "+s.Commands()[0]] = true
		default:
			t.Errorf("%s: not compared", s.Key())
		}
	}
	for l := range sent(t, "niclane", file, len(messages)) {
		asked[l] = true
	}
	return asked
}

// planned returns the plan for a file of adqsetup. The card, recorded with 8 queues, gets the name
// dev.
func planned(t *testing.T, file, dev string) *plan.Plan {
	t.Helper()
	text, err := os.ReadFile(file)
	must.Do(t, err)
	res, err := adqsetup.Convert(file, dev, text)
	must.Do(t, err)
	in, err := config.Parse("lanes.yaml", []byte(res.Lanes))
	must.Do(t, err)
	card, err := os.ReadFile("../../lane/plan/testdata/simcard-ice.json")
	must.Do(t, err)
	st := &device.State{}
	must.Do(t, json.Unmarshal(bytes.ReplaceAll(card, []byte("sim0"), []byte(dev)), st))
	st.CPUs = nil
	for id := range 16 { // the same as in record.py
		st.CPUs = append(st.CPUs, device.CPU{ID: id, Online: true, Core: id})
	}
	p, err := plan.Make(in, st, plan.Owned{})
	must.Do(t, err)
	return p
}

func TestMain(m *testing.M) { os.Exit(vethtest.Isolate(m)) }
