// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"errors"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/traffic/flow"
	"github.com/niclane/niclane/lane/device"
)

// TestFormerProgram: the entries of a classifier that an older version attached are read and
// written. It gets none that it does not know.
func TestFormerProgram(t *testing.T) {
	m := &maps{filter: device.Filter{Dev: "d0", Parent: TCXEgress, Program: EgressProgram}}
	spec, err := loadEgress()
	must.Do(t, err)
	for name, s := range spec.Maps {
		if s.Key, s.Value = nil, nil; name == egressMapNlFlows {
			s.ValueSize = formerTarget
		}
		switch name {
		case ".rodata", egressMapNlRanks, egressMapNlClocks, egressMapNlFlowClocks, egressMapNlMembers, egressMapNlActive:
			continue // the program's own
		}
		em, err := ebpf.NewMap(s)
		if errors.Is(err, unix.EPERM) {
			t.Skip("bpf(2): no permission")
		}
		must.Do(t, err)
		info, err := em.Info()
		must.Do(t, err)
		if !m.take(em, info) {
			t.Errorf("map %s is not taken", name)
		}
	}
	t.Cleanup(func() { m.close() })
	if !m.complete() || !m.former {
		t.Fatalf("complete %v, former %v", m.complete(), m.former)
	}
	c := &Client{last: m}
	key := m.filter.Key()
	first := device.FilterEntry{Filter: key, Match: device.Match{Family: 4, Protocol: "tcp", LocalPort: 80},
		Priority: "1:10", Queues: []int{2, 3}}
	second := device.FilterEntry{Filter: key, Match: device.Match{Family: 4, Protocol: "tcp", LocalPort: 81},
		Priority: "1:11"}
	for _, e := range []device.FilterEntry{first, second} {
		must.Do(t, c.Write(nil, e))
	}
	changed := second
	changed.Queues = []int{7}
	must.Do(t, c.Write(second, changed))
	all, err := listed(m.lister())
	must.Do(t, err)
	slices.SortFunc(all, func(a, b device.FilterEntry) int { return int(a.Match.LocalPort) - int(b.Match.LocalPort) })
	if len(all) != 2 || !device.Equal(all[0], first) || !device.Equal(all[1], changed) {
		t.Errorf("entries %+v", all)
	}
	if got, err := c.Read(changed); err != nil || !device.Equal(got, changed) {
		t.Errorf("%+v, %v", got, err)
	}
	must.Do(t, c.Write(changed, nil))
	marked := first
	marked.DSCP = "ef"
	must.Refuse(t, "a DSCP", c.Write(first, marked), unix.EOPNOTSUPP)
	tagged := first
	tagged.PCP = "5"
	must.Refuse(t, "a PCP", c.Write(first, tagged), unix.EOPNOTSUPP)
	must.Refuse(t, "a network", c.Write(nil, device.FilterEntry{Filter: key,
		Match: device.Match{Family: 4, Remote: "10.2.0.0/16"}}), unix.EOPNOTSUPP)
	if keys, _, err := flow.Entries[[formerTarget]byte](m.flows); err != nil || len(keys) != 1 {
		t.Errorf("%d entries at the end, %v", len(keys), err)
	}
}
