// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/niclane/niclane/lane/device"
)

// Commands returns the command lines that an administrator would have typed
// for s, so that it can be audited. They are for reading: niclane talks to
// the kernel itself. <...> stands for what only the running kernel knows.
func (s Step) Commands() []string {
	switch n := s.Object().(type) {
	case device.File:
		if s.New == nil {
			return nil
		}
		return one("echo " + written(n) + "> " + n.Path)
	case device.Qdisc:
		return one(qdiscLine(s.verb("add", "replace", "del"), n))
	case device.Flower:
		return one(flowerLine(s, n))
	case device.Class:
		return one(classLine(s.verb("add", "change", "del"), n))
	case device.Filter:
		if n.Parent == device.AttachTCXEgress {
			return one(fmt.Sprintf("bpftool net %s tcx_egress pinned <%s> dev %s", s.verb("attach", "attach", "detach"), n.Program, n.Dev))
		}
		line := fmt.Sprintf("tc filter %s dev %s %s protocol all pref %d handle %#x bpf",
			s.verb("add", "replace", "del"), n.Dev, n.Parent, n.Pref, n.Handle)
		if s.New != nil {
			line += " direct-action object-file niclane.o section tc/" + n.Program
		}
		return one(line)
	case device.FilterEntry:
		if s.New == nil {
			return one(fmt.Sprintf("bpftool map delete id <map of %s> key <%s>", n.Filter, n.Match))
		}
		return one(fmt.Sprintf("bpftool map update id <map of %s> key <%s> value <%s>", n.Filter, n.Match, Brief(n)))
	case device.FilterDefault:
		return one(fmt.Sprintf("bpftool map update id <map of %s> key 0 value <%s>", n.Filter, s.verb(Brief(n), Brief(n), "none")))
	case device.Shaper:
		return one(shaperLine(s, n))
	case device.CgroupPriority:
		return one(fmt.Sprintf("echo %s %d > <net_prio>%s/net_prio.ifpriomap", n.Dev, s.priority(n), n.Cgroup))
	case device.CgroupClass:
		if s.New == nil {
			return one(fmt.Sprintf("bpftool cgroup detach <cgroup v2>%s sock_ops pinned <niclane_sockops>", n.Cgroup))
		}
		return one(fmt.Sprintf("bpftool cgroup attach <cgroup v2>%s sock_ops pinned <niclane_sockops> multi", n.Cgroup))
	case device.RSSTable:
		return one(rssLine(s, n))
	case device.Rule:
		if s.New == nil {
			return one(fmt.Sprintf("ethtool -N %s delete <location of %s>", n.Dev, n.Match))
		}
		return one(fmt.Sprintf("ethtool -N %s %s", n.Dev, ruleArgs(n)))
	case device.NAPIConfig:
		return one(fmt.Sprintf(`ynl --family netdev --do napi-set --json '{"id": <NAPI of %s rx-%d>, "threaded": "%s", "defer-hard-irqs": %d, "gro-flush-timeout": %d, "irq-suspend-timeout": %d}'`,
			n.Dev, n.Queue, map[string]string{"off": "disabled", "on": "enabled", "busy": "busy-poll"}[n.Threaded],
			n.DeferHardIRQs, n.GROFlushTimeout, n.IRQSuspendTimeout))
	case device.DriverParam:
		return one(fmt.Sprintf("devlink dev param set <card of %s> name %s value %s cmode runtime", n.Dev, n.Name, n.Value))
	case device.Affinity:
		if s.New == nil {
			return nil // it goes with its queue
		}
		return affinityLines(n)
	case device.Thread:
		return threadLines(s, n)
	case device.Poller:
		return pollerLines(s, n)
	case device.XDP, device.CPUQueue, device.CPUThread, device.CPULane, device.XDPEntry:
		return xdpLines(s)
	default:
		return ethtoolLines(s.Object())
	}
}

func xdpLines(s Step) []string {
	switch n := s.Object().(type) {
	case device.XDP:
		mode := map[string]string{"native": "xdpdrv", "generic": "xdpgeneric"}[n.Mode]
		if s.New == nil {
			return one(fmt.Sprintf("ip link set dev %s %s off", n.Dev, mode))
		}
		return one(fmt.Sprintf("ip link set dev %s %s object niclane.o section xdp", n.Dev, mode))
	case device.CPUQueue:
		if s.New == nil {
			return one(fmt.Sprintf("bpftool map delete id <cpumap of %s> key %d", n.Dev, n.CPU))
		}
		return one(fmt.Sprintf("bpftool map update id <cpumap of %s> key %d value <qsize %d>", n.Dev, n.CPU, n.Size))
	case device.CPUThread:
		pid := fmt.Sprintf("<PID of cpumap/%d of %s>", n.CPU, n.Dev)
		return chrtLines(n.Policy, n.Priority, n.Nice, n.SchedAttr, pid)
	case device.CPULane:
		if s.New == nil {
			return one(fmt.Sprintf("bpftool map update id <lanes of %s> key %d value <none>", n.Dev, n.Lane))
		}
		return one(fmt.Sprintf("bpftool map update id <lanes of %s> key %d value <processors %s>", n.Dev, n.Lane, device.FormatCPUList(n.CPUs)))
	case device.XDPEntry:
		if s.New == nil {
			return one(fmt.Sprintf("bpftool map delete id <flows of %s> key <%s>", n.Dev, n.Match))
		}
		return one(fmt.Sprintf("bpftool map update id <flows of %s> key <%s> value <lane %d>", n.Dev, n.Match, n.Lane))
	}
	return nil
}

// shaperLine is a line for the kernel's own tool of generic netlink families.
func shaperLine(s Step, n device.Shaper) string {
	const line = `ynl --family net-shaper --do %s --json '{"ifindex": <index of %s>, "handle": {"scope": "queue", "id": %d}%s}'`
	if s.New == nil {
		return fmt.Sprintf(line, "delete", n.Dev, n.Queue, "")
	}
	return fmt.Sprintf(line, "set", n.Dev, n.Queue, fmt.Sprintf(`, "metric": "bps", "bw-min": %d, "bw-max": %d`, n.Min, n.Max))
}

// priority is the number that a step writes for a handle: "1:10" is 65552.
func (s Step) priority(p device.CgroupPriority) (n uint64) {
	if s.New == nil {
		return 0
	}
	for part := range strings.SplitSeq(p.Priority, ":") {
		v, _ := strconv.ParseUint(part, 16, 16)
		n = n<<16 | v
	}
	return n
}

// verb picks the word for a step that adds, changes or removes.
func (s Step) verb(add, change, del string) string {
	switch {
	case s.New == nil:
		return del
	case s.Old == nil:
		return add
	}
	return change
}

func one(line string) []string { return []string{line} }

// written is what is written to a file, with a space behind it: an empty mask has a
// digit, and an empty list nothing, because 0 in it is a processor.
func written(f device.File) string {
	switch {
	case f.Value != "":
		return f.Value + " "
	case f.Format == device.FileCPUList:
		return ""
	}
	return "0 "
}

func qdiscLine(verb string, q device.Qdisc) string {
	where := "parent " + q.Parent
	if q.Parent == "root" {
		where = "root"
	}
	if q.Type == "clsact" {
		return fmt.Sprintf("tc qdisc %s dev %s clsact", verb, q.Dev)
	}
	if verb == "del" {
		return fmt.Sprintf("tc qdisc del dev %s %s", q.Dev, where)
	}
	line := fmt.Sprintf("tc qdisc %s dev %s %s handle %s %s", verb, q.Dev, where, q.Handle, q.Type)
	if q.Type == "mqprio" {
		line += fmt.Sprintf(" num_tc %d map %s queues %s hw %s", len(strings.Fields(q.Queues)), q.Map, q.Queues, hardware(q))
	}
	if q.DefaultClass != 0 {
		line += fmt.Sprintf(" default %x", q.DefaultClass)
	}
	if q.Offload {
		line += " offload"
	}
	if q.Cake != "" {
		line += " " + q.Cake
	}
	if q.Rate != 0 {
		line += fmt.Sprintf(" rate %dbit burst %d", q.Rate, q.Burst)
	}
	if q.Limit != 0 {
		line += fmt.Sprintf(" limit %d", q.Limit)
	}
	return line
}

// hardware is what follows mqprio's "hw".
func hardware(q device.Qdisc) string {
	if q.Mode == "" {
		return "0"
	}
	text := "1 mode " + q.Mode
	if q.MinRates+q.MaxRates != "" {
		text += " shaper bw_rlimit"
	}
	for _, r := range []struct{ name, rates string }{{"min_rate", q.MinRates}, {"max_rate", q.MaxRates}} {
		if r.rates != "" {
			text += " " + r.name + " " + strings.Join(strings.Fields(r.rates), "bit ") + "bit"
		}
	}
	return text
}

func flowerLine(s Step, x device.Flower) string {
	m := x.Match
	protocol := map[int]string{4: "ip", 6: "ipv6"}[m.Family]
	keys := ""
	if m.VLAN != 0 {
		keys, protocol = fmt.Sprintf(" vlan_id %d vlan_ethtype %s", m.VLAN, protocol), "802.1Q"
	}
	keys += " ip_proto " + m.Protocol
	// On receive the member's side is the destination.
	for _, k := range []struct{ name, value string }{
		{"src_ip", m.Remote}, {"dst_ip", m.Local}, {"src_port", strconv.Itoa(int(m.RemotePort))}, {"dst_port", strconv.Itoa(int(m.LocalPort))},
	} {
		if k.value != "" && k.value != "0" {
			keys += " " + k.name + " " + k.value
		}
	}
	if s.New == nil {
		return fmt.Sprintf("tc filter del dev %s ingress protocol %s pref <of %s> handle <of it> flower", x.Dev, protocol, m)
	}
	return fmt.Sprintf("tc filter %s dev %s ingress protocol %s flower%s skip_sw hw_tc %d", s.verb("add", "replace", "del"), x.Dev, protocol, keys, x.Class)
}

func classLine(verb string, c device.Class) string {
	if verb == "del" {
		return fmt.Sprintf("tc class del dev %s classid %s", c.Dev, c.ID)
	}
	line := fmt.Sprintf("tc class %s dev %s parent %s classid %s htb rate %dbit ceil %dbit burst %d cburst %d",
		verb, c.Dev, c.Parent, c.ID, c.Rate, c.Ceil, c.Burst, c.CBurst)
	if c.Offload {
		return line // what decides more is refused by the kernel or the card
	}
	return line + fmt.Sprintf(" quantum %d prio %d", c.Quantum, c.Prio)
}

func rssLine(s Step, t device.RSSTable) string {
	if s.New == nil {
		return fmt.Sprintf("ethtool -X %s context %d delete", t.Dev, t.Context)
	}
	where := ""
	switch {
	case t.Context > 0 && s.Old == nil:
		where = " context new"
	case t.Context > 0:
		where = fmt.Sprintf(" context %d", t.Context)
	}
	if t.Context == 0 && !t.Configured {
		return fmt.Sprintf("ethtool -X %s default", t.Dev)
	}
	if first, n, ok := equalSpread(t.Queues); ok {
		line := fmt.Sprintf("ethtool -X %s%s equal %d", t.Dev, where, n)
		if first > 0 {
			line = fmt.Sprintf("ethtool -X %s%s start %d equal %d", t.Dev, where, first, n)
		}
		return line
	}
	most := 0
	for _, q := range t.Queues {
		most = max(most, q)
	}
	weights := make([]int, most+1)
	for _, q := range t.Queues {
		weights[q]++
	}
	return fmt.Sprintf("ethtool -X %s%s weight %s", t.Dev, where, strings.Trim(fmt.Sprint(weights), "[]"))
}

// equalSpread reports whether a table is what "equal n" with "start first"
// gives.
func equalSpread(table []int) (first, n int, ok bool) {
	if len(table) == 0 {
		return 0, 0, false
	}
	first = table[0]
	n = 1
	for n < len(table) && table[n] == first+n {
		n++
	}
	for i, q := range table {
		if q != first+i%n {
			return 0, 0, false
		}
	}
	return first, n, true
}

func ruleArgs(r device.Rule) string {
	m := r.Match
	args := []string{fmt.Sprintf("flow-type %s%d", m.Protocol, m.Family)}
	add := func(name, v string) {
		if v != "" && v != "0" {
			args = append(args, name+" "+v)
		}
	}
	// On receive the member's side is the destination.
	add("src-ip", ethtoolPrefix(m.Remote))
	add("dst-ip", ethtoolPrefix(m.Local))
	add("src-port", fmt.Sprint(m.RemotePort))
	add("dst-port", fmt.Sprint(m.LocalPort))
	if m.VLAN != 0 {
		add("vlan", fmt.Sprintf("%d m 0xf000", m.VLAN)) // any priority
	}
	if r.Context > 0 {
		return strings.Join(append(args, fmt.Sprintf("context %d", r.Context)), " ")
	}
	return strings.Join(append(args, fmt.Sprintf("action %d", r.Queue)), " ")
}

// ethtoolPrefix gives a prefix as ethtool takes it: a set bit of the mask is
// one that is not compared (ethtool(8), -N, m).
func ethtoolPrefix(text string) string {
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return ""
	}
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	mask := p.Addr().AsSlice()
	for i := range mask {
		mask[i] = 0xff
		if n := p.Bits() - 8*i; n > 0 {
			mask[i] = byte(0xff >> min(n, 8))
		}
	}
	m, _ := netip.AddrFromSlice(mask)
	return p.Addr().String() + " m " + m.String()
}

func threadLines(s Step, t device.Thread) []string {
	pid := fmt.Sprintf("<PID of the thread of %s rx-%d>", t.Dev, t.Queue)
	if s.New == nil {
		return nil // it goes with its NAPI's threaded mode
	}
	lines := []string{fmt.Sprintf("taskset -p -c %s %s", device.FormatCPUList(t.CPUs), pid)}
	return append(lines, strings.Join(chrtLines(t.Policy, t.Priority, t.Nice, t.SchedAttr, pid), "; "))
}

func affinityLines(a device.Affinity) (lines []string) {
	for i, cpus := range a.CPUs {
		which := ""
		if len(a.CPUs) > 1 {
			which = fmt.Sprintf(", %d of %d", i+1, len(a.CPUs))
		}
		lines = append(lines, fmt.Sprintf("echo %s > /proc/irq/<interrupt of %s rx-%d%s>/smp_affinity_list", cpus, a.Dev, a.Queue, which))
	}
	return lines
}

// pollerLines are the process's own: no other tool polls NAPIs so.
func pollerLines(s Step, p device.Poller) []string {
	if s.New == nil {
		return one(fmt.Sprintf("kill <PID of %s>", p.Key()))
	}
	b, err := json.Marshal(p)
	if err != nil {
		return nil
	}
	return one(fmt.Sprintf("niclane internal-poller '%s'", b))
}

func ethtoolLines(o device.Object) []string {
	switch n := o.(type) {
	case device.Channels:
		if n.Combined > 0 {
			return one(fmt.Sprintf("ethtool -L %s combined %d", n.Dev, n.Combined))
		}
		return one(fmt.Sprintf("ethtool -L %s rx %d tx %d", n.Dev, n.RX, n.TX))
	case device.Coalesce:
		args := fmt.Sprintf("adaptive-rx %s adaptive-tx %s rx-usecs %d tx-usecs %d", onOff(n.RxAdapt), onOff(n.TxAdapt), n.RxUsecs, n.TxUsecs)
		if n.Queue >= 0 {
			return one(fmt.Sprintf("ethtool -Q %s queue_mask 0x%s --coalesce %s", n.Dev, device.FormatMask([]int{n.Queue}), args))
		}
		return one(fmt.Sprintf("ethtool -C %s %s", n.Dev, args))
	case device.Ring:
		return one(fmt.Sprintf("ethtool -G %s rx %d tx %d", n.Dev, n.RX, n.TX))
	case device.Feature:
		return one(fmt.Sprintf("ethtool -K %s %s %s", n.Dev, n.Name, onOff(n.On)))
	}
	return nil
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}
