// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	y "github.com/niclane/niclane/internal/strictyaml"
)

// KindPod is a pod of a Kubernetes cluster, created from Server.Manifest at each start of the
// server.
const KindPod = "pod"

// podNames are the names that a Pod's manifest can use. $address is not among them, because a pod
// has no address before it runs.
var podNames = []string{NamePort, NameThreads, NameQueues, NamePollers, NameConnections, NameSUT, NameClient,
	NameNoise}

// podReady is the time limit of a pod's start, in ns. The node may have to fetch its image first.
const podReady = int64(2 * time.Minute)

func manifest() y.Kind[string] { return manifestOf("a Pod", podNames, ParsePod) }

// manifestOf returns a Kind (type of value): the text of a Kubernetes manifest, in which Expand
// replaces names.
func manifestOf(what string, names []string, parse func(string) (map[string]any, error)) y.Kind[string] {
	k := y.Text("the manifest of "+what+", as text, under |", maxFile)
	read := k.Read
	k.Read = func(v y.Value) (string, bool) {
		text, ok := read(v)
		if !ok || !expands(v, text, names) {
			return "", false
		}
		expanded, _ := Expand(text, samples(names))
		if _, err := parse(expanded); err != nil {
			v.Failf("%v", err)
			return "", false
		}
		return text, true
	}
	return k
}

const (
	resourcePattern = `^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`
	quantityPattern = `^[0-9]{1,15}(\.[0-9]{1,9})?(m|k|[MGTPE]i?|Ki)?$`
)

// limits returns a Kind (type of value): a mapping from resources to amounts in Kubernetes' format.
func limits() y.Kind[map[string]string] {
	amount := y.Kind[string]{
		Want:   "an amount of Kubernetes: 1, 500m, 2Gi",
		Schema: y.Schema{"type": []string{"string", "integer"}},
	}
	matches := regexp.MustCompile(quantityPattern)
	amount.Read = func(v y.Value) (string, bool) {
		text, _, ok := v.Scalar()
		if !ok || !matches.MatchString(text) {
			v.Wrong(amount.Want)
			return "", false
		}
		return text, true
	}
	return y.Mapping("a mapping from resources to amounts: {niclane.dev/redis: 1}", resourcePattern,
		"the name of a resource: niclane.dev/redis", amount)
}

// policyNames are the names that the manifest of a LanePolicy can use.
var policyNames = []string{NameDevice, NameLink, NameQueues, NamePollers}

func lanePolicy() y.Kind[string] {
	return manifestOf("a LanePolicy", policyNames, ParseLanePolicy)
}

// ParseLanePolicy parses the manifest of a LanePolicy. Expand must have replaced its names.
func ParseLanePolicy(text string) (map[string]any, error) {
	policy, err := object(text, "LanePolicy")
	if err != nil {
		return nil, err
	}
	if version, _ := policy["apiVersion"].(string); !strings.HasPrefix(version, "niclane.dev/") ||
		policy["kind"] != "LanePolicy" {
		return nil, fmt.Errorf("found apiVersion: %v, kind: %v, want apiVersion: niclane.dev/v1alpha1, "+
			"kind: LanePolicy", policy["apiVersion"], policy["kind"])
	}
	return policy, nil
}

// Policy returns the manifest of a variant's LanePolicy, with sample values for names that only a run
// knows.
func (e *Experiment) Policy(v *Variant) (map[string]any, error) {
	values := samples(policyNames)
	maps.Copy(values, e.Known(v))
	text, err := Expand(v.LanePolicy, values)
	if err != nil {
		return nil, err
	}
	return ParseLanePolicy(text)
}

// Classes describes the queue sets of a variant's LanePolicy by their numbers: those of its classes,
// and that of the default lane if the policy has it.
func (e *Experiment) Classes(v *Variant) (out []string, err error) {
	policy, err := e.Policy(v)
	if err != nil {
		return nil, err
	}
	spec, _ := policy["spec"].(map[string]any)
	classes, _ := spec["classes"].([]any)
	for _, c := range classes {
		if c, ok := c.(map[string]any); ok {
			out = append(out, fmt.Sprintf("%v: %v queues", c["name"], c["queues"]))
		}
	}
	if uplink, _ := spec["uplink"].(map[string]any); uplink["queues"] != nil {
		out = append(out, fmt.Sprintf("default: %v queues", uplink["queues"]))
	}
	return out, nil
}

// SameServer reports whether two variants can share one start of the server.
func (v *Variant) SameServer(o *Variant) bool {
	return v.LanePolicy == o.LanePolicy && reflect.DeepEqual(v.Server, o.Server)
}

// object returns the object of a manifest that contains exactly one. Its metadata and spec must be
// mappings.
func object(text, want string) (map[string]any, error) {
	var documents []map[string]any
	for d := yaml.NewDecoder(strings.NewReader(text)); ; {
		var one map[string]any
		err := d.Decode(&one)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("found text that is not a mapping in YAML: %s", firstLine(err))
		}
		if len(one) > 0 {
			documents = append(documents, one)
		}
	}
	if len(documents) != 1 {
		return nil, fmt.Errorf("found %d objects, want one %s", len(documents), want)
	}
	for _, name := range []string{"metadata", "spec"} {
		if _, ok := documents[0][name].(map[string]any); documents[0][name] != nil && !ok {
			return nil, fmt.Errorf("%s: found %T, want a mapping", name, documents[0][name])
		}
	}
	return documents[0], nil
}

// ParsePod parses the manifest of a Pod, in which Expand must have replaced the names. It refuses a
// pod that a run cannot measure. The cluster reports all other errors.
func ParsePod(text string) (map[string]any, error) {
	pod, err := object(text, "Pod")
	if err != nil {
		return nil, err
	}
	if pod["apiVersion"] != "v1" || pod["kind"] != "Pod" {
		return nil, fmt.Errorf("found apiVersion: %v, kind: %v, want apiVersion: v1, kind: Pod; the run makes one "+
			"for each start of the server", pod["apiVersion"], pod["kind"])
	}
	spec, _ := pod["spec"].(map[string]any)
	containers, _ := spec["containers"].([]any)
	if len(containers) == 0 {
		return nil, errors.New("spec.containers is missing, want the server's container")
	}
	for i, c := range containers {
		if _, ok := c.(map[string]any); !ok {
			return nil, fmt.Errorf("spec.containers[%d]: found %v, want a mapping", i, c)
		}
	}
	if policy := spec["restartPolicy"]; policy != nil && policy != "Never" {
		return nil, fmt.Errorf("spec.restartPolicy: found %v, want it left out: a restarted server has lost its keys",
			policy)
	}
	return pod, nil
}

// firstLine returns the first line of a YAML reader's error. The lines after it quote the source.
func firstLine(err error) string {
	line, _, _ := bytes.Cut([]byte(err.Error()), []byte("\n"))
	return string(line)
}

// completePod fills in the defaults of pods. It clears the server's processors and priority,
// because kubelet decides them.
func (r *reader) completePod() {
	s := &r.e.Server
	if s.Kind != KindPod {
		return
	}
	if !r.Given("server.ready.timeout") {
		s.Ready.Timeout = podReady
	}
	r.e.Placement.Server = Place{}
	if n := len(r.e.Load.Connections); n > 0 && s.Connections == 0 {
		// More than the load needs: the run also connects, to read the counters.
		s.Connections = slices.Max(r.e.Load.Connections) + 64
	}
}

func (r *reader) checkPod() {
	s := &r.e.Server
	if s.Kind != KindPod {
		r.refuse("kind: "+s.Kind+", want kind: pod", "server.manifest")
		for i := range r.e.Variants {
			path := fmt.Sprintf("variants[%d].", i)
			r.refuse("kind: "+s.Kind+", want kind: pod", path+"server.limits", path+"lane-policy")
		}
		return
	}
	if !r.Given("server.manifest") {
		r.Failf("server", "manifest is missing, want %s", manifest().Want)
	}
	if r.on == nil && r.Given("lab") {
		r.Failf("server.kind", "found pod in a lab, which has no cluster; want a run with --hosts, or another kind")
	}
	r.refuse("kind: pod, which gets no files from the run", "server.files", "server.certificate")
	r.refuse("kind: pod, whose processors and priority kubelet decides", "placement.server.cpus",
		"placement.server.fifo")
	for i := range r.e.Variants {
		path := fmt.Sprintf("variants[%d].", i)
		r.refuse("kind: pod, whose lane the cluster makes; want lane-policy and server.limits", path+"lanes",
			path+"lanes-file", path+"force")
		for _, k := range tuneKeys() {
			if !slices.Contains(machineKeys, k.Name) {
				r.refuse("kind: pod, whose network only the cluster tunes", path+"tune."+k.Name)
			}
		}
		r.checkLimits(path+"server.limits", r.e.Variants[i].Server)
	}
}

// checkLimits refuses a limit of a resource that the manifest also limits, because only one of the
// two amounts could hold.
func (r *reader) checkLimits(path string, v *VariantServer) {
	if v == nil || !r.fine("server.manifest", path) || r.e.Server.Manifest == "" {
		return
	}
	text, err := Expand(r.e.Server.Manifest, samples(podNames))
	if err != nil {
		return
	}
	pod, err := ParsePod(text)
	if err != nil {
		return
	}
	first := pod["spec"].(map[string]any)["containers"].([]any)[0].(map[string]any)
	resources, _ := first["resources"].(map[string]any)
	has, _ := resources["limits"].(map[string]any)
	for name := range v.Limits {
		if _, both := has[name]; both {
			r.Failf(y.Join(path, name), "found beside the manifest's own limit (line %d), want it in one of the two",
				r.Line("server.manifest"))
		}
	}
}
