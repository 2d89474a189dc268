// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/niclane/niclane/k8s/test/cluster"
)

// refused has specs of policies that the API server must refuse, in YAML, each with the error that
// kubectl gets. For every CEL rule of the CRD there is at least one.
var refused = []struct{ name, spec, why string }{
	{"unknown key", "classes: [{name: a, queus: 1}]", `unknown field "spec.classes[0].queus"`},
	{"no queues", "classes: [{name: a}]", "spec.classes[0].queues: Required value"},
	{"no name", "classes: [{queues: 1}]", "spec.classes[0].name: Required value"},
	{"name", "classes: [{name: A_b, queues: 1}]", `spec.classes[0].name: Invalid value: "A_b"`},
	{"long name", "classes: [{name: abcdefghijklmnopqrstuvwxyzabc, queues: 1}]", "spec.classes[0].name: Too long"},
	{"two of a name", "classes: [{name: a, queues: 1}, {name: a, queues: 2}]", "spec.classes[1]: Duplicate value"},
	{"default", "classes: [{name: default, queues: 1}]",
		"default is the lane of all other packets: its keys are in uplink"},
	{"mode", "classes: [{name: a, queues: 1, mode: both}]",
		`spec.classes[0].mode: Unsupported value: "both": supported values: "Exclusive", "Shared"`},
	{"mode in lower case", "classes: [{name: a, queues: 1, mode: shared}]", "spec.classes[0].mode: Unsupported value"},
	{"offeredAs", "classes: [{name: a, queues: 1, offeredAs: gift}]",
		`spec.classes[0].offeredAs: Unsupported value: "gift": supported values: "Claim", "Resource"`},
	{"resourceName", "classes: [{name: a, queues: 1, offeredAs: Resource, resourceName: adq}]",
		"spec.classes[0].resourceName: Invalid value"},
	{"resourceName of others", "classes: [{name: a, queues: 1, offeredAs: Resource, resourceName: nvidia.com/gpu}]",
		"resourceName is in niclane.dev or net.intel.com: other domains have other device plugins"},
	{"resourceName of a claim", "classes: [{name: a, queues: 1, offeredAs: Claim, resourceName: net.intel.com/c}]",
		"resourceName needs offeredAs: Resource"},
	{"resourceName of a claim by default", "classes: [{name: a, queues: 1, resourceName: net.intel.com/c}]",
		"resourceName needs offeredAs: Resource"},
	{"no NUMA hint with a claim", "classes: [{name: a, queues: 1, numaHint: false}]",
		"numaHint: false needs offeredAs: Resource: a claim gives no hint"},
	{"no queue", "classes: [{name: a, queues: 0}]", "spec.classes[0].queues: Invalid value: 0"},
	{"queues as text", `classes: [{name: a, queues: "2"}]`, `spec.classes[0].queues: Invalid value: "string"`},
	{"sets", "classes: [{name: a, queues: 1, sets: 2}]", `unknown field "spec.classes[0].sets"`},
	{"no capacity", "classes: [{name: a, queues: 1, capacity: 0}]", "spec.classes[0].capacity: Invalid value: 0"},
	{"capacity of an exclusive class", "classes: [{name: a, queues: 1, capacity: 257}]",
		"capacity of an Exclusive class is at most 256 queue sets"},
	{"capacity of a shared class", "classes: [{name: a, queues: 1, mode: Shared, capacity: 1025}]",
		"spec.classes[0].capacity: Invalid value: 1025"},
	{"DSCP of seven bits", "classes: [{name: a, queues: 1, dscp: 64}]", "spec.classes[0].dscp: Invalid value: 64"},
	{"DSCP in lower case", "classes: [{name: a, queues: 1, dscp: ef}]", `spec.classes[0].dscp: Invalid value: "ef"`},
	{"DSCP of the default lane", "uplink: {dscp: EF}", `unknown field "spec.uplink.dscp"`},
	{"unshaped address", "uplink: {unshaped: [10.2.0.1]}", "want a network with no bits set behind its prefix length"},
	{"unshaped bits", "uplink: {unshaped: [10.2.0.1/16]}", "want a network with no bits set behind its prefix length"},
	{"all unshaped", "uplink: {unshaped: ['::/0']}", "want a network with no bits set behind its prefix length, and not " +
		"/0 (10.2.0.0/16, fd00:2::/48)"},
	{"unshaped twice", "uplink: {unshaped: [10.2.0.0/16, 10.2.0.0/16]}", "spec.uplink.unshaped[1]: Duplicate value"},
	{"too many unshaped", "uplink: {unshaped: [10.0.0.0/16, 10.1.0.0/16, 10.2.0.0/16, 10.3.0.0/16, 10.4.0.0/16, " +
		"10.5.0.0/16, 10.6.0.0/16, 10.7.0.0/16, 10.8.0.0/16]}", "spec.uplink.unshaped: Too many: 9"},
	{"rank", "classes: [{name: a, queues: 1, rank: 8}]", "spec.classes[0].rank: Invalid value: 8"},
	{"guarantee with tc's unit", "classes: [{name: a, queues: 1, guarantee: 2gbit}]",
		"want a share of the link's rate from 0.1% to 100% in steps of 0.1% (20%), or a quantity of bit/s from 1k to 10T " +
			"(2G, 500M, 2500k)"},
	{"guarantee of nothing", "classes: [{name: a, queues: 1, guarantee: 0%}]", "want a share of the link's rate"},
	{"guarantee of a hundredth", "classes: [{name: a, queues: 1, guarantee: 0.05%}]", "want a share of the link's rate"},
	{"guarantee as a number", "classes: [{name: a, queues: 1, guarantee: 2000000}]",
		`spec.classes[0].guarantee: Invalid value: "integer"`},
	{"ceiling in bytes", "classes: [{name: a, queues: 1, ceiling: 5GB}]", "spec.classes[0].ceiling: Invalid value"},
	{"ceiling of 999 bit/s", `classes: [{name: a, queues: 1, ceiling: "999"}]`, `spec.classes[0].ceiling: Invalid value`},
	{"ceiling above 10T", `classes: [{name: a, queues: 1, ceiling: 10.1T}]`, `spec.classes[0].ceiling: Invalid value`},
	{"ceiling above 100%", `classes: [{name: a, queues: 1, ceiling: 100.1%}]`, `spec.classes[0].ceiling: Invalid value`},
	{"guarantee above the ceiling", "classes: [{name: a, queues: 1, guarantee: 10.1%, ceiling: 10%}]",
		"guarantee is at most the ceiling"},
	{"guarantee in bit/s above the ceiling", "classes: [{name: a, queues: 1, guarantee: 1.1G, ceiling: 1000M}]",
		"guarantee is at most the ceiling"},
	{"uplink's guarantee above the ceiling", "uplink: {guarantee: 20%, ceiling: 10%}", "guarantee is at most the ceiling"},
	{"guarantees of all queue sets", "classes: [{name: a, queues: 1, capacity: 3, guarantee: 33.4%}]",
		"the guarantees of all lanes together are at most 100% of the link's rate"},
	{"guarantees of classes and uplink", "{uplink: {guarantee: 10.1%}, classes: [{name: a, queues: 1, capacity: 3, " +
		"guarantee: 20%}, {name: b, mode: Shared, queues: 1, capacity: 9, guarantee: 29.9%}, {name: c, queues: 1, guarantee: 0.1%}]}",
		"the guarantees of all lanes together are at most 100% of the link's rate"},
	{"poller", "classes: [{name: a, queues: 1, poller: kernel}]",
		`spec.classes[0].poller: Unsupported value: "kernel"`},
	{"pollerTimeout", "classes: [{name: a, queues: 1, pollerTimeout: soon}]",
		"want a time from 1us to 1s with its unit us, ms or s (50us, 10ms)"},
	{"no pollerTimeout", "classes: [{name: a, queues: 1, pollerTimeout: 0us}]",
		"spec.classes[0].pollerTimeout: Invalid value"},
	{"pollerTimeout without a unit", "classes: [{name: a, queues: 1, pollerTimeout: 10}]",
		`spec.classes[0].pollerTimeout: Invalid value: "integer"`},
	{"pollerTimeout without a unit, as text", `classes: [{name: a, queues: 1, pollerTimeout: "10"}]`,
		"want a time from 1us to 1s with its unit us, ms or s (50us, 10ms)"},
	{"coalesceRx above a second", "classes: [{name: a, queues: 1, coalesceRx: 1001ms}]",
		"want a time from 0us to 1s with its unit us, ms or s (50us, 10ms)"},
	{"busyPoll", "uplink: {busyPoll: 50}", `spec.uplink.busyPoll: Invalid value: "integer"`},
	{"pollerPriority and pollerNice", "classes: [{name: a, queues: 1, pollerPriority: 1, pollerNice: 1}]",
		"pollerPriority and pollerNice exclude each other: nice means nothing to SCHED_FIFO"},
	{"pollers without threads", "classes: [{name: a, queues: 1, poller: Interrupt, pollers: 1}]",
		"poller Interrupt and Application have no polling threads"},
	{"more pollers than queues", "classes: [{name: a, queues: 1, poller: Busy, pollers: 2}]",
		"pollers are at most one per queue"},
	{"fewer threads than queues", "classes: [{name: a, queues: 2, poller: Thread, pollers: 1}]",
		"poller Thread has one thread per queue: leave pollers out"},
	{"cpus", "classes: [{name: a, queues: 1, cpus: some}]", "spec.classes[0].cpus: Invalid value"},
	{"cpus in lower case", "classes: [{name: a, queues: 1, cpus: auto}]", "spec.classes[0].cpus: Invalid value"},
	{"numa", "classes: [{name: a, queues: 1, numa: here}]", "spec.classes[0].numa: Invalid value"},
	{"numa below 0", "classes: [{name: a, queues: 1, numa: -1}]", "spec.classes[0].numa: Invalid value"},
	{"dev and bond", "uplink: {dev: eth0, bond: bond0}", "dev and bond exclude each other"},
	{"dev", "uplink: {dev: eth0/1}", `spec.uplink.dev: Invalid value: "eth0/1"`},
	{"vlan", "uplink: {vlans: [4095]}", "spec.uplink.vlans[0]: Invalid value: 4095"},
	{"linkRate", "uplink: {linkRate: 10%}", "want a quantity of bit/s from 1k to 10T (10G, 500M)"},
	{"linkRate with tc's unit", "uplink: {linkRate: 10gbit}", "spec.uplink.linkRate: Invalid value"},
	{"force", "uplink: {force: {queue-set: RSS}}", "spec.uplink.force.queue-set: Invalid value"},
	{"uplink's pollerPriority and pollerNice", "uplink: {pollerPriority: 1, pollerNice: 1}",
		"spec.uplink: Invalid value"},
	{"uplink's pollers without threads", "uplink: {poller: Application, pollers: 1}",
		"poller Interrupt and Application have no polling threads"},
	{"uplink's more pollers than queues", "uplink: {queues: 1, pollers: 2}", "pollers are at most one per queue"},
	{"value of the selector", `nodeSelector: {matchLabels: {rack: "row 7"}}`,
		`spec.nodeSelector.matchLabels.rack: Invalid value: "row 7"`},
	{"key of the selector", `nodeSelector: {matchLabels: {"row 7": a}}`,
		"a key of matchLabels is not a label: want NAME or DOMAIN/NAME"},
	{"no values of the selector", "nodeSelector: {matchExpressions: [{key: rack, operator: In}]}",
		"In and NotIn need values; Exists and DoesNotExist take none"},
	{"values of Exists", "nodeSelector: {matchExpressions: [{key: rack, operator: Exists, values: [a]}]}",
		"In and NotIn need values; Exists and DoesNotExist take none"},
	{"maxUnavailable", "rollout: {maxUnavailable: 0%}", "spec.rollout.maxUnavailable"},
	{"no nodes at one time", "rollout: {maxUnavailable: 0}", "spec.rollout.maxUnavailable"},
	{"operator of the selector", "nodeSelector: {matchExpressions: [{key: a, operator: Is}]}",
		`spec.nodeSelector.matchExpressions[0].operator: Unsupported value: "Is"`},
}

// accepted has specs of policies that the API server must accept. They are similar to refused ones.
var accepted = []struct{ name, spec string }{
	{"nothing", "{}"},
	{"no classes", "{uplink: {dev: eth0}, classes: []}"},
	{"smallest", "classes: [{name: a, queues: 1}]"},
	{"longest name", "classes: [{name: abcdefghijklmnopqrstuvwxyzab, queues: 1024, capacity: 256, rank: 7}]"},
	{"shared", "classes: [{name: a, mode: Shared, queues: 1, capacity: 1024}]"},
	{"by claim", "classes: [{name: a, offeredAs: Claim, queues: 1}]"},
	{"Intel's name", "classes: [{name: a, offeredAs: Resource, resourceName: net.intel.com/adq, queues: 1}]"},
	{"no NUMA hint", "classes: [{name: a, offeredAs: Resource, numaHint: false, queues: 1}]"},
	{"a thread per queue", "classes: [{name: a, queues: 2, poller: Thread, pollers: 2, pollerNice: -20}]"},
	{"rates", "classes: [{name: a, queues: 1, guarantee: 12.5%, ceiling: 2.5G}, {name: b, queues: 1, ceiling: 100Ki}, " +
		"{name: c, queues: 1, guarantee: 2500k, ceiling: 2.5M}, {name: d, queues: 1, guarantee: 20%, ceiling: 20%}]"},
	{"guarantees of the whole link", "{uplink: {guarantee: 0.1%}, classes: [{name: a, queues: 1, capacity: 3, " +
		"guarantee: 23.3%}, {name: b, queues: 1, mode: Shared, guarantee: 30%}]}"},
	{"most classes", manyClasses()},
	{"DSCP", "classes: [{name: a, queues: 1, dscp: EF}, {name: b, queues: 1, dscp: 0}, {name: c, queues: 1, dscp: AF43}]"},
	{"unshaped", "uplink: {unshaped: [10.2.0.0/16, 'fd00:2::/48', 192.0.2.7/32]}"},
	{"NUMA node", "classes: [{name: a, queues: 1, numa: 1, cpus: Auto}]"},
	{"selector", `{nodeSelector: {matchLabels: {kubernetes.io/os: linux, a: ""}, matchExpressions: [{key: node-role.kubernetes.io/control-plane,
  operator: DoesNotExist}, {key: rack, operator: NotIn, values: [a.b_c-1, ""]}]}, rollout: {maxUnavailable: 10%, paused: true}}`},
	{"rollout", "rollout: {maxUnavailable: 3}"},
	{"everything of uplink", `{priority: -1, nodeSelector: {matchLabels: {a: b}, matchExpressions: [{key: c, operator: In, values: [d]}]},
  uplink: {bond: bond0, vlans: [1, 4094], linkRate: 10G, queues: 4, busyPoll: 50us, busyRead: 0us, arpFilter: true, rxRing: 512, txRing: 512,
  force: {queue-set: rss-context}, cpus: "0-3,8", numa: Local, guarantee: 1%, ceiling: 100%, rank: 7, poller: Busy, pollers: 4,
  pollerTimeout: 10ms, pollerPriority: 99, adaptiveRx: false, adaptiveTx: true, coalesceRx: 0us, coalesceTx: 50us}}`},
}

// manyClasses returns as many classes as a policy can have, with long rates: the most that the CEL
// rules have to read.
func manyClasses() string {
	var list []string
	for i := range 64 {
		list = append(list, fmt.Sprintf("{name: a%d, queues: 1, capacity: 2, guarantee: 0.7%%, ceiling: 100.0%%}", i))
	}
	return "classes: [" + strings.Join(list, ", ") + "]"
}

// policies sends policies to the API server as a dry run: those in refused and accepted, and the
// examples of the documents.
func (s *suite) policies(t *testing.T) {
	try := func(text string) error {
		o := &unstructured.Unstructured{}
		must(t, yaml.Unmarshal([]byte(text), o))
		_, err := s.Dynamic.Resource(policies).Create(t.Context(), o, metav1.CreateOptions{
			DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict, // as kubectl validates
		})
		return err
	}
	of := func(spec string) string {
		return "apiVersion: niclane.dev/v1alpha1\nkind: LanePolicy\nmetadata: {name: tried}\nspec:\n  " +
			strings.ReplaceAll(spec, "\n", "\n  ")
	}
	var said strings.Builder
	for _, r := range refused {
		t.Run(r.name, func(t *testing.T) {
			err := try(of(r.spec))
			if err == nil {
				t.Fatalf("%s is accepted, want %q", r.spec, r.why)
			}
			if !strings.Contains(err.Error(), r.why) {
				t.Errorf("%s: %v, want %q", r.spec, err, r.why)
			}
			said.WriteString(err.Error())
		})
	}
	for _, message := range s.messages(t) {
		if !strings.Contains(said.String(), message) {
			t.Errorf("no policy of this test is refused with %q", message)
		}
	}
	for _, a := range accepted {
		t.Run(a.name, func(t *testing.T) {
			text := of(a.spec)
			if err := try(text); err != nil {
				t.Errorf("%v\n%s", err, text)
			}
		})
	}
	for _, document := range []string{"docs/kubernetes.md", "docs/how-to/kubernetes-install.md", "README.md"} {
		t.Run(document, func(t *testing.T) {
			for _, example := range examples(t, document, "niclane.dev/") {
				if err := try(example); err != nil {
					t.Errorf("%v\n%s", err, example)
				}
			}
		})
	}
}

// examples returns the objects of an API group, in YAML, that a document shows.
func examples(t *testing.T, document, group string) (found []string) {
	t.Helper()
	text, err := os.ReadFile("../../../" + document)
	must(t, err)
	for _, block := range strings.Split(string(text), "```yaml\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		if strings.Contains(block, "apiVersion: "+group) {
			found = append(found, block)
		}
	}
	if len(found) == 0 {
		t.Fatalf("%s has no example", document)
	}
	return found
}

// first applies the policy of docs/how-to/kubernetes-install.md, and runs a pod in its lane.
func (s *suite) first(t *testing.T) {
	must(t, s.Delete(policy))
	example := manifest(t, "LanePolicy")
	must(t, s.Apply(example))
	s.policyCondition(t, "first", "Ready", "True", "is applied on 1 of 1 node")
	text, template := pod("first", limits("first"), ""), ""
	if s.extended() {
		s.policyCondition(t, "first", "Accepted", "True", "Accepted the policy can be read")
	} else {
		s.policyCondition(t, "first", "Accepted", "True", "ClaimsOnly the policy can be read. Pods get these classes by "+
			"resource claims only: first. For limits, Kubernetes 1.36 is needed (this is 1.34)")
		var of func(string) string
		template, of = claims("first")
		text = of("first")
		must(t, s.Apply(template))
	}
	p := s.running(t, text, "first")
	if _, found := s.metric(t, "niclane_pod_lane", `pod="first"`, `lane="first"`); !found {
		t.Error("it is in no lane")
	}
	s.echo(t, p, 1<<10)
	must(t, s.Delete(text))
	if template != "" {
		must(t, s.Delete(template))
	}
	must(t, s.Delete(example))
	must(t, s.Apply(policy))
	s.condition(t, "Applied", "True", "")
	s.untilAllocatable(t, "redis", 2)
	s.untilAllocatable(t, "web", 120)
}

// quota tests that a ResourceQuota counts lanes: of a device plugin, by limits that claims serve,
// and by claims.
func (s *suite) quota(t *testing.T) {
	quota := `
apiVersion: v1
kind: ResourceQuota
metadata: {name: lanes}
spec:
  hard:
    requests.niclane.dev/redis: "1"
    requests.niclane.dev/claimed: "1"
    claimed.niclane.dev.deviceclass.resource.k8s.io/devices: "1"
`
	claim := func(name string) string {
		return `
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: ` + name + `}
spec: {devices: {requests: [{name: lane, exactly: {deviceClassName: claimed.niclane.dev}}]}}
`
	}
	must(t, s.Apply(quota))
	s.remove(t, quota)
	until(t, 30*time.Second, "the quota counts", func() (bool, string) {
		q, err := s.Client.CoreV1().ResourceQuotas("default").Get(t.Context(), "lanes", metav1.GetOptions{})
		return err == nil && len(q.Status.Hard) == 3, fmt.Sprint(q.Status, err)
	})
	for _, of := range []func(string) string{
		func(name string) string { return pod(name, limits("redis"), "") },
		func(name string) string { return pod(name, limits("claimed"), "") },
		claim,
	} {
		must(t, s.Apply(of("one")))
		if err := s.Apply(of("two")); err == nil || !strings.Contains(err.Error(), "exceeded quota: lanes") {
			t.Errorf("%s: %v, want a refusal", of("two"), err)
		}
		must(t, s.Delete(of("one")))
		until(t, 30*time.Second, "nothing counts any more", func() (bool, string) {
			q, err := s.Client.CoreV1().ResourceQuotas("default").Get(t.Context(), "lanes", metav1.GetOptions{})
			must(t, err)
			_, err = s.Client.CoreV1().Pods("default").Get(t.Context(), "one", metav1.GetOptions{})
			used := 0
			for _, n := range q.Status.Used {
				used += int(n.Value())
			}
			return apierrors.IsNotFound(err) && used == 0, fmt.Sprint(q.Status, err)
		})
	}
}

// defaults tests that a LimitRange gives a lane to each container of a namespace that asks for none,
// init containers too, and refuses a container that asks for more than it allows.
func (s *suite) defaults(t *testing.T) {
	class := "together"
	if !s.extended() {
		class = "web"
	}
	limit := `
apiVersion: v1
kind: LimitRange
metadata: {name: lanes}
spec:
  limits:
  - type: Container
    default: {niclane.dev/` + class + `: "1"}
    max: {niclane.dev/` + class + `: "1"}
`
	must(t, s.Apply(limit))
	s.remove(t, limit)
	greedy := pod("greedy", "limits: {niclane.dev/"+class+": 2}", "")
	want := "maximum niclane.dev/" + class + " usage per Container is 1"
	until(t, 30*time.Second, "the API server knows the LimitRange", func() (bool, string) {
		err := s.Apply(greedy)
		if err == nil {
			must(t, s.Delete(greedy))
			return false, "a container that asks for 2 is accepted"
		}
		return strings.Contains(err.Error(), want), err.Error()
	})
	image := "image: " + cluster.Image + ", imagePullPolicy: Never"
	text := pod("default-lane", "", "") + `
  - {name: second, ` + image + `, args: [serve, ":8"], ports: [{containerPort: 8}]}
  initContainers:
  - {name: before, ` + image + `, args: [end]}
`
	s.remove(t, text)
	s.echo(t, s.running(t, text, "default-lane"), 1<<10)
	containers := []string{"app", "second"}
	if s.extended() {
		containers = []string{""} // the scheduler makes one claim for all containers
	}
	for _, container := range containers {
		if _, found := s.metric(t, "niclane_pod_lane", `pod="default-lane"`, `container="`+container+`"`,
			`class="`+class+`"`); !found {
			t.Errorf("container %q is in no lane", container)
		}
	}
}

// messages returns the messages of the CRD's CEL rules.
func (s *suite) messages(t *testing.T) (found []string) {
	t.Helper()
	definitions := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions"}
	crd, err := s.Dynamic.Resource(definitions).Get(t.Context(), "lanepolicies.niclane.dev", metav1.GetOptions{})
	must(t, err)
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, v := range v {
				walk(v)
			}
		case map[string]any:
			if rules, ok := v["x-kubernetes-validations"].([]any); ok {
				for _, r := range rules {
					found = append(found, r.(map[string]any)["message"].(string))
				}
			}
			for _, v := range v {
				walk(v)
			}
		}
	}
	walk(crd.Object)
	if len(found) == 0 {
		t.Error("the definition has no CEL rule")
	}
	return found
}
