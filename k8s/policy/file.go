// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/niclane/niclane/internal/strictyaml"
	"github.com/niclane/niclane/k8s/api/v1alpha1"
	"github.com/niclane/niclane/lane/config"
	"github.com/niclane/niclane/lane/intent"
)

// A Member is a set of a pod's packets that belong to a lane.
type Member struct {
	// Name is unique in its lane, and valid in lanes.yaml.
	Name string `json:"name"`
	// Lane is the name of the packets' lane in the lanes file.
	Lane string `json:"lane"`
	// Protocol is "tcp" or "udp".
	Protocol string `json:"protocol"`
	// Ports and RemotePorts are lists of ports ("80") and ranges ("8000-8010"). Empty means any port.
	Ports       []string       `json:"ports,omitempty"`
	RemotePorts []string       `json:"remotePorts,omitempty"`
	Addrs       []netip.Prefix `json:"addrs,omitempty"`
	RemoteAddrs []netip.Prefix `json:"remoteAddrs,omitempty"`
	// Cgroup is the control group of a pod of the host's network.
	Cgroup string `json:"cgroup,omitempty"`
}

// A Node has the part of a lanes file that comes from the node, not from the policy.
type Node struct {
	// Device is the name of the device that has the node's address. The lanes are on it if the policy
	// names no device.
	Device string
	// Joined are the lanes that consist of several units.
	Joined []Joining
	// Members are the members of all lanes.
	Members []*Member
	// Tunnels are the tunnels in which packets of pods in lanes pass the device ("vxlan:8472"), ascending.
	Tunnels []string
	// Ceilings has, by lane, the annotation kubernetes.io/egress-bandwidth of the lane's pod, in
	// bit/s. Only exclusive lanes have it. If the policy has a ceiling too, the lower one applies.
	Ceilings map[string]uint64
	// Link is the device's rate in bit/s, 0 if not known.
	Link uint64
}

// Errors are problems of a policy. Each text begins with the path of the problem in the policy's
// spec.
type Errors []string

// Error implements error.
func (e Errors) Error() string { return strings.Join(e, "; ") }

// A File is a lanes file made from a policy.
type File struct {
	// Text is the content of the file, as YAML text.
	Text []byte
	// Intent is the parsed file. Callers must not change it.
	Intent *intent.Intent
	// paths maps a path in the lanes file to the path in the policy from which it was made.
	paths map[string]string
}

// heading is the first line of the file. It warns people not to edit the file.
const heading = "# Written by niclane-agent from a LanePolicy; changes here are lost.\n"

// Make returns the lanes file of a policy on a node. It checks the file like any lanes file, and
// returns the problems as Errors.
func Make(name string, spec *v1alpha1.LanePolicySpec, n Node) (*File, error) {
	b := &builder{paths: map[string]string{}, byLane: map[string][]*Member{}}
	for _, m := range n.Members {
		b.byLane[m.Lane] = append(b.byLane[m.Lane], m)
	}
	values := b.file(spec, n)
	if len(b.errs) > 0 {
		return nil, b.errs
	}
	f := &File{Text: append([]byte(heading), values.Text()...), paths: b.paths}
	read, err := config.FromValues(name, values)
	if err != nil {
		return nil, f.inPolicy(err)
	}
	f.Intent = read.Intent
	return f, nil
}

// A builder makes the content of a lanes file.
type builder struct {
	paths  map[string]string // path in the policy, by path in the lanes file
	errs   Errors
	byLane map[string][]*Member
	lanes  strictyaml.Map
}

func (b *builder) failf(format string, args ...any) {
	b.errs = append(b.errs, fmt.Sprintf(format, args...))
}

// put sets a key, unless the value is the zero value.
func put[T comparable](m *strictyaml.Map, key string, value T) {
	if value != *new(T) {
		m.Set(key, value)
	}
}

// pointer sets a key, unless the pointer is nil.
func pointer[T any](m *strictyaml.Map, key string, value *T) {
	if value != nil {
		m.Set(key, *value)
	}
}

// intOrWord sets a key to a number or to a word, which has capitals in a policy. nil sets nothing.
func intOrWord(m *strictyaml.Map, key string, v *intstr.IntOrString) {
	switch {
	case v == nil:
	case v.Type == intstr.Int:
		m.Set(key, int(v.IntVal))
	default:
		m.Set(key, strings.ToLower(v.StrVal))
	}
}

func (b *builder) file(spec *v1alpha1.LanePolicySpec, n Node) strictyaml.Map {
	u := &spec.Uplink
	var globals strictyaml.Map
	b.paths["globals"] = "spec.uplink"
	switch {
	case u.Bond != "":
		globals.Set("bond", u.Bond)
	case u.Dev != "":
		globals.Set("dev", u.Dev)
	case n.Device != "":
		globals.Set("dev", n.Device)
	default:
		b.failf("spec.uplink.dev: not given, and no device of this node has the node's InternalIP: give dev or bond")
	}
	if len(u.VLANs) > 0 {
		vlans := make([]string, len(u.VLANs))
		for i, v := range u.VLANs {
			vlans[i] = strconv.Itoa(v)
		}
		globals.Set("vlans", vlans)
	}
	list(&globals, "tunnels", n.Tunnels)
	if r := b.rate("spec.uplink.linkRate", u.LinkRate); r.permille > 0 {
		b.failf("spec.uplink.linkRate: found %q, want %s", u.LinkRate, wantRate)
	} else if r.bits > 0 {
		n.Link = r.bits
		globals.Set("link-rate", r.String())
	}
	list(&globals, "unshaped", u.Unshaped)
	put(&globals, "queues", u.Queues)
	b.duration(&globals, "busypoll", "spec.uplink.busyPoll", u.BusyPoll)
	b.duration(&globals, "busyread", "spec.uplink.busyRead", u.BusyRead)
	pointer(&globals, "arpfilter", u.ARPFilter)
	pointer(&globals, "rxring", u.RxRing)
	pointer(&globals, "txring", u.TxRing)
	if len(u.Force) > 0 {
		var force strictyaml.Map
		for _, part := range slices.Sorted(maps.Keys(u.Force)) {
			force.Set(part, u.Force[part])
		}
		globals.Set("force", force)
	}
	b.tuning(&globals, &u.Tuning, b.bandwidth("spec.uplink", &u.Tuning), "spec.uplink")
	names, resources := map[string]string{}, map[string]string{}
	for i := range spec.Classes {
		c := &spec.Classes[i]
		if Offered(c) == v1alpha1.OfferedAsResource {
			if other, twice := resources[ResourceName(c)]; twice {
				b.failf("spec.classes[%d].resourceName: class %[3]s already has %[2]s", i, ResourceName(c), other)
			}
			resources[ResourceName(c)] = c.Name
		}
		b.class(c, fmt.Sprintf("spec.classes[%d]", i), n, names)
	}
	return strictyaml.Map{{Key: "version", Value: 1}, {Key: "globals", Value: globals}, {Key: "lanes", Value: b.lanes}}
}

// class adds the lanes of one class.
func (b *builder) class(c *v1alpha1.Class, path string, n Node, names map[string]string) {
	if IsShared(c) {
		b.lane(c, c.Name, path, 1, n, names)
		return
	}
	for unit := 0; unit < Size(c); {
		count := 1
		for _, j := range n.Joined {
			if j.Class == c.Name && j.First == unit {
				count = j.Count
			}
		}
		b.lane(c, UnitID(c.Name, unit), path, count, n, names)
		unit += count
	}
}

// lane adds one lane that consists of count units.
func (b *builder) lane(c *v1alpha1.Class, name, path string, count int, n Node, names map[string]string) {
	if other, twice := names[name]; twice {
		b.failf("%s.name: its lane %s would have the same name as a lane of class %s: choose another "+
			"name", path, name, other)
		return
	}
	names[name] = c.Name
	b.paths["lanes."+name] = path
	l := strictyaml.Map{{Key: "mode", Value: "shared"}} // an exclusive lane's pod can have several members
	l.Set("queues", c.Queues*count)
	intOrWord(&l, "dscp", c.DSCP)
	t, w := c.Tuning, b.bandwidth(path, &c.Tuning)
	if count > 1 {
		t.Pollers *= count
		w.guarantee, w.ceiling = w.guarantee.times(count), w.ceiling.times(count)
	}
	if most := n.Ceilings[name]; most > 0 {
		if n.Link > 0 { // a pod's annotation can exceed the link's rate
			most = min(most, n.Link)
		}
		w.limit(most, n.Link)
	}
	b.tuning(&l, &t, w, path)
	members := make([]strictyaml.Map, len(b.byLane[name]))
	for i, m := range b.byLane[name] {
		members[i] = m.values(c.Aligned)
	}
	l.Set("members", members)
	b.lanes.Set(name, l)
}

// values returns the member in the form of the lanes file.
func (m *Member) values(aligned bool) strictyaml.Map {
	out := make(strictyaml.Map, 0, 6)
	out.Set("name", m.Name)
	out.Set("protocol", m.Protocol)
	list(&out, "ports", m.Ports)
	list(&out, "remote-ports", m.RemotePorts)
	list(&out, "addrs", addrs(m.Addrs))
	list(&out, "remote-addrs", addrs(m.RemoteAddrs))
	put(&out, "cgroup", m.Cgroup)
	put(&out, "aligned", aligned)
	return out
}

func list(m *strictyaml.Map, key string, items []string) {
	if len(items) > 0 {
		m.Set(key, items)
	}
}

// addrs returns prefixes as text. A prefix of one address becomes this address.
func addrs(ps []netip.Prefix) []string {
	out := make([]string, len(ps))
	for i, p := range ps {
		if out[i] = p.String(); p.IsSingleIP() {
			out[i] = p.Addr().String()
		}
	}
	return out
}

// bandwidth has the guarantee and the ceiling of a lane.
type bandwidth struct{ guarantee, ceiling rate }

func (b *builder) bandwidth(path string, t *v1alpha1.Tuning) bandwidth {
	return bandwidth{b.rate(path+".guarantee", t.Guarantee), b.rate(path+".ceiling", t.Ceiling)}
}

func (b *builder) rate(path string, r v1alpha1.Rate) rate {
	v, err := readRate(r)
	b.wrong(path, err)
	return v
}

// duration sets a key to a time in µs, if it is given.
func (b *builder) duration(m *strictyaml.Map, key, path string, d v1alpha1.Duration) {
	if d == "" {
		return
	}
	us, err := readDuration(d)
	b.wrong(path, err)
	m.Set(key, us)
}

// wrong records an error once: a class has a lane for each of its units.
func (b *builder) wrong(path string, err error) {
	if err == nil {
		return
	}
	if s := path + ": " + err.Error(); !slices.Contains(b.errs, s) {
		b.errs = append(b.errs, s)
	}
}

// limit lowers the ceiling and the guarantee to most, in bit/s. A missing ceiling becomes most, a
// missing guarantee stays missing.
func (w *bandwidth) limit(most, link uint64) {
	if bits := w.ceiling.of(link); bits == 0 || bits > most {
		w.ceiling = rate{bits: most}
	}
	if bits := w.guarantee.of(link); w.guarantee != (rate{}) && (bits == 0 || bits > most) {
		w.guarantee = rate{bits: most}
	}
}

func (b *builder) tuning(m *strictyaml.Map, t *v1alpha1.Tuning, w bandwidth, path string) {
	put(m, "cpus", strings.ToLower(t.CPUs))
	intOrWord(m, "numa", t.NUMA)
	put(m, "guarantee", w.guarantee.String())
	put(m, "ceiling", w.ceiling.String())
	put(m, "rank", t.Rank)
	put(m, "poller", strings.ToLower(t.Poller))
	put(m, "pollers", t.Pollers)
	b.duration(m, "poller-timeout", path+".pollerTimeout", t.PollerTimeout)
	put(m, "poller-priority", t.PollerPriority)
	pointer(m, "poller-nice", t.PollerNice)
	pointer(m, "rxadapt", t.AdaptiveRx)
	pointer(m, "txadapt", t.AdaptiveTx)
	b.duration(m, "rxusecs", path+".coalesceRx", t.CoalesceRx)
	b.duration(m, "txusecs", path+".coalesceTx", t.CoalesceTx)
}

// Locate converts a path in the lanes file to the path in the policy from which it was made. If
// there is none, it returns the given path.
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

// inPolicy replaces the paths in errors of the lanes file's reader by the policy's paths. It
// removes duplicates.
func (f *File) inPolicy(err error) error {
	var errs config.Errors
	if !errors.As(err, &errs) {
		return err
	}
	var out Errors
	for _, e := range errs {
		s := spelled(e.Message)
		if e.Path != "" {
			s = camel(f.Locate(e.Path)) + ": " + s
		}
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// keys maps keys of a lanes file to those of a policy, where they differ.
var keys = map[string]string{
	"link-rate": "linkRate", "busypoll": "busyPoll", "busyread": "busyRead", "arpfilter": "arpFilter",
	"rxring": "rxRing", "txring": "txRing", "poller-timeout": "pollerTimeout", "poller-priority": "pollerPriority",
	"poller-nice": "pollerNice", "rxadapt": "adaptiveRx", "txadapt": "adaptiveTx", "rxusecs": "coalesceRx",
	"txusecs": "coalesceTx",
}

// camel converts the last key of a path to the policy's spelling: link-rate becomes linkRate.
func camel(path string) string {
	at := strings.LastIndexByte(path, '.') + 1
	return path[:at] + cmp.Or(keys[path[at:]], path[at:])
}

// spelled converts the rates, pollers and keys in a message about a lanes file to the policy's
// spelling: 10gbit becomes 10G.
func spelled(message string) string {
	return words.ReplaceAllStringFunc(message, func(s string) string {
		m := words.FindStringSubmatch(s)
		switch {
		case m[1] != "":
			return m[1] + units[m[2]]
		case m[3] != "":
			return "poller: " + strings.ToUpper(m[3][:1]) + m[3][1:]
		}
		return keys[s]
	})
}

var (
	words = regexp.MustCompile(`\b(?:(\d+)([kmgt]?bit)|poller: ([a-z]+)|link-rate|poller-timeout|poller-priority|` +
		`poller-nice)\b`)
	units = map[string]string{"bit": "", "kbit": "k", "mbit": "M", "gbit": "G", "tbit": "T"}
)
