// SPDX-License-Identifier: Apache-2.0

// Package agent connects the parts of niclane-agent: the card, the node's lanes, the API server,
// kubelet, niclane-cni, and the keeper that repairs drift. The parts make all decisions.
package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/dynamic"

	"github.com/niclane/niclane/internal/kernel/notify"
	"github.com/niclane/niclane/internal/privatedir"
	"github.com/niclane/niclane/k8s/agent/applier"
	"github.com/niclane/niclane/k8s/agent/attach"
	"github.com/niclane/niclane/k8s/agent/kube"
	"github.com/niclane/niclane/k8s/agent/lanes"
	"github.com/niclane/niclane/k8s/cni"
	"github.com/niclane/niclane/k8s/deviceplugin"
	"github.com/niclane/niclane/k8s/dra"
	"github.com/niclane/niclane/k8s/events"
	"github.com/niclane/niclane/k8s/networks/nat"
	"github.com/niclane/niclane/k8s/networks/reach"
	lanepods "github.com/niclane/niclane/k8s/pods"
	"github.com/niclane/niclane/k8s/pods/podresources"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/watch"
	"github.com/niclane/niclane/watch/metrics"
)

// Options of an Agent. All are required except NRI, NRIBandwidth, Services and
// CNIInstall.
type Options struct {
	// Node is the node's name in Kubernetes.
	Node string
	// Version of the agent, for the status.
	Version string
	Client  dynamic.Interface
	// StateDir and RunDir are the same directories that niclane's commands use.
	StateDir, RunDir string
	// Socket is the path at which the agent listens for niclane-cni.
	Socket string
	// NRI is the path of the runtime's NRI socket. If it is "", the agent does not use NRI, and only
	// niclane-cni reports pods.
	NRI string
	// NRIBandwidth makes the agent apply the bandwidth annotations of pods that NRI reports.
	NRIBandwidth bool
	// Services says that packets for a pod's Services belong to the pod's lane too.
	Services bool
	// CNIInstall says that niclane-cni-install runs beside the agent. A removal of niclane waits until it
	// has removed niclane-cni.
	CNIInstall bool
	// KubeletDir is kubelet's root directory, usually /var/lib/kubelet.
	KubeletDir string
	// Probes is the IP:PORT at which the agent serves /livez and /readyz to kubelet; "" for none.
	Probes string
	// Scrapes is the IP:PORT at which the agent serves metrics over TLS, to clients that the API server
	// allows to get /metrics; "" for none.
	Scrapes string
	// Listen is the address at which the agent serves metrics and health.
	Listen metrics.Address
	Log    *slog.Logger
}

// An Agent runs on one node.
type Agent struct {
	o        Options
	applier  *applier.Applier
	lanes    *lanes.Manager
	attacher *attach.Attacher
	cluster  *kube.Cluster
	kubelet  *podresources.Client
	keeper   *watch.Keeper
	source   *notify.Source
	removal  removal

	seen, pods, changed, kept chan struct{} // each wakes one loop
	took                      *prometheus.HistogramVec

	mu       sync.Mutex
	laneOf   map[string]string // lane of each object that has drifted, by the object's key
	refused  map[string]string // why kubelet refuses a resource or the driver of claims, by its name
	bypassed nat.Memory        // pods' packets that are outside their lane because of translation
}

// New returns an agent. It changes nothing on the card before Run.
func New(o Options) (*Agent, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return nil, err
	}
	// The state of this boot changes with each pod. It is in RunDir, so that a starting pod does not
	// wait for a disk.
	dir, run := filepath.Join(o.StateDir, "kubernetes"), filepath.Join(o.RunDir, "kubernetes")
	for _, d := range []string{o.StateDir, dir, o.RunDir, run} {
		if err := privatedir.Claim(d); err != nil {
			return nil, err
		}
	}
	a := &Agent{
		o: o, seen: make(chan struct{}, 1), pods: make(chan struct{}, 1), changed: make(chan struct{}, 1),
		kept: make(chan struct{}, 1), laneOf: map[string]string{}, refused: map[string]string{},
		kubelet: podresources.New(filepath.Join(o.KubeletDir, "pod-resources/kubelet.sock")), took: newTook(),
	}
	config := filepath.Join(run, "kubernetes.yaml")
	a.applier = applier.New(o.StateDir, o.RunDir, config)
	a.cluster = kube.New(o.Client, o.Node, o.Services, o.Log, func() {
		wake(a.pods)
		wake(a.seen)
	})
	a.lanes, err = lanes.New(lanes.Options{
		Name: o.Node, Path: filepath.Join(dir, "state.json"), RunDir: run, Config: config,
		Boot:    strings.TrimSpace(string(boot)),
		Applier: a.applier, Device: a.device, Changed: func() { wake(a.changed) }, Log: o.Log,
	})
	if err != nil {
		return nil, err
	}
	a.attacher = &attach.Attacher{
		Lanes: a.lanes, Kubelet: a.kubelet, Pods: a.cluster, Reachable: new(reach.Links).OnDevice,
		Recover: a.recover, Addrs: a.cluster.Addresses, ByCgroup: a.byCgroup, Limit: reach.Limit, Log: o.Log,
		Event: func(namespace, pod, uid, reason, message string) {
			go a.cluster.Event(context.Background(), "Pod", namespace, pod, uid, reason, message)
		},
		Took: func(command string, did bool, took time.Duration) {
			a.took.WithLabelValues(command, strconv.FormatBool(did)).Observe(took.Seconds())
		},
	}
	if o.Services {
		a.attacher.Services = func(pod *corev1.Pod) []lanepods.Service {
			return lanepods.Services(pod, a.cluster.Services())
		}
	}
	return a, nil
}

// Inventory returns the node's inventory, for the DRA driver.
func (a *Agent) Inventory() *lanes.Manager { return a.lanes }

// refusedResources takes kubelet's reasons for which it refuses resources.
func (a *Agent) refusedResources(reasons map[string]string) {
	a.noteRefused(func(now map[string]string) {
		maps.DeleteFunc(now, func(name, _ string) bool { return name != driverKey })
		for resource, reason := range reasons {
			now["resource "+resource] = reason
		}
	})
}

// driverKey is the driver of claims in Agent.refused.
const driverKey = "driver " + dra.DriverName

// RefusedDriver takes kubelet's answer to the registration of the driver of claims: the reason for
// which kubelet refuses it, or "".
func (a *Agent) RefusedDriver(reason string) {
	a.noteRefused(func(now map[string]string) {
		if delete(now, driverKey); reason != "" {
			now[driverKey] = reason
		}
	})
}

func (a *Agent) noteRefused(how func(map[string]string)) {
	a.mu.Lock()
	how(a.refused)
	a.mu.Unlock()
	wake(a.changed)
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// device returns the name of the device that has the node's InternalIP.
func (a *Agent) device() (string, error) {
	_, addr, ok := a.cluster.Node()
	if !ok || addr == "" {
		return "", errors.New("the node's InternalIP is not known yet")
	}
	return applier.DeviceOf(addr)
}

// handle answers a request of niclane-cni. If niclane-cni-install reports that pods get no lanes
// from niclane-cni, handle sends an event.
func (a *Agent) handle(ctx context.Context, r *cni.Request, early func()) cni.Answer {
	if r.Command == cni.Unchained {
		a.o.Log.Warn("niclane-cni gives pods no lanes", "error", r.Reason)
		a.cluster.Event(ctx, "Node", "", a.o.Node, a.o.Node, events.NotChained,
			"niclane-cni gives pods no lanes: "+r.Reason)
		return cni.Answer{}
	}
	if r.Command == cni.Installer {
		remove, fresh := a.removal.installer(r)
		if fresh {
			wake(a.changed)
		}
		return cni.Answer{Remove: remove}
	}
	return a.attacher.Handle(ctx, r, early)
}

// recover records a claim again that kubelet has prepared.
func (a *Agent) recover(ctx context.Context, claim string) error {
	c, err := a.cluster.Claim(ctx, claim)
	if err != nil {
		return err
	}
	h, err := dra.HoldOf(a.lanes.Now(), c)
	if err != nil {
		return err
	}
	a.o.Log.Info("claim recorded again", "claim", claim)
	return a.lanes.Hold(ctx, h)
}

// doing is the longest time that one request may take. niclane-cni waits a little longer.
const doing = 25 * time.Second

// Run runs the agent until ctx ends. At the end, the lanes stay on the card.
func (a *Agent) Run(ctx context.Context) (err error) {
	if a.source, err = notify.Open(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.source.Close()) }()
	a.applier.Source = a.source
	l, err := cni.Listen(a.o.Socket)
	if err != nil {
		return fmt.Errorf("niclane-cni's socket: %w", err)
	}
	a.keeper = watch.NewKeeper(a.applier, watch.Options{Report: a.report, Alive: func() { wake(a.kept) }})
	server, err := metrics.Serve(a.o.Listen, a.keeper, a.read, newPods(a.lanes), a.took)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	parts := []func(context.Context) error{
		func(ctx context.Context) error { a.lanes.Run(ctx); return nil },
		func(ctx context.Context) error { a.cluster.Run(ctx); return nil },
		func(ctx context.Context) error { return cni.Serve(ctx, l, doing, a.handle) },
		func(ctx context.Context) error { return watch.Run(ctx, a.keeper, a.source.Events()) },
		func(ctx context.Context) error {
			return again(ctx, a.o.Log, "device plugins", (&deviceplugin.Manager{
				Dir: filepath.Join(a.o.KubeletDir, "device-plugins"), Inventory: a.lanes, Refused: a.refusedResources,
				Log: a.o.Log,
			}).Run)
		},
		func(ctx context.Context) error { return a.serveScrapes(ctx, server.Handler()) },
		a.serveProbes, a.writePods, a.follow, a.tell, a.judge, a.watchTranslated,
	}
	if a.o.NRI != "" {
		parts = append(parts, a.newNRI().Run)
	}
	defer a.sweepFiles()
	return together(ctx, parts...)
}

// together runs all functions at the same time. If one fails, it ends the others.
func together(ctx context.Context, fs ...func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, len(fs))
	var wg sync.WaitGroup
	for i, f := range fs {
		wg.Go(func() {
			if errs[i] = f(ctx); errs[i] != nil {
				cancel()
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// again calls f in a loop until ctx ends, with pauses of 5 s. f may fail at first, because what it
// needs may appear on the node later.
func again(ctx context.Context, log *slog.Logger, what string, f func(context.Context) error) error {
	for {
		err := f(ctx)
		if ctx.Err() != nil {
			return nil
		}
		log.Warn(what, "error", err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(5 * time.Second):
		}
	}
}

// Times in follow.
const (
	settle = 50 * time.Millisecond // between an event and the reaction to it
	sweeps = 2 * time.Minute       // between sweeps without an event
)

// follow applies the node's policy and attaches the node's pods. It does so after each change in
// the API server, and at least once in the time sweeps.
func (a *Agent) follow(ctx context.Context) error {
	tick := time.NewTicker(sweeps)
	defer tick.Stop()
	began := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-a.seen:
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(settle):
			}
		case <-tick.C:
		}
		if !a.cluster.Synced() {
			continue
		}
		if _, _, ok := a.cluster.Node(); !ok {
			continue
		}
		if !began {
			began = true
			for _, why := range a.lanes.Unread() {
				a.cluster.Event(ctx, "Node", "", a.o.Node, a.o.Node, events.StateRebuilt,
					"niclane-agent makes its state again from the API server and kubelet: "+why)
			}
		}
		if generation, leave := a.leaves(); leave {
			if a.remove(ctx, generation); !a.removal.done() {
				tick.Reset(removeAgain)
			}
			continue
		}
		a.removal.want(false, 0)
		tick.Reset(sweeps)
		if p, known, err := a.cluster.Policy(); known {
			a.lanes.SetPolicy(ctx, p, err)
		} else {
			wake(a.changed) // tell makes the LaneNode, which niclane-controller waits for
		}
		if err := a.attacher.Sweep(ctx, a.cluster.Pods(), a.cgroup); err != nil && ctx.Err() == nil {
			a.o.Log.Warn("pods could not be compared with kubelet's list", "error", err)
		}
		a.attacher.FollowServices(ctx, a.cluster.Pods())
		a.attacher.FollowTunnels(ctx)
	}
}

// report logs an event of the keeper, and notes the lane of an object that has drifted. It must not
// call the keeper.
func (a *Agent) report(e watch.Event) {
	if e.Kind == watch.Drift {
		a.mu.Lock()
		a.laneOf[e.Key] = e.Lane
		a.mu.Unlock()
	}
	switch e.Kind {
	case watch.Drift, watch.Failed, watch.Left, watch.Waiting:
		a.o.Log.Warn(e.String())
	default:
		a.o.Log.Info(e.String())
	}
}

// judge reports which lanes are not as niclane left them. It does so each time after the keeper has
// looked at the lanes and repaired them.
func (a *Agent) judge(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-a.kept:
		}
		conditions, _, failing := a.keeper.State()
		drifts := map[string][]string{}
		if failing != "" {
			drifts[""] = append(drifts[""], "the lanes cannot be looked at: "+failing)
		}
		a.mu.Lock()
		for _, c := range conditions {
			for _, dev := range slices.Sorted(maps.Keys(c.Waits)) {
				drifts[""] = append(drifts[""], dev+": "+c.Waits[dev])
			}
			for _, key := range append(c.Drifts, c.Left...) {
				if ofPod(key) {
					continue
				}
				drifts[a.laneOf[key]] = append(drifts[a.laneOf[key]], key+" is not as niclane left it")
			}
		}
		a.mu.Unlock()
		a.lanes.SetHealth(drifts)
	}
}

// ofPod reports whether the object with this key belongs to one pod's control group. Such an object
// disappears with the pod, before the runtime reports the pod's end. The lane stays healthy for
// other pods.
func ofPod(key string) bool {
	for _, o := range []device.Object{device.CgroupClass{}, device.CgroupPriority{}} {
		if kind, _, _ := strings.Cut(o.Key(), "/"); strings.HasPrefix(key, kind+"/") {
			return true
		}
	}
	return false
}
