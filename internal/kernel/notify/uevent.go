// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"bytes"
	"strconv"
)

// ueventGroup is the kernel's multicast group; 2 is udev's.
const ueventGroup = 1

// uevents decodes one uevent: "ACTION@PATH", then KEY=VALUE, each ended by a zero byte
// (lib/kobject_uevent.c).
func (s *Source) uevents(b []byte) []Event {
	e, ok := uevent(b)
	if !ok || e.Detail != "cpu" && !s.interest.of(e.Device, e.Index) {
		return nil
	}
	return []Event{e}
}

// uevent accepts uevents of interfaces, and of CPUs that go online or offline.
func uevent(b []byte) (Event, bool) {
	e := Event{Source: "uevent"}
	for _, field := range bytes.Split(b, []byte{0}) {
		key, value, ok := bytes.Cut(field, []byte{'='})
		if !ok {
			continue
		}
		switch string(key) {
		case "ACTION":
			e.What = string(value)
		case "SUBSYSTEM":
			e.Detail = string(value)
		case "INTERFACE":
			e.Device = string(value)
		case "IFINDEX":
			e.Index, _ = strconv.Atoi(string(value))
		}
	}
	return e, e.What != "" && (e.Detail == "net" || e.Detail == "cpu")
}
