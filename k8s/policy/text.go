// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"bytes"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/niclane/niclane/k8s/api/v1alpha1"
	"github.com/niclane/niclane/lane/config"
)

// A Member is some of a pod's packets.
type Member struct {
	// Name is unique in its lane, and valid in lanes.yaml.
	Name string `json:"name"`
	// Lane that the packets belong to, by its name in the lanes file.
	Lane string `json:"lane"`
	// Protocol is "tcp" or "udp".
	Protocol string `json:"protocol"`
	// Ports and RemotePorts are "80" or "8000-8010"; none: any.
	Ports       []string       `json:"ports,omitempty"`
	RemotePorts []string       `json:"remotePorts,omitempty"`
	Addrs       []netip.Prefix `json:"addrs,omitempty"`
	RemoteAddrs []netip.Prefix `json:"remoteAddrs,omitempty"`
	// Cgroup of a pod of the host network.
	Cgroup string `json:"cgroup,omitempty"`
}

// A Node is what of a lanes file is the node's, not the policy's.
type Node struct {
	// Device that has the node's address, for a policy that names none.
	Device string
	// Joined lanes.
	Joined []Joining
	// Members of all lanes. A Maker takes one that it has met before to be as it was.
	Members []*Member
	// Ceilings, by lane, in bit/s, of exclusive lanes whose pod has the
	// annotation kubernetes.io/egress-bandwidth: the lower one holds.
	Ceilings map[string]uint64
	// Link is the device's rate in bit/s, 0 if it is not known.
	Link uint64
}

// Errors are problems of a policy, by path in its spec.
type Errors []string

// Error implements error.
func (e Errors) Error() string { return strings.Join(e, "; ") }

type writer struct {
	b      bytes.Buffer
	f      *File
	errs   Errors
	byLane map[string][]*Member
	// members are those that are written, by lane.
	members map[string][]*written
	known   map[*Member]*written // of an earlier file
}

func (w *writer) failf(format string, args ...any) {
	w.errs = append(w.errs, fmt.Sprintf(format, args...))
}

func (w *writer) put(indent, key string, value any, given bool) {
	if given {
		w.line(indent, key, fmt.Sprint(value))
	}
}

func (w *writer) line(indent, key, value string) {
	for _, s := range [...]string{indent, key, ": ", value, "\n"} {
		w.b.WriteString(s)
	}
}

func (w *writer) file(spec *v1alpha1.LanePolicySpec, n Node) {
	u := &spec.Uplink
	fmt.Fprint(&w.b, "# Written by niclane-agent from a LanePolicy; changes here are lost.\nversion: 1\nglobals:\n")
	w.f.paths["globals"] = "spec.uplink"
	const in = "  "
	switch {
	case u.Bond != "":
		w.put(in, "bond", strconv.Quote(u.Bond), true)
	case u.Dev != "":
		w.put(in, "dev", strconv.Quote(u.Dev), true)
	case n.Device != "":
		w.put(in, "dev", strconv.Quote(n.Device), true)
	default:
		w.failf("spec.uplink.dev: not given, and no device of this node has its InternalIP: give dev or bond")
	}
	vlans := make([]string, len(u.VLANs))
	for i, v := range u.VLANs {
		vlans[i] = strconv.Itoa(v)
	}
	w.put(in, "vlans", "["+strings.Join(vlans, ", ")+"]", len(vlans) > 0)
	if rate, given := bitsOf(u.LinkRate, 0); given {
		n.Link = rate
	}
	w.put(in, "link-rate", strconv.Quote(u.LinkRate), u.LinkRate != "")
	w.put(in, "queues", u.Queues, u.Queues != 0)
	pointer(w, in, "busypoll", u.BusyPoll)
	pointer(w, in, "busyread", u.BusyRead)
	pointer(w, in, "arpfilter", u.ARPFilter)
	pointer(w, in, "rxring", u.RxRing)
	pointer(w, in, "txring", u.TxRing)
	if len(u.Force) > 0 {
		fmt.Fprintf(&w.b, "  force:\n")
		for _, part := range slices.Sorted(maps.Keys(u.Force)) {
			w.put("    ", strconv.Quote(part), strconv.Quote(u.Force[part]), true)
		}
	}
	w.tuning(in, &u.Tuning)
	fmt.Fprint(&w.b, "lanes:\n")
	names, resources := map[string]string{}, map[string]string{}
	for i := range spec.Classes {
		if c := &spec.Classes[i]; Offered(c) == v1alpha1.OfferedAsResource {
			if other, twice := resources[ResourceName(c)]; twice {
				w.failf("spec.classes[%d].resourceName: %s is that of class %s", i, ResourceName(c), other)
			}
			resources[ResourceName(c)] = c.Name
		}
		w.class(&spec.Classes[i], fmt.Sprintf("spec.classes[%d]", i), n, names)
	}
}

// class writes the lanes of one class.
func (w *writer) class(c *v1alpha1.Class, path string, n Node, names map[string]string) {
	if IsShared(c) {
		w.lane(c, c.Name, path, 1, n, names)
		return
	}
	for unit := 0; unit < Size(c); {
		count := 1
		for _, j := range n.Joined {
			if j.Class == c.Name && j.First == unit {
				count = j.Count
			}
		}
		w.lane(c, UnitID(c.Name, unit), path, count, n, names)
		unit += count
	}
}

// lane writes one lane of as many units as count says.
func (w *writer) lane(c *v1alpha1.Class, name, path string, count int, n Node, names map[string]string) {
	if other, twice := names[name]; twice {
		w.failf("%s.name: its lane %s would be called as one of class %s: choose another name", path, name, other)
		return
	}
	names[name] = c.Name
	w.f.paths["lanes."+name] = path
	fmt.Fprintf(&w.b, "  %s:\n", strconv.Quote(name))
	const in = "    "
	w.put(in, "mode", "shared", true) // a pod is several members
	w.put(in, "queues", c.Queues*count, true)
	t := c.Tuning
	if count > 1 {
		t.Pollers *= count
		t.Guarantee, t.Ceiling = times(t.Guarantee, count), times(t.Ceiling, count)
	}
	if most := n.Ceilings[name]; most > 0 {
		if n.Link > 0 { // a pod's annotation does not know it
			most = min(most, n.Link)
		}
		limit(&t, most, n.Link)
	}
	w.tuning(in, &t)
	members := w.byLane[name]
	if len(members) == 0 {
		w.put(in, "members", "[]", true)
		return
	}
	fmt.Fprintf(&w.b, "%smembers:\n", in)
	all := make([]*written, len(members))
	for i, m := range members {
		if all[i] = w.known[m]; all[i] == nil || all[i].aligned != c.Aligned {
			all[i] = &written{of: m, aligned: c.Aligned, text: m.text(c.Aligned)}
		}
		w.b.WriteString(all[i].text)
	}
	w.members[name] = all
}

// text is the member in the list of a lane.
func (m *Member) text(aligned bool) string {
	b := append(make([]byte, 0, 256), "      - name: "...)
	b = strconv.AppendQuote(b, m.Name)
	const in = "\n        "
	b = append(append(b, in+"protocol: "...), m.Protocol...)
	b = appendList(b, in+"ports: [", m.Ports, strconv.AppendQuote)
	b = appendList(b, in+"remote-ports: [", m.RemotePorts, strconv.AppendQuote)
	b = appendList(b, in+"addrs: [", m.Addrs, appendAddrs)
	b = appendList(b, in+"remote-addrs: [", m.RemoteAddrs, appendAddrs)
	if m.Cgroup != "" {
		b = strconv.AppendQuote(append(b, in+"cgroup: "...), m.Cgroup)
	}
	if aligned {
		b = append(b, in+"aligned: on"...)
	}
	return string(append(b, '\n'))
}

// appendList appends what opens a list, its items and its end; nothing if there are none.
func appendList[T any](b []byte, open string, items []T, one func([]byte, T) []byte) []byte {
	for i, item := range items {
		if i > 0 {
			open = ", "
		}
		b = one(append(b, open...), item)
	}
	if len(items) > 0 {
		b = append(b, ']')
	}
	return b
}

// appendAddrs appends an address or a range of them, in which nothing is to be escaped.
func appendAddrs(b []byte, p netip.Prefix) []byte {
	b = append(b, '"')
	if p.IsSingleIP() {
		b = p.Addr().AppendTo(b)
	} else {
		b = p.AppendTo(b)
	}
	return append(b, '"')
}

func (w *writer) tuning(in string, t *v1alpha1.Tuning) {
	w.put(in, "cpus", strconv.Quote(t.CPUs), t.CPUs != "")
	w.put(in, "numa", strconv.Quote(t.NUMA), t.NUMA != "")
	w.put(in, "guarantee", strconv.Quote(t.Guarantee), t.Guarantee != "")
	w.put(in, "ceiling", strconv.Quote(t.Ceiling), t.Ceiling != "")
	w.put(in, "rank", t.Rank, t.Rank != 0)
	w.put(in, "poller", strconv.Quote(t.Poller), t.Poller != "")
	w.put(in, "pollers", t.Pollers, t.Pollers != 0)
	w.put(in, "poller-timeout", strconv.Quote(t.PollerTimeout), t.PollerTimeout != "")
	w.put(in, "poller-priority", t.PollerPriority, t.PollerPriority != 0)
	pointer(w, in, "poller-nice", t.PollerNice)
	pointer(w, in, "rxadapt", t.RxAdapt)
	pointer(w, in, "txadapt", t.TxAdapt)
	pointer(w, in, "rxusecs", t.RxUsecs)
	pointer(w, in, "txusecs", t.TxUsecs)
}

func pointer[T any](w *writer, in, key string, v *T) {
	if v != nil {
		w.put(in, key, *v, true)
	}
}

// times multiplies a rate or a share; a share ends at the whole link.
func times(rate string, n int) string {
	end := len(rate)
	for end > 0 && (rate[end-1] < '0' || rate[end-1] > '9') {
		end--
	}
	v, err := strconv.ParseFloat(rate[:end], 64)
	if rate == "" || err != nil {
		return rate // the reader says what is wrong with it
	}
	v *= float64(n)
	if rate[end:] == "%" {
		v = min(v, 100)
	}
	return strconv.FormatFloat(v, 'f', -1, 64) + rate[end:]
}

// Locate gives a path of the lanes file as one of the policy's spec.
func (f *File) Locate(path string) string {
	for at := path; at != ""; {
		if p, ok := f.paths[at]; ok {
			return p + path[len(at):]
		}
		i := strings.LastIndexAny(at, ".[")
		if i < 0 {
			break
		}
		at = at[:i]
	}
	return path
}

// inPolicy gives the reader's errors the paths of the policy, each once.
func (f *File) inPolicy(err error) error {
	errs, ok := err.(config.Errors)
	if !ok {
		return err
	}
	var out Errors
	for _, e := range errs {
		s := e.Message
		if e.Path != "" {
			s = camel(f.Locate(e.Path)) + ": " + e.Message
		}
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// camel writes the last key of a path as the policy does.
func camel(path string) string {
	for _, k := range [][2]string{{"link-rate", "linkRate"}, {"poller-timeout", "pollerTimeout"}, {"poller-priority", "pollerPriority"}, {"poller-nice", "pollerNice"}} {
		if s, ok := strings.CutSuffix(path, "."+k[0]); ok {
			return s + "." + k[1]
		}
	}
	return path
}

// limit lowers a ceiling, and a guarantee above it, to most bit/s.
func limit(t *v1alpha1.Tuning, most, link uint64) {
	text := fmt.Sprintf("%dbit", most)
	for _, rate := range []*string{&t.Ceiling, &t.Guarantee} {
		if *rate == "" && rate == &t.Guarantee {
			continue
		}
		if bits, known := bitsOf(*rate, link); !known || bits > most {
			*rate = text
		}
	}
}

// units of a rate, tc(8).
var units = map[string]float64{
	"bit": 1, "kbit": 1e3, "mbit": 1e6, "gbit": 1e9, "tbit": 1e12,
	"kibit": 1 << 10, "mibit": 1 << 20, "gibit": 1 << 30, "tibit": 1 << 40,
}

// bitsOf gives a rate or share in bit/s; a share only if the link is known.
func bitsOf(rate string, link uint64) (uint64, bool) {
	end := strings.LastIndexAny(rate, "0123456789") + 1
	v, err := strconv.ParseFloat(rate[:end], 64)
	if err != nil {
		return 0, false
	}
	if rate[end:] == "%" {
		return uint64(v / 100 * float64(link)), link > 0
	}
	unit, ok := units[rate[end:]]
	return uint64(v * unit), ok
}

// Bits gives a rate or a share of the link in bit/s, 0 if there is none or it
// cannot be told.
func Bits(rate string, link uint64) uint64 {
	if rate == "" {
		return 0
	}
	bits, _ := bitsOf(rate, link)
	return bits
}
