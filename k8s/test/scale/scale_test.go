// SPDX-License-Identifier: Apache-2.0

// Package scale_test tests niclane with many nodes, and with an API server that misbehaves, against
// an unmodified API server. The controller is the real one; the nodes are not.
package scale_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/niclane/niclane/k8s/api/v1alpha1"
	"github.com/niclane/niclane/k8s/test/apiserver"
	"github.com/niclane/niclane/k8s/test/components"
)

const manifests = "../../dist/manifests/niclane.yaml"

var (
	policies  = schema.GroupVersionResource{Group: v1alpha1.Group, Version: v1alpha1.Version, Resource: v1alpha1.Resource}
	laneNodes = schema.GroupVersionResource{Group: v1alpha1.Group, Version: v1alpha1.Version, Resource: v1alpha1.NodeResource}
)

const policy = `
apiVersion: niclane.dev/v1alpha1
kind: LanePolicy
metadata: {name: edge}
spec:
  nodeSelector: {matchLabels: {role: edge}}
  uplink: {queues: 4}
  classes:
  - {name: redis, queues: 2}
  - {name: web, queues: 4}
`

// TestMain hides client-go's own log: it has a line for each watch that ends.
func TestMain(m *testing.M) {
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	os.Exit(m.Run())
}

// start starts an API server with niclane's objects, or skips the test.
func start(t testing.TB) *apiserver.Server {
	t.Helper()
	if os.Getenv("NICLANE_TEST_K8S") == "" {
		t.Skip("make test-k8s runs an API server, and builds it first")
	}
	s := apiserver.Start(t, components.Kubernetes136)
	if err := s.Apply(t.Context(), manifests); err != nil {
		t.Fatal(err)
	}
	return s
}

// size is the number of nodes.
func size(t testing.TB) int {
	text := os.Getenv("NICLANE_SCALE_NODES")
	if text == "" {
		return 1000
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 100 {
		t.Fatalf("NICLANE_SCALE_NODES=%s: want a number of nodes, at least 100", text)
	}
	return n
}

// TestScale runs a policy's rollout over many nodes. It asserts what must not grow with them: the
// objects, and what an agent receives when another node changes. It logs what the rest costs.
func TestScale(t *testing.T) {
	s, n := start(t), size(t)
	const few = 10
	f := &fleet{Server: s}
	f.join(t, few)
	c := startController(t, s, s.Config.Host)
	if err := s.ApplyText(t.Context(), policy); err != nil {
		t.Fatal(err)
	}
	f.untilReady(t, 1, few)
	small := f.sizes(t)

	begin := time.Now()
	f.join(t, n)
	t.Logf("%d nodes have joined after %.1f s", n, time.Since(begin).Seconds())
	f.untilReady(t, 1, n)
	t.Logf("all have applied the policy after %.1f s; %d writes failed meanwhile and were repeated (%v)",
		time.Since(begin).Seconds(), f.failures.Swap(0), f.failure.Load())

	f.rollout(t, c, n)
	f.compare(t, small)
	f.others(t)
	f.rest(t, c)
	t.Logf("controller: at most %.1f MiB resident", mib(apiserver.Memory(t, c.Process.Pid)))
	if got := f.failures.Load(); got != 0 {
		t.Errorf("%d writes of agents failed: %v", got, f.failure.Load())
	}
}

// rollout changes the policy, and waits until all nodes have applied the change.
func (f *fleet) rollout(t *testing.T, c *controller, n int) {
	f.most.Store(0)
	before, cpu, begin := f.requests(t), apiserver.Spent(t, c.Process.Pid), time.Now()
	api, etcd := f.Spent()
	if err := f.ApplyText(t.Context(), strings.Replace(policy, "queues: 2", "queues: 3", 1)); err != nil {
		t.Fatal(err)
	}
	f.untilReady(t, 2, n)
	took, after := time.Since(begin), f.requests(t)
	api2, etcd2 := f.Spent()
	given, told := after.less(before, "lanenodes"), after.less(before, "lanenodes/status")
	statuses := after.less(before, "lanepolicies/status")
	t.Logf("rollout of %d nodes, at most a quarter at one time: %.1f s; %d writes of specs, %d of statuses, %d of the "+
		"policy's status; CPU: controller %v, API server %v, etcd %v", n, took.Seconds(), given, told, statuses,
		apiserver.Spent(t, c.Process.Pid)-cpu, api2-api, etcd2-etcd)
	// The administrator's own write is one of lanepolicies, not of its status.
	if given > n+n/10 || told > n+n/10 {
		t.Errorf("%d writes of specs and %d of statuses, want one for each of %d nodes", given, told, n)
	}
	if limit := (n + 3) / 4; f.most.Load() > int64(limit) {
		t.Errorf("%d nodes were busy at one time, want at most %d", f.most.Load(), limit)
	}
	if limit := int(took.Seconds()*5) + 5; statuses > limit {
		t.Errorf("%d writes of the policy's status in %v, want at most 5 per second", statuses, took)
	}
}

// others changes all other nodes, their LaneNodes, and the policy's status, and counts what an agent
// receives meanwhile.
func (f *fleet) others(t *testing.T) {
	var received atomic.Int64
	a := f.agent(t, nodeName(0), counting(f.As(agentUser, nodeName(0)), &received))
	until(t, "the agent has its objects", func() bool { return a.Synced() && a.Told() != nil })
	label := func(node, value string) {
		t.Helper()
		patch := fmt.Appendf(nil, `{"metadata": {"labels": {"rack": %q}}}`, value)
		if _, err := f.Client.CoreV1().Nodes().Patch(t.Context(), node, types.MergePatchType, patch,
			metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Dynamic.Resource(laneNodes).Patch(t.Context(), node, types.MergePatchType,
			fmt.Appendf(nil, `{"metadata": {"labels": {"rack": %q}}}`, value), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	fence := func(value string) {
		t.Helper()
		// A watch gives changes in order: when the agent has seen the change of its own node, it has
		// seen all earlier ones of nodes.
		label(nodeName(0), value)
		until(t, "the agent sees its own node", func() bool {
			labels, _, _ := a.Node()
			return labels["rack"] == value
		})
	}
	fence("a")
	const changes = 500
	before := received.Load()
	for i := range changes {
		label(nodeName(1+i%(len(f.agents)-1)), fmt.Sprint("r", i))
	}
	fence("c")
	got := received.Load() - before
	t.Logf("%d changes of other nodes and of their LaneNodes: the agent received %d bytes", changes, got)
	// These are its own two changes at the end, and a bookmark on each watch. With a watch of all
	// LaneNodes it would be 1.5 MB.
	if limit := int64(16 << 10); got > limit {
		t.Errorf("an agent received %d bytes while other nodes changed, want at most %d", got, limit)
	}
}

// rest lets all agents renew their statuses, as they do every v1alpha1.Renewal, and counts what that
// costs.
func (f *fleet) rest(t *testing.T, c *controller) {
	f.settled(t)
	before, cpu := f.requests(t), apiserver.Spent(t, c.Process.Pid)
	api, etcd := f.Spent()
	begin := time.Now()
	f.renewAll(t)
	took := time.Since(begin)
	f.settled(t)
	api2, etcd2 := f.Spent()
	n := len(f.agents)
	per := func(d time.Duration) string { return fmt.Sprintf("%.2f ms", d.Seconds()*1000/float64(n)) }
	share := func(d time.Duration) float64 { return d.Seconds() / v1alpha1.Renewal.Seconds() * 100 }
	mine := apiserver.Spent(t, c.Process.Pid) - cpu
	t.Logf("%d renewals in %.1f s: CPU for each: API server %s, etcd %s, controller %s; one each %v is %.1f writes a "+
		"second, %.1f %% of a processor for the API server, %.1f %% for etcd, %.1f %% for the controller", n,
		took.Seconds(), per(api2-api), per(etcd2-etcd), per(mine), v1alpha1.Renewal,
		float64(n)/v1alpha1.Renewal.Seconds(), share(api2-api), share(etcd2-etcd), share(mine))
	after := f.requests(t)
	if given, told := after.less(before, "lanenodes"), after.less(before, "lanepolicies/status"); given != 0 || told != 0 {
		t.Errorf("at rest the controller wrote %d specs and %d statuses, want none", given, told)
	}
	if got := after.less(before, "lanenodes/status"); got != n {
		t.Errorf("%d writes for %d renewals", got, n)
	}
}

// settled waits until the API server and the controller have nothing more to do.
func (f *fleet) settled(t *testing.T) {
	t.Helper()
	last := time.Duration(-1)
	until(t, "the API server is at rest", func() bool {
		time.Sleep(time.Second)
		api, etcd := f.Spent()
		now := api + etcd
		quiet := last >= 0 && now-last < 400*time.Millisecond
		last = now
		return quiet
	})
}

// untilReady waits until a generation of the policy is applied on n nodes.
func (f *fleet) untilReady(t *testing.T, generation int64, n int) {
	t.Helper()
	var last v1alpha1.LanePolicyStatus
	defer func() {
		if t.Failed() {
			t.Logf("%+v", last)
		}
	}()
	until(t, fmt.Sprintf("generation %d is applied on %d nodes", generation, n), func() bool {
		u, err := f.Dynamic.Resource(policies).Get(t.Context(), "edge", metav1.GetOptions{})
		if err != nil {
			return false
		}
		var p v1alpha1.LanePolicy
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &p); err != nil {
			t.Fatal(err)
		}
		last = p.Status
		return p.Status.ObservedGeneration == generation && p.Status.Applied == n &&
			meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.Ready)
	})
}

// until waits until holds returns true.
func until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Minute); !holds(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("never:", what)
		}
	}
}

// sizes returns the largest size of an object of each kind, in bytes.
func (f *fleet) sizes(t *testing.T) map[string]int {
	t.Helper()
	out := map[string]int{}
	for _, r := range []schema.GroupVersionResource{policies, laneNodes, {Version: "v1", Resource: "events"},
		{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}} {
		list, err := f.Dynamic.Resource(r).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			if r.Resource == "leases" && list.Items[i].GetName() != "niclane-controller" {
				continue // another program's
			}
			text, err := json.Marshal(&list.Items[i])
			if err != nil {
				t.Fatal(err)
			}
			out[r.Resource] = max(out[r.Resource], len(text))
		}
		if r.Resource == "events" {
			out["events, number"] = len(list.Items)
		}
	}
	return out
}

// compare checks that no object has grown with the number of nodes.
func (f *fleet) compare(t *testing.T, small map[string]int) {
	now := f.sizes(t)
	t.Logf("largest objects with few nodes: %v; with %d: %v", small, len(f.agents), now)
	for kind, before := range small {
		if limit := before + before/10; now[kind] > limit && kind != "events, number" {
			t.Errorf("%s: %d bytes, and %d bytes with few nodes", kind, now[kind], before)
		}
	}
	if now["events, number"] > 20 {
		t.Errorf("%d events, want a few for the whole cluster", now["events, number"])
	}
}

// requests counts the writes that the API server has answered, by resource, or RESOURCE/SUBRESOURCE.
type requests map[string]int

func (r requests) less(before requests, resource string) int { return r[resource] - before[resource] }

func (f *fleet) requests(t *testing.T) requests {
	t.Helper()
	text, err := f.Client.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	out := requests{}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		line := lines.Text()
		if !strings.HasPrefix(line, "apiserver_request_total{") {
			continue
		}
		label := func(name string) string {
			_, rest, _ := strings.Cut(line, name+`="`)
			value, _, _ := strings.Cut(rest, `"`)
			return value
		}
		verb := label("verb")
		if verb != "PATCH" && verb != "APPLY" && verb != "PUT" && verb != "POST" {
			continue
		}
		resource := label(",resource")
		if sub := label("subresource"); sub != "" {
			resource += "/" + sub
		}
		count, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
		if err != nil {
			t.Fatal(line)
		}
		if verb == "POST" && resource == "lanenodes" {
			resource = "lanenodes, made"
		}
		out[resource] += int(count)
	}
	return out
}

func mib(bytes int64) float64 { return float64(bytes) / (1 << 20) }
