// SPDX-License-Identifier: Apache-2.0

package adqsetup_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/lane/config"
	"github.com/niclane/niclane/lane/intent"
	"github.com/niclane/niclane/migrate/adqsetup"
)

// These tests are about weaknesses of adqsetup 2.0.2 that concern its files. W and a number refer
// to the list in docs/migrating-from-adqsetup.md. The document also says where the other weaknesses
// are tested.

func lanes(t *testing.T, source string) (*intent.Intent, *adqsetup.Result) {
	t.Helper()
	return lanesOn(t, "", source)
}

// lanesOn converts a file for a device. It returns the lanes and the conversion.
func lanesOn(t *testing.T, dev, source string) (*intent.Intent, *adqsetup.Result) {
	t.Helper()
	res, err := adqsetup.Convert("adq.conf", dev, []byte(source))
	must.Do(t, err)
	in, err := config.Parse("lanes.yaml", []byte(res.Lanes))
	must.Do(t, err)
	return in, res
}

// refused checks that Convert reports exactly the problems in want, each on one line.
func refused(t *testing.T, source string, want ...string) {
	t.Helper()
	_, err := adqsetup.Convert("adq.conf", "", []byte(source))
	if err == nil {
		t.Fatalf("taken: %s", source)
	}
	got := strings.Split(err.Error(), "\n")
	if len(got) != len(want) {
		t.Fatalf("got %q, want %d problems", got, len(want))
	}
	for i := range want {
		if !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("got %q, want %q", got[i], want[i])
		}
	}
}

const web = "[globals]\ndev = eth4\n[web]\nqueues = 2\nports = 80\n"

// TestW5FormatsAgree: adqsetup reads INI only with a Python before 3.12. In niclane, both formats
// must work and mean the same.
func TestW5FormatsAgree(t *testing.T) {
	ini, _ := lanes(t, web+"addrs = 10.0.0.1,10.0.0.2\nprotocol = udp\n")
	object, _ := lanes(t, `{"globals": {"dev": "eth4"}, "web": {"queues": 2, "ports": 80, "addrs": ["10.0.0.1", "10.0.0.2"], "protocol": "udp"}}`)
	a, _ := json.Marshal(ini)
	b, _ := json.Marshal(object)
	if string(a) != string(b) || len(ini.Lanes) != 1 {
		t.Errorf("INI:  %s\nJSON: %s", a, b)
	}
}

// TestW7NUMANode: adqsetup's documents have numa = 1, but its code raises KeyError.
func TestW7NUMANode(t *testing.T) {
	in, _ := lanes(t, web+"numa = 1\n")
	if got := in.Lanes[0].NUMA; got != "1" {
		t.Errorf("numa: got %q, want node 1", got)
	}
	_, res := lanes(t, "[globals]\ndev = eth4\nnuma = all\n[web]\nqueues = 2\nports = 80\nnuma = all\n")
	var noted []string
	for _, n := range res.Notes {
		if strings.HasSuffix(n.Path, ".numa") {
			noted = append(noted, n.Path)
		}
	}
	if want := []string{"web.numa"}; !slices.Equal(noted, want) { // in globals, all is niclane's default
		t.Errorf("notes: got %q, want %q", noted, want)
	}
	refused(t, web+"numa = near\n", `adq.conf:6: web.numa: found "near", want local, remote, all`)
}

// TestW12Unknown: adqsetup ignores unknown keys and words. niclane must refuse them.
func TestW12Unknown(t *testing.T) {
	refused(t, web+"pollrs = 2\n", "adq.conf:6: web.pollrs: unknown key, which adqsetup ignores, did you mean pollers?")
	refused(t, web+"mode = sharde\n", `adq.conf:6: web.mode: found "sharde"`)
	refused(t, "[globals]\npriority = netprio\ndev = eth4\n[web]\nqueues = 2\nports = 80\n",
		`adq.conf:2: globals.priority: found "netprio"`)
	refused(t, web+"busypoll = 50\n", "adq.conf:6: web.busypoll: is a key of [globals]")
}

// TestW13IPv6: with IPv6 addresses, adqsetup raises ValueError in the middle of an apply. niclane
// must accept them.
func TestW13IPv6(t *testing.T) {
	in, _ := lanes(t, web+"addrs = fd00::1, 2001:db8::/48, 10.0.0.1\n")
	var got []string
	for _, p := range in.Lanes[0].Members[0].Addrs {
		got = append(got, p.String())
	}
	slices.Sort(got)
	if want := []string{"10.0.0.1/32", "2001:db8::/48", "fd00::1/128"}; !slices.Equal(got, want) {
		t.Errorf("addrs: got %q, want %q", got, want)
	}
	refused(t, web+"addrs = 10.0.0.0/33\n", `adq.conf:6: web.addrs: found "10.0.0.0/33"`)
}

// TestW14Counts: adqsetup checks the numbers of queues and ports only after it has removed the
// earlier set-up. niclane must check them when it reads the file.
func TestW14Counts(t *testing.T) {
	refused(t, "[globals]\ndev = eth4\n[web]\nqueues = 255\nports = 80\n",
		"adq.conf:4: web.queues: found 255, which brings the queues to 257 with the default ones, want at most 256")
	lanes(t, "[globals]\ndev = eth4\n[web]\nqueues = 254\nports = 80\n")
	refused(t, web+"mode = shared\n", "adq.conf:4: web.queues: found 2 with 1 ports and mode = shared")
	in, _ := lanes(t, "[globals]\ndev = eth4\n[web]\nports = 80,81,90\nmode = shared\n")
	if got := in.Lanes[0].Queues; got != 3 {
		t.Errorf("queues: got %d, want one per port: 3", got)
	}
	refused(t, web+"pollers = 3\n", "adq.conf:6: web.pollers: found 3, want at most one per queue: 2")
	refused(t, "[globals]\ndev = eth4\n[web]\nqueues = -4\nports = 80\n", "adq.conf:4: web.queues: found -4")
	refused(t, "[globals]\ndev = eth4\n[web]\nqueues = 2\nports = 0\n",
		"adq.conf:5: web.ports: found 0, want a port from 1")
}

// TestW15Rates: adqsetup's README describes rates, but version 2.0.2 sets none. From 2.1 on, a rate
// of 0 means no rate.
func TestW15Rates(t *testing.T) {
	in, _ := lanes(t, web+"min-rate = 1000\nmax-rate = 2500\n")
	if got := in.Lanes[0].Bandwidth; got.Guarantee.BitsPerSecond != 1e9 || got.Ceiling.BitsPerSecond != 2.5e9 {
		t.Errorf("bandwidth: got %+v, want 1 and 2.5 Gbit/s", got)
	}
	refused(t, web+"min-rate = 2000\nmax-rate = 1000\n", "adq.conf:6: web.min-rate: found 2gbit")
	in, _ = lanes(t, "[globals]\ndev = eth4\nmin-rate = 0\n[web]\nqueues = 2\nports = 80\nmin-rate = 2000\nmax-rate "+
		"= 0\n")
	if got := in.Lanes[0].Bandwidth; got.Guarantee.BitsPerSecond != 2e9 || !got.Ceiling.IsZero() ||
		!in.Default.Bandwidth.Guarantee.IsZero() {
		t.Errorf("bandwidth: got %+v, want 2 Gbit/s guaranteed and no ceiling", got)
	}
	for _, wrong := range []string{"10gbit", "-1", "1.5", "99999999999"} {
		refused(t, web+"max-rate = "+wrong+"\n", "adq.conf:6: web.max-rate: found \""+wrong+"\", want Mbit/s")
	}
}

// TestW18RingsAndFlags: in adqsetup, a txring above the card's limit changes rxring; niclane must
// keep rxring. In adqsetup, bpstop-cfg works only with bpstop; niclane notes the one that is on.
func TestW18RingsAndFlags(t *testing.T) {
	in, res := lanes(t, "[globals]\nbpstop-cfg = on\nbpstop = off\nrxring = 512\ntxring = 99999\ndev = "+
		"eth4\n[web]\nqueues = 2\nports = 80\n")
	if r := in.Default.Rings; r.Rx == nil || r.Tx == nil || *r.Rx != 512 || *r.Tx != 99999 {
		t.Errorf("rings: got %+v, want 512 and 99999", r)
	}
	if !slices.ContainsFunc(res.Notes, func(n adqsetup.Note) bool {
		return n.Line == 2 &&
			n.Path == "globals.bpstop-cfg"
	}) {
		t.Errorf("notes: got %v, want one of line 2", res.Notes)
	}
	if slices.ContainsFunc(res.Notes, func(n adqsetup.Note) bool { return n.Path == "globals.bpstop" }) {
		t.Errorf("notes: got %v, want none of what is off", res.Notes)
	}
}

// TestW20Overlap: adqsetup accepts the same port in two sections. niclane must refuse it.
func TestW20Overlap(t *testing.T) {
	refused(t, web+"[proxy]\nqueues = 1\nports = 70-90\n",
		"adq.conf:6: proxy: overlaps lanes.web (line 3): tcp to port 80 would belong to lanes web and proxy")
	lanes(t, web+"[proxy]\nqueues = 1\nports = 70-90\nprotocol = udp\n")
}

// TestPollersDecideWhoPolls checks that the lanes file states who polls. adqsetup decides this by
// itself, from pollers and busypoll.
func TestPollersDecideWhoPolls(t *testing.T) {
	for _, c := range []struct {
		name, globals, more string
		kind                intent.PollerKind
		busyPoll            int // -1: unchanged
	}{
		{"nothing", "", "", intent.PollerInterrupt, -1},
		{"busypoll", "busypoll = 50\n", "", intent.PollerApplication, 50},
		{"busypoll off", "busypoll = 0\n", "", intent.PollerInterrupt, 0},
		{"another has pollers", "busypoll = 50\n", "[db]\nqueues = 2\npollers = 1\nports = 5432\n", intent.PollerAuto,
			0},
		{"no pollers", "busypoll = 50\n", "[db]\nqueues = 2\npollers = 0\nports = 5432\n", intent.PollerApplication,
			50},
	} {
		t.Run(c.name, func(t *testing.T) {
			in, _ := lanes(t, "[globals]\ndev = eth4\n"+c.globals+"[web]\nqueues = 2\nports = 80\n"+c.more)
			if got := in.Lanes[0].Poller.Kind; got != c.kind {
				t.Errorf("poller: got %q, want %q", got, c.kind)
			}
			switch bp := in.Group.BusyPoll; {
			case c.busyPoll < 0 && bp != nil, c.busyPoll >= 0 && (bp == nil || *bp != c.busyPoll):
				t.Errorf("busypoll: got %v, want %d", bp, c.busyPoll)
			}
		})
	}
}

// TestModerationIsTheApplications checks that moderation applies to the queues of the applications,
// not to those of the default lane.
func TestModerationIsTheApplications(t *testing.T) {
	in, _ := lanes(t, "[globals]\ndev = eth4\nrxusecs = 500\nrxadapt = 0\n[web]\nqueues = 2\nports = 80\n")
	if m := in.Default.Moderation; m != (intent.Moderation{}) {
		t.Errorf("default lane: got %+v, want none", m)
	}
	if m := in.Lanes[0].Moderation; m.RxUsecs == nil || *m.RxUsecs != 500 || m.RxAdapt == nil || *m.RxAdapt {
		t.Errorf("lane: got %+v, want 500 µs, not adaptive", m)
	}
}
