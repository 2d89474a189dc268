// SPDX-License-Identifier: Apache-2.0

package scale_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/niclane/niclane/k8s/agent/kube"
	"github.com/niclane/niclane/k8s/api/v1alpha1"
	"github.com/niclane/niclane/k8s/test/apiserver"
)

// Users of the chart's objects.
const (
	agentUser      = "system:serviceaccount:niclane-system:niclane-agent"
	controllerUser = "system:serviceaccount:niclane-system:niclane-controller"
)

// A fleet is the API side of the agents of many nodes. Each agent is the real one's (package kube):
// its watches, its LaneNode, its writes. Only its card is missing: it applies each change at once.
type fleet struct {
	*apiserver.Server
	agents []*agent
	// host is the address of the API server, or of a proxy before it.
	host string
	// busy is the number of agents that have seen a change and not yet written that they applied
	// it; most is the largest number so far.
	busy, most atomic.Int64
	// failures counts writes that failed; failure is the error of the last one.
	failures atomic.Int64
	failure  atomic.Value
}

// An agent is the API side of a node's agent.
type agent struct {
	*kube.Cluster
	node    string
	fleet   *fleet
	changed chan struct{}
	renew   chan chan error
	told    v1alpha1.LaneNodeStatus
}

func nodeName(i int) string { return fmt.Sprintf("node-%04d", i) }

// join makes the nodes from the present number to n, and starts their agents.
func (f *fleet) join(t testing.TB, n int) {
	t.Helper()
	from := len(f.agents)
	each(t, 32, from, n, func(i int) error {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName(i), Labels: map[string]string{
			"kubernetes.io/hostname": nodeName(i), "kubernetes.io/os": "linux", "role": "edge"}}}
		node, err := f.Client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil // of a fleet before this one
		}
		if err == nil {
			node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}}
			_, err = f.Client.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{})
		}
		return err
	})
	for i := from; i < n; i++ {
		f.agents = append(f.agents, f.agent(t, nodeName(i), f.As(agentUser, nodeName(i))))
	}
}

// agent starts the agent of a node.
func (f *fleet) agent(t testing.TB, node string, config *rest.Config) *agent {
	if f.host != "" {
		config.Host = f.host
		counting(config, new(atomic.Int64)) // with connections of its own, as on a node
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	a := &agent{node: node, fleet: f, changed: make(chan struct{}, 1), renew: make(chan chan error)}
	a.Cluster = kube.New(client, node, false, slog.New(slog.DiscardHandler), func() {
		select {
		case a.changed <- struct{}{}:
		default:
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { a.Run(ctx) })
	wg.Go(func() { a.follow(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	return a
}

// follow does what the agent's loops follow and tell do with the API server.
func (a *agent) follow(ctx context.Context) {
	var again <-chan time.Time
	for {
		var answer chan error
		select {
		case <-ctx.Done():
			return
		case <-a.changed:
		case <-again:
		case answer = <-a.renew:
		}
		if !a.Synced() {
			again = time.After(100 * time.Millisecond)
			continue
		}
		next := v1alpha1.LaneNodeStatus{Agent: "v0.1.0"}
		p, known, err := a.Policy()
		switch {
		case err != nil:
			next.Conditions = conditions(a.told.Conditions, v1alpha1.ReasonRefused, err.Error())
		case known:
			if p != nil {
				next.Policy, next.PolicyGeneration, next.Devices = p.Name, p.Generation, []string{"eth0"}
				for _, c := range p.Spec.Classes {
					next.Classes = append(next.Classes, v1alpha1.ClassStatus{Name: c.Name, Total: 4, InUse: 2,
						Mechanism: "rss-context"})
				}
			}
			next.Conditions = conditions(a.told.Conditions, v1alpha1.ReasonAsThePolicySays, "the node's card is as the policy says")
		}
		if answer == nil && next.Policy == a.told.Policy && next.PolicyGeneration == a.told.PolicyGeneration &&
			len(next.Conditions) == len(a.told.Conditions) && a.told.Agent != "" {
			continue
		}
		next.Renewed = metav1.Now()
		if known && answer == nil {
			busy := a.fleet.busy.Add(1)
			for most := a.fleet.most.Load(); busy > most && !a.fleet.most.CompareAndSwap(most, busy); {
				most = a.fleet.most.Load()
			}
		}
		err = a.SetStatus(ctx, &next)
		if known && answer == nil {
			a.fleet.busy.Add(-1)
		}
		again = nil
		if err == nil {
			a.told = next
		} else if ctx.Err() == nil {
			a.fleet.failures.Add(1)
			a.fleet.failure.Store(err.Error())
			again = time.After(10 * time.Second) // as the agent does
		}
		if answer != nil {
			answer <- err
		}
	}
}

func conditions(old []metav1.Condition, reason, message string) []metav1.Condition {
	return []metav1.Condition{
		kube.Condition(old, v1alpha1.Applied, reason == v1alpha1.ReasonAsThePolicySays, reason, message),
		kube.Condition(old, v1alpha1.Healthy, true, "LanesHold", "the lanes are as they were applied"),
		kube.Condition(old, v1alpha1.Steered, true, "AddressesAreSeen",
			"the agent found no packets of pods in lanes that the node translates"),
	}
}

// renewAll lets all agents renew their statuses once.
func (f *fleet) renewAll(t testing.TB) {
	t.Helper()
	each(t, 16, 0, len(f.agents), func(i int) error {
		answer := make(chan error, 1)
		f.agents[i].renew <- answer
		return <-answer
	})
}

// each calls do for all numbers from from to n, many at one time.
func each(t testing.TB, many, from, n int, do func(int) error) {
	t.Helper()
	var wg sync.WaitGroup
	var next atomic.Int64
	next.Store(int64(from))
	errs := make([]error, many)
	for w := range many {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && errs[w] == nil; i = int(next.Add(1)) - 1 {
				errs[w] = do(i)
			}
		})
	}
	wg.Wait()
	if i := slices.IndexFunc(errs, func(err error) bool { return err != nil }); i >= 0 {
		t.Fatal(errs[i])
	}
}

// counting makes the connections of a configuration count the bytes that they receive.
func counting(config *rest.Config, received *atomic.Int64) *rest.Config {
	config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, address)
		return &countingConn{c, received}, err
	}
	return config
}

type countingConn struct {
	net.Conn
	received *atomic.Int64
}

func (c *countingConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.received.Add(int64(n))
	return n, err
}

// A controller is a running niclane-controller.
type controller struct {
	*exec.Cmd
	health, log string
}

// startController builds and starts niclane-controller. server is the address of the API server.
func startController(t testing.TB, s *apiserver.Server, server string) *controller {
	t.Helper()
	program := filepath.Join(t.TempDir(), "niclane-controller")
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", program,
		"./cmd/niclane-controller")
	build.Dir, build.Env = "../..", append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listen := l.Addr().String()
	_ = l.Close()
	c := &controller{Cmd: exec.Command(program, "-kubeconfig", s.Kubeconfig(server, controllerUser), "-namespace",
		"niclane-system", "-listen", listen), health: "http://" + listen + "/healthz",
		log: filepath.Join(t.TempDir(), "log")}
	log, err := os.Create(c.log)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	c.Stderr = log
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Signal(os.Interrupt)
		_ = c.Wait()
		if text, _ := os.ReadFile(c.log); t.Failed() {
			t.Logf("the end of niclane-controller's log:\n%s", text[max(0, len(text)-4096):])
		}
	})
	return c
}

// healthy reports whether the controller answers that its rounds go on.
func (c *controller) healthy() bool {
	r, err := (&http.Client{Timeout: 5 * time.Second}).Get(c.health)
	if err != nil {
		return false
	}
	_ = r.Body.Close()
	return r.StatusCode == http.StatusOK
}
