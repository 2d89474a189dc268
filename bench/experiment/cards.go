// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"fmt"
	"regexp"

	y "github.com/niclane/niclane/internal/strictyaml"
)

// A Card is one of several devices of a host in the measured network.
type Card struct {
	Device string `json:"device"`
	// Address is the host's address on this card; "" for a slave of a bond.
	Address string `json:"address,omitempty"`
	// CPUs are the processors that poll the queues of lanes on the card; nil: niclane chooses them.
	CPUs []int `json:"cpus,omitempty"`
}

// maxCards is the largest number of cards of a host: two more than the papers' bonds have.
const maxCards = 10

func cardKeys() []y.Key[Card] {
	return []y.Key[Card]{
		y.Of("device", y.NetworkDevice(), "required",
			"Device in the measured network, for lanes.",
			func(c *Card, x string) { c.Device = x }),
		y.Of("address", address(), "required without `bond`",
			"Address of the host on this card.",
			func(c *Card, x string) { c.Address = x }),
		y.Of("cpus", cpus(), "niclane chooses them",
			"Processors that poll the queues of lanes on this card: `$pollcpus`.",
			func(c *Card, x []int) { c.CPUs = x }),
	}
}

func cards() y.Kind[[]Card] {
	return y.Sections("card", "a list of cards, each with device and address", maxCards, cardKeys,
		func(y.Value) Card { return Card{} })
}

// Ports returns the cards of a host. A host without cards has one, by Device and Address.
func (h *Host) Ports() []Card {
	if len(h.Cards) > 0 {
		return h.Cards
	}
	return []Card{{Device: h.Device, Address: h.Address}}
}

// Addresses returns the addresses of a host in the measured network.
func (h *Host) Addresses() []string {
	if len(h.Cards) == 0 || h.Bond != "" {
		return []string{h.Address}
	}
	var out []string
	for _, c := range h.Cards {
		out = append(out, c.Address)
	}
	return out
}

// More returns the devices of a host after the first one.
func (h *Host) More() (out []string) {
	for _, c := range h.Ports()[1:] {
		out = append(out, c.Device)
	}
	return out
}

// Names returns the names of lanes texts that differ between the cards of a host, with their values.
func (c Card) Names() map[string]string {
	out := map[string]string{NameDevice: c.Device, NamePollCPUs: "auto"}
	if c.Address != "" {
		out[NameAddress] = c.Address
	}
	if len(c.CPUs) > 0 {
		out[NamePollCPUs] = CPUsText(c.CPUs)
	}
	return out
}

var deviceKey = regexp.MustCompile(`\bdev:[ \t]*\$device\b`)

// Bonded returns a lanes text for the host: on a bond, the lanes are on its slaves, by the key bond.
func (h *Host) Bonded(text string) string {
	if h.Bond == "" {
		return text
	}
	return deviceKey.ReplaceAllLiteralString(text, "bond: "+h.Bond)
}

// completeCards gives a host with cards the device and the address of the first one.
func (h *Host) completeCards() {
	if len(h.Cards) == 0 {
		return
	}
	h.Device = h.Cards[0].Device
	if h.Bond == "" {
		h.Address = h.Cards[0].Address
	}
}

// checkCards refuses cards that contradict the host's other keys or each other.
func (r *reader) checkCards(path string, h *Host) {
	r.needEach("card", path+".cards", len(h.Cards))
	if len(h.Cards) == 0 {
		r.refuse("no cards, want cards: the bond's slaves", path+".bond")
		if !r.Given(path+".address") && r.Given(path) {
			r.Failf(path, "address is missing, want %s", address().Want)
		}
		return
	}
	r.refuse("cards (line "+fmt.Sprint(r.Line(path+".cards"))+"), want the device there", path+".device")
	if h.Bond == "" {
		r.refuse("cards (line "+fmt.Sprint(r.Line(path+".cards"))+"), want an address for each card there",
			path+".address")
	} else if !r.Given(path + ".address") {
		r.Failf(path, "address is missing, want the address of bond %s", h.Bond)
	}
	for i, c := range h.Cards {
		at := fmt.Sprintf("%s.cards[%d]", path, i)
		switch {
		case h.Bond != "":
			r.refuse("bond: "+h.Bond+", which has the address", at+".address")
		case c.Address == "" && r.fine(at):
			r.Failf(at, "address is missing, want %s", address().Want)
		}
		for j, o := range h.Cards[:i] {
			line := r.Line(fmt.Sprintf("%s.cards[%d]", path, j))
			if o.Device == c.Device && c.Device != "" {
				r.Failf(at+".device", "found the device of another card (line %d); each card has its own", line)
			}
			if same(o.Address, c.Address) {
				r.Failf(at+".address", "found the address of another card (line %d); each card has its own", line)
			}
		}
	}
}

// needEach reports required keys that the items of a list lack.
func (r *reader) needEach(ref, path string, n int) {
	for i := range n {
		r.needOf(hostsSections(), ref, fmt.Sprintf("%s[%d]", path, i))
	}
}

// checkSpread refuses what cannot be divided among the addresses of a SUT with several cards.
func (r *reader) checkSpread() {
	if r.on == nil {
		return
	}
	n := len(r.on.SUT.Addresses())
	if n == 1 {
		if len(r.on.SUT.Cards) > 0 && r.e.Server.Kind == KindPod {
			r.Failf("server.kind", "found pod, but the hosts file's sut has a bond; want its device")
		}
		return
	}
	if r.e.Server.Kind == KindPod {
		r.Failf("server.kind", "found pod, which has one address, but the hosts file's sut has %d cards; want one", n)
	}
	if g := r.e.Load.Generators; g%n != 0 && r.fine("load") {
		r.Failf("load", "%d generators of the hosts file cannot be divided among the %d addresses of its sut, want a "+
			"multiple of %d", g, n, n)
	}
	if len(r.e.Noise) > 0 && r.on.Noise != nil && len(r.on.Noise.Addresses()) != n {
		r.Failf("noise", "found, but the hosts file's noise has %d addresses for the %d of its sut; want cards there, "+
			"one for each", len(r.on.Noise.Addresses()), n)
	}
}
