// SPDX-License-Identifier: Apache-2.0

// Package bench compares niclane with the scripts that people write instead,
// side by side in one run. It asserts nothing about time.
package bench

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/niclane/niclane/internal/emucard"
)

const (
	lanes     = 15
	rules     = 8
	laneQueue = 1
	queues    = lanes*laneQueue + 1
	device    = "bench0"
	netns     = "niclane-bench"
	mac       = "02:6e:6c:be:00:01"
	rounds    = 7
)

// BenchmarkApply makes 15 lanes with 8 rules each, three ways in turn: niclane
// apply; a script that starts tc for every object; one tc -batch. The scripts
// do less: they neither look before nor read back after, set no threads, and
// steer with u32 filters, because tc cannot write the emulated card's rules.
// One round is one repetition; the metrics are medians.
func BenchmarkApply(b *testing.B) {
	if os.Geteuid() != 0 {
		b.Skip("not root")
	}
	dir := b.TempDir()
	niclane := filepath.Join(dir, "niclane")
	run(b, exec.Command("go", "build", "-buildvcs=false", "-o", niclane, "../../cmd/niclane"))
	card(b)
	config := filepath.Join(dir, "lanes.yaml")
	write(b, config, laneFile())
	script := filepath.Join(dir, "script.sh")
	write(b, script, "set -e\n"+strings.Join(tcLines("tc "), "\n")+"\n"+xpsLines())
	batch := filepath.Join(dir, "batch")
	write(b, batch, strings.Join(tcLines(""), "\n")+"\n")
	batchScript := filepath.Join(dir, "batch.sh")
	write(b, batchScript, "set -e\ntc -batch "+batch+"\n"+xpsLines())

	state := []string{"--state-dir", filepath.Join(dir, "state"), "--run-dir", filepath.Join(dir, "run")}
	ways := []struct {
		name     string
		do, undo []string
	}{
		{"apply", append([]string{niclane}, append(slices.Clone(state), "apply", config)...), append([]string{niclane}, append(slices.Clone(state), "rollback")...)},
		{"script", []string{"sh", script}, []string{"sh", "-c", undoLines()}},
		{"batch", []string{"sh", batchScript}, []string{"sh", "-c", undoLines()}},
	}
	for b.Loop() {
		took := map[string][]time.Duration{}
		for range rounds {
			for _, w := range ways {
				began := time.Now()
				run(b, inNetns(w.do...))
				took[w.name] = append(took[w.name], time.Since(began))
				run(b, inNetns(w.undo...))
			}
		}
		apply := median(took["apply"])
		b.ReportMetric(float64(apply.Microseconds())/1000, "ms-apply")
		b.ReportMetric(float64(median(took["script"]))/float64(apply), "script/apply")
		b.ReportMetric(float64(median(took["batch"]))/float64(apply), "batch/apply")
	}
}

func median(ds []time.Duration) time.Duration {
	slices.Sort(ds)
	return ds[len(ds)/2]
}

// card makes a namespace with a multi-queue veth and the emulated card's state
// for it. Nothing travels, so its programs are not attached.
func card(b *testing.B) {
	b.Helper()
	run(b, exec.Command("ip", "netns", "add", netns))
	b.Cleanup(func() { run(b, exec.Command("ip", "netns", "del", netns)) })
	n := fmt.Sprint(queues)
	run(b, inNetns("ip", "link", "add", device, "address", mac, "numrxqueues", n, "numtxqueues", n,
		"type", "veth", "peer", "name", "wire0", "numrxqueues", n, "numtxqueues", n))
	run(b, inNetns("ip", "link", "set", device, "up"))
	run(b, inNetns("ip", "link", "set", "wire0", "up"))
	run(b, inNetns("ethtool", "-K", device, "gro", "on"))
	mountBPF(b)
	addr, err := net.ParseMAC(mac)
	if err != nil {
		b.Fatal(err)
	}
	programs, err := emucard.Create(emucard.Config{
		MAC: addr, Queues: queues, Rules: 1024, Contexts: 16, LinkRate: 10e9, Arbiter: 1,
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := emucard.Remove(emucard.Dir(addr)); err != nil {
			b.Error(err)
		}
	})
	if err := programs.Close(); err != nil {
		b.Fatal(err)
	}
}

// mountBPF mounts the file system of emulated cards unless a lab has.
func mountBPF(b *testing.B) {
	b.Helper()
	if out, err := exec.Command("stat", "-f", "-c", "%T", emucard.Root).Output(); err == nil && strings.TrimSpace(string(out)) == "bpf_fs" {
		return
	}
	if err := os.MkdirAll(emucard.Root, 0o700); err != nil {
		b.Fatal(err)
	}
	run(b, exec.Command("mount", "-t", "bpf", "bpf", emucard.Root))
	b.Cleanup(func() {
		run(b, exec.Command("umount", emucard.Root))
		_ = os.Remove(emucard.Root)
		_ = os.Remove(filepath.Dir(emucard.Root)) // if nothing else is in it
	})
}

func laneFile() string {
	var s strings.Builder
	fmt.Fprintf(&s, "version: 1\nglobals:\n  dev: %s\nlanes:\n", device)
	for l := range lanes {
		fmt.Fprintf(&s, "  lane%d:\n    rank: %d\n    guarantee: 100mbit\n    queues: %d\n    addrs: [10.0.0.1]\n    ports: [%d-%d]\n",
			l, 1+l%7, laneQueue, 1000+l*rules, 1000+l*rules+rules-1)
	}
	return s.String()
}

// tcLines are the same lanes for tc, one command a line.
func tcLines(tc string) []string {
	lines := []string{
		fmt.Sprintf("%sqdisc add dev %s root handle 1: htb default 2", tc, device),
		fmt.Sprintf("%sclass add dev %s parent 1: classid 1:1 htb rate 9800mbit", tc, device),
		fmt.Sprintf("%sclass add dev %s parent 1:1 classid 1:2 htb rate 8000mbit ceil 9800mbit prio 7", tc, device),
		fmt.Sprintf("%sqdisc add dev %s clsact", tc, device),
	}
	for l := range lanes {
		lines = append(lines, fmt.Sprintf("%sclass add dev %s parent 1:1 classid 1:%x htb rate 100mbit ceil 9800mbit prio %d", tc, device, 16+l, l%7))
		for r := range rules {
			port := 1000 + l*rules + r
			lines = append(lines,
				fmt.Sprintf("%sfilter add dev %s parent 1: protocol ip prio 1 u32 match ip sport %d 0xffff flowid 1:%x", tc, device, port, 16+l),
				fmt.Sprintf("%sfilter add dev %s ingress protocol ip prio 1 u32 match ip dport %d 0xffff classid 1:%x", tc, device, port, 16+l))
		}
	}
	return lines
}

func xpsLines() string {
	var s strings.Builder
	for q := range queues {
		fmt.Fprintf(&s, "echo %x > /sys/class/net/%s/queues/tx-%d/xps_rxqs\n", 1<<q, device, q)
	}
	return s.String()
}

func undoLines() string {
	s := fmt.Sprintf("tc qdisc del dev %s clsact; tc qdisc del dev %s root\n", device, device)
	for q := range queues {
		s += fmt.Sprintf("echo 0 > /sys/class/net/%s/queues/tx-%d/xps_rxqs\n", device, q)
	}
	return s
}

func inNetns(argv ...string) *exec.Cmd {
	return exec.Command("ip", append([]string{"netns", "exec", netns}, argv...)...)
}

func run(b *testing.B, cmd *exec.Cmd) {
	b.Helper()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		b.Fatalf("%v: %v\n%s", cmd.Args, err, out.String())
	}
}

func write(b *testing.B, path, text string) {
	b.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		b.Fatal(err)
	}
}
