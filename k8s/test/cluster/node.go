// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const runtimeSocket = "/run/containerd/containerd.sock"

func (c *Cluster) startNodes() error {
	for _, n := range c.Nodes {
		if err := c.startNode(n); err != nil {
			return fmt.Errorf("%s: %w", n.Name, err)
		}
	}
	for _, n := range c.Nodes {
		if err := c.untilReady(n); err != nil {
			return err
		}
	}
	return nil
}

// startNode configures a node, and starts containerd and kubelet on it. It does not wait until the
// node is ready.
func (c *Cluster) startNode(n *Member) error {
	if err := c.configureNode(n); err != nil {
		return err
	}
	if err := n.makeCgroupRoot(); err != nil {
		return err
	}
	if err := c.startContainerd(n); err != nil {
		return err
	}
	// kubelet could create its Node object itself. But it would be ready a minute later, because its
	// first attempts to create its CSINode object fail.
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name,
		Labels: map[string]string{"kubernetes.io/hostname": n.Name}}}
	if _, err := c.Client.CoreV1().Nodes().Create(c.ctx, node, metav1.CreateOptions{}); err != nil &&
		!apierrors.IsAlreadyExists(err) {
		return err
	}
	if n.Cilium != nil {
		if err := c.startCilium(n); err != nil {
			return fmt.Errorf("cilium: %w", err)
		}
	}
	return c.startKubelet(n)
}

// UntilReady waits until the first node reports that it is ready. A report from before the call
// does not count.
func (c *Cluster) UntilReady() error { return c.untilReady(c.Nodes[0]) }

func (c *Cluster) untilReady(n *Member) error {
	since := time.Now().Truncate(time.Second)
	return c.until(3*time.Minute, n.Name+" is ready", func(ctx context.Context) (bool, string) {
		node, err := c.Client.CoreV1().Nodes().Get(ctx, n.Name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady {
				ready := condition.Status == corev1.ConditionTrue && !condition.LastHeartbeatTime.Time.Before(since)
				return ready, condition.Message
			}
		}
		return false, "it has not said so yet"
	})
}

func (c *Cluster) configureNode(n *Member) error {
	kubelet, err := c.ca.issue("system:node:"+n.Name, []string{"system:nodes"}, n.Inside, n.Name)
	if err != nil {
		return err
	}
	files := map[string]string{
		"etc/kubernetes/ca.crt":       string(c.ca.pem),
		"etc/kubernetes/kubelet.crt":  string(kubelet.certificate),
		"etc/kubernetes/kubelet.key":  string(kubelet.key),
		"etc/kubernetes/kubelet.conf": c.ca.kubeconfig(kubelet),
		"etc/kubernetes/kubelet.yaml": kubeletConfig + n.kubeletConfig(),
		"etc/containerd/config.toml":  c.containerdConfig(),
	}
	if n.Cilium == nil {
		files["etc/cni/net.d/10-test.conflist"] = c.cniConfig(n)
	}
	for name, text := range files {
		path := n.OnDisk(name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return err
		}
	}
	plugins, err := os.ReadDir(c.build.plugins)
	if err != nil {
		return err
	}
	bin := n.OnDisk("opt/cni/bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return err
	}
	for _, p := range plugins {
		err := os.Symlink(filepath.Join(c.build.plugins, p.Name()), filepath.Join(bin, p.Name()))
		if err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	return nil
}

// kubeletSysctls are the sysctls that kubelet writes (setupKernelTunables in pkg/kubelet/cm). The
// node boots with these values, which are the kernel's defaults.
var kubeletSysctls = map[string]string{
	"vm/overcommit_memory": "0", "vm/panic_on_oom": "0", "kernel/panic": "0", "kernel/panic_on_oops": "0",
	"kernel/keys/root_maxkeys": "1000000", "kernel/keys/root_maxbytes": "25000000",
}

// kubeletConfig is kubelet's configuration on all nodes. It lets kubelet run on a machine of namespaces, and on
// a host without control groups of version 2.
const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
tlsCertFile: /etc/kubernetes/kubelet.crt
tlsPrivateKeyFile: /etc/kubernetes/kubelet.key
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: /etc/kubernetes/ca.crt}}
authorization: {mode: Webhook}
healthzBindAddress: 127.0.0.1
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
containerRuntimeEndpoint: unix://` + runtimeSocket + `
# the disk is the host's, which may be full for reasons of its own
localStorageCapacityIsolation: false
evictionHard: {}
makeIPTablesUtilChains: false
enforceNodeAllocatable: []
syncFrequency: 2s
nodeStatusUpdateFrequency: 5s
resolvConf: ""
registryPullQPS: 0
maxPods: 150
`

// containerdConfig returns containerd's configuration, with the default paths. It turns off
// features that need CAP_SYS_RESOURCE, AppArmor, or controllers that the host may not have.
func (c *Cluster) containerdConfig() string {
	if c.Containerd == nil {
		return `version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "` + Sandbox + `"
  stream_server_address = "127.0.0.1"
  tolerate_missing_hugetlb_controller = true
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/opt/cni/bin"
    conf_dir = "/etc/cni/net.d"
`
	}
	return `version = 3
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "` + Sandbox + `"
[plugins."io.containerd.cri.v1.runtime"]
  tolerate_missing_hugetlb_controller = true
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri"]
  stream_server_address = "127.0.0.1"
`
}

// cniConfig returns the node's CNI configuration: a bridge with routes, for IPv4 and IPv6.
func (c *Cluster) cniConfig(n *Member) string {
	version := "1.1.0"
	if c.Containerd == nil {
		version = "1.0.0" // the newest that containerd 1.6 supports
	}
	return fmt.Sprintf(`{"cniVersion": %q, "name": "test", "plugins": [
 {"type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true,
  "ipam": {"type": "host-local", "dataDir": "/run/cni/ipam", "ranges": [[{"subnet": %q}], [{"subnet": %q}]],
           "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]}}
]}
`, version, n.Pods[0], n.Pods[1])
}

// StartContainerd starts containerd on the first node, and imports the image of the tests' pods.
func (c *Cluster) StartContainerd() error { return c.startContainerd(c.Nodes[0]) }

func (c *Cluster) startContainerd(n *Member) error {
	// PATH has containerd's directory, because containerd searches for its shims in PATH. containerd
	// trusts registries with a certificate of the cluster's authority.
	err := c.start(n.Machine, n.daemon("containerd"), "/usr/bin/env",
		"PATH="+c.build.containerd+":/usr/sbin:/usr/bin", "SSL_CERT_FILE=/etc/kubernetes/ca.crt",
		filepath.Join(c.build.containerd, "containerd"))
	if err != nil {
		return err
	}
	if err := c.until(time.Minute, "containerd answers", func(context.Context) (bool, string) {
		text, err := c.ctr(n, "version")
		return err == nil, fmt.Sprint(text, err)
	}); err != nil {
		return err
	}
	if err := c.importTo(n, c.app); err != nil {
		return err
	}
	_, err = c.ctr(n, "-n", "k8s.io", "images", "tag", "--force", Image, Sandbox)
	return err
}

// Import imports an image into containerd on all nodes, from the archive of an OCI layout.
func (c *Cluster) Import(archive string) error {
	for _, n := range c.Nodes {
		if err := c.importTo(n, archive); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) importTo(n *Member, archive string) error {
	text, err := os.ReadFile(archive)
	if err != nil {
		return err
	}
	_, err = n.Pipe(string(text), filepath.Join(c.build.containerd, "ctr"), "-n", "k8s.io", "images", "import",
		"-")
	return err
}

func (c *Cluster) ctr(n *Member, args ...string) (string, error) {
	return n.Output(append([]string{filepath.Join(c.build.containerd, "ctr"), "--connect-timeout", "2s"},
		args...)...)
}

// StartKubelet starts kubelet on the first node. It does not wait until the node is ready.
func (c *Cluster) StartKubelet() error { return c.startKubelet(c.Nodes[0]) }

// startKubelet waits until kubelet runs. kubelet ends if containerd answers, but its CRI service is
// not initialized yet. It is then started again, as systemd does on a node (Restart=always).
func (c *Cluster) startKubelet(n *Member) error {
	name := n.daemon("kubelet")
	start := func() error {
		return c.start(n.Machine, name, c.kubernetes("kubelet",
			"--kubeconfig=/etc/kubernetes/kubelet.conf", "--config=/etc/kubernetes/kubelet.yaml",
			"--hostname-override="+n.Name, "--node-ip="+n.Inside, "--v=2")...)
	}
	if err := start(); err != nil {
		return err
	}
	client := http.Client{Transport: &http.Transport{DialContext: n.Dial, DisableKeepAlives: true}}
	return until(c.ctx, time.Minute, "kubelet runs on "+n.Name, func(context.Context) (bool, string) {
		select {
		case <-c.daemons[name].Done():
			err := c.daemons[name].Wait()
			return false, fmt.Sprint(err, start())
		default:
		}
		answer, err := client.Get("http://127.0.0.1:10248/healthz")
		if err != nil {
			return false, err.Error()
		}
		answer.Body.Close()
		return answer.StatusCode == http.StatusOK, answer.Status
	})
}

// Stop ends one of the first node's daemons and waits for its end. As a service manager does, it kills
// one that does not end by itself. kubelet 1.36 was seen to hang after its last line about a shutdown.
func (c *Cluster) Stop(daemon string) error {
	p := c.daemons[daemon]
	delete(c.daemons, daemon)
	if err := p.Signal(unix.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.Done():
		return nil
	case <-time.After(30 * time.Second):
	}
	if err := p.Signal(unix.SIGKILL); err != nil {
		return err
	}
	select {
	case <-p.Done():
		return nil
	case <-time.After(10 * time.Second):
		return fmt.Errorf("%s does not end, though it was killed", daemon)
	}
}

// Signal sends a signal to one of the cluster's daemons, of the node or of the control plane.
func (c *Cluster) Signal(daemon string, number unix.Signal) error {
	return c.daemons[daemon].Signal(number)
}

// RebootNode cuts the first node's power and starts the node again. The node keeps its disk, and gets a
// new link.
func (c *Cluster) RebootNode() error {
	delete(c.daemons, "kubelet")
	delete(c.daemons, "containerd")
	if err := c.Node.Reboot(); err != nil {
		return err
	}
	first := c.Nodes[0]
	if err := c.connect(first); err != nil {
		return err
	}
	if err := c.startNode(first); err != nil {
		return err
	}
	return c.untilReady(first)
}

// showLogs writes the last 25 lines of each daemon's log to the test's log.
func (c *Cluster) showLogs() {
	logs, _ := filepath.Glob(filepath.Join(c.dir, "*.log"))
	for _, path := range logs {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		c.t.Logf("the end of %s:\n%s", filepath.Base(path), strings.Join(lines[max(0, len(lines)-25):], "\n"))
	}
}
