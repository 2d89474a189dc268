// SPDX-License-Identifier: Apache-2.0

// Package bench compares niclane with the usual scripts. Both are measured in turn in one run. It
// does not check times against limits.
package bench

import (
	"bytes"
	"cmp"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/programs"
	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/lab/emucard"
)

const (
	lanes     = 15
	rules     = 8
	laneQueue = 1
	queues    = lanes*laneQueue + 1
	card0     = "bench0"
	netns     = "niclane-bench"
	mac       = "02:6e:6c:be:00:01"
	rounds    = 7
)

// BenchmarkApply makes 15 lanes with 8 rules each in three ways, in turn: with niclane apply, with
// a script that starts tc for every object, and with one tc -batch. The scripts also configure the
// lanes' pollers, with chrt and taskset for each thread. They do not check before a change, do not
// read back after it, and keep no journal. They steer with u32 filters, because tc cannot write the
// emulated card's rules. BenchmarkApply also compares niclane and tc -batch for lanes without
// pollers, which need only tc. One iteration measures each way once; the metrics are medians.
func BenchmarkApply(b *testing.B) {
	vethtest.NeedRoot(b)
	dir := b.TempDir()
	niclane := filepath.Join(dir, "niclane")
	build(b, niclane)
	card(b)
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		write(b, path, text)
		return path
	}
	batch := "tc -batch " + file("batch", strings.Join(tcLines(""), "\n")+"\n") + "\n" + xpsLines()
	apply := func(config string) []string {
		return []string{niclane, "--state-dir", filepath.Join(dir, "state"), "--run-dir", filepath.Join(dir, "run"),
			"apply", config}
	}
	rollback := append(slices.Clone(apply("")[:5]), "rollback")
	undo := []string{"sh", file("undo.sh", undoLines())}
	ways := []struct {
		name     string
		do, undo []string
	}{
		{"apply", apply(file("lanes.yaml", laneFile("thread"))), rollback},
		{"script", []string{"sh", file("script.sh", "set -e\n"+strings.Join(tcLines("tc "), "\n")+"\n"+xpsLines()+
			threadLines())}, undo},
		{"batch", []string{"sh", file("batch.sh", "set -e\n"+batch+threadLines())}, undo},
		{"apply without pollers", apply(file("plain.yaml", laneFile("interrupt"))), rollback},
		{"batch without pollers", []string{"sh", file("plain.sh", "set -e\n"+batch)}, undo},
	}
	for b.Loop() {
		took := map[string]costs{}
		for range rounds {
			for _, w := range ways {
				took[w.name] = append(took[w.name], timed(b, inNetns(w.do...)))
				run(b, inNetns(w.undo...))
			}
		}
		ratio := func(way, to string) float64 { return float64(took[way].wall()) / float64(took[to].wall()) }
		b.ReportMetric(0, "ns/op") // hides the time of all ways together, which means nothing
		took["apply"].report(b, "apply")
		took["apply without pollers"].report(b, "apply-without-pollers")
		b.ReportMetric(ratio("script", "apply"), "script/apply")
		b.ReportMetric(ratio("batch", "apply"), "batch/apply")
		b.ReportMetric(ratio("batch without pollers", "apply without pollers"), "batch/apply-without-pollers")
	}
}

// build builds a program. The base name of to is the program's name.
func build(b *testing.B, to string) {
	b.Helper()
	programs.Build(b, filepath.Dir(to), filepath.Base(to))
}

// cost is the elapsed time of a command and its processor time. The processor time includes the
// command's children and ip(8), which starts it in the namespace.
type cost struct{ elapsed, cpu time.Duration }

func timed(b *testing.B, cmd *exec.Cmd) cost {
	b.Helper()
	began := time.Now()
	run(b, cmd)
	return cost{time.Since(began), cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()}
}

type costs []cost

func (cs costs) wall() time.Duration {
	return cs.median(func(c cost) time.Duration { return c.elapsed })
}
func (cs costs) cpu() time.Duration { return cs.median(func(c cost) time.Duration { return c.cpu }) }

func (cs costs) median(of func(cost) time.Duration) time.Duration {
	var ds []time.Duration
	for _, c := range cs {
		ds = append(ds, of(c))
	}
	return median(ds)
}

// report reports the medians of the elapsed time and of the processor time. Other load on the
// machine affects the processor time less.
func (cs costs) report(b *testing.B, of string) {
	b.ReportMetric(float64(cs.wall().Microseconds())/1000, "ms-"+of)
	b.ReportMetric(float64(cs.cpu().Microseconds())/1000, "cpu-ms-"+of)
}

func median[T cmp.Ordered](v []T) T {
	slices.Sort(v)
	return v[len(v)/2]
}

// card makes a namespace with a multi-queue veth, and the state that makes the veth an emulated
// card. The card's eBPF programs are not attached, because no packets are sent.
func card(b *testing.B) {
	b.Helper()
	pair(b, queues)
	run(b, inNetns("ip", "link", "set", card0, "address", mac))
	run(b, inNetns("ethtool", "-K", card0, "gro", "on"))
	mountBPF(b)
	addr, err := net.ParseMAC(mac)
	must.Do(b, err)
	programs, err := emucard.Create(emucard.Config{
		MAC: addr, Queues: queues, Rules: 1024, Contexts: 16, LinkRate: 10e9, Arbiter: 1,
	})
	must.Do(b, err)
	b.Cleanup(func() {
		if err := emucard.Remove(emucard.Dir(addr)); err != nil {
			b.Error(err)
		}
	})
	must.Do(b, programs.Close())
}

// pair makes a namespace with a veth that has the given number of queues, and brings both ends up.
func pair(b *testing.B, queues int) {
	b.Helper()
	addNetns(b, netns)
	n := fmt.Sprint(queues)
	run(b, inNetns("ip", "link", "add", card0, "numrxqueues", n, "numtxqueues", n,
		"type", "veth", "peer", "name", "wire0", "numrxqueues", n, "numtxqueues", n))
	run(b, inNetns("ip", "link", "set", card0, "up"))
	run(b, inNetns("ip", "link", "set", "wire0", "up"))
}

// addNetns makes a namespace and removes it at the end of the benchmark.
func addNetns(b *testing.B, name string) {
	b.Helper()
	run(b, exec.Command("ip", "netns", "add", name))
	b.Cleanup(func() { run(b, exec.Command("ip", "netns", "del", name)) })
}

// mountBPF mounts the file system for emulated cards, unless a lab has mounted it already.
func mountBPF(b *testing.B) {
	b.Helper()
	if out, err := exec.Command("stat", "-f", "-c", "%T", emucard.Root).Output(); err == nil &&
		strings.TrimSpace(string(out)) == "bpf_fs" {
		return
	}
	must.Do(b, os.MkdirAll(emucard.Root, 0o700))
	run(b, exec.Command("mount", "-t", "bpf", "bpf", emucard.Root))
	b.Cleanup(func() {
		run(b, exec.Command("umount", emucard.Root))
		_ = os.Remove(emucard.Root)
		_ = os.Remove(filepath.Dir(emucard.Root)) // succeeds only if it is empty
	})
}

// laneFile returns a lanes file. All lanes have the given poller.
func laneFile(poller string) string {
	var s strings.Builder
	fmt.Fprintf(&s, "version: 1\nglobals:\n  dev: %s\nlanes:\n", card0)
	for l := range lanes {
		fmt.Fprintf(&s, "  lane%d:\n    rank: %d\n    guarantee: 100mbit\n    queues: %d\n    poller: %s\n    "+
			"addrs: [10.0.0.1]\n    ports: [%d-%d]\n",
			l, 1+l%7, laneQueue, poller, 1000+l*rules, 1000+l*rules+rules-1)
	}
	return s.String()
}

// tcLines returns the commands of tc for the same lanes, one on each line.
func tcLines(tc string) []string {
	lines := []string{
		fmt.Sprintf("%sqdisc add dev %s root handle 1: htb default 2", tc, card0),
		fmt.Sprintf("%sclass add dev %s parent 1: classid 1:1 htb rate 9800mbit", tc, card0),
		fmt.Sprintf("%sclass add dev %s parent 1:1 classid 1:2 htb rate 8000mbit ceil 9800mbit prio 7", tc, card0),
		fmt.Sprintf("%sqdisc add dev %s clsact", tc, card0),
	}
	for l := range lanes {
		lines = append(lines, fmt.Sprintf("%sclass add dev %s parent 1:1 classid 1:%x htb rate 100mbit ceil "+
			"9800mbit prio %d", tc, card0, 16+l, l%7))
		for r := range rules {
			port := 1000 + l*rules + r
			lines = append(lines,
				fmt.Sprintf("%sfilter add dev %s parent 1: protocol ip prio 1 u32 match ip sport %d 0xffff flowid 1:%x",
					tc, card0, port, 16+l),
				fmt.Sprintf("%sfilter add dev %s ingress protocol ip prio 1 u32 match ip dport %d 0xffff classid 1:%x",
					tc, card0, port, 16+l))
		}
	}
	return lines
}

func xpsLines() string {
	var s strings.Builder
	for q := range queues {
		fmt.Fprintf(&s, "echo %x > /sys/class/net/%s/queues/tx-%d/xps_rxqs\n", 1<<q, card0, q)
	}
	return s.String()
}

// threadLines returns commands that create the NAPI threads and give them the priorities and
// processors that the lanes have: priorities by rank, and the two processors in turn.
func threadLines() string {
	return fmt.Sprintf(`echo 1 > /sys/class/net/%[1]s/threaded
i=0
for pid in $(pgrep "^napi/%[1]s-"); do
	chrt -f -p $((47 - i %% 7)) $pid
	taskset -p -c $((i %% $(nproc))) $pid > /dev/null
	i=$((i + 1))
done
`, card0)
}

func undoLines() string {
	s := fmt.Sprintf("tc qdisc del dev %[1]s clsact; tc qdisc del dev %[1]s root\necho 0 > "+
		"/sys/class/net/%[1]s/threaded\n", card0)
	for q := range queues {
		s += fmt.Sprintf("echo 0 > /sys/class/net/%s/queues/tx-%d/xps_rxqs\n", card0, q)
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
	must.Do(b, os.WriteFile(path, []byte(text), 0o600))
}
