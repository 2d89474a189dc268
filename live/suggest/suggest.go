// SPDX-License-Identifier: Apache-2.0

// Package suggest chooses from an inventory the services that are worth a lane, and writes the lanes
// file that an expert would write for them, with the reason at each key. It chooses by what services
// do (requests and answers, their sizes and rates), never by their names. It only computes: it reads
// and changes nothing, and leaves to package plan what a device allows.
package suggest

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/intent"
	"github.com/niclane/niclane/lane/plan"
	"github.com/niclane/niclane/live/services"
)

// An Input is what Make chooses from.
type Input struct {
	Inventory *services.Inventory
	// State has the inventory's devices.
	State *device.State
	// Asked is the device, bond or VLAN that the lanes shall be on; "": the one with most requests.
	Asked string
	// Selected, if set, accepts the ports for which the caller asks. They get lanes also if they look
	// not worth it.
	Selected func(*services.Service, *services.Endpoint) bool
	// Future, if set, is a service that is not there yet. It gets the only lane.
	Future *Future
	// Applied are the lanes files that are applied now.
	Applied []Applied
	// Try plans a lanes file. If it returns an error, Make tries lanes without queues of their own, and
	// then says in the file that plan refuses it. nil: the file is not tried.
	Try func(text string) error
}

// A Future is a service that does not listen yet.
type Future struct {
	Protocol string // "tcp" or "udp"
	Port     uint16
}

// Applied is a lanes file that is applied to devices.
type Applied struct {
	File    string
	Devices []string
	Intent  *intent.Intent
}

// A Suggestion is a lanes file and the reasons for it.
type Suggestion struct {
	// Device is the device or bond of the lanes; "" if no other host reaches this one by a device.
	Device string `json:"device"`
	// Lanes are the lanes, the one with the most requests first. If there are none, LanesFile has
	// comments only.
	Lanes []Lane `json:"lanes"`
	// Left are the ports without a lane.
	Left []Left `json:"notSuggested"`
	// Limits say what the device cannot do, Conflicts which other programs write what lanes need.
	Limits    []string `json:"limits"`
	Conflicts []string `json:"conflicts"`
	Notes     []string `json:"notes"`
	// Refused is plan's error if it refuses the lanes, "" if not.
	Refused string `json:"refused,omitempty"`
	// LanesFile is the text of the lanes file.
	LanesFile string `json:"lanesFile"`
}

// A Lane is a suggested lane.
type Lane struct {
	Name    string   `json:"name"`
	Members []Member `json:"members"`
	Queues  int      `json:"queues"`
	// Guarantee is in percent of the link, 0 for none.
	Guarantee int `json:"guaranteePercent,omitempty"`
	// Why has the reason of each key, in the order of the keys.
	Why []Reason `json:"why"`

	service   *services.Service
	endpoints []*services.Endpoint
	requests  float64 // per second
}

// A Member is a protocol and its ports.
type Member struct {
	Protocol string   `json:"protocol"`
	Ports    []uint16 `json:"ports"`
	Addrs    []string `json:"addrs,omitempty"`
	Cgroup   string   `json:"cgroup,omitempty"`
}

// A Reason says why a key of a lane is as it is. Key "" is for the lane itself.
type Reason struct {
	Key string `json:"key"`
	Why string `json:"why"`
}

// A Left is a service without a lane.
type Left struct {
	Service string   `json:"service"`
	Of      []string `json:"of"` // "tcp/22"
	Why     string   `json:"why"`
}

// A chooser makes one suggestion.
type chooser struct {
	Input
	Suggestion
	target target
	worth  []candidate
	// shared says what a lane gets in place of receive queues of its own, "" if it gets those.
	shared string
	// byReceived says that the device's mapper is xps-rxqs.
	byReceived bool
	// forced is the reason why the file forces lanes on transmit alone, "" if it does not.
	forced string
}

// Make chooses lanes and writes the lanes file.
func Make(in Input) (*Suggestion, error) {
	c := &chooser{Input: in}
	if in.Future != nil {
		c.Selected = func(*services.Service, *services.Endpoint) bool { return false }
	}
	if err := c.chooseTarget(); err != nil {
		return nil, err
	}
	c.judgeAll()
	if err := c.demand(); err != nil {
		return nil, err
	}
	if c.target.device != "" {
		c.limits()
		c.makeLanes()
	}
	c.conflicts()
	c.Notes = append(c.Notes, in.Inventory.Notes...)
	c.elsewhere()
	slices.SortStableFunc(c.Left, func(a, b Left) int { return cmp.Compare(a.Service, b.Service) })
	return c.write(), nil
}

// demand returns an error if the ports that the caller asks for cannot have a lane here.
func (c *chooser) demand() error {
	if c.target.device == "" && (c.Future != nil || c.Selected != nil) {
		return errors.New("no device here has an address that other hosts reach: a lane needs one")
	}
	if c.Selected == nil || c.Future != nil || len(c.worth) > 0 {
		return nil
	}
	var why []string
	for _, l := range c.Left {
		why = append(why, fmt.Sprintf("%s (%s): %s", l.Service, strings.Join(l.Of, ", "), l.Why))
	}
	return fmt.Errorf("no lane for %s", strings.Join(why, "; "))
}

// write writes the lanes file, and tries it. If the device refuses queues of the lanes' own, it tries
// lanes on transmit alone.
func (c *chooser) write() *Suggestion {
	c.LanesFile = c.text()
	if len(c.Lanes) == 0 || c.Try == nil {
		return &c.Suggestion
	}
	err := c.Try(c.LanesFile)
	if err == nil {
		return &c.Suggestion
	}
	c.forced, _, _ = strings.Cut(err.Error(), "\n")
	c.forced, _, _ = strings.Cut(c.forced, ": tried ") // probe has the rest
	if file := c.text(); c.Try(file) == nil {
		c.LanesFile = file
		return &c.Suggestion
	}
	c.forced, c.Refused = "", err.Error()
	c.LanesFile = c.text()
	return &c.Suggestion
}

// A target is the device, or the bond with its slaves, that the lanes are on.
type target struct {
	device string // the device, or a slave of the bond
	bond   string
	all    []string // the device, or the bond's slaves, ascending
	via    []string
}

// name returns the name that a lanes file gives.
func (t target) name() string { return cmp.Or(t.bond, t.device) }

// among reports whether the target, or a slave of it, is among devices.
func (t target) among(devices []string) bool {
	return slices.ContainsFunc(devices, func(d string) bool { return d == t.bond || slices.Contains(t.all, d) })
}

// chooseTarget finds the device that was asked for, or else the one with the most requests.
func (c *chooser) chooseTarget() error {
	var all []target
	for _, p := range c.Inventory.Paths {
		i := slices.IndexFunc(all, func(t target) bool { return p.Bond != "" && t.bond == p.Bond })
		if i < 0 {
			i = len(all)
			all = append(all, target{device: p.Device, bond: p.Bond, via: p.Via})
		}
		all[i].all = append(all[i].all, p.Device)
	}
	if c.Asked != "" {
		asked := c.State.Resolve(c.Asked)
		for _, t := range all {
			if t.name() == asked || slices.Contains(t.all, asked) || slices.Contains(t.via, asked) {
				c.target = t
			}
		}
		if c.target.device == "" {
			if c.State.Device(asked) == nil {
				return fmt.Errorf("no network device %q here", c.Asked)
			}
			c.target = target{device: asked, all: []string{asked}}
		}
	} else if len(all) > 0 {
		hardware := func(t target) int {
			for _, p := range c.Inventory.Paths {
				if p.Device == t.device && p.Kind == "device" {
					return 0
				}
			}
			return 1
		}
		slices.SortStableFunc(all, func(a, b target) int {
			return cmp.Or(cmp.Compare(c.requestsAt(b), c.requestsAt(a)), hardware(a)-hardware(b),
				cmp.Compare(a.name(), b.name()))
		})
		c.target = all[0]
		for _, t := range all[1:] {
			if c.requestsAt(t) > 0 {
				c.Notes = append(c.Notes, fmt.Sprintf("requests arrive at %[1]s too: niclane suggest %[1]s", t.name()))
			}
		}
	}
	c.Device = c.target.name()
	if d := c.State.Device(c.target.device); d == nil && c.target.device != "" {
		return fmt.Errorf("no network device %q here", c.target.device)
	}
	return nil
}

// requestsAt returns the requests per second of the services that a target reaches. A service at
// several devices counts by the packets that arrived at each.
func (c *chooser) requestsAt(t target) (sum float64) {
	packets := map[string]float64{}
	for _, d := range c.Inventory.Devices {
		for _, q := range d.Queues {
			for _, s := range q.Shares {
				if slices.Contains(t.all, d.Name) {
					packets[s.Of] += s.Packets
				}
			}
		}
	}
	for i := range c.Inventory.Services {
		for j := range c.Inventory.Services[i].Endpoints {
			e := &c.Inventory.Services[i].Endpoints[j]
			if e.Traffic == nil || !t.among(e.Devices) {
				continue
			}
			part := 1.0
			if all := e.Traffic.In.Packets; e.Traffic.Source == services.FromPackets && all > 0 {
				part = min(packets[e.Of()]/all, 1)
			}
			if kindOf(e, c.mtu(t)) == request {
				sum += requests(e) * part
			}
		}
	}
	return sum
}

func (c *chooser) mtu(t target) float64 {
	if d := c.State.Device(t.device); d != nil && d.MTU > 0 {
		return float64(d.MTU)
	}
	return 1500
}

// limits says what the device cannot do, from plan's choices. It says nothing if the capabilities were
// not probed.
func (c *chooser) limits() {
	d := c.State.Device(c.target.device)
	if len(d.Capabilities) == 0 {
		return
	}
	for _, choice := range plan.Choose(c.State, d, nil) {
		without := map[string]string{}
		for _, r := range choice.Rejected {
			without[r.Mechanism] = r.Why
		}
		if choice.Part == device.PartMapper {
			c.byReceived = choice.Mechanism == plan.ByXPSRxqs
		}
		switch {
		case choice.Part == device.PartQueueSet && noQueue[choice.Mechanism] != "":
			c.shared = noQueue[choice.Mechanism]
			c.Limits = append(c.Limits, fmt.Sprintf("queues of a lane's own (%s): %s", plan.ByRSSContext,
				cmp.Or(without[plan.ByRSSContext], choice.Reason)))
		case choice.Mechanism == "" && len(choice.Rejected) > 0:
			c.Limits = append(c.Limits, fmt.Sprintf("%s: %s", choice.Part, choice.Rejected[0].Why))
		}
	}
}

// noQueue says for each mechanism that gives a lane no receive queue of its own, what it gives.
var noQueue = map[string]string{
	plan.ByCpumap: "the card puts the lane's packets among all others; XDP then hands them to the lane's " +
		"processors, before the stack sees them",
	plan.ByCpumapGeneric: "the card puts the lane's packets among all others; generic XDP then hands them to the " +
		"lane's processors",
	plan.ByRPS: "the lane's packets wait among all others in the card's queues; RPS then hands them to the lane's " +
		"processors",
	plan.ByShared: "the lane has no receive queue or processor of its own; what remains is its place on transmit " +
		"(guarantee, ceiling, rank)",
}

// elsewhere names the services of other network namespaces.
func (c *chooser) elsewhere() {
	for _, n := range c.Inventory.Elsewhere {
		c.left(cmp.Or(n.Unit, n.Process.Name), fmt.Sprintf("it is in a network namespace of its own%s: its "+
			"packets have other addresses here (docs/how-to/containers-and-vms.md)", ofContainer(n.Container)),
			n.Listening...)
	}
}

func ofContainer(id string) string {
	if id == "" {
		return ""
	}
	return " (container " + short(id) + ")"
}

// short returns a container's ID as its tools print it.
func short(id string) string { return id[:min(len(id), 12)] }
