// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/niclane/niclane/k8s/test/machine"
)

// A Shape describes how a node differs from a plain one.
type Shape struct {
	// CgroupRoot is the control group below which all pods of the node are: empty on a
	// plain node, "/kubelet" on a node of kind.
	CgroupRoot string
	// Cilium has options of Cilium's agent, if Cilium is the node's pod network. With nil, the CNI plugin
	// bridge is.
	Cilium []string
}

// Kind is the shape of a node of kind, as far as its paths are concerned: pods are in control
// groups below /kubelet. Unlike there, no systemd runs.
var Kind = Shape{CgroupRoot: "/kubelet"}

// A Member is a node of a cluster.
type Member struct {
	*machine.Machine
	Shape
	// Name is the node's name in the cluster: node1, node2, ...
	Name string
	// Inside is the node's IPv4 address on its link.
	Inside string
	// Pods are the networks of the node's pods.
	Pods []netip.Prefix

	inside6, outside4, outside6 string
	wire                        string // the device of the link on the control plane's machine
	suffix                      string // of the names of the node's daemons
}

// member returns the description of a node. i counts from 0.
func member(i int, s Shape) *Member {
	// The numbers between are those of other networks (package hosts).
	link4, link6 := fmt.Sprintf("10.99.%d.", 10*i), fmt.Sprintf("fd99:0:0:%d::", i)
	n := &Member{
		Shape: s, Name: fmt.Sprintf("node%d", i+1), Inside: link4 + "2", inside6: link6 + "2", outside4: link4 + "1",
		outside6: link6 + "1", wire: "wire",
		Pods: []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("10.98.%d.0/24", i)),
			netip.MustParsePrefix(fmt.Sprintf("fd98:0:0:%d::/64", i))},
	}
	if i > 0 {
		n.suffix = "-" + n.Name
		n.wire += n.suffix
	}
	return n
}

// daemon returns the name of one of the node's daemons, which differs from those of other nodes.
func (n *Member) daemon(name string) string { return name + n.suffix }

// kubeletConfig returns the part of kubelet's configuration that differs between nodes.
func (n *Member) kubeletConfig() string {
	text := "address: " + n.Inside + "\n"
	if n.CgroupRoot != "" {
		text += "cgroupRoot: " + n.CgroupRoot + "\n"
	}
	return text
}

// makeCgroupRoot makes the control group CgroupRoot in each hierarchy, as the nodes of kind do when
// they start. kubelet does not make it.
func (n *Member) makeCgroupRoot() error {
	if n.CgroupRoot == "" {
		return nil
	}
	hierarchies, err := filepath.Glob(n.Path("/sys/fs/cgroup/*"))
	if err != nil {
		return err
	}
	for _, h := range hierarchies {
		group := filepath.Join(h, n.CgroupRoot)
		if err := os.MkdirAll(group, 0o755); err != nil {
			return err
		}
		for _, file := range machine.Inherited {
			text, err := os.ReadFile(filepath.Join(h, file))
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err == nil {
				err = os.WriteFile(filepath.Join(group, file), text, 0)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}
