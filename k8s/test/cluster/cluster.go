// SPDX-License-Identifier: Apache-2.0

// Package cluster runs a Kubernetes cluster for one test: an unmodified control plane, and nodes
// with kubelet and containerd; usually one node. The control plane and each node are on one machine
// each (package machine). A link with several queues connects each node with the control plane's
// machine, which forwards packets between nodes. The cluster uses no other network.
//
// The control plane's machine is also the world outside the cluster: tests send packets to pods
// from it. It has the service address of the API server, so that pods reach the API server without
// kube-proxy.
package cluster

import (
	"context"
	encoding "encoding/base64"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/niclane/niclane/k8s/test/components"
	"github.com/niclane/niclane/k8s/test/machine"
)

// Addresses and names in a cluster. They are the same in every cluster, because clusters are
// isolated from each other.
const (
	service = "10.96.0.1" // the service address of the API server
	server  = "https://" + service + ":443"

	// Outside is the address of the control plane's machine on the link of the first node.
	Outside = "10.99.0.1"
	// Inside is the first node's address on its link.
	Inside = "10.99.0.2"
	// Node is the first node's name. Uplink is a node's device for the link.
	Node   = "node1"
	Uplink = "up0"
	// Queues is the number of receive queues, and of transmit queues, at each end of the link.
	Queues = 8
)

// Pods are the networks of the first node's pods.
var Pods = []netip.Prefix{netip.MustParsePrefix("10.98.0.0/24"), netip.MustParsePrefix("fd98::/64")}

// A Release describes a cluster's components.
type Release struct {
	Name       string
	Kubernetes components.Component
	// Containerd is containerd 2, or nil for the containerd of the host (Debian 12 has 1.6).
	Containerd *components.Component
	// FeatureGates is the option --feature-gates of all Kubernetes components, for example
	// "Name=true,Other=false".
	FeatureGates string
}

// Releases are the tested Kubernetes releases, the newest first.
var Releases = []Release{
	{Name: "v1.36", Kubernetes: components.Kubernetes136, Containerd: &components.Containerd},
	{Name: "v1.34", Kubernetes: components.Kubernetes134, FeatureGates: "DRAConsumableCapacity=true"},
}

// A Cluster is a running cluster. It is removed at the end of its test.
type Cluster struct {
	Release
	// Control is the machine of the control plane, Node the machine of the first node.
	Control, Node *machine.Machine
	// Nodes are all nodes.
	Nodes []*Member
	// Client, Dynamic and Config have an administrator's rights.
	Client  kubernetes.Interface
	Dynamic dynamic.Interface
	Config  *rest.Config

	t     testing.TB
	ctx   context.Context
	dir   string
	ca    *authority
	build struct{ kubernetes, containerd, etcd, plugins, cilium, ciliumSource string }
	// daemons has the processes that start has started, by name.
	daemons map[string]*machine.Process
	app     string // path of the archive with the image for pods and sandboxes
}

// Start starts a cluster with a node for each shape, or one plain node, and waits until the nodes
// are ready. It skips the test if the user is not root.
func Start(t testing.TB, r Release, shapes ...Shape) *Cluster {
	t.Helper()
	if len(shapes) == 0 {
		shapes = []Shape{{}}
	}
	if os.Geteuid() != 0 {
		t.Skip("not root: a cluster's machines need namespaces and control groups")
	}
	c := &Cluster{Release: r, t: t, ctx: t.Context(), daemons: map[string]*machine.Process{}}
	for i, s := range shapes {
		c.Nodes = append(c.Nodes, member(i, s))
	}
	var err error
	// The directory is in /tmp even if TMPDIR is set, because a Unix socket's path has at most 107
	// bytes.
	if c.dir, err = os.MkdirTemp("/tmp", "niclane-k8s-"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.end)
	begin := time.Now()
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"programs", c.programs}, {"machines", c.machines}, {"control plane", c.startControl}, {"nodes", c.startNodes},
	} {
		if err := step.do(); err != nil {
			t.Fatalf("%s: %s: %v", r.Name, step.name, err)
		}
		t.Logf("%s: %s after %.1f s", r.Name, step.name, time.Since(begin).Seconds())
	}
	return c
}

func (c *Cluster) programs() (err error) {
	for _, p := range []struct {
		dir *string
		of  *components.Component
	}{
		{&c.build.kubernetes, &c.Kubernetes}, {&c.build.containerd, c.Containerd},
		{&c.build.etcd, &components.Etcd}, {&c.build.plugins, &components.Plugins},
	} {
		if p.of == nil {
			if _, err := exec.LookPath("containerd"); err != nil {
				return fmt.Errorf("%w: apt-get install containerd", err)
			}
			*p.dir = "/usr/bin"
			continue
		}
		if *p.dir, err = p.of.Programs(c.ctx); err != nil {
			return err
		}
	}
	for _, n := range c.Nodes {
		if n.Cilium == nil || c.build.cilium != "" {
			continue
		}
		if c.build.cilium, err = components.Cilium.Programs(c.ctx); err != nil {
			return err
		}
		if c.build.ciliumSource, err = components.Cilium.Source(c.ctx); err != nil {
			return err
		}
	}
	c.app, err = appImage(c.ctx, c.dir)
	return err
}

func (c *Cluster) machines() (err error) {
	// The machines' names must differ from those of clusters of other processes.
	id := filepath.Base(c.dir)[len("niclane-k8s-"):]
	if c.Control, err = machine.Boot(machine.Config{
		Name: "control-" + id, Disk: filepath.Join(c.dir, "control"),
		Programs: []string{c.build.kubernetes, c.build.etcd},
	}); err != nil {
		return err
	}
	programs := []string{c.build.kubernetes, c.build.plugins}
	if c.Containerd != nil {
		programs = append(programs, c.build.containerd)
	}
	if c.build.cilium != "" {
		programs = append(programs, c.build.cilium)
	}
	machines := []*machine.Machine{c.Control}
	for _, n := range c.Nodes {
		if n.Machine, err = machine.Boot(machine.Config{
			Name: n.Name + "-" + id, Disk: filepath.Join(c.dir, n.Name), Programs: programs, Sysctls: kubeletSysctls,
		}); err != nil {
			return err
		}
		machines = append(machines, n.Machine)
	}
	c.Node = c.Nodes[0].Machine
	for _, m := range machines {
		if err := configure(m); err != nil {
			return err
		}
	}
	if err := setAddresses(c.Control, "lo", []string{service + "/32"}, nil); err != nil {
		return fmt.Errorf("%s: %w", c.Control.Name, err)
	}
	if err := forward(c.Control); err != nil {
		return err
	}
	for _, n := range c.Nodes {
		if err := c.connect(n); err != nil {
			return err
		}
	}
	return nil
}

// configure writes the files that programs expect in /etc on a machine.
func configure(m *machine.Machine) error {
	for name, text := range map[string]string{
		"etc/passwd": "root:x:0:0::/root:/bin/sh\n", "etc/group": "root:x:0:\n", "etc/hosts": "127.0.0.1 localhost\n",
		"etc/resolv.conf": "", "etc/os-release": "NAME=test\nID=test\nPRETTY_NAME=test\n",
		"etc/machine-id": fmt.Sprintf("%032x\n", os.Getpid()),
	} {
		if err := os.WriteFile(m.OnDisk(name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// end halts the machines and removes the cluster's files. If the test has failed, it first shows
// the logs. If NICLANE_KEEP is set, it keeps the files.
func (c *Cluster) end() {
	if c.t.Failed() {
		c.showLogs()
	}
	machines := []*machine.Machine{c.Control}
	for _, n := range c.Nodes {
		machines = append(machines, n.Machine)
	}
	for _, m := range machines {
		if m == nil {
			continue
		}
		if err := m.Halt(); err != nil {
			c.t.Errorf("halt %s: %v", m.Name, err)
		}
	}
	if os.Getenv("NICLANE_KEEP") != "" {
		c.t.Logf("kept: %s", c.dir)
		return
	}
	if err := os.RemoveAll(c.dir); err != nil {
		c.t.Error(err)
	}
}

func base64(b []byte) string { return encoding.StdEncoding.EncodeToString(b) }
