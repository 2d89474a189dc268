// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	y "github.com/niclane/niclane/internal/strictyaml"
	"github.com/niclane/niclane/lane/config"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/plan"
)

// variantPath returns the path of the variant with that name.
func (r *reader) variantPath(name string) string {
	i := slices.IndexFunc(r.e.Variants, func(v Variant) bool { return v.Name == name })
	return fmt.Sprintf("variants[%d]", i)
}

// variant finds a variant by name. path is the path of the key that refers to the variant.
func (r *reader) variant(path, name string) *Variant {
	for i := range r.e.Variants {
		if r.e.Variants[i].Name == name {
			return &r.e.Variants[i]
		}
	}
	var names []string
	for _, v := range r.e.Variants {
		names = append(names, v.Name)
	}
	// If the name of a variant could not be read, it may be the name that is missing here.
	if r.Given(path) && r.fine(path) && len(names) > 0 && !slices.Contains(names, "") {
		r.Failf(path, "found %s, want the name of a variant: %s", y.Quote(name), y.OneOf(names))
	}
	return nil
}

func (r *reader) checkVariants() {
	if len(r.e.Variants) == 0 {
		return
	}
	r.variant("base", r.e.Base)
	for i := range r.e.Variants {
		v := &r.e.Variants[i]
		path := fmt.Sprintf("variants[%d]", i)
		if !r.fine(path) {
			continue
		}
		if v.Noise && !r.Given("noise") {
			r.Failf(path+".noise", "found on, want noise for it at the top of the file")
		}
		r.checkVariantServer(path, v)
		r.checkNAPIIDs(path, v)
		switch {
		case v.Lanes != "" && v.LanesFile != "":
			r.Failf(path+".lanes-file", "found beside lanes (line %d), want one of the two", r.Line(path+".lanes"))
		case r.Given(path + ".lanes"):
			r.checkLanes(path+".lanes", v.Lanes, r.texts[i].server, laneNames)
			r.checkLaneCounts(path, v)
		case v.noLanes():
			r.refuse("no lanes, want lanes or lanes-file", path+".force")
		}
		if v.ClientLanes != "" {
			r.checkLanes(path+".client-lanes", v.ClientLanes, r.texts[i].client, clientLaneNames)
			r.checkClientDevices(path + ".client-lanes")
		}
		for _, part := range slices.Sorted(maps.Keys(v.Force)) {
			if known := plan.Mechanisms(device.Part(part)); !slices.Contains(known, v.Force[part]) {
				r.Failf(path+".force."+part, "found %s, want %s", y.Quote(v.Force[part]), y.OneOf(known))
			}
		}
		for j := range r.e.Variants[:i] {
			o := &r.e.Variants[j]
			switch line := r.Line(fmt.Sprintf("variants[%d]", j)); {
			case o.Name == v.Name:
				r.Failf(path+".name", "found %s a second time, first in line %d", y.Quote(v.Name), line)
			case o.same(v):
				r.Failf(path, "does not differ from %s (line %d), want other lanes, lane-policy, force, noise, server "+
					"or tune", o.Name, line)
			}
		}
	}
}

// same reports whether two variants differ only in name and title.
func (v *Variant) same(o *Variant) bool {
	return o.Noise == v.Noise && o.Lanes == v.Lanes && o.LanesFile == v.LanesFile && o.ClientLanes == v.ClientLanes &&
		o.LanePolicy == v.LanePolicy &&
		maps.Equal(o.Force, v.Force) && reflect.DeepEqual(o.Server, v.Server) && reflect.DeepEqual(o.Tune, v.Tune)
}

// checkLanes checks the lanes text of a variant with package config. It puts sample values in place
// of the names that the run replaces, such as $device.
func (r *reader) checkLanes(path, text string, v y.Value, names []string) {
	if !expands(v, text, names) {
		return
	}
	values := samples(names)
	if e := &r.e; r.fine("server", "workload.protocol", "hosts", "lab", "placement") {
		for name, value := range e.Known(nil) {
			if slices.Contains(names, name) {
				values[name] = value
			}
		}
		if e.Lab != nil && e.Lab.LinkRate > 0 {
			values[NameLink] = y.BitsText(e.Lab.LinkRate)
		}
		if e.Hosts != nil {
			text = e.Hosts.SUT.Bonded(text)
		}
	}
	expanded, _ := Expand(text, values)
	_, err := config.Parse(path, []byte(expanded))
	var errs config.Errors
	if !errors.As(err, &errs) {
		return
	}
	for _, e := range errs {
		message := e.Message
		if e.Path != "" {
			message = e.Path + ": " + message
		}
		v.FailLine(e.Line, "%s", message)
	}
}

// checkClientDevices refuses lanes for clients unless the hosts file gives a device for every
// client.
func (r *reader) checkClientDevices(path string) {
	if r.e.Hosts == nil {
		return
	}
	for _, c := range r.e.Hosts.Clients {
		if c.Device == "" {
			r.Failf(path, "found, but the hosts file has no device for client %s; want one for each client", c.Name)
		}
	}
}
