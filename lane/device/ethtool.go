// SPDX-License-Identifier: Apache-2.0

package device

import (
	"fmt"
	"slices"
)

// Channels are the channel counts in use, as in ethtool -l.
type Channels struct {
	Dev      string `json:"dev"`
	RX       int    `json:"rx"`
	TX       int    `json:"tx"`
	Combined int    `json:"combined"`
}

// Kind implements Object.
func (Channels) Kind() string { return "channels" }

// Key implements Object.
func (c Channels) Key() string { return "channels/" + c.Dev }

// Brief implements Object.
func (c Channels) Brief() string {
	return fmt.Sprintf("rx %d tx %d combined %d", c.RX, c.TX, c.Combined)
}

func (c Channels) commands(Change) []string {
	if c.Combined > 0 {
		return one(fmt.Sprintf("ethtool -L %s combined %d", c.Dev, c.Combined))
	}
	return one(fmt.Sprintf("ethtool -L %s rx %d tx %d", c.Dev, c.RX, c.TX))
}

func (d *Device) putChannels(_ Channels, next Object) {
	c, ok := next.(Channels)
	if !ok {
		return
	}
	d.Channels, d.RxQueues, d.TxQueues = &c, c.RX+c.Combined, c.TX+c.Combined
	for i, t := range d.RSS {
		if t.Context == 0 && !t.Configured { // the driver spreads its own table over all queues
			d.RSS = slices.Clone(d.RSS)
			d.RSS[i] = t.OfClasses(Qdisc{}, d.RxQueues, false)
		}
	}
}

func (d *Device) channels(yield func(Object)) {
	if d.Channels != nil {
		yield(*d.Channels)
	}
}

// Coalesce is the interrupt moderation of a device (Queue -1) or of one queue
// (ETHTOOL_PERQUEUE).
type Coalesce struct {
	Dev     string `json:"dev"`
	Queue   int    `json:"queue"`
	RxUsecs int    `json:"rxUsecs"`
	TxUsecs int    `json:"txUsecs"`
	RxAdapt bool   `json:"rxAdapt"`
	TxAdapt bool   `json:"txAdapt"`
}

// Kind implements Object.
func (Coalesce) Kind() string { return "coalesce" }

// Key implements Object.
func (c Coalesce) Key() string { return fmt.Sprintf("coalesce/%s/%d", c.Dev, c.Queue) }

// Brief implements Object.
func (c Coalesce) Brief() string {
	return fmt.Sprintf("rx-usecs %d tx-usecs %d adaptive %s/%s", c.RxUsecs, c.TxUsecs, onOff(c.RxAdapt),
		onOff(c.TxAdapt))
}

func (c Coalesce) commands(Change) []string {
	args := fmt.Sprintf("adaptive-rx %s adaptive-tx %s rx-usecs %d tx-usecs %d", onOff(c.RxAdapt), onOff(c.TxAdapt),
		c.RxUsecs, c.TxUsecs)
	if c.Queue >= 0 {
		return one(fmt.Sprintf("ethtool -Q %s queue_mask 0x%s --coalesce %s", c.Dev, FormatMask([]int{c.Queue}), args))
	}
	return one(fmt.Sprintf("ethtool -C %s %s", c.Dev, args))
}

func (c Coalesce) queue() int { return c.Queue }

func (d *Device) putCoalesce(c Coalesce, next Object) {
	if c.Queue >= 0 {
		replace(&d.QueueCoal, c, next)
		return
	}
	d.Coalesce = nil
	if now, ok := next.(Coalesce); ok {
		d.Coalesce = &now
	}
}

func (d *Device) coalesces(yield func(Object)) {
	if d.Coalesce != nil {
		yield(*d.Coalesce)
	}
	for _, c := range d.QueueCoal {
		if c.Queue < max(d.RxQueues, d.TxQueues) {
			yield(c)
		}
	}
}

// Ring is a device's descriptor ring sizes.
type Ring struct {
	Dev string `json:"dev"`
	RX  int    `json:"rx"`
	TX  int    `json:"tx"`
}

// Kind implements Object.
func (Ring) Kind() string { return "ring" }

// Key implements Object.
func (r Ring) Key() string { return "ring/" + r.Dev }

// Brief implements Object.
func (r Ring) Brief() string { return fmt.Sprintf("rx %d tx %d", r.RX, r.TX) }

func (r Ring) commands(_ Change) []string {
	return one(fmt.Sprintf("ethtool -G %s rx %d tx %d", r.Dev, r.RX, r.TX))
}

func (d *Device) putRing(_ Ring, next Object) {
	d.Ring = nil
	if now, ok := next.(Ring); ok {
		d.Ring = &now
	}
}

func (d *Device) rings(yield func(Object)) {
	if d.Ring != nil {
		yield(*d.Ring)
	}
}

// A Feature is one of ethtool's netdev features ("rx-gro").
type Feature struct {
	Dev  string `json:"dev"`
	Name string `json:"name"`
	On   bool   `json:"on"`
}

// Kind implements Object.
func (Feature) Kind() string { return "feature" }

// Key implements Object.
func (f Feature) Key() string { return "feature/" + f.Dev + "/" + f.Name }

// Brief implements Object.
func (f Feature) Brief() string { return onOff(f.On) }

func (f Feature) commands(_ Change) []string {
	return one(fmt.Sprintf("ethtool -K %s %s %s", f.Dev, f.Name, onOff(f.On)))
}

func (d *Device) putFeature(f Feature, next Object) {
	if now, ok := next.(Feature); ok {
		setting := d.Features[f.Name]
		setting.On = now.On
		d.Features[f.Name] = setting
	}
}

func (d *Device) features(yield func(Object)) {
	for name, f := range d.Features {
		yield(Feature{Dev: d.Name, Name: name, On: f.On})
	}
}
