// SPDX-License-Identifier: Apache-2.0

package params

import (
	"reflect"
	"strings"
	"testing"
)

func TestDecode(t *testing.T) {
	const head = `{"apiVersion":"niclane.dev/v1alpha1","kind":"LaneParameters"`
	p, err := Decode([]byte(head + `,"ports":["6379","53/UDP"],"remoteAddrs":["192.0.2.0/24"]}`))
	if err != nil {
		t.Fatal(err)
	}
	want := &Parameters{Ports: []string{"6379", "53/UDP"}, RemoteAddrs: []string{"192.0.2.0/24"}}
	if !reflect.DeepEqual(p, want) {
		t.Errorf("got %+v, want %+v", p, want)
	}
	for name, c := range map[string]struct{ in, want string }{
		"unknown field":      {head + `,"port":["1"]}`, `unknown field "port"`},
		"another kind":       {`{"apiVersion":"niclane.dev/v1alpha1","kind":"X"}`, `kind "X"`},
		"something behind":   {head + `} {}`, "after the JSON"},
		"port above 65535":   {head + `,"ports":["70000"]}`, `ports[0]: found "70000"`},
		"every problem":      {head + `,"ports":["0"],"remotePorts":["80/SCTP"]}`, "SCTP"},
		"bits behind":        {head + `,"remoteAddrs":["10.0.0.1/24"]}`, "want 10.0.0.0/24"},
		"too long":           {strings.Repeat(" ", MaxBytes+1), "at most"},
		"not even an object": {`[]`, "not the JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Decode([]byte(c.in)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want something with %q", err, c.want)
			}
		})
	}
}

func TestParsePorts(t *testing.T) {
	for in, want := range map[string][]Ports{
		"80":            {{"tcp", 80, 80}},
		"80/TCP":        {{"tcp", 80, 80}},
		"53/udp":        {{"udp", 53, 53}},
		"8000-8010/TCP": {{"tcp", 8000, 8010}},
		"all/UDP":       {{"udp", 0, 0}},
		"all":           {{"tcp", 0, 0}, {"udp", 0, 0}},
	} {
		if got, err := ParsePorts(in); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: got %v, %v, want %v", in, got, err, want)
		}
	}
	for _, in := range []string{"", "x", "0", "65536", "+80", "080", "80-", "-80", "90-80", "80/", "80/SCTP", "all/",
		"80/TCP/UDP", " 80"} {
		if got, err := ParsePorts(in); err == nil {
			t.Errorf("%q: got %v, want an error", in, got)
		}
	}
}

// TestFrontends checks that a claim's parameters cannot name frontends, as an annotation cannot.
func TestFrontends(t *testing.T) {
	_, err := Decode([]byte(`{"apiVersion":"niclane.dev/v1alpha1","kind":"LaneParameters","frontends":["10250"]}`))
	if err == nil || !strings.Contains(err.Error(), "frontends: not taken any more") {
		t.Errorf("got %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"apiVersion":"niclane.dev/v1alpha1","kind":"LaneParameters","ports":["1-65535/UDP"]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		p, err := Decode(raw)
		if err != nil {
			return
		}
		for _, s := range append(p.Ports, p.RemotePorts...) {
			if _, err := ParsePorts(s); err != nil {
				t.Errorf("%q was taken", s)
			}
		}
		if len(p.Remotes()) != len(p.RemoteAddrs) {
			t.Errorf("%q: an address was lost", raw)
		}
	})
}
