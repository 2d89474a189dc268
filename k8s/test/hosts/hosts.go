// SPDX-License-Identifier: Apache-2.0

// Package hosts connects a cluster's node with the hosts of an experiment. The client, the noise
// source, the switch and the link of limited rate are those of package lab. The node takes the
// place of the lab's system under test (SUT): it gets the device lane0, in addition to the
// cluster's uplink. The client and the noise source reach its pods through lane0.
//
// "niclane bench serve" runs on each host. "niclane bench run" is started on the control plane's
// machine. A separate network connects it with the hosts, so that it does not use the measured
// network.
package hosts

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/program"
	"github.com/niclane/niclane/k8s/test/cluster"
	"github.com/niclane/niclane/k8s/test/machine"
	"github.com/niclane/niclane/lab"
)

// LinkRate is the rate of the node's link in each direction, as lanes files and hosts files write
// it.
const LinkRate = "500mbit"

const linkRate = 500_000_000

// Dir is the directory with niclane on the control plane's machine and on the node. On the control
// plane's machine it also has the files and results of experiments.
const Dir = "/opt/niclane"

// Hosts are the experiment's hosts. They run until the end of their test.
type Hosts struct {
	t       testing.TB
	c       *cluster.Cluster
	lab     *lab.Lab
	niclane string // the program's path on this host
}

// Start starts the hosts. niclane is the program's path on this host. niclane-bench must be in the
// same directory, and all users must be able to read both.
func Start(t testing.TB, c *cluster.Cluster, niclane string) *Hosts {
	t.Helper()
	h := &Hosts{t: t, c: c, niclane: niclane}
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"lab", h.raise}, {"node's link", h.link}, {"routes", h.routes}, {"management network", h.manage},
		{"files", h.files}, {"agents", h.agents},
	} {
		if err := step.do(); err != nil {
			t.Fatalf("hosts: %s: %v", step.name, err)
		}
	}
	return h
}

func (h *Hosts) raise() (err error) {
	// The lab's card is a plain veth, like the cluster's uplink.
	h.lab, err = lab.Up(h.t.Context(), lab.Config{Name: "k8s-" + fmt.Sprint(os.Getpid()), Card: lab.CardNone,
		LinkRate: linkRate})
	if err != nil {
		return err
	}
	h.t.Cleanup(func() {
		if err := h.lab.Down(context.Background()); err != nil {
			h.t.Error(err)
		}
	})
	return nil
}

// link moves the network port of the lab's system under test (lane0) to the node, with its address.
func (h *Hosts) link() error {
	node, err := netns.GetFromPath(h.c.Node.NetNS())
	if err != nil {
		return err
	}
	defer node.Close()
	if err := h.lab.Do(lab.SUT, func() error {
		port, err := netlink.LinkByName(lab.Port)
		if err != nil {
			return err
		}
		return netlink.LinkSetNsFd(port, int(node))
	}); err != nil {
		return err
	}
	c := h.lab.Config
	return h.c.Node.InNetNS(func() error {
		port, err := netlink.LinkByName(lab.Port)
		if err != nil {
			return err
		}
		if err := netlink.LinkSetUp(port); err != nil {
			return err
		}
		if err := address(port, netip.PrefixFrom(c.IPv4(lab.SUT), 24)); err != nil {
			return err
		}
		// As in the lab, neighbour entries are permanent, so that there is no address resolution during a
		// measurement.
		for _, host := range []string{lab.Client, lab.Noise} {
			if err := netlink.NeighSet(&netlink.Neigh{
				LinkIndex: port.Attrs().Index, State: netlink.NUD_PERMANENT, IP: c.IPv4(host).AsSlice(),
				HardwareAddr: c.MAC(host),
			}); err != nil {
				return fmt.Errorf("neighbour %s: %w", host, err)
			}
		}
		return nil
	})
}

func address(on netlink.Link, p netip.Prefix) error {
	err := netlink.AddrAdd(on,
		&netlink.Addr{IPNet: &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}})
	if err != nil {
		return fmt.Errorf("address %s: %w", p, err)
	}
	return nil
}

// routes adds a route to the node's pods on the client and on the noise source.
func (h *Hosts) routes() error {
	for _, host := range []string{lab.Client, lab.Noise} {
		if err := h.lab.Do(host, func() error {
			port, err := netlink.LinkByName(lab.HostPort)
			if err != nil {
				return err
			}
			pods := cluster.Pods[0]
			return netlink.RouteAdd(&netlink.Route{
				LinkIndex: port.Attrs().Index, Gw: h.lab.Config.IPv4(lab.SUT).AsSlice(),
				Dst: &net.IPNet{IP: pods.Addr().AsSlice(), Mask: net.CIDRMask(pods.Bits(), pods.Addr().BitLen())},
			})
		}); err != nil {
			return fmt.Errorf("%s: %w", host, err)
		}
	}
	return nil
}

// managed has, by host, the two addresses of the link between the control plane's machine (first
// address) and the host (second). These links are the management network.
var managed = map[string][2]netip.Prefix{
	lab.Client: {netip.MustParsePrefix("10.99.1.1/30"), netip.MustParsePrefix("10.99.1.2/30")},
	lab.Noise:  {netip.MustParsePrefix("10.99.2.1/30"), netip.MustParsePrefix("10.99.2.2/30")},
}

func (h *Hosts) manage() error {
	for host, ends := range managed {
		ns, err := netns.GetFromName(h.lab.Config.Netns(host))
		if err != nil {
			return err
		}
		err = h.c.Control.InNetNS(func() error {
			attrs := netlink.NewLinkAttrs()
			attrs.Name = "to-" + host
			if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "mgmt",
				PeerNamespace: netlink.NsFd(ns)}); err != nil {
				return err
			}
			return up("to-"+host, ends[0])
		})
		ns.Close()
		if err == nil {
			err = h.lab.Do(host, func() error { return up("mgmt", ends[1]) })
		}
		if err != nil {
			return fmt.Errorf("%s: %w", host, err)
		}
	}
	return nil
}

func up(device string, p netip.Prefix) error {
	link, err := netlink.LinkByName(device)
	if err != nil {
		return err
	}
	if err := address(link, p); err != nil {
		return err
	}
	return netlink.LinkSetUp(link)
}

// port is the agents' TCP port.
const port = "7411"

// where returns the address and port on which a host's agent listens. The node's agent listens on
// the cluster's uplink.
func where(host string) string {
	if host == lab.SUT {
		return net.JoinHostPort(cluster.Inside, port)
	}
	return net.JoinHostPort(managed[host][1].Addr().String(), port)
}

// files installs niclane and niclane-bench on the control plane's machine and on the node. It makes
// the certificates and the hosts file.
func (h *Hosts) files() error {
	for _, m := range []*machine.Machine{h.c.Control, h.c.Node} {
		for _, name := range []string{program.Niclane, program.Bench} {
			if err := copyFile(m.OnDisk(filepath.Join(Dir, name)),
				filepath.Join(filepath.Dir(h.niclane), name)); err != nil {
				return err
			}
		}
	}
	pki := filepath.Join(h.c.Control.OnDisk(Dir), "pki")
	certs := exec.CommandContext(h.t.Context(), h.niclane, "bench", "certs", pki, "--hosts", "sut,client,noise")
	if out, err := certs.CombinedOutput(); err != nil {
		return fmt.Errorf("niclane bench certs: %w\n%s", err, out)
	}
	for _, name := range []string{"ca.pem", "sut.pem", "sut.key"} {
		if err := copyFile(filepath.Join(h.c.Node.OnDisk(Dir), "pki", name), filepath.Join(pki, name)); err != nil {
			return err
		}
	}
	// The agent runs its jobs as the user nobody, so the node needs this user.
	passwd, err := os.OpenFile(h.c.Node.OnDisk("etc/passwd"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer passwd.Close()
	if _, err := passwd.WriteString("nobody:x:65534:65534::/nonexistent:/usr/sbin/nologin\n"); err != nil {
		return err
	}
	c := h.lab.Config
	text := fmt.Sprintf(`version: 1
sut: {agent: "%s", server-name: sut, address: %s, device: %s, noise-cpus: %s}
clients: [{name: client, agent: "%s", server-name: client, address: %s, cpus: %s}]
noise: {agent: "%s", server-name: noise, address: %s, cpus: %s}
link-rate: %s
authority: pki/ca.pem
certificate: pki/niclane-bench.pem
key: pki/niclane-bench.key
`, where(lab.SUT), c.IPv4(lab.SUT), lab.Port, list(c.SUTCPUs), where(lab.Client), c.IPv4(lab.Client), list(c.OtherCPUs),
		where(lab.Noise), c.IPv4(lab.Noise), list(c.OtherCPUs), LinkRate)
	return os.WriteFile(h.c.Control.OnDisk(Dir+"/hosts.yaml"), []byte(text), 0o644)
}

func list(cpus []int) string {
	text := "["
	for i, c := range cpus {
		if i > 0 {
			text += ", "
		}
		text += fmt.Sprint(c)
	}
	return text + "]"
}

// copyFile copies a file with its permissions.
func copyFile(to, from string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, text, info.Mode().Perm())
}

// agents starts "niclane bench serve" on the hosts, and waits until all listen.
func (h *Hosts) agents() error {
	serve := func(niclane, pki, host, dir string) []string {
		return []string{niclane, "bench", "serve", "--listen", where(host), "--dir", dir,
			"--cert", filepath.Join(pki, host+".pem"), "--key", filepath.Join(pki, host+".key"), "--ca",
			filepath.Join(pki, "ca.pem")}
	}
	log, err := os.CreateTemp(h.t.TempDir(), "agents-")
	if err != nil {
		return err
	}
	h.t.Cleanup(func() {
		if text, _ := os.ReadFile(log.Name()); h.t.Failed() {
			h.t.Logf("the agents:\n%s", text)
		}
		log.Close()
	})
	// All hosts share this host's CPUs. By nice values, the load generator (client) comes before the
	// node and the noise. SCHED_FIFO would be better, but the jobs would need a resource limit that
	// this host may not allow to raise.
	node, err := h.c.Node.Start(machine.Command{
		Args: append([]string{"/usr/bin/nice", "-n", "19"},
			serve(Dir+"/niclane", Dir+"/pki", lab.SUT, "/run/niclane-bench")...),
	}, nil, log)
	if err != nil {
		return err
	}
	h.t.Cleanup(func() { _ = node.Signal(unix.SIGTERM); _ = node.Wait() })
	pki := filepath.Join(h.c.Control.OnDisk(Dir), "pki")
	for _, host := range []string{lab.Client, lab.Noise} {
		dir := filepath.Join("/run", h.lab.Config.Netns(host)+"-bench")
		argv := serve(h.niclane, pki, host, dir)
		o := lab.Options{Niclane: h.niclane}
		if o.Nice = -20; host == lab.Noise {
			o.Nice = 19
		}
		cmd, err := h.lab.Command(context.Background(), host, o, argv...)
		if err != nil {
			return err
		}
		cmd.Stdout, cmd.Stderr = log, log
		if err := cmd.Start(); err != nil {
			return err
		}
		h.t.Cleanup(func() {
			_ = cmd.Process.Signal(unix.SIGTERM)
			_ = cmd.Wait()
			_ = os.RemoveAll(dir)
		})
	}
	for _, host := range lab.HostNames() {
		if err := h.listens(where(host)); err != nil {
			return fmt.Errorf("%s: %w", host, err)
		}
	}
	return nil
}

// listens waits up to 20 s until a program listens on the address.
func (h *Hosts) listens(address string) error {
	for deadline := time.Now().Add(20 * time.Second); ; {
		conn, err := h.c.Control.Dial(h.t.Context(), "tcp", address)
		if err == nil {
			return conn.Close()
		}
		if time.Now().After(deadline) {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// Put copies a file of this host into Dir on the control plane's machine.
func (h *Hosts) Put(name, from string) error {
	return copyFile(filepath.Join(h.c.Control.OnDisk(Dir), name), from)
}

// Write writes a file into Dir on the control plane's machine.
func (h *Hosts) Write(name string, text []byte) error {
	return os.WriteFile(filepath.Join(h.c.Control.OnDisk(Dir), name), text, 0o644)
}
