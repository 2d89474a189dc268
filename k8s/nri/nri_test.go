// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"context"
	"net"
	"net/netip"
	"os"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/net/multiplex"
	"github.com/containerd/ttrpc"
	"github.com/google/go-cmp/cmp"

	"github.com/niclane/niclane/k8s/agent/lanes"
	"github.com/niclane/niclane/k8s/cni"
)

// connected returns a runtime to which a plugin is connected.
func connected(t *testing.T, l *fakeLanes) *runtime {
	t.Helper()
	r := newRuntime(t, socket(t))
	t.Cleanup(r.Stop)
	receive(t, "a connection", connect(t, r.socket, l, "containerd://2.3.7").connected)
	// The runtime sends requests to a plugin only a moment after Synchronize. The next line waits
	// until it does.
	r.BlockPluginSync().Unblock()
	return r
}

func (r *runtime) run(t *testing.T, id string) error {
	return r.RunPodSandbox(t.Context(), &api.RunPodSandboxRequest{Pod: pod(id)})
}

func (r *runtime) create(t *testing.T, id string) (*api.CreateContainerResponse, error) {
	return r.CreateContainer(t.Context(),
		&api.CreateContainerRequest{Pod: pod(id), Container: &api.Container{Id: "c", PodSandboxId: id, Name: "c"}})
}

// TestPod checks which requests the plugin makes to the agent when a pod starts and ends.
func TestPod(t *testing.T) {
	l := &fakeLanes{answer: lane("")}
	r := connected(t, l)
	if err := r.run(t, "s1"); err != nil {
		t.Fatal(err)
	}
	want := cni.Request{
		Version: cni.Version, Command: cni.Add, Sandbox: "s1", IfName: "eth0", Namespace: "default", Pod: "p-s1",
		UID:   "u-s1",
		Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.5"), netip.MustParseAddr("fd00::5")}, EgressRate: 10e6,
	}
	if diff := cmp.Diff(want, l.requests[0], cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("ADD (-want +got):\n%s", diff)
	}
	if err := r.StopPodSandbox(t.Context(), &api.StopPodSandboxRequest{Pod: pod("s1")}); err != nil {
		t.Error(err)
	}
	if err := r.RemovePodSandbox(t.Context(), &api.RemovePodSandboxRequest{Pod: pod("s1")}); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"ADD s1", "DEL s1", "DEL s1"}, l.asked()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if del := l.requests[1]; del.IfName != "" || del.UID != "u-s1" {
		t.Errorf("DEL %+v, want every interface, and the UID", del)
	}
}

func lane(why string) func(context.Context, *cni.Request, func()) cni.Answer {
	return func(_ context.Context, _ *cni.Request, early func()) cni.Answer {
		early()
		return cni.Answer{Lane: true, Error: why}
	}
}

func none(why string) func(context.Context, *cni.Request, func()) cni.Answer {
	return func(context.Context, *cni.Request, func()) cni.Answer { return cni.Answer{Error: why} }
}

// hangs returns a handler that answers when release is closed. If lane is true, it calls
// early first.
func hangs(lane bool, release <-chan struct{}) func(context.Context, *cni.Request, func()) cni.Answer {
	return func(_ context.Context, _ *cni.Request, early func()) cni.Answer {
		if lane {
			early()
		}
		<-release
		return cni.Answer{Lane: lane}
	}
}

// TestVerdict checks that a pod without a lane always starts, and that a pod with a lane does not
// start without it. The runtime must never disconnect the plugin.
func TestVerdict(t *testing.T) {
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	alone := newRuntime(t, socket(t))
	t.Cleanup(alone.Stop)
	unchanged, err := alone.create(t, "s")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		answer func(context.Context, *cni.Request, func()) cni.Answer
		asks   bool
		want   string
	}{
		"lane":                     {lane(""), false, ""},
		"no lane":                  {none(""), false, ""},
		"lane that cannot be made": {lane("no room"), false, "pod default/p-s is not in its lane: no room"},
		"kubelet refuses":          {none("kubelet is away"), false, ""},
		"kubelet refuses, and it asks": {none("kubelet is away"), true,
			"asks for a lane and cannot start without it: kubelet is away"},
		"kubelet is silent": {hangs(false, release), false, ""},
		"kubelet is silent, and it asks": {hangs(false, release), true,
			"asks for a lane and cannot start without it: kubelet has not said"},
		"lane that is not made in time": {hangs(true, release), false,
			"pod default/p-s is not in its lane after 1.5s"},
		"lane not made in time, asked for": {hangs(true, release), true, "is not in its lane after"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := &fakeLanes{answer: c.answer, asks: c.asks}
			r := connected(t, l)
			for _, hook := range []func() error{
				func() error { return r.run(t, "s") },
				func() error {
					a, err := r.create(t, "s")
					// If the plugin changed the container, two agents on one node would conflict.
					if err == nil && a.String() != unchanged.String() {
						t.Errorf("a container is changed: %v", a)
					}
					return err
				},
			} {
				err := hook()
				if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
					t.Errorf("got %v, want %q", err, c.want)
				}
			}
			if got := l.asked(); len(got) < 2 {
				t.Errorf("asked %q: the runtime has dropped the plugin", got)
			}
		})
	}
}

// TestUndo checks that a pod is removed from its lane if it got there too late: the plugin had
// already refused the pod.
func TestUndo(t *testing.T) {
	release := make(chan struct{})
	l := &fakeLanes{answer: hangs(true, release)}
	r := connected(t, l)
	if err := r.run(t, "s"); err == nil {
		t.Fatal("it starts")
	}
	if got := l.asked(); len(got) != 1 {
		t.Fatalf("asked %q before the agent has answered", got)
	}
	close(release)
	until(t, "it is taken out", func() bool { return slices.Contains(l.asked(), "DEL s") })
}

// TestTwice checks that a pod that is already in its lanes, for example by niclane-cni, is not
// attached again. A pod whose sandbox was not reported is attached when its container is created.
func TestTwice(t *testing.T) {
	l := &fakeLanes{answer: lane(""), attached: []lanes.Attachment{{Sandbox: "in", IfName: "eth0"}}}
	r := connected(t, l)
	l.mu.Lock()
	l.attached = []lanes.Attachment{{Sandbox: "in", IfName: "eth0"}}
	l.mu.Unlock()
	if err := r.run(t, "in"); err != nil {
		t.Error(err)
	}
	for _, id := range []string{"in", "out"} {
		if _, err := r.create(t, id); err != nil {
			t.Error(err)
		}
	}
	if diff := cmp.Diff([]string{"ADD out"}, l.asked()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestStopHangs checks that the plugin does not delay the end of a pod if the agent hangs.
func TestStopHangs(t *testing.T) {
	l := &stuck{release: make(chan struct{})}
	defer close(l.release)
	p := New(Options{Lanes: l, Runtime: func() string { return "" }})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	done := make(chan struct{})
	go func() { p.stop(ctx, pod("s")); close(done) }()
	receive(t, "the end of stop", done)
	if ctx.Err() != nil {
		t.Error("the runtime has waited in vain")
	}
}

type stuck struct {
	fakeLanes
	release chan struct{}
}

func (s *stuck) Handle(context.Context, *cni.Request, func()) cni.Answer {
	<-s.release
	return cni.Answer{}
}

// TestSynchronize checks that Synchronize removes exactly the pods that the runtime no longer has.
func TestSynchronize(t *testing.T) {
	addrs := []netip.Addr{netip.MustParseAddr("10.0.0.5")}
	dead := pod("dead")
	dead.Linux.Namespaces = dead.Linux.Namespaces[:1] // the runtime has removed its network namespace
	host := pod("host")
	host.Linux.Namespaces = host.Linux.Namespaces[:1]
	at := socket(t)
	r := newRuntime(t, at, pod("lives"), dead, host)
	t.Cleanup(r.Stop)
	l := &fakeLanes{attached: []lanes.Attachment{
		{Sandbox: "dead", Addrs: addrs}, {Sandbox: "gone", Addrs: addrs}, {Sandbox: "gone-host"}, {Sandbox: "host"},
		{Sandbox: "lives", Addrs: addrs}, {Sandbox: "pod:uid", Addrs: addrs},
	}}
	receive(t, "a connection", connect(t, at, l, "").connected)
	var got []string
	for _, a := range l.Attachments() {
		got = append(got, a.Sandbox)
	}
	if diff := cmp.Diff([]string{"host", "lives", "pod:uid"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestRuntimeRestarts checks that the plugin connects again after a restart of the runtime, and
// then gets requests.
func TestRuntimeRestarts(t *testing.T) {
	l := &fakeLanes{answer: lane("no room")}
	at := socket(t)
	first, second := newRuntime(t, socket(t)), newRuntime(t, socket(t))
	t.Cleanup(first.Stop)
	t.Cleanup(second.Stop)
	end := first.behind(t, at)
	s := connect(t, at, l, "containerd://2.3.7")
	receive(t, "a connection", s.connected)
	end()
	if err := receive(t, "a failing attempt", s.failing); err == nil {
		t.Error("failing without an error")
	}
	defer second.behind(t, at)()
	receive(t, "the second connection", s.connected)
	second.BlockPluginSync().Unblock()
	if err := second.run(t, "s"); err == nil || !strings.Contains(err.Error(), "no room") {
		t.Errorf("after a restart: %v", err)
	}
}

// TestRequired tests the annotation from docs/kubernetes.md that requires the plugin. If the
// runtime's validator is on, a pod with this annotation does not start without the plugin.
func TestRequired(t *testing.T) {
	doc, err := os.ReadFile("../../docs/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	const key, value = "required-plugins.noderesource.dev", "[niclane]"
	if !strings.Contains(string(doc), "`"+key+": '"+value+"'`") {
		t.Error("the document says something else")
	}
	p := pod("s")
	p.Annotations = map[string]string{key: value}
	start := func(r *runtime) error {
		_, err := r.CreateContainer(t.Context(),
			&api.CreateContainerRequest{Pod: p, Container: &api.Container{Id: "c", PodSandboxId: "s", Name: "c"}})
		return err
	}
	alone := newRuntime(t, socket(t))
	t.Cleanup(alone.Stop)
	if err := start(alone); err == nil || !strings.Contains(err.Error(), `required plugin "niclane" not present`) {
		t.Errorf("without the plugin: %v", err)
	}
	if err := start(connected(t, &fakeLanes{answer: lane("")})); err != nil {
		t.Errorf("with it: %v", err)
	}
}

// TestNoNRI checks that the error says why the node's runtime has no NRI, by the runtime's version.
func TestNoNRI(t *testing.T) {
	for runtime, want := range map[string]string{
		"containerd://1.6.20~ds1": "this node's containerd://1.6.20~ds1 has no NRI, which comes with containerd 2: " +
			"set nri.enabled=false and cni.enabled=true there",
		"containerd://1.7.28": "does not report the addresses of pods by it",
		"containerd://2.3.7":  "is NRI on in the configuration of this node's containerd://2.3.7?",
		"cri-o://1.36.0":      "is NRI on in the configuration of this node's cri-o://1.36.0?",
		"":                    "NRI comes with containerd 2",
	} {
		at := socket(t)
		err := receive(t, "a failing attempt", connect(t, at, &fakeLanes{}, runtime).failing)
		if !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), at) {
			t.Errorf("%s: %v, want %s", runtime, err, want)
		}
	}
}

// TestHalfWay tests a runtime that ends right after the plugin's registration. The library's stub
// would wait forever for the next message. The plugin must end the stub and connect again.
func TestHalfWay(t *testing.T) {
	at := socket(t)
	l, err := net.Listen("unix", at)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	half := &halfWay{ends: make(chan func()), registered: make(chan struct{})}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mux := multiplex.Multiplex(c)
			rl, err := mux.Listen(multiplex.RuntimeServiceConn)
			if err != nil {
				return
			}
			server, err := ttrpc.NewServer()
			if err != nil {
				return
			}
			api.RegisterRuntimeService(server, half)
			go func() { _ = server.Serve(context.Background(), rl) }()
			half.ends <- func() { mux.Close() }
		}
	}()
	s := connect(t, at, &fakeLanes{}, "")
	for range 2 {
		end := receive(t, "a connection", half.ends)
		receive(t, "a registration", half.registered)
		ended := time.Now()
		end()
		receive(t, "a failing attempt", s.failing)
		if took := time.Since(ended); took >= register {
			t.Errorf("the end is seen after %v, as if the runtime had hung", took)
		}
	}
	l.Close()
	until(t, "no stub waits", func() bool {
		all := make([]byte, 1<<20)
		return !strings.Contains(string(all[:goruntime.Stack(all, true)]), "stub.(*stub).Start")
	})
}

// halfWay is a runtime that registers plugins but never sends Configure.
type halfWay struct {
	ends       chan func()
	registered chan struct{}
}

func (h *halfWay) RegisterPlugin(context.Context, *api.RegisterPluginRequest) (*api.Empty, error) {
	go func() { h.registered <- struct{}{} }()
	return &api.Empty{}, nil
}

func (h *halfWay) UpdateContainers(context.Context, *api.UpdateContainersRequest) (*api.UpdateContainersResponse,
	error) {
	return &api.UpdateContainersResponse{}, nil
}
