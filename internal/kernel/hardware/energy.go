// SPDX-License-Identifier: Apache-2.0

package hardware

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/extack"
	"github.com/niclane/niclane/internal/kernel/nlsock"
)

// energy reads what saves energy: frequencies and idle states.
func (r *reader) energy() {
	r.all("governor", &r.Governor, cpus+"cpufreq/policy*/scaling_governor", "the kernel has no cpufreq here")
	r.all("energy", &r.Energy, cpus+"cpufreq/policy*/energy_performance_preference",
		"the processors have no energy preference")
	r.idle()
}

// all keeps the values of several files, each once.
func (r *reader) all(key string, to *string, pattern, none string) {
	var values []string
	for _, file := range r.glob(pattern) {
		if v := r.word(strings.TrimPrefix(file, string(r.root))); v != "" && !slices.Contains(values, v) {
			values = append(values, v)
		}
	}
	if len(values) == 0 {
		r.Unknown[key] = none
		return
	}
	*to = strings.Join(values, ", ")
}

// idle reads the idle states of processor 0, and on how many processors each is off.
func (r *reader) idle() {
	driver, err := r.line(cpus + "cpuidle/current_driver")
	if err != nil || driver == "none" {
		if err == nil {
			err = errors.New("the kernel uses no driver of idle states")
		}
		r.Unknown["idleStates"] = reason(err)
		return
	}
	var states []string
	for n := range 16 {
		dir := fmt.Sprintf("cpuidle/state%d/", n)
		name := r.word(cpus + "cpu0/" + dir + "name")
		if name == "" {
			break
		}
		files := r.glob(cpus + "cpu[0-9]*/" + dir + "disable")
		off := 0
		for _, file := range files {
			if v := r.word(strings.TrimPrefix(file, string(r.root))); v != "" && v != "0" {
				off++
			}
		}
		switch {
		case off > 0 && off == len(files):
			name += " (off)"
		case off > 0:
			name += fmt.Sprintf(" (off on %d of %d processors)", off, len(files))
		}
		states = append(states, name)
	}
	r.Idle = driver + ": " + cmp.Or(strings.Join(states, ", "), "no states")
}

// initial is the link of the first PID namespace (PROC_PID_INIT_INO). Only there are all processes
// of a machine visible.
const initial = "pid:[4026531836]"

// services reads what runs beside a measurement: tuned, irqbalance and firewalls.
func (r *reader) services(tables func() ([]string, error)) {
	profile, err := r.line("/etc/tuned/active_profile")
	running, err1 := r.running()
	switch {
	case err1 != nil:
		r.Unknown["tuned"], r.Unknown["irqbalance"] = err1.Error(), err1.Error()
	default:
		r.Irqbalance = map[bool]string{true: "running", false: "not running"}[running["irqbalance"]]
		// tuned's profile stays in the file after its end, and its settings do not.
		if r.Tuned = "none"; running["tuned"] && err == nil && profile != "" {
			r.Tuned = profile
		}
	}
	var found []string
	if running["firewalld"] {
		found = append(found, "firewalld")
	}
	names, err2 := tables()
	for _, name := range names {
		found = append(found, "nftables "+name)
	}
	for _, file := range []string{"/proc/net/ip_tables_names", "/proc/net/ip6_tables_names"} {
		b, err := os.ReadFile(r.path(file))
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // ErrNotExist: iptables is not in use
			err2 = cmp.Or(err2, err)
		}
		for name := range strings.FieldsSeq(string(b)) {
			found = append(found, strings.TrimSuffix(filepath.Base(file), "_names")+" "+name)
		}
	}
	switch {
	case len(found) > 0:
		r.Firewall = strings.Join(found, ", ")
	case err2 != nil:
		r.Unknown["firewall"] = reason(err2)
	default:
		r.Firewall = "none"
	}
}

// running returns the names of all processes.
func (r *reader) running() (map[string]bool, error) {
	if link, err := os.Readlink(r.path("/proc/self/ns/pid")); err != nil || link != initial {
		return nil, errors.New("this PID namespace does not show the machine's processes")
	}
	out := map[string]bool{}
	for _, file := range r.glob("/proc/[0-9]*/comm") {
		out[r.word(strings.TrimPrefix(file, string(r.root)))] = true
	}
	return out, nil
}

// Numbers of linux/netfilter/nfnetlink.h and nf_tables.h.
const (
	getTable     = 10<<8 | 1 // NFNL_SUBSYS_NFTABLES, NFT_MSG_GETTABLE
	tableName    = 1         // NFTA_TABLE_NAME
	headerLength = 4         // struct nfgenmsg: family, version, resource ID
)

// tables returns the nftables of the network namespace, "inet firewalld". It needs CAP_NET_ADMIN.
func tables() ([]string, error) {
	conn, err := nlsock.Dial(unix.NETLINK_NETFILTER)
	if err != nil {
		if errors.Is(err, unix.EPROTONOSUPPORT) { // no netfilter in this kernel
			return nil, nil
		}
		return nil, err
	}
	defer conn.Close()
	ms, err := conn.Execute(netlink.Message{
		Header: netlink.Header{Type: getTable, Flags: netlink.Request | netlink.Dump},
		Data:   make([]byte, headerLength)})
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) { // nfnetlink without nf_tables
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("nftables: %w", extack.Error(err))
	}
	return decodeTables(ms)
}

func decodeTables(ms []netlink.Message) (out []string, err error) {
	families := map[byte]string{unix.NFPROTO_INET: "inet", unix.NFPROTO_IPV4: "ip", unix.NFPROTO_IPV6: "ip6",
		unix.NFPROTO_ARP: "arp", unix.NFPROTO_BRIDGE: "bridge", unix.NFPROTO_NETDEV: "netdev"}
	for _, m := range ms {
		if len(m.Data) < headerLength {
			return nil, errors.New("nftables: a message that is too short")
		}
		ad, err := netlink.NewAttributeDecoder(m.Data[headerLength:])
		if err != nil {
			return nil, fmt.Errorf("nftables: %w", err)
		}
		for ad.Next() {
			if ad.Type() == tableName {
				out = append(out, cmp.Or(families[m.Data[0]], fmt.Sprint(m.Data[0]))+" "+ad.String())
			}
		}
		if err := ad.Err(); err != nil {
			return nil, fmt.Errorf("nftables: %w", err)
		}
	}
	return out, nil
}
