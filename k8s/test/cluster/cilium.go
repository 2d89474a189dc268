// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Options of Cilium's agent, for Shape.
var (
	// CiliumNative makes nodes route pods' packets as the other nodes of the tests do.
	CiliumNative = []string{"--routing-mode=native", "--ipv4-native-routing-cidr=10.98.0.0/16",
		"--ipv6-native-routing-cidr=fd98::/48"}
	// CiliumVXLAN makes an overlay: packets from one node's pods to the other node are inside VXLAN.
	CiliumVXLAN = []string{"--routing-mode=tunnel", "--tunnel-protocol=vxlan"}
)

// ciliumOptions are options of Cilium's agent on all nodes that differ from the agent's defaults, most of
// them as in its chart. Socket load balancing stays off: its programs would be in the host's root control
// group. Nor are there iptables, Envoy and Hubble.
var ciliumOptions = []string{
	"--enable-ipv4=true", "--enable-ipv6=true", "--enable-ipv4-masquerade=false", "--enable-ipv6-masquerade=false",
	"--ipam=kubernetes", "--identity-allocation-mode=crd", "--devices=" + Uplink, "--kube-proxy-replacement=false",
	"--enable-l7-proxy=false", "--enable-hubble=false", "--install-iptables-rules=false",
	"--write-cni-conf-when-ready=/etc/cni/net.d/05-cilium.conflist", "--cni-exclusive=true",
	"--k8s-kubeconfig-path=/etc/kubernetes/cilium.conf",
}

// StartCilium starts Cilium's agent on the first node, with further options.
func (c *Cluster) StartCilium(options ...string) error { return c.startCilium(c.Nodes[0], options...) }

// startCilium starts Cilium's agent on a node. The node is ready when the agent has written its CNI
// configuration.
func (c *Cluster) startCilium(n *Member, options ...string) error {
	definitions, err := filepath.Glob(c.build.ciliumSource + "/pkg/k8s/apis/cilium.io/client/crds/*/*.yaml")
	if err != nil {
		return err
	}
	for _, path := range definitions {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := c.Apply(string(text)); err != nil {
			return fmt.Errorf("%s: %w", filepath.Base(path), err)
		}
	}
	ranges := fmt.Sprintf(`{"spec": {"podCIDR": %q, "podCIDRs": [%q, %q]}}`, n.Pods[0], n.Pods[0], n.Pods[1])
	if _, err := c.Client.CoreV1().Nodes().Patch(c.ctx, n.Name, types.MergePatchType, []byte(ranges),
		metav1.PatchOptions{}); err != nil {
		return err
	}
	user, err := c.ca.issue("cilium", []string{"system:masters"})
	if err != nil {
		return err
	}
	if err := os.WriteFile(n.OnDisk("etc/kubernetes/cilium.conf"), []byte(c.ca.kubeconfig(user)), 0o600); err != nil {
		return err
	}
	plugin := n.OnDisk("opt/cni/bin/cilium-cni")
	if err := os.Symlink(filepath.Join(c.build.cilium, "cilium-cni"), plugin); err != nil && !os.IsExist(err) {
		return err
	}
	programs := n.OnDisk("var/lib/cilium/bpf") // the agent compiles them
	if err := os.RemoveAll(programs); err != nil {
		return err
	}
	if err := os.CopyFS(programs, os.DirFS(filepath.Join(c.build.ciliumSource, "bpf"))); err != nil {
		return err
	}
	return c.start(n.Machine, n.daemon("cilium"), slices.Concat([]string{"/usr/bin/env", "K8S_NODE_NAME=" + n.Name,
		"CILIUM_K8S_NAMESPACE=kube-system", "PATH=/usr/lib/llvm-19/bin:/usr/sbin:/usr/bin",
		filepath.Join(c.build.cilium, "daemon")}, ciliumOptions, n.Cilium, options)...)
}
