// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/intent"
)

// A want is the value that an object should have.
type want struct {
	device.Object
	// absent: the object should not exist. Object then only identifies it.
	absent     bool
	part       device.Part
	reason     string
	cause      string
	disruptive bool
	key        string // key of Object, set by merge
}

// A fit is the planning of one intent on one device.
type fit struct {
	in      *intent.Intent
	st      *device.State
	dev     *device.Device
	owned   map[string]*Record
	choice  map[device.Part]Choice
	present map[string]device.Object
	link    uint64 // bit/s
	// links is the sum of the links of the bond's slaves that share the lanes' rates; 0 if each
	// slave has the full rates.
	links uint64
	// sharedQueues says that no lane has queues of its own.
	sharedQueues bool
	// driverThreads says where the threads of the driver's pollers come from.
	driverThreads string
	wants         []want
	notes         []string
	errs          Errors
	expanded      map[*intent.Member][]device.Match
}

func (f *fit) failf(path, format string, args ...any) {
	f.errs = append(f.errs, Error{path, fmt.Sprintf(format, args...)})
}

func (f *fit) notef(format string, args ...any) {
	f.notes = append(f.notes, f.dev.Name+": "+fmt.Sprintf(format, args...))
}

func (f *fit) want(o device.Object, part device.Part, cause, reason string) {
	f.wants = append(f.wants, want{Object: o, part: part, cause: cause, reason: reason})
}

// wantAbsent adds the removal of an object to the plan.
func (f *fit) wantAbsent(o device.Object, part device.Part, cause, reason string) {
	f.wants = append(f.wants, want{Object: o, absent: true, part: part, cause: cause, reason: reason})
}

// value returns the value that the object should have; nil means absent.
func (w want) value() device.Object {
	if w.absent {
		return nil
	}
	return w.Object
}

// uses reports whether the mechanism was chosen for the part.
func (f *fit) uses(part device.Part, mechanism string) bool {
	return f.choice[part].Mechanism == mechanism
}

// base returns the value before niclane if niclane owns the object, otherwise now. Planning
// starts from it and changes what the intent sets. So a setting that was removed from the file
// returns to its old value.
func (f *fit) base(now device.Object) device.Object {
	if r, ok := f.owned[now.Key()]; ok && r.Original != nil {
		return r.Original
	}
	return now
}

// Make plans the intent in on the machine with the state st. owned has niclane's objects, from
// the journal: Make restores those that in no longer asks for. The error is of type Errors.
func Make(in *intent.Intent, st *device.State, owned Owned) (*Plan, error) {
	p := &Plan{}
	in = resolved(in, st)
	keys := owned.keys()
	ours := make(map[string]*Record, len(keys))
	for i := range owned.Records {
		ours[keys[i]] = &owned.Records[i]
	}
	present := st.Objects()
	var errs Errors
	var wants []want
	at := make(map[string]int, len(keys))
	names := groupDevices(in, st, &errs)
	links := groupOf(in, st, names)
	for _, name := range names {
		f := &fit{in: in, st: st, dev: st.Device(name), owned: ours, present: present}
		f.link, f.links = links.link[name], links.share(f.dev)
		f.plan(p)
		wants = f.merge(wants, at)
		p.Notes = append(p.Notes, f.notes...)
		errs = append(errs, f.errs...)
		p.Devices = append(p.Devices, name)
	}
	if len(errs) > 0 {
		return nil, dedupe(errs)
	}
	slices.Sort(p.Devices)
	p.Ground = groundOf(st, p.Devices)
	if inBits(in) {
		p.Sharing = links.sharing
	}
	p.Steps = diff(st, present, owned, keys, wants, at)
	p.forget(st, present, owned, keys, at)
	return p, nil
}

func groundOf(st *device.State, devices []string) Ground {
	g := Ground{Groups: st.Cgroups.IDs}
	for _, name := range devices {
		g.Links = append(g.Links, st.Device(name).Link())
	}
	return g
}

// merge adds the wants of f to those of the group's earlier devices. at maps a key to its index
// in wants. Several devices can want the same object of the host; then wants has it once.
func (f *fit) merge(wants []want, at map[string]int) []want {
	if len(wants) == 0 {
		wants = f.wants[:0] // reuse the array: no want moves to a later index
	}
	for _, w := range f.wants {
		key := w.Key()
		i, ok := at[key]
		switch {
		case !ok:
			at[key] = len(wants)
			w.key = key
			wants = append(wants, w)
		case !device.Equal(wants[i].Object, w.Object):
			f.failf(w.cause, "%s is wanted as %s and, for %s, as %s", key, Brief(wants[i].Object), f.dev.Name,
				Brief(w.Object))
		}
	}
	return wants
}

// plan fits the intent to f.dev. The results are in f: wants, notes and errors.
func (f *fit) plan(p *Plan) {
	choices, lanes, total := f.place()
	if lanes == nil {
		return
	}
	f.settleDriverPollers(lanes)
	f.checkParts(lanes)
	f.checkSoftware(lanes)
	f.checkForeign(lanes)
	f.checkMembers(lanes)
	f.checkTunnels(lanes[1:])
	if len(f.errs) > 0 {
		return
	}
	// No foreign traffic may reach reserved queues. The order is therefore: add channels, pin the
	// default table, set XPS, make the queue sets, and steer last. Channels come before the table
	// for two reasons. Some drivers refuse to change channels after the table was set (mlx5:
	// mlx5e_ethtool_set_channels). A change of channels takes the interface down, and at this time
	// no queue belongs to a lane yet.
	f.wantNtuple()
	switch {
	case f.widens(lanes[0]) || f.shrinks(total):
		// Some lanes give queues back. They stop using these queues before the default lane takes them.
		// If all lanes move to higher queues, the last lane moves first.
		f.wantContexts(lanes[1:], f.widens(lanes[0]))
		f.wantDefaultRSS(lanes[0], total)
		f.wantChannels(total)
		f.wantXPS(lanes, total)
	default:
		f.wantChannels(total)
		f.wantDefaultRSS(lanes[0], total)
		f.wantXPS(lanes, total)
		f.wantContexts(lanes[1:], false)
	}
	f.wantClasses(lanes)
	f.wantRPS(lanes)
	f.wantNoRPS(lanes)
	f.wantCPUs(lanes[1:])
	f.wantPollers(lanes)
	f.wantModeration(lanes)
	f.wantGlobals()
	f.wantMqprio(lanes)
	f.wantBandwidth(lanes, total)
	f.wantClassifier(lanes[0], lanes[1:])
	f.wantCpusets(lanes[1:])
	f.wantRules(lanes[1:])
	f.wantFlowers(lanes[1:])
	f.wantXDPEntries(lanes[1:])
	f.wantTxQueueLen()
	for _, c := range choices {
		c.Device = f.dev.Name
		p.Choices = append(p.Choices, c)
	}
	for _, l := range lanes {
		fitted := FittedLane{Name: l.Name, Device: f.dev.Name, Context: l.number, Queues: l.queues, CPUs: l.cpus,
			Receives: f.receives(l), Sends: f.sends(), Rank: rank(l), Guarantee: f.guarantee(l), Ceiling: f.ceiling(l),
			DSCP: l.DSCP, PCP: l.PCP, Departs: f.departs(lanes), Poller: f.kind(l)}
		if fitted.Receives == OnProcessors && fitted.Poller == intent.PollerAuto {
			fitted.Poller = intent.PollerThread // the threads of the cpumap
		}
		if rx, tx := f.unpaired(total); l.isDefault {
			fitted.Queues = slices.Concat(l.queues, span(total, max(len(rx), len(tx))))
		}
		fitted.Aligned = slices.ContainsFunc(l.Members, func(m intent.Member) bool { return m.Aligned })
		if slices.Contains(f.wantedClasses(), classID(l.minor)) {
			fitted.Class = classID(l.minor)
		}
		p.Lanes = append(p.Lanes, fitted)
	}
	f.noteIdle()
	f.noteKept(lanes)
	f.noteIRQBalance()
	f.noteSharing(lanes)
	f.noteShare(lanes)
	f.noteSpeed(lanes)
	if len(lanes) > 1 {
		f.noteUpper()
	}
	f.noteFragments(lanes[1:])
	f.noteUnconnected(lanes[1:])
	f.noteUntagged(lanes[1:])
	f.noteTunnels()
	if f.sharedQueues && len(f.in.Lanes) > 0 && len(lanes[0].queues) < f.sum()+max(f.in.Default.Queues, 1) {
		f.notef("%s: no lane has its own transmit queue", f.noQueues())
	}
	if f.dev.Emulated {
		f.notef("the lab's emulated card: its ethtool -X and -N lines are what a real card would need; here niclane " +
			"writes the card's own tables")
	}
}

// place chooses the mechanisms and gives the lanes their queues and processors. If a chosen
// mechanism does not fit these queues and processors, it chooses again without that mechanism.
func (f *fit) place() (choices []Choice, lanes []*deviceLane, total int) {
	asked, spare := f.askedPollers()
	if why := f.noDeviceThreads(); why != "" {
		spare[ByDeviceThread] = why
	}
	if why := f.noDepartures(); why != "" {
		spare[ByEDT] = why
	}
	for without := maps.Clone(spare); ; {
		choices = choose(f.st, f.dev, f.in.Group.Force, without, asked)
		f.choice = map[device.Part]Choice{}
		for _, c := range choices {
			f.choice[c.Part] = c
		}
		f.sharedQueues = false
		if lanes, total = f.layout(); lanes == nil {
			return nil, nil, 0
		}
		f.processors(lanes)
		if less := f.tooLittle(lanes); len(without) == len(spare) && len(less) > 0 {
			maps.Copy(without, less)
			continue
		}
		mqprio := f.choice[device.PartMapper].Mechanism
		if why := f.noMqprio(lanes); why != "" && without[mqprio] == "" {
			forced := f.forced(mqprio)
			if forced == "" {
				without[mqprio] = why
				if mqprio == ByMqprioChannel && f.classes() {
					f.notef("no %s: %s", mqprio, why)
				}
				continue
			}
			if f.choice[device.PartBandwidth].Mechanism != "" || !shaped(lanes) { // otherwise checkParts reports it
				f.failf("globals.force."+forced, "%s on %s: %s", mqprio, f.dev.Name, why)
			}
			return choices, lanes, total
		}
		if why := f.noQueues(); why != "" && f.chooses() && len(f.errs) == 0 {
			if f.in.Group.Force[string(device.PartMapper)] == "" {
				without[ByQueueMapping] = why
				continue
			}
			f.failf("globals.force.mapper", "%s on %s: %s", ByQueueMapping, f.dev.Name, why)
			return choices, lanes, total
		}
		if why := f.noOffload(lanes, without, asked); why != "" && without[ByHTBOffload] == "" {
			if f.in.Group.Force[string(device.PartMapper)] != ByHTBOffload {
				without[ByHTBOffload] = why
				continue
			}
			if !shaped(lanes) {
				f.failf("globals.force.mapper", "%s on %s: %s", ByHTBOffload, f.dev.Name, why)
			}
		}
		name := f.choice[device.PartQueueSet].Mechanism
		why := f.useless(lanes)
		if why == "" || without[name] != "" || f.in.Group.Force[string(device.PartQueueSet)] != "" || len(f.errs) > 0 {
			f.settlePoller(choices, lanes, asked, without)
			return choices, lanes, total
		}
		without[name] = why
	}
}

// forced returns the part for which the file forces this mechanism: mapper or queue set, "" if
// neither.
func (f *fit) forced(mechanism string) string {
	for _, part := range []device.Part{device.PartMapper, device.PartQueueSet} {
		if f.in.Group.Force[string(part)] == mechanism {
			return string(part)
		}
	}
	return ""
}

// groupDevices returns the names of the devices that the lanes span.
func groupDevices(in *intent.Intent, st *device.State, errs *Errors) []string {
	fail := func(path, format string, args ...any) {
		*errs = append(*errs, Error{path, fmt.Sprintf(format, args...)})
	}
	if in.Group.Bond != "" {
		var slaves []string
		for _, d := range st.Devices {
			if d.Master == in.Group.Bond {
				slaves = append(slaves, d.Name)
			}
		}
		bond := st.Device(in.Group.Bond)
		switch {
		case bond == nil:
			fail("globals.bond", "no network device %q here (have: %s)", in.Group.Bond, deviceNames(st))
		case bond.Type != "bond":
			fail("globals.bond", "%s is not a bond", in.Group.Bond)
		case len(slaves) == 0:
			fail("globals.bond", "%s has no slaves", in.Group.Bond)
		}
		return slaves
	}
	var names []string
	for _, name := range in.Group.Devices {
		if st.Device(name) == nil {
			fail("globals.dev", "no network device %q here (have: %s)", name, deviceNames(st))
			continue
		}
		names = append(names, name)
	}
	return names
}

// resolved returns a copy of in with device names in place of alternative names.
func resolved(in *intent.Intent, st *device.State) *intent.Intent {
	out := *in
	out.Group.Bond, out.Group.Devices = st.Resolve(in.Group.Bond), nil
	for _, name := range in.Group.Devices {
		if name = st.Resolve(name); !slices.Contains(out.Group.Devices, name) {
			out.Group.Devices = append(out.Group.Devices, name)
		}
	}
	return &out
}

func deviceNames(st *device.State) string {
	s := ""
	for i, d := range st.Devices {
		if i > 0 {
			s += ", "
		}
		s += d.Name
	}
	if s == "" {
		return "none"
	}
	return s
}

// dedupe removes repeated errors: every device of a group reports the same errors.
func dedupe(errs Errors) Errors {
	var out Errors
	for _, e := range errs {
		if !slices.Contains(out, e) {
			out = append(out, e)
		}
	}
	return out
}

// keys returns the keys of the records, in their order.
func (o Owned) keys() []string {
	if len(o.Keys) == len(o.Records) {
		return o.Keys
	}
	keys := make([]string, len(o.Records))
	for i, r := range o.Records {
		keys[i] = r.Key()
	}
	return keys
}

// diff returns the steps from the present objects to the wanted ones. First, it restores objects
// of niclane that are no longer wanted, the latest first. Then it changes objects in the order of
// wants. keys are the keys of owned; wanted has the keys of wants. If st is not nil, diff skips
// objects that disappeared with their device.
func diff(st *device.State, present map[string]device.Object, owned Owned, keys []string, wants []want,
	wanted map[string]int) []Step {
	var steps, last []Step
	inUse := ledTo(present, wants)
	for i, r := range slices.Backward(owned.Records) {
		if _, still := wanted[keys[i]]; still {
			continue
		}
		if now := present[keys[i]]; !device.Equal(now, r.Original) &&
			!(now == nil && st != nil && goneWith(st, r.Original)) && !elsewhere(now, r) {
			s := Step{
				Old: now, New: r.Original, Part: r.Part, Cause: r.Cause,
				Reason: keys[i] + " back to what it was",
			}
			if inUse[keys[i]] {
				last = append(last, s)
				continue
			}
			steps = append(steps, s)
		}
	}
	steps = rulesFirst(steps)
	for _, w := range wants {
		if now := present[w.key]; !device.Equal(now, w.value()) {
			s := Step{
				Old: now, New: w.value(), Part: w.part, Reason: w.reason,
				Cause: w.cause, Disruptive: w.disruptive,
			}
			if len(last) > 0 && fewerChannels(s) {
				last = append(last, s)
				continue
			}
			steps = append(steps, s)
		}
	}
	return append(steps, last...)
}

// elsewhere reports whether niclane's own flower filter is gone and now is a filter of another
// program for the same packets. Then there is nothing to restore.
func elsewhere(now device.Object, r Record) bool {
	f, is := now.(device.Flower)
	return is && f.Pref != 0 && r.Original == nil
}

// forget fills p.Forget and p.Gone with objects of niclane that are absent, unwanted and have no
// value to restore. Either they disappeared with their device or control group, or another
// program removed what niclane would remove.
func (p *Plan) forget(st *device.State, present map[string]device.Object, owned Owned, keys []string,
	wanted map[string]int) {
	var irqs []string
	for i, r := range owned.Records {
		o := r.Original
		if o == nil {
			o = r.Last
		}
		if _, still := wanted[keys[i]]; still || present[keys[i]] != nil || r.Original != nil && !goneWith(st, o) {
			continue
		}
		if irqFile(o) {
			irqs = append(irqs, keys[i])
			continue
		}
		p.Forget = append(p.Forget, keys[i])
		if !goneWith(st, o) {
			continue
		}
		if dev := device.DeviceOf(o); dev != "" && !slices.Contains(p.Gone, dev) {
			p.Gone = append(p.Gone, dev)
		}
	}
	if len(p.Gone) > 0 { // while the device exists, its interrupts may come back
		p.Forget = append(p.Forget, irqs...)
	}
	slices.Sort(p.Gone)
	slices.Sort(p.Forget)
}

// goneWith reports whether an absent object disappeared with its device or control group. Then
// there is nothing to restore.
func goneWith(st *device.State, o device.Object) bool {
	if f, ok := o.(device.File); ok && strings.HasPrefix(path.Base(f.Path), "cpuset.") || irqFile(o) {
		return true
	}
	dev := device.DeviceOf(o)
	return dev != "" && st.Device(dev) == nil
}

func irqFile(o device.Object) bool {
	f, ok := o.(device.File)
	return ok && strings.HasPrefix(f.Path, "/proc/irq/")
}

// ledTo returns the keys of RSS contexts that a present rule leads to, although its packets now
// belong to another lane. The kernel refuses to remove a context while a rule leads to it, and to
// remove channels while a context uses them. Steps that remove these contexts, or channels,
// therefore come last.
func ledTo(present map[string]device.Object, wants []want) map[string]bool {
	keys := map[string]bool{}
	for _, w := range wants {
		if now, ok := present[w.key].(device.Rule); ok && now.Context != 0 && !device.Equal(now, w.value()) {
			keys[device.RSSTable{Dev: now.Dev, Context: now.Context}.Key()] = true
		}
	}
	return keys
}

// rulesFirst moves the removal of a rule before the removal of its context. The steps can have
// the opposite order: a rule is older than its context if it led to another context first.
func rulesFirst(steps []Step) []Step {
	contexts := map[string]bool{} // removed by an earlier step
	before := map[string][]Step{} // rules to move, by context
	moved := map[int]bool{}
	for i, s := range steps {
		switch o := s.Old.(type) {
		case device.RSSTable:
			contexts[s.Key()] = s.New == nil
		case device.Rule:
			key := device.RSSTable{Dev: o.Dev, Context: o.Context}.Key()
			if s.New == nil && contexts[key] {
				before[key], moved[i] = append(before[key], s), true
			}
		}
	}
	if len(moved) == 0 {
		return steps
	}
	out := make([]Step, 0, len(steps))
	for i, s := range steps {
		if !moved[i] {
			out = append(append(out, before[s.Key()]...), s)
		}
	}
	return out
}

// fewerChannels reports whether a step reduces the number of channels.
func fewerChannels(s Step) bool {
	was, ok := s.Old.(device.Channels)
	is, both := s.New.(device.Channels)
	return ok && both && (is.Combined < was.Combined || is.RX < was.RX || is.TX < was.TX)
}

// Undo returns the steps that restore everything in owned. This is the plan of a rollback.
func Undo(st *device.State, owned Owned) []Step {
	return diff(nil, st.Objects(), owned, owned.keys(), nil, nil)
}
