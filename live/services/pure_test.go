// SPDX-License-Identifier: Apache-2.0

package services

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/procfs"
	"github.com/vishvananda/netlink"
)

// TestBelow: addresses on stacked devices lead to the devices at which their packets arrive.
func TestBelow(t *testing.T) {
	link := func(name string, index, parent, master, ns int) netlink.LinkAttrs {
		return netlink.LinkAttrs{Name: name, Index: index, ParentIndex: parent, MasterIndex: master, NetNsID: ns}
	}
	links := []netlink.Link{
		&netlink.Device{LinkAttrs: link("lo", 1, 0, 0, -1)},
		&netlink.Device{LinkAttrs: link("eth0", 2, 0, 9, -1)},
		&netlink.Device{LinkAttrs: link("eth1", 3, 0, 9, -1)},
		&netlink.Device{LinkAttrs: link("eth2", 4, 0, 7, -1)},
		&netlink.Veth{LinkAttrs: link("vethc", 5, 77, 7, 3)},
		&netlink.Tuntap{LinkAttrs: link("vnet0", 6, 0, 7, -1)},
		&netlink.Bridge{LinkAttrs: link("br0", 7, 0, 0, -1)},
		&netlink.Bridge{LinkAttrs: link("docker0", 8, 0, 0, -1)},
		&netlink.Bond{LinkAttrs: link("bond0", 9, 0, 0, -1)},
		&netlink.Vlan{LinkAttrs: link("bond0.10", 10, 9, 0, -1)},
		&netlink.Vlan{LinkAttrs: link("other.20", 11, 2, 0, 0)}, // its parent is in another namespace
		&netlink.Veth{LinkAttrs: link("vethd", 12, 78, 8, 4)},
		&netlink.Wireguard{LinkAttrs: link("wg0", 13, 0, 0, -1)},
	}
	r := router{byIndex: map[int]netlink.Link{}, links: links}
	for _, l := range links {
		r.byIndex[l.Attrs().Index] = l
	}
	for name, want := range map[string][]Path{
		"lo": nil,
		"bond0.10": {{Device: "eth0", Kind: "device", Via: []string{"bond0", "bond0.10"}, Bond: "bond0"},
			{Device: "eth1", Kind: "device", Via: []string{"bond0", "bond0.10"}, Bond: "bond0"}},
		"br0":      {{Device: "eth2", Kind: "device", Via: []string{"br0"}}},
		"docker0":  nil,
		"other.20": {{Device: "other.20", Kind: "vlan"}},
		"wg0":      {{Device: "wg0", Kind: "wireguard"}},
	} {
		i := slices.IndexFunc(links, func(l netlink.Link) bool { return l.Attrs().Name == name })
		if diff := cmp.Diff(want, r.below(links[i], nil, 0)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestGroups: containers and units by the paths of their control groups.
func TestGroups(t *testing.T) {
	id := strings.Repeat("0f", 32)
	for path, want := range map[string][3]string{ // runtime, container, unit
		"/system.slice/memcached.service":                                     {"", "", "memcached.service"},
		"/system.slice/system-redis.slice/redis@6380.service":                 {"", "", "redis@6380.service"},
		"/system.slice/postgresql.service/worker":                             {"", "", "postgresql.service"},
		"/user.slice/user-1000.slice/session-3.scope":                         {},
		"/user.slice/user-1000.slice/user@1000.service/app.slice/a.scope":     {},
		"/user.slice/user-1000.slice/user@1000.service/app.slice/web.service": {"", "", "web.service"},
		"/docker/" + id:                                  {"docker", id, ""},
		"/system.slice/docker-" + id + ".scope":          {"docker", id, ""},
		"/machine.slice/libpod-" + id + ".scope/payload": {"libpod", id, ""},
		"/machine.slice/libpod-conmon-" + id + ".scope":  {},
		"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podf00.slice/cri-containerd-" + id + ".scope": {
			"cri-containerd", id, ""},
		"/kubepods/burstable/podf00/" + id:                       {"", id, ""},
		"/kubepods-besteffort-podf00.slice:cri-containerd:" + id: {"cri-containerd", id, ""},
		"/system.slice/containerd.service/kubepods-podf00.slice:cri-containerd:" + id: {"cri-containerd", id,
			"containerd.service"},
		"/machine.slice/systemd-nspawn@web.service/payload/system.slice/nginx.service": {"nspawn", "web", "nginx.service"},
		`/machine.slice/machine-my\x2dbox.scope/payload`:                               {"nspawn", "my-box", ""},
		"/lxc.payload.box/system.slice/nginx.service":                                  {"lxc", "box", "nginx.service"},
		"/": {},
	} {
		runtime, container := containerOf(path)
		if got := [3]string{runtime, container, unitOf(path)}; got != want {
			t.Errorf("%s: got %q, want %q", path, got, want)
		}
	}
	for _, c := range []struct {
		groups []procfs.Cgroup
		want   string
		usable bool
	}{
		{[]procfs.Cgroup{{HierarchyID: 1, Controllers: []string{"name=systemd"}, Path: "/a"}, {Path: "/"}}, "/a", false},
		{[]procfs.Cgroup{{HierarchyID: 3, Controllers: []string{"cpu"}, Path: "/c"},
			{HierarchyID: 2, Controllers: []string{"cpuset"}, Path: "/b"}}, "/b", true},
		{[]procfs.Cgroup{{HierarchyID: 2, Controllers: []string{"cpuset"}, Path: "/b"}, {Path: "/u"}}, "/u", true},
		{nil, "/", false},
	} {
		if got, usable := groupOf(c.groups); got != c.want || usable != c.usable {
			t.Errorf("%v: got %s, %v; want %s, %v", c.groups, got, usable, c.want, c.usable)
		}
	}
}

// TestSocketUnits reads what systemctl 252 prints.
func TestSocketUnits(t *testing.T) {
	got := parseSocketUnits(`Id=ssh.socket
Triggers=ssh.service
Listen=0.0.0.0:22 (Stream)
Listen=[::]:22 (Stream)

Listen=/run/dbus/system_bus_socket (Stream)
Id=dbus.socket
Triggers=dbus.service

Id=local.socket
Listen=[fe80::1%eth0]:22 (Stream)

Triggers=tftpd.service
Id=tftpd.socket
Listen=[::]:69 (Datagram)
`)
	ssh := unit{"ssh.socket", "ssh.service"}
	want := map[place]unit{at("tcp", "0.0.0.0:22"): ssh, at("tcp", "[::]:22"): ssh,
		at("tcp", "[fe80::1]:22"): {"local.socket", ""}, at("udp", "[::]:69"): {"tftpd.socket", "tftpd.service"}}
	if !maps.Equal(want, got) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func at(protocol, local string) place { return place{protocol, netip.MustParseAddrPort(local)} }

func addrs(a string) []netip.Addr { return []netip.Addr{netip.MustParseAddr(a)} }

func sameAddr(a, b netip.Addr) bool { return a == b }

// TestGroupSockets: systemd's own sockets, sockets of the kernel, and sockets without a known process.
func TestGroupSockets(t *testing.T) {
	table := &processTable{holders: map[uint64][]int{1: {1}, 2: {1, 1 << 30}, 3: {1}}, manager: 1, denied: 3}
	units := map[place]unit{at("tcp", "[::]:22"): {"ssh.socket", "ssh.service"},
		at("tcp", "[::]:80"): {"web.socket", "web.service"}, at("tcp", "[::1]:22"): {"each.socket", ""}}
	got := group([]socket{{at("tcp", "[::]:22"), 1}, {at("tcp", "[::]:80"), 2}, {at("tcp", "0.0.0.0:2049"), 0},
		{at("tcp", "[::1]:22"), 3}, {at("udp", "0.0.0.0:9"), 77}}, table, units)
	for i := range got {
		for j := range got[i].Processes {
			got[i].Processes[j] = Process{PID: got[i].Processes[j].PID}
		}
	}
	want := []Service{
		{Socket: "web.socket", Processes: []Process{{PID: 1 << 30}}, // its process has ended meanwhile
			Endpoints: []Endpoint{{Protocol: "tcp", Port: 80, Addrs: addrs("::"), Listeners: 1, Inodes: []uint64{2}}}},
		{Name: "each", Socket: "each.socket", Processes: []Process{{PID: 1}}, Endpoints: []Endpoint{{Protocol: "tcp",
			Port: 22, Addrs: addrs("::1"), Listeners: 1, Inodes: []uint64{3}}}},
		{Name: "ssh", Unit: "ssh.service", Socket: "ssh.socket", Processes: []Process{{PID: 1}},
			Endpoints: []Endpoint{{Protocol: "tcp", Port: 22, Addrs: addrs("::"), Listeners: 1, Inodes: []uint64{1}}}},
		{Name: "unknown", Endpoints: []Endpoint{{Protocol: "udp", Port: 9, Addrs: addrs("0.0.0.0"), Listeners: 1,
			Inodes: []uint64{77}}}},
		{Name: "unknown", Endpoints: []Endpoint{{Protocol: "tcp", Port: 2049, Addrs: addrs("0.0.0.0"), Listeners: 1}}},
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(sameAddr)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	table.denied = 0
	if got := group([]socket{{at("tcp", "0.0.0.0:2049"), 0}}, table, nil); got[0].Name != Kernel {
		t.Errorf("a socket of no process: got %q, want %q", got[0].Name, Kernel)
	}
	// Process 1 of a container is a process like others.
	table.manager = 0
	if got := group([]socket{{at("tcp", "[::]:22"), 1}}, table, units); got[0].Socket != "" || got[0].Unit == "ssh.service" {
		t.Errorf("a socket of an init that is not systemd: %+v", got[0])
	}
}

// TestCountable: which endpoints are counted if there is not room for all.
func TestCountable(t *testing.T) {
	var inv Inventory
	add := func(protocol string, port uint16, connections int, ephemeral bool, devices ...string) {
		inv.Services = append(inv.Services, Service{Endpoints: []Endpoint{{Protocol: protocol, Port: port,
			Connections: connections, Ephemeral: ephemeral, Devices: devices}}})
	}
	add("udp", 40000, 0, true, "eth0")
	add("tcp", 1, 0, false, "eth0")
	add("tcp", 2, 7, false, "eth0")
	add("tcp", 3, 9, false, "eth0")
	add("udp", 53, 0, false, "eth0")
	add("tcp", 6379, 99, false) // only this host reaches it
	for _, c := range []struct {
		query Query
		room  int
		want  string
	}{
		{Query{}, 9, "tcp/3 tcp/2 udp/53 tcp/1 udp/40000"},
		{Query{}, 2, "tcp/3 tcp/2"},
		{Query{Port: 40000}, 2, "udp/40000 tcp/3"},
	} {
		var got []string
		for _, e := range inv.countable(c.query, c.room) {
			got = append(got, e.Of())
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%+v, %d: got %s, want %s", c.query, c.room, got, c.want)
		}
	}
	if len(inv.Notes) != 2 {
		t.Errorf("notes: %q, want one for each of the last two", inv.Notes)
	}
}
