// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"context"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	nrilog "github.com/containerd/nri/pkg/log"

	"github.com/niclane/niclane/k8s/agent/lanes"
	"github.com/niclane/niclane/k8s/cni"
	"github.com/niclane/niclane/k8s/nri/nritest"
)

// requestTime is how long the tests' runtime waits for a plugin's answer, as containerd does.
const requestTime = 2 * time.Second

func TestMain(m *testing.M) {
	nrilog.Set(logger{slog.New(slog.DiscardHandler)})
	adaptation.SetPluginRequestTimeout(requestTime)
	m.Run()
}

// fakeLanes replaces the agent's lanes in tests, and records the requests.
type fakeLanes struct {
	mu       sync.Mutex
	requests []cni.Request
	attached []lanes.Attachment
	asks     bool
	answer   func(ctx context.Context, r *cni.Request, early func()) cni.Answer
}

func (l *fakeLanes) Handle(ctx context.Context, r *cni.Request, early func()) cni.Answer {
	l.mu.Lock()
	l.requests = append(l.requests, *r)
	answer := l.answer
	l.mu.Unlock()
	if answer == nil || r.Command != cni.Add {
		return cni.Answer{}
	}
	return answer(ctx, r, early)
}

func (l *fakeLanes) Asks(string, string, string) bool { return l.asks }

func (l *fakeLanes) Attachments() []lanes.Attachment {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.attached)
}

func (l *fakeLanes) Keep(_ context.Context, still func(lanes.Attachment) bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.attached = slices.DeleteFunc(l.attached, func(a lanes.Attachment) bool { return !still(a) })
	return nil
}

// asked returns the requests so far, each as its command and sandbox.
func (l *fakeLanes) asked() (out []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.requests {
		out = append(out, r.Command+" "+r.Sandbox)
	}
	return out
}

// A runtime is the runtime's side of NRI, with the test's pods.
type runtime struct {
	*nritest.Runtime
	socket string
}

func newRuntime(t *testing.T, socket string, pods ...*api.PodSandbox) *runtime {
	t.Helper()
	return &runtime{nritest.Start(t, socket, pods...), socket}
}

// behind makes a runtime reachable by another socket until end is called. end closes all
// connections, as the end of a runtime's process does. The runtime's Stop does not close them.
func (r *runtime) behind(t *testing.T, socket string) (end func()) {
	t.Helper()
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var open []net.Conn
	go func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("unix", r.socket)
			if err != nil {
				from.Close()
				continue
			}
			mu.Lock()
			open = append(open, from, to)
			mu.Unlock()
			go func() { _, _ = io.Copy(to, from) }()
			go func() { _, _ = io.Copy(from, to) }()
		}
	}()
	return sync.OnceFunc(func() {
		l.Close()
		mu.Lock()
		defer mu.Unlock()
		for _, c := range open {
			c.Close()
		}
	})
}

// told has the calls of the plugin's options Connected and Failing.
type told struct {
	connected chan struct{}
	failing   chan error
}

// connect runs a plugin until the test ends.
func connect(t *testing.T, socket string, l *fakeLanes, running string) *told {
	t.Helper()
	s := &told{make(chan struct{}, 100), make(chan error, 100)}
	p := New(Options{
		Socket: socket, Lanes: l, Bandwidth: true, Runtime: func() string {
			return running
		}, Log: slog.New(slog.DiscardHandler),
		Connected: func() { s.connected <- struct{}{} },
		Failing:   func(_ time.Time, err error) { s.failing <- err },
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return s
}

func socket(t *testing.T) string { return filepath.Join(t.TempDir(), "nri.sock") }

// receive returns the next value of a channel. It fails the test if none arrives in 20 s.
func receive[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(20 * time.Second):
		t.Fatalf("%s: nothing in 20 s", what)
		panic("unreachable")
	}
}

func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in 20 s: %s", what)
		}
	}
}

// pod returns a sandbox with this ID, as containerd reports it.
func pod(id string) *api.PodSandbox {
	return &api.PodSandbox{
		Id: id, Name: "p-" + id, Uid: "u-" + id, Namespace: "default", Ips: []string{"10.0.0.5", "fd00::5"},
		Annotations: map[string]string{"kubernetes.io/egress-bandwidth": "10M"},
		Linux: &api.LinuxPodSandbox{Namespaces: []*api.LinuxNamespace{{Type: "pid"},
			{Type: "network", Path: "/run/netns/" + id}}},
	}
}
