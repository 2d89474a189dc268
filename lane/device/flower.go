// SPDX-License-Identifier: Apache-2.0

package device

// A Flower is a flower filter on a device's ingress that the card alone looks
// at (skip_sw): packets that match go to the queues of a traffic class of
// mqprio's (hw_tc).
type Flower struct {
	Dev   string `json:"dev"`
	Match Match  `json:"match"`
	// Class is 1 to 15; 0, the default, takes no filters.
	Class int `json:"class"`
	// Pref is the preference of one that is at another place than niclane's,
	// and so somebody else's; 0 for niclane's own.
	Pref uint16 `json:"pref,omitempty"`
}

// Kind implements Object.
func (Flower) Kind() string { return "flower" }

// Key implements Object.
func (f Flower) Key() string {
	var b [128]byte
	return string(f.Match.AppendTo(append(append(append(b[:0], "flower/"...), f.Dev...), '/')))
}
