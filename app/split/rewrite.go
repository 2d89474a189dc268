// SPDX-License-Identifier: Apache-2.0

package split

import (
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/intent"
)

// rewrite returns the text of the lanes file with the lane divided. The other content of the file
// stays, but its comments are lost.
func (d *division) rewrite(text []byte) (string, error) {
	var doc yaml.MapSlice
	if err := yaml.UnmarshalWithOptions(text, &doc, yaml.UseOrderedMap()); err != nil {
		return "", err // cannot happen: the file was parsed before
	}
	for i := range doc {
		if fmt.Sprint(doc[i].Key) != "lanes" {
			continue
		}
		lanes, ok := doc[i].Value.(yaml.MapSlice)
		if !ok {
			return "", Error{"lanes", "want a mapping"}
		}
		doc[i].Value = d.lanes(lanes)
	}
	out, err := yaml.MarshalWithOptions(doc, yaml.Indent(2), yaml.IndentSequence(true))
	return string(out), err
}

// lanes replaces the lane by the divided lanes.
func (d *division) lanes(all yaml.MapSlice) yaml.MapSlice {
	var out yaml.MapSlice
	for _, l := range all {
		keys, ok := l.Value.(yaml.MapSlice)
		if fmt.Sprint(l.Key) != d.lane.Name || !ok {
			out = append(out, l)
			continue
		}
		if d.Content == Duplicate {
			out = append(out, yaml.MapItem{Key: l.Key, Value: d.one(keys)})
			continue
		}
		for i := range d.instances {
			out = append(out, yaml.MapItem{Key: d.instances[i].Lane, Value: d.shard(keys, &d.instances[i])})
		}
	}
	return out
}

// one returns the lane that all instances share. It has as many processors as queues. The
// processors are in ascending order, and the Nth one serves queue N.
func (d *division) one(keys yaml.MapSlice) yaml.MapSlice {
	if d.DropGroups {
		for _, name := range []string{"cgroup", "cgroup-cpus", "cgroup-mems"} {
			keys = set(keys, name, nil)
		}
	}
	if d.local {
		return set(set(keys, "cpus", nil), "numa", string(intent.NUMALocal))
	}
	var cpus []int
	for _, x := range d.instances {
		cpus = append(cpus, x.Polling...)
	}
	slices.Sort(cpus)
	keys = set(set(keys, "numa", nil), "queues", len(cpus))
	if n := d.lane.Poller.Count; n > 0 {
		keys = set(keys, "pollers", min(n*len(d.instances), len(cpus)))
	}
	return set(keys, "cpus", device.FormatCPUList(cpus))
}

// shard returns the lane of one instance. Each instance gets an equal part of the lane's guarantee
// and ceiling.
func (d *division) shard(keys yaml.MapSlice, x *Instance) yaml.MapSlice {
	keys = set(set(keys, "numa", nil), "cpus", device.FormatCPUList(x.Polling))
	keys = set(keys, "queues", len(x.Polling))
	keys = set(keys, "addrs", []string{x.Addrs[0].String()})
	if r := d.lane.Bandwidth.Guarantee; !r.IsZero() {
		keys = set(keys, "guarantee", share(r, len(d.instances)))
	}
	if r := d.lane.Bandwidth.Ceiling; !r.IsZero() {
		keys = set(keys, "ceiling", share(r, len(d.instances)))
	}
	return keys
}

// share returns a rate divided by n. It is rounded down to a value that a lanes file can express.
func share(r intent.Rate, n int) string {
	if r.Permille > 0 {
		p := max(r.Permille/n, 1)
		return fmt.Sprintf("%d.%d%%", p/10, p%10)
	}
	return fmt.Sprintf("%dbit", r.BitsPerSecond/uint64(n))
}

// set returns a copy of a mapping in which a key has the given value. If value is nil, the copy
// does not have the key. Upper and lower case make no difference in keys.
func set(keys yaml.MapSlice, name string, value any) yaml.MapSlice {
	var out yaml.MapSlice
	done := value == nil
	for _, k := range keys {
		if strings.EqualFold(fmt.Sprint(k.Key), name) {
			if !done {
				out, done = append(out, yaml.MapItem{Key: name, Value: value}), true
			}
			continue
		}
		out = append(out, k)
	}
	if !done {
		out = append(out, yaml.MapItem{Key: name, Value: value})
	}
	return out
}
