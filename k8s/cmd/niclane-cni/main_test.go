// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/niclane/niclane/k8s/cni"
	"github.com/niclane/niclane/k8s/pods/podresources/kubelettest"
)

// TestMain builds the plugin as for the container image. If CNI_COMMAND is set, the test's
// executable is the plugin itself.
func TestMain(m *testing.M) {
	if os.Getenv("CNI_COMMAND") != "" {
		main()
		return
	}
	dir, err := os.MkdirTemp("", "niclane-cni-")
	if err != nil {
		log.Fatal(err)
	}
	shipped = filepath.Join(dir, "niclane-cni")
	if err := buildAs(shipped, ".", runtime.GOARCH); err != nil {
		log.Fatal(err)
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// shipped is the path of the plugin that TestMain has built as for the container image.
var shipped string

// buildAs builds a program for an architecture, with the same options as for the container image.
func buildAs(out, what, arch string) error {
	build := exec.Command("go", "build", "-trimpath", "-tags", "grpcnotrace", "-ldflags", "-s -w", "-o", out, what)
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOARCH="+arch)
	if text, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, text)
	}
	return nil
}

// A bed is a directory with the sockets that the plugin uses.
type bed struct {
	dir string
}

func newBed(t *testing.T, withKubelet bool) *bed {
	b := &bed{dir: t.TempDir()}
	if withKubelet {
		b.kubelet(t)
	}
	return b
}

// kubelet starts a fake kubelet that has the pod redis with a unit, and the pod plain without one.
func (b *bed) kubelet(t testing.TB) {
	k := &kubelettest.Kubelet{Pods: []*v1.PodResources{kubelettest.Pod("redis", "niclane.dev/redis", "redis-0"),
		kubelettest.Plain("plain")}}
	k.Serve(t, b.path("kubelet.sock"))
}

func (b *bed) path(name string) string { return filepath.Join(b.dir, name) }

// agent answers requests on the agent's socket by h, until the test ends.
func (b *bed) agent(t *testing.T, h cni.Handler) {
	t.Helper()
	l, err := cni.Listen(b.path("cni.sock"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- cni.Serve(ctx, l, 10*time.Second, h) }()
	t.Cleanup(func() { cancel(); <-done })
}

const prevResult = `{"cniVersion":"1.1.0",
	"interfaces":[{"name":"veth1234","mac":"02:00:00:00:00:01"},{"name":"eth0","sandbox":"/run/netns/p"},{"name":"cni0"}],
	"ips":[{"address":"10.244.0.5/24","interface":1},{"address":"fd00::5/64","interface":1},{"address":"10.244.0.1/24","interface":2}]}`

// run runs the plugin for a pod and returns its standard output. more has further keys of the
// plugin's configuration.
func (b *bed) run(t *testing.T, command, pod, more string) (out string, err error) {
	t.Helper()
	out, _, err = b.say(t, command, pod, more)
	return out, err
}

// say does the same as run, and also returns standard error.
func (b *bed) say(t *testing.T, command, pod, more string) (out, said string, err error) {
	t.Helper()
	conf := fmt.Sprintf(`{"cniVersion":"1.1.0","name":"n","type":"niclane-cni","socket":%q,"podResources":%q,"capabilities":{"bandwidth":true}%s}`,
		b.path("cni.sock"), b.path("kubelet.sock"), more)
	cmd := exec.CommandContext(t.Context(), shipped)
	cmd.Stdin = strings.NewReader(conf)
	cmd.Env = append(os.Environ(), "CNI_COMMAND="+command, "CNI_CONTAINERID=sb-"+pod,
		"CNI_NETNS=/run/netns/absent-"+pod, "CNI_IFNAME=eth0", "CNI_PATH="+b.dir)
	if pod != "" {
		cmd.Env = append(cmd.Env,
			"CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME="+pod+
				";K8S_POD_INFRA_CONTAINER_ID=sb;K8S_POD_UID=u-"+pod)
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	t.Logf("%s %s: %v %s%s", command, pod, err, stdout.String(), stderr.String())
	return stdout.String(), stderr.String(), err
}

const withPrev = `,"prevResult":` + prevResult

// TestFault1PodWithoutLane checks that a pod without a lane gets the earlier plugins' result even
// if the agent and kubelet are down. A sandbox that is no Kubernetes pod gets it too.
func TestFault1PodWithoutLane(t *testing.T) {
	for name, b := range map[string]*bed{"agent down": newBed(t, true), "kubelet down too": newBed(t, false)} {
		out, err := b.run(t, "ADD", "plain", withPrev)
		if err != nil || !strings.Contains(out, "10.244.0.5/24") {
			t.Errorf("%s: %v: %s", name, err, out)
		}
		if _, err := b.run(t, "CHECK", "plain", withPrev); err != nil && name == "agent down" {
			t.Errorf("%s: CHECK: %v", name, err)
		}
		if out, err := b.run(t, "ADD", "", withPrev); err != nil || !strings.Contains(out, "fd00::5/64") {
			t.Errorf("%s: no pod: %v: %s", name, err, out)
		}
		if _, err := b.run(t, "STATUS", "", ""); err != nil {
			t.Errorf("%s: STATUS: %v", name, err)
		}
	}
}

// TestPodWithLaneFailsLoudly checks the error for a pod with a lane if the agent is down, or if it
// refuses the pod.
func TestPodWithLaneFailsLoudly(t *testing.T) {
	b := newBed(t, true)
	refused := func(want string) {
		t.Helper()
		out, err := b.run(t, "ADD", "redis", withPrev)
		var e struct {
			Code int
			Msg  string
		}
		if err == nil || json.Unmarshal([]byte(out), &e) != nil || e.Code != 11 || !strings.Contains(e.Msg, want) {
			t.Errorf("%v: %s, want code 11 and %q", err, out, want)
		}
	}
	refused("pod default/redis has niclane.dev/redis and cannot start without its lane")
	b.agent(t, func(_ context.Context, r *cni.Request, early func()) cni.Answer {
		if r.Command != cni.Add {
			return cni.Answer{}
		}
		early()
		return cni.Answer{Lane: true, Error: "8 queues asked for, eth0 has 4"}
	})
	refused("8 queues asked for, eth0 has 4")
}

// TestNobodyAnswers checks that the list of pods that ask for a lane decides if neither the agent
// nor kubelet answers.
func TestNobodyAnswers(t *testing.T) {
	b := newBed(t, false)
	if err := cni.WriteLanePods(b.path("cni.sock"), []string{"u-redis"}); err != nil {
		t.Fatal(err)
	}
	if out, err := b.run(t, "ADD", "redis", withPrev); err == nil ||
		!strings.Contains(out, "asks for a lane and cannot start without it") {
		t.Errorf("a pod that asks for a lane: %v: %s", err, out)
	}
	if out, err := b.run(t, "ADD", "plain", withPrev); err != nil || !strings.Contains(out, "10.244.0.5/24") {
		t.Errorf("a pod without: %v: %s", err, out)
	}
}

// TestPassOn checks that the plugin does not ask the agent about a pod in the agent's list of pods
// that cannot have a lane. It returns the earlier plugins' result in the CNI version of the
// configuration. It does ask about other pods, and for CHECK.
func TestPassOn(t *testing.T) {
	b := newBed(t, false)
	if err := cni.WriteOtherPods(b.path("cni.sock"), []string{"u-plain", "u-other"}); err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int64
	b.agent(t, func(_ context.Context, r *cni.Request, early func()) cni.Answer {
		asked.Add(1)
		return cni.Answer{Lane: true, Error: "asked"}
	})
	large := `,"more":"` + strings.Repeat("x", 1<<20) + `"` // more than the buffer of a pipe holds
	for _, test := range []struct {
		command, pod, more, want string
		fails                    bool
		asked                    int64
	}{
		{"ADD", "plain", withPrev, "10.244.0.5/24", false, 0},
		{"ADD", "plain", withPrev + large, "10.244.0.5/24", false, 0},
		{"DEL", "plain", "", "", false, 0},
		{"ADD", "redis", withPrev, "asked", true, 1},
		{"ADD", "redis", withPrev + large, "asked", true, 1},
		{"DEL", "redis", "", "", false, 1}, // DEL never fails
		{"CHECK", "plain", withPrev, "asked", true, 1},
		{"ADD", "plain", "", "no prevResult", true, 0},
		{"ADD", "plain", strings.Replace(withPrev, "1.1.0", "1.0.0", 1), "10.244.0.5/24", false, 0},
	} {
		asked.Store(0)
		out, err := b.run(t, test.command, test.pod, test.more)
		if (err != nil) != test.fails || !strings.Contains(out, test.want) || asked.Load() != test.asked {
			t.Errorf("%s %s %.40s: %v, asked %d times: %s; want %q, failing: %v, asked %d times", test.command,
				test.pod, test.more, err, asked.Load(), out, test.want, test.fails, test.asked)
		}
		if test.command == "ADD" && err == nil {
			var got, want any
			if json.Unmarshal([]byte(out), &got) != nil || json.Unmarshal([]byte(prevResult), &want) != nil ||
				!reflect.DeepEqual(got, want) {
				t.Errorf("%s: the result is %s", test.pod, out)
			}
		}
	}
}

func TestAsksTheAgent(t *testing.T) {
	b := newBed(t, true)
	var mu sync.Mutex
	var got []cni.Request
	b.agent(t, func(_ context.Context, r *cni.Request, _ func()) cni.Answer {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, *r)
		return cni.Answer{Lane: true}
	})
	out, err := b.run(t, "ADD", "redis",
		withPrev+`,"runtimeConfig":{"bandwidth":{"ingressRate":20000000,"ingressBurst":1,"egressRate":10000000,"egressBurst":1}}`)
	if err != nil || !strings.Contains(out, "veth1234") {
		t.Fatalf("%v: %s", err, out)
	}
	for _, c := range []struct{ command, more string }{
		{"CHECK", withPrev}, {"DEL", withPrev},
		{"GC", `,"cni.dev/valid-attachments":[{"containerID":"sb-redis","ifname":"eth0"}]`},
	} {
		if out, err := b.run(t, c.command, "redis", c.more); err != nil {
			t.Errorf("%s: %v: %s", c.command, err, out)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if len(got) != 4 {
		t.Fatalf("%d requests: %+v", len(got), got)
	}
	a := got[0]
	if fmt.Sprint(a.Addrs) != "[10.244.0.5 fd00::5]" || a.HostIf != "" || a.Pod != "redis" ||
		a.UID != "u-redis" || a.Sandbox != "sb-redis" || a.EgressRate != 10_000_000 {
		t.Errorf("ADD: %+v", a)
	}
	if got[3].Command != cni.GC || len(got[3].Valid) != 1 || a.Network == "" || got[3].Network != a.Network {
		t.Errorf("GC: %+v", got[3])
	}
}

// TestStatus checks that STATUS succeeds without the agent, because pods without lanes can start.
// With statusOfAgent, it fails if the agent does not answer, and else reports the agent's answer.
func TestStatus(t *testing.T) {
	b := newBed(t, false)
	const asked = `,"statusOfAgent":true`
	code := func(want int, text, more string) {
		t.Helper()
		out, err := b.run(t, "STATUS", "", more)
		var e struct {
			Code int
			Msg  string
		}
		if want == 0 && err != nil || want != 0 && (err == nil || json.Unmarshal([]byte(out), &e) != nil ||
			e.Code != want || !strings.Contains(e.Msg, text)) {
			t.Errorf("%s: %v: %s, want code %d and %q", more, err, out, want, text)
		}
	}
	code(0, "", "")
	code(50, "niclane-agent does not answer", asked)
	var problem atomic.Value
	problem.Store("")
	b.agent(t, func(_ context.Context, r *cni.Request, _ func()) cni.Answer {
		if r.Command != cni.Status {
			return cni.Answer{Error: "asked for " + r.Command}
		}
		return cni.Answer{Error: problem.Load().(string)}
	})
	code(0, "", asked)
	problem.Store("the node has no lanes")
	code(50, "the node has no lanes", asked)
	code(0, "", "")
}

// TestFault10Del checks that DEL succeeds without the agent, without the pod's network namespace
// and without a prevResult, also if it is repeated.
func TestFault10Del(t *testing.T) {
	b := newBed(t, false)
	for range 3 {
		if out, err := b.run(t, "DEL", "redis", ""); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	}
	if out, err := b.run(t, "GC", "", `,"cni.dev/valid-attachments":[]`); err != nil {
		t.Errorf("GC: %v: %s", err, out)
	}
}

func TestVersion(t *testing.T) {
	out, err := newBed(t, false).run(t, "VERSION", "", "")
	if err != nil || !strings.Contains(out, `"1.1.0"`) || !strings.Contains(out, `"0.3.1"`) {
		t.Errorf("%v: %s", err, out)
	}
}

// TestChained checks that the plugin returns an error if no earlier plugin gives it a prevResult.
func TestChained(t *testing.T) {
	if out, err := newBed(t, false).run(t, "ADD", "plain", ""); err == nil || !strings.Contains(out, "no prevResult") {
		t.Errorf("%v: %s", err, out)
	}
}

// TestFault2NoToken checks that the plugin does not contain a client of the API server, which would
// need a token. The plugin uses only the Unix sockets of kubelet and the agent.
func TestFault2NoToken(t *testing.T) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		t.Fatal(errors.New("no build information"))
	}
	for _, d := range info.Deps {
		if d.Path == "k8s.io/client-go" || d.Path == "k8s.io/kubernetes" {
			t.Errorf("it has %s in it", d.Path)
		}
	}
}
