// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/niclane/niclane/k8s/test/cluster"
)

var (
	window = flag.Duration("window", 10*time.Minute, "how long the agent at rest is looked at")
	calls  = flag.Int("calls", 250, "calls of niclane-cni that a percentile is of")
)

// BenchmarkKubernetes measures what lanes cost on a node of the newest release: the time of
// niclane-cni's calls, the time of a policy change, and the resources of the idle agent. Run it
// with -benchtime 1x on an otherwise idle machine.
func BenchmarkKubernetes(b *testing.B) {
	if os.Getenv("NICLANE_TEST_K8S") == "" {
		b.Skip("make bench-k8s runs a whole cluster")
	}
	s := &suite{Cluster: cluster.Start(b, cluster.Releases[0]), image: buildImage(b)}
	s.install(b)
	must(b, s.Apply(pod("plain", "", "")+"---"+pod("alone", limits("redis"), "")))
	s.untilRunning(b, "plain")
	s.untilRunning(b, "alone")
	b.Run("nothing", func(b *testing.B) { s.calls(b, "plain", nothing) })
	b.Run("without", func(b *testing.B) { s.calls(b, "plain", plugin) })
	b.Run("lane", func(b *testing.B) { s.calls(b, "alone", plugin) })
	crowd := func(name, of string, from, to int) string {
		var all []string
		for i := from; i < to; i++ {
			all = append(all, pod(fmt.Sprintf("%s-%d", name, i), of, ""))
		}
		text := strings.Join(all, "---")
		must(b, s.Apply(text))
		for i := from; i < to; i++ {
			s.untilRunning(b, fmt.Sprintf("%s-%d", name, i))
		}
		return text
	}
	shared := func(name string, pod int) {
		b.Run("shared/"+name, func(b *testing.B) { s.calls(b, fmt.Sprintf("crowd-%d", pod), plugin) })
	}
	crowd("crowd", limits("web"), 0, 1)
	shared("1", 0)
	crowd("crowd", limits("web"), 1, 10)
	shared("10", 9)
	// Measure again with 100 more pods without lanes: this part of the cost does not come from lanes.
	others := crowd("other", "", 0, 100)
	shared("10-of-110", 9)
	for i := range 100 { // delete all at once: s.Delete waits for each pod's end before the next
		must(b, s.Client.CoreV1().Pods("default").Delete(b.Context(), fmt.Sprintf("other-%d", i),
			metav1.DeleteOptions{}))
	}
	must(b, s.Delete(others))
	crowd("crowd", limits("web"), 10, 110)
	shared("110", 109)
	b.Run("nothing/110", func(b *testing.B) { s.calls(b, "plain", nothing) })
	b.Run("without/110", func(b *testing.B) { s.calls(b, "plain", plugin) })
	b.Run("policy", s.policyChanges)
	b.Run("rest", s.rest)
}

const (
	plugin  = "/opt/cni/bin/niclane-cni"
	nothing = "/usr/bin/true"
)

// inARow is how often a control runs a program that does nothing. Controls are measured in turn
// with the calls. A control takes about as long as a call for a pod with a lane. If controls get
// slower with more pods, the host is the reason, not niclane.
const inARow = 7

// calls measures niclane-cni's calls: it removes a running pod from its lanes and puts it in again,
// as often as the option -calls says. Between the two calls, the pod's packets take the default
// lane.
func (s *suite) calls(b *testing.B, pod, program string) {
	c := s.call(b, pod)
	c.Program, c.Count = program, *calls
	if program != nothing {
		c.Control, c.InARow = nothing, inARow
	}
	c.Every = 100 * time.Millisecond // pods do not come faster, and the agent checks the card after each pod
	before := s.inAgent(b)
	times, err := c.run(s.Node)
	must(b, err)
	b.ReportMetric(0, "ns/op") // hides the time per iteration, which has no meaning here
	for command, ms := range times {
		b.ReportMetric(percentile(ms, 50), command+"-P50-ms")
		b.ReportMetric(percentile(ms, 99), command+"-P99-ms")
		if beside := times[control]; command != control && len(beside) > 0 {
			b.ReportMetric(percentile(ms, 50)/percentile(beside, 50), command+"-of-control")
		}
	}
	for command, now := range s.inAgent(b) {
		if calls := now.count - before[command].count; calls > 0 {
			b.ReportMetric((now.seconds-before[command].seconds)/calls*1000, command+"-in-agent-ms")
		}
	}
}

// took is the time in seconds that the agent took for a number of calls (count).
type took struct{ seconds, count float64 }

// inAgent returns, by command, how long the agent has taken for calls for pods with a lane.
func (s *suite) inAgent(b *testing.B) map[string]took {
	out := map[string]took{}
	for _, command := range []string{"ADD", "DEL"} {
		seconds, _ := s.metric(b, "niclane_request_seconds_sum", `command="`+command+`"`, `lane="true"`)
		count, _ := s.metric(b, "niclane_request_seconds_count", `command="`+command+`"`, `lane="true"`)
		out[command] = took{seconds, count}
	}
	return out
}

// percentile returns the percentile p (for example 99) of values, NaN if there are too few values.
func percentile(values []float64, p float64) float64 {
	if float64(len(values)) < 100/(100-p) {
		return math.NaN()
	}
	slices.Sort(values)
	return values[int(math.Ceil(p/100*float64(len(values))))-1]
}

// call returns the environment and the configuration with which containerd called niclane-cni for a
// pod. It reads them from a file that libcni has stored for DEL.
func (s *suite) call(b *testing.B, pod string) (c calling) {
	files, err := filepath.Glob(s.Node.OnDisk("var/lib/cni/results/test-*-eth0"))
	must(b, err)
	for _, f := range files {
		text, err := os.ReadFile(f)
		must(b, err)
		var kept struct {
			ContainerID, IfName, NetworkName, NetNS string
			CNIArgs                                 [][2]string
			Config                                  []byte
			Result                                  json.RawMessage
		}
		must(b, json.Unmarshal(text, &kept))
		var args []string
		for _, a := range kept.CNIArgs {
			args = append(args, a[0]+"="+a[1])
		}
		if !slices.Contains(args, "K8S_POD_NAME="+pod) {
			continue
		}
		var list struct {
			CNIVersion string
			Plugins    []map[string]any
		}
		must(b, json.Unmarshal(kept.Config, &list))
		last := list.Plugins[len(list.Plugins)-1]
		if last["type"] != filepath.Base(plugin) {
			b.Fatalf("the last plugin is %v", last["type"])
		}
		last["name"], last["cniVersion"], last["prevResult"] = kept.NetworkName, list.CNIVersion, kept.Result
		c.Conf, err = json.Marshal(last)
		must(b, err)
		c.Env = []string{
			"CNI_CONTAINERID=" + kept.ContainerID, "CNI_IFNAME=" + kept.IfName, "CNI_NETNS=" + kept.NetNS,
			"CNI_PATH=/opt/cni/bin", "CNI_ARGS=" + strings.Join(args, ";"),
		}
		return c
	}
	b.Fatalf("libcni keeps nothing of pod %s", pod)
	return c
}

// policyChanges measures the time from a change of the policy in the API server to the change of
// the card. It changes the guarantee of a lane that has a pod, and waits until the lane's HTB class
// has the new rate.
func (s *suite) policyChanges(b *testing.B) {
	const changes = 20
	var ms []float64
	for i := range changes {
		share := 11 + i%2
		begin := time.Now()
		must(b, s.Apply(strings.Replace(policy, "guarantee: 10%", fmt.Sprintf("guarantee: %d%%", share), 1)))
		must(b, s.Node.InNetNS(func() error {
			up, err := netlink.LinkByName(cluster.Uplink)
			if err != nil {
				return err
			}
			for time.Since(begin) < 20*time.Second {
				classes, err := netlink.ClassList(up, netlink.HANDLE_NONE)
				if err != nil {
					return err
				}
				if slices.ContainsFunc(classes, func(c netlink.Class) bool {
					htb, ok := c.(*netlink.HtbClass)
					return ok && htb.Rate == uint64(share)*1e9/100/8
				}) {
					return nil
				}
				time.Sleep(time.Millisecond)
			}
			return errors.New("the card does not get the change")
		}))
		ms = append(ms, float64(time.Since(begin).Microseconds())/1000)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(percentile(ms, 50), "P50-ms")
	b.ReportMetric(slices.Max(ms), "max-ms")
}

// track makes the node's kernel track connections, as kube-proxy's rules do. The agent then has to
// search the table of connections.
func (s *suite) track(b *testing.B) {
	_, err := s.Node.Pipe("table inet tracked { chain in { type filter hook prerouting priority filter; ct state "+
		"established accept; }; }", "nft", "-f", "-")
	must(b, err)
	// kubelet's connection to the API server gets into the table: kubelet sends something every few
	// seconds.
	until(b, time.Minute, "the node's kernel tracks a connection", func() (bool, string) {
		count, err := s.Node.Output("cat", "/proc/sys/net/netfilter/nf_conntrack_count")
		must(b, err)
		return strings.TrimSpace(count) != "0", count
	})
}

// sayLess makes kubelet write the node's status every 5 minutes, as by default. The other tests
// need it more often.
func (s *suite) sayLess(b *testing.B) {
	file := s.Node.OnDisk("etc/kubernetes/kubelet.yaml")
	text, err := os.ReadFile(file)
	must(b, err)
	must(b, s.Stop("kubelet"))
	must(b, os.WriteFile(file, append(text, "nodeStatusReportFrequency: 5m\n"...), 0o600))
	must(b, s.StartKubelet())
	must(b, s.UntilReady())
	s.untilAllocatable(b, "redis", 2)
}

// rest measures the CPU time and the memory of the idle agent with 111 pods in lanes.
func (s *suite) rest(b *testing.B) {
	s.sayLess(b)
	s.condition(b, "Applied", "True", "")
	s.track(b)
	pid, err := s.Node.Output("pgrep", "-x", "niclane-agent")
	must(b, err)
	read := func(file string) string {
		text, err := os.ReadFile(s.Node.Path(filepath.Join("/proc", strings.TrimSpace(pid), file)))
		must(b, err)
		return string(text)
	}
	spent := func() (sum float64) { // CPU time of all the agent's threads, in seconds
		files, err := filepath.Glob(s.Node.Path(filepath.Join("/proc", strings.TrimSpace(pid), "task/*/schedstat")))
		must(b, err)
		if len(files) == 0 {
			b.Fatal("the agent has no threads")
		}
		for _, f := range files {
			text, err := os.ReadFile(f)
			if errors.Is(err, os.ErrNotExist) {
				continue // the thread has ended meanwhile
			}
			must(b, err)
			// The first value is the CPU time in ns
			// (Documentation/scheduler/sched-stats.rst).
			ns, err := strconv.ParseFloat(strings.Fields(string(text))[0], 64)
			must(b, err)
			sum += ns / 1e9
		}
		return sum
	}
	before, begin := spent(), time.Now()
	ctx, cancel := context.WithTimeout(b.Context(), *window)
	defer cancel()
	<-ctx.Done()
	b.ReportMetric(0, "ns/op")
	b.ReportMetric((spent()-before)/time.Since(begin).Seconds()*100, "%CPU")
	for _, name := range []string{"VmRSS", "RssAnon"} {
		kb, err := strconv.ParseFloat(regexp.MustCompile(name + `:\s*(\d+) kB`).FindStringSubmatch(read("status"))[1],
			64)
		must(b, err)
		b.ReportMetric(kb/1024, name+"-MiB")
	}
}
