// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/niclane/niclane/k8s/test/cluster"
)

// churn makes and ends pods, changes the policy, and ends programs of the node, for the time in
// NICLANE_CHURN (make churn-k8s; default 40 s). The operations come from a seed, which it logs
// (NICLANE_SEED repeats them). At the end the node and the cluster are as before: see dump.
func (s *suite) churn(t *testing.T) {
	length, seed := 40*time.Second, uint64(time.Now().UnixNano())
	var err error
	if text := os.Getenv("NICLANE_CHURN"); text != "" {
		length, err = time.ParseDuration(text)
		must(t, err)
	}
	if text := os.Getenv("NICLANE_SEED"); text != "" {
		seed, err = strconv.ParseUint(text, 10, 64)
		must(t, err)
	}
	t.Logf("NICLANE_SEED=%d NICLANE_CHURN=%v", seed, length)
	for _, class := range []string{"claimed", "together"} {
		template, _ := claims(class)
		must(t, s.Apply(template))
		s.remove(t, template)
	}
	before, events := s.fresh(t), s.events(t)

	c := &churner{suite: s, t: t, random: rand.New(rand.NewPCG(seed, 0)), did: map[string]int{}}
	c.reboot = time.Now().Add(length / 2)
	for end := time.Now().Add(length); time.Now().Before(end); {
		c.step()
	}
	for len(c.pods) > 0 {
		c.end(0, 1)
	}
	must(t, s.Apply(policy))
	s.replaceAgent(t)
	s.condition(t, "Applied", "True", "")
	after := s.events(t)
	t.Logf("%v; %d events of niclane", c.did, after-events)
	if limit := 3*c.all + 20; after-events > limit {
		t.Errorf("%d events of niclane after %d operations, want at most %d", after-events, c.all, limit)
	}
	for deadline := time.Now().Add(4 * time.Minute); ; time.Sleep(time.Second) {
		diff := cmp.Diff(before, s.dump(t))
		if diff == "" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the node is not as before (-before +after):\n%s\n%s", diff, s.agentLog(t))
		}
	}
	s.agentIsSmall(t)
}

// fresh removes the lanes and makes them again, replaces the agent, and waits until nothing of earlier
// pods is left. churn ends in the same state: changed lanes can keep a txqueuelen. It returns the dump.
func (s *suite) fresh(t *testing.T) map[string][]string {
	must(t, s.Delete(policy))
	until(t, time.Minute, "the card has no lanes", func() (bool, string) {
		diff := cmp.Diff(s.before.files["card"], s.files(t)["card"])
		return diff == "", diff
	})
	must(t, s.Apply(policy))
	s.replaceAgent(t)
	s.condition(t, "Applied", "True", "")
	s.untilAllocatable(t, "redis", 2)
	t.Run("a pod", s.lane)
	until(t, 3*time.Minute, "only niclane-controller has an address", func() (bool, string) {
		text, err := s.Node.Output("find", "/var/lib/cni/results", "-name", "*-eth0")
		return err == nil && strings.Count(text, "\n") == 1, fmt.Sprint(text, err)
	})
	last := s.dump(t)
	until(t, time.Minute, "the node rests", func() (bool, string) { // no process starts another one
		before := last
		last = s.dump(t)
		diff := cmp.Diff(before, last)
		return diff == "", diff
	})
	return last
}

// A churner does random operations.
type churner struct {
	*suite
	t      *testing.T
	random *rand.Rand
	pods   []string // those that should be there
	made   int
	all    int // operations
	did    map[string]int
	reboot time.Time // zero: it was done
}

// step does one operation. Most are of pods.
func (c *churner) step() {
	if !c.reboot.IsZero() && time.Now().After(c.reboot) {
		c.reboot = time.Time{}
		c.do("reboot", func() {
			c.suite.reboot(c.t)
			c.agentPod(c.t)
			for len(c.pods) > 0 { // kubelet fails pods with devices when their node has rebooted
				c.end(0, 0)
			}
		})
		return
	}
	switch n := c.random.IntN(100); {
	case n < 45 && len(c.pods) < 12:
		c.do("create", c.create)
	case n < 60:
		if len(c.pods) > 0 {
			c.do("delete", func() { c.end(c.random.IntN(len(c.pods)), 1) })
		}
	case n < 80:
		if len(c.pods) > 0 {
			c.do("force-delete", func() { c.end(c.random.IntN(len(c.pods)), 0) })
		}
	case n < 90:
		share := 5 + c.random.IntN(20)
		c.do("edit", func() {
			must(c.t, c.Apply(strings.Replace(policy, "guarantee: 10%", fmt.Sprintf("guarantee: %d%%", share), 1)))
		})
	case n < 94:
		c.do("kill agent", func() {
			// It may be away from the last time: kubelet waits longer before each start.
			_, _ = c.Node.Output("pkill", "-KILL", "-x", "niclane-agent")
		})
	case n < 95:
		c.do("replace agent", func() { c.replaceAgent(c.t) })
	case n < 97:
		c.do("restart kubelet", func() {
			must(c.t, c.Stop("kubelet"))
			must(c.t, c.StartKubelet())
			must(c.t, c.UntilReady())
		})
	case n < 99:
		c.do("restart containerd", func() {
			must(c.t, c.Stop("containerd"))
			must(c.t, c.StartContainerd())
		})
	}
	// Some operations meet pods that run, others meet pods that start.
	time.Sleep(time.Duration(c.random.IntN(700)) * time.Millisecond)
}

func (c *churner) do(what string, op func()) {
	c.did[what]++
	c.all++
	op()
}

// create makes a pod of any kind. It does not wait for it: some of the pods find no lane.
func (c *churner) create() {
	name := fmt.Sprintf("churn-%d", c.made)
	c.made++
	var text string
	switch kind := c.random.IntN(6); kind {
	case 0:
		text = pod(name, "", "")
	case 1, 2:
		text = pod(name, limits([]string{"redis", "web"}[kind-1]), "")
	case 3, 4:
		_, of := claims([]string{"claimed", "together"}[kind-3])
		text = of(name)
	case 5:
		text = hostPod(name, fmt.Sprint(20000+c.made%1000), limits("redis"))
	}
	must(c.t, c.Apply(text))
	c.pods = append(c.pods, name)
}

// end deletes the pod with an index, with a grace period in seconds. It does not wait for its end.
func (c *churner) end(i int, grace int64) {
	err := c.Client.CoreV1().Pods("default").Delete(c.t.Context(), c.pods[i],
		metav1.DeleteOptions{GracePeriodSeconds: &grace})
	if err != nil && !apierrors.IsNotFound(err) {
		c.t.Fatal(err)
	}
	c.pods = slices.Delete(c.pods, i, i+1)
}

// replaceAgent deletes the agent's pod, and waits until the DaemonSet's next one is ready.
func (s *suite) replaceAgent(t testing.TB) {
	t.Helper()
	pods := s.Client.CoreV1().Pods(namespace)
	list, err := pods.List(t.Context(), metav1.ListOptions{LabelSelector: agentLabel})
	must(t, err)
	for _, p := range list.Items {
		must(t, pods.Delete(t.Context(), p.Name, metav1.DeleteOptions{}))
	}
	until(t, 2*time.Minute, "the next agent is ready", func() (bool, string) {
		next, err := pods.List(t.Context(), metav1.ListOptions{LabelSelector: agentLabel})
		if err != nil || len(next.Items) != 1 || next.Items[0].UID == list.Items[0].UID {
			return false, fmt.Sprint(err)
		}
		return ready(&next.Items[0]), s.describe(t.Context(), &next.Items[0])
	})
}

// events returns how many events niclane has sent.
func (s *suite) events(t testing.TB) (n int) {
	t.Helper()
	list, err := s.Client.CoreV1().Events("").List(t.Context(), metav1.ListOptions{})
	must(t, err)
	for _, e := range list.Items {
		if strings.HasPrefix(e.Source.Component, "niclane") {
			n += int(max(1, e.Count))
		}
	}
	return n
}

// dumps has the commands whose output on the node is a part of dump. They leave out what differs
// from one pod or boot to the next: numbers of interfaces and programs, counters, and addresses.
var dumps = map[string]string{
	"qdiscs":  "tc qdisc show dev UPLINK",
	"classes": "tc class show dev UPLINK | sort",
	"filters": "for d in ingress egress; do tc filter show dev UPLINK $d; done",
	"links":   "ip -o link | sed 's/^[0-9]*: //; s/[@:].*//' | sort",
	"rules":   "ip rule; ip -6 rule; ip route; ip -6 route | grep -v fe80",
	"nft":     "nft list ruleset",
	"sysctls": "cd /proc/sys/net; grep -Hs . core/* ipv4/* ipv4/conf/UPLINK/* ipv6/conf/UPLINK/* | " +
		"grep -v 'stable_secret\\|netdev_rss_key\\|random\\|mtu_expires'",
	// A file that was replaced once has the one before beside it (lane/journal).
	"files": "find /run/niclane /var/lib/niclane /etc/cni /opt/cni /var/lib/cni /run/cni /run/netns /sys/fs/bpf | " +
		"grep -v '[.]replaced$' | sort",
	"state": "cat /var/lib/niclane/kubernetes/state.json; cat /run/niclane/lane-pods",
	// Without containerd's shims: containerd leaves some behind if it is restarted while pods begin.
	"processes": "ps -e -o comm= | grep 'niclane\\|containerd$\\|pause\\|app' | sort | uniq -c",
	"cgroups":   "find /sys/fs/cgroup -type d -name 'pod*' -path '*kubepods*' | grep -c .",
	// Without those of containers and of pods' volumes, which containerd and kubelet keep for a while, and
	// which a reboot removes.
	"mounts": "awk '{ print $2 }' /proc/mounts | grep -v '^/run/containerd/\\|^/var/lib/kubelet/pods/' | sort",
}

// volatile are the parts of outputs that say nothing about a leak.
var volatile = regexp.MustCompile(`(?m)[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}|[0-9a-f]{64}|"generation": ?\d+|direct_packets_stat \d+|id \d+ |tag [0-9a-f]+|jited|veth[0-9a-f]+|4026\d{6}|kubernetes-[0-9a-f]{16}|/(10\.98\.0\.\d+|fd98::[0-9a-f]+)$|guarantee: ?\d+%`)

// dump returns what a leak of niclane would change, on the node and in the cluster, in lines.
func (s *suite) dump(t testing.TB) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	for name, command := range dumps {
		text, err := s.Node.Output("/bin/sh", "-c", strings.ReplaceAll(command, "UPLINK", cluster.Uplink)+"; true")
		must(t, err)
		out[name] = strings.Split(volatile.ReplaceAllString(strings.TrimSpace(text), "X"), "\n")
	}
	offered, err := s.Client.ResourceV1().ResourceSlices().List(t.Context(), metav1.ListOptions{})
	must(t, err)
	for _, r := range offered.Items {
		for _, d := range r.Spec.Devices {
			out["devices"] = append(out["devices"], r.Spec.Pool.Name+" "+d.Name)
		}
	}
	claimed, err := s.Client.ResourceV1().ResourceClaims("").List(t.Context(), metav1.ListOptions{})
	must(t, err)
	for _, c := range claimed.Items {
		out["claims"] = append(out["claims"], c.Name)
	}
	pods, err := s.Client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
	must(t, err)
	for _, p := range pods.Items {
		out["pods"] = append(out["pods"], p.Name)
	}
	for _, u := range s.listed(t) {
		status, _, _ := unstructured.NestedMap(u.Object, "status")
		delete(status, "renewed")
		delete(status, "policyGeneration")
		for _, c := range status["conditions"].([]any) {
			delete(c.(map[string]any), "lastTransitionTime")
		}
		text, err := json.MarshalIndent(status, "", " ")
		must(t, err)
		out["LaneNode "+u.GetName()] = strings.Split(string(text), "\n")
	}
	for _, lines := range out {
		slices.Sort(lines)
	}
	return out
}

func (s *suite) listed(t testing.TB) []unstructured.Unstructured {
	list, err := s.Dynamic.Resource(laneNodes).List(t.Context(), metav1.ListOptions{})
	must(t, err)
	return list.Items
}

// agentIsSmall checks that the agent has few open files and threads, and little memory, and that its
// files on the disk have not grown.
func (s *suite) agentIsSmall(t testing.TB) {
	t.Helper()
	text, err := s.Node.Output("pgrep", "-x", "niclane-agent")
	must(t, err)
	proc := s.Node.Path(filepath.Join("/proc", strings.TrimSpace(text)))
	fds, err := os.ReadDir(filepath.Join(proc, "fd"))
	must(t, err)
	status, err := os.ReadFile(filepath.Join(proc, "status"))
	must(t, err)
	value := func(name string) float64 {
		v, err := strconv.ParseFloat(regexp.MustCompile(name + `:\s*(\d+)`).FindStringSubmatch(string(status))[1], 64)
		must(t, err)
		return v
	}
	disk, err := s.Node.Output("du", "-sk", "/var/lib/niclane")
	must(t, err)
	kb, err := strconv.Atoi(strings.Fields(disk)[0])
	must(t, err)
	sizes := map[string]float64{"files": float64(len(fds)), "threads": value("Threads"), "MiB": value("VmRSS") / 1024,
		"KiB on the disk": float64(kb)}
	limits := map[string]float64{"files": 60, "threads": 40, "MiB": 96, "KiB on the disk": 1024}
	t.Logf("the agent has %v", sizes)
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		if sizes[name] > limits[name] {
			t.Errorf("the agent has %.0f %s, want at most %.0f", sizes[name], name, limits[name])
		}
	}
}
