// SPDX-License-Identifier: Apache-2.0

// Package systemd_test boots a Debian with systemd in QEMU. niclane is installed from its package.
// The tests check that the unit that niclane persist writes makes the lanes at boot and keeps them.
package systemd_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// card is a lanes file for one of the guest's cards. HTB has classes, so that there is more to damage.
const card = `version: 1
globals: {dev: %s, link-rate: 1gbit, force: {%s, bandwidth: htb}}
lanes:
  web: {queues: 1, guarantee: 20%%, cpus: 1, ports: [80]}
`

// refused matches messages that say that an operation is not allowed, by the kernel or by a
// sandbox.
var refused = regexp.MustCompile(`(?i)not permitted|not implemented|denied|read-only`)

func TestSystemd(t *testing.T) {
	series := os.Getenv("NICLANE_TEST_SYSTEMD")
	if series == "" {
		t.Skip("make test-systemd boots a Debian in QEMU: it takes minutes")
	}
	if os.Geteuid() != 0 {
		t.Skip("not root: a root directory of its own needs it")
	}
	packages := filepath.Join(t.TempDir(), "packages")
	command(t, "../../dist/build", packages)
	debs, err := filepath.Glob(filepath.Join(packages, "niclane_*.deb"))
	if err != nil || len(debs) != 1 {
		t.Fatal(debs, err)
	}
	g := newGuest(t, series, debs[0])
	t.Log(g.do("uname -sr; systemctl --version | head -n 1; dpkg-query -W -f '${Package} ${Version}\n' irqbalance " +
		"iproute2"))
	g.do("udevadm settle") // wait until the cards have their names
	virtio, e1000e := g.device(cardMAC), g.device(otherMAC)
	before := g.state()
	g.do("dpkg -i /niclane.deb")
	t.Log("systemd's sockets")
	g.suggests(virtio)
	for _, dev := range []string{virtio, e1000e} {
		force, options := "queue-set: xdp-cpumap", "--waits "
		if dev == e1000e {
			force, options = "queue-set: shared", ""
		}
		g.do("cat >/etc/niclane/" + dev + ".yaml <<'END'\n" + fmt.Sprintf(card, dev, force) +
			"END\nniclane persist " + options + "/etc/niclane/" + dev + ".yaml")
	}
	a, b := g.service(virtio), g.service(e1000e)

	t.Log("a boot")
	g.reboot()
	for _, s := range []*service{a, b} {
		s.until("begun: its lanes are kept")
		s.keeps()
		s.shows("Type", "notify")
		s.shows("ActiveState", "active")
		s.shows("NRestarts", "0")
		s.shows("WatchdogUSec", "1min")
		if text := s.show("StatusText"); !strings.Contains(text, "its lanes are kept") {
			t.Errorf("%s: status %q", s.unit, text)
		}
		if strings.TrimLeft(s.show("WatchdogTimestampMonotonic"), "0") == "" {
			t.Errorf("%s: the watchdog has heard nothing", s.unit)
		}
		if there, began := g.monotonic(s.deviceUnit(), "ActiveEnterTimestampMonotonic"),
			g.monotonic(s.unit, "ExecMainStartTimestampMonotonic"); began < there {
			t.Errorf("%s: started at %d µs, before its device at %d", s.unit, began, there)
		}
	}

	t.Log("waits")
	a.measures()

	t.Log("somebody's tc")
	for _, s := range []*service{a, b} {
		s.repairs("qdisc/"+s.dev+"/root: made again, 5 objects", "tc qdisc del dev "+s.dev+" root")
		s.repairs("class/"+s.dev+"/1:10: made again", "tc class change dev "+s.dev+" parent 1:1 classid 1:10 htb "+
			"rate 1mbit ceil 2mbit")
		s.repairs("filter/"+s.dev+"/egress/1/28268: made again", "tc filter del dev "+s.dev+" egress pref 1")
		s.says("failed "+s.dev+" qdisc/"+s.dev+"/root: not repaired",
			"tc qdisc replace dev "+s.dev+" root handle 7: pfifo")
		if got := g.do("tc qdisc show dev " + s.dev + " root"); !strings.Contains(got, "pfifo 7:") {
			t.Errorf("somebody's qdisc is gone: %s", got)
		}
		s.repairs("qdisc/"+s.dev+"/root: made again, 5 objects", "tc qdisc del dev "+s.dev+" root")
	}

	t.Log("links and drivers")
	for _, s := range []*service{a, b} {
		s.says("waiting "+s.dev+": it is down", "ip link set "+s.dev+" down")
		g.do("ip link set " + s.dev + " up")
		s.keeps()
	}
	for s, module := range map[*service]string{a: "virtio_net", b: "e1000e"} {
		s.says("waiting "+s.dev+": there is no device of that name", "modprobe -r "+module)
		s.repairs("device/"+s.dev, "modprobe "+module)
		parent := g.do("basename $(readlink -f /sys/class/net/" + s.dev + "/device)")
		driver := g.do("readlink -f /sys/class/net/" + s.dev + "/device/driver")
		s.says("waiting "+s.dev+": there is no device of that name", "echo "+parent+" >"+driver+"/unbind")
		s.repairs("device/"+s.dev, "echo "+parent+" >"+driver+"/bind")
	}

	t.Log("irqbalance")
	t.Log(g.do("irqbalance --oneshot --foreground >/dev/null 2>&1; systemctl start irqbalance; systemctl is-active " +
		"irqbalance || true"))
	for _, s := range []*service{a, b} {
		s.keeps()
	}

	t.Log("a reload")
	g.do("sed -i 's/80/8080/' " + a.file())
	if _, code := g.ask("niclane plan " + a.file()); code != 3 {
		t.Errorf("plan of the edited file: exit code %d, want 3", code)
	}
	a.says("applied again", "systemctl reload "+a.unit)
	g.do("niclane plan " + a.file())
	a.keeps()

	t.Log("a watch that is killed, and one that hangs")
	for _, s := range []*service{a, b} {
		s.says("begun: its lanes are kept", "kill -9 "+s.show("MainPID"))
		s.shows("NRestarts", "1")
		s.keeps()
	}
	g.do("mkdir -p /etc/systemd/system/" + a.unit + ".d && printf '[Service]\\nWatchdogSec=20s\\n' " +
		">/etc/systemd/system/" + a.unit + ".d/soon.conf && systemctl daemon-reload && systemctl restart " + a.unit)
	hangs := a.show("MainPID")
	a.says("Watchdog timeout", "kill -STOP "+hangs)
	g.eventually("p=$(systemctl show -P MainPID " + a.unit + "); test $p != 0 && test $p != " + hangs +
		" && systemctl is-active " + a.unit)
	a.repairs("qdisc/"+a.dev+"/root: made again", "tc qdisc del dev "+a.dev+" root")
	g.do("rm -r /etc/systemd/system/" + a.unit + ".d && systemctl daemon-reload")

	t.Log("the end")
	g.do("systemctl stop " + b.unit)
	b.keepsNoMore()
	b.holds() // the lanes must still be there
	for _, s := range []*service{a, b} {
		said := g.do("journalctl --no-pager -u " + s.unit)
		if !strings.Contains(said, "niclane[") {
			t.Errorf("%s has said nothing:\n%s", s.unit, said)
		}
		for line := range strings.Lines(said) {
			if strings.Contains(line, "niclane[") && refused.MatchString(line) {
				t.Errorf("%s is refused something: %s", s.unit, line)
			}
		}
	}
	if t.Failed() {
		t.Log(g.do("journalctl --no-pager -n 60 -u 'niclane*'"))
	}
	g.do("rm " + a.file() + " " + b.file() + " && dpkg --purge niclane")
	if after := g.state(); after != before {
		t.Errorf("before the package:\n%s\nafter it:\n%s", before, after)
	}
}

// state returns the state that must be the same before the package was installed and after it was
// removed.
func (g *guest) state() string {
	g.t.Helper()
	return g.do(`for d in /sys/class/net/*; do d=${d##*/}; echo "$d"; ip -d link show "$d" | grep -o 'xdp.*' || true
		tc qdisc show dev "$d" | sed 's/ [0-9a-f]*: / /; s/parent [0-9a-f]*:/parent :/' | sort; tc filter show dev "$d" egress 2>/dev/null || true; done
		ls -d /etc/niclane /var/lib/niclane /run/niclane 2>/dev/null || true
		find /etc/systemd -name '*niclane*'
		pgrep -l niclane || true
		systemctl list-units --no-legend --failed
		systemctl list-units --no-legend --all 'niclane*'`)
}

// device waits until the card with a MAC address is up, and returns its name.
func (g *guest) device(mac string) string {
	g.t.Helper()
	name := filepath.Base(g.do("dirname $(grep -l " + mac + " /sys/class/net/*/address)"))
	g.eventually("ip -br link show " + name + " | grep -q LOWER_UP")
	return name
}

// eventually runs a script until it succeeds, for at most 90 s. This is long, because the guest is
// emulated on a shared machine.
func (g *guest) eventually(script string) {
	g.t.Helper()
	if out, code := g.ask("end=$(($(date +%s) + 90))\nuntil ( " + script + ` ) >/run/said 2>&1; do
			if [ $(date +%s) -gt $end ]; then cat /run/said; exit 1; fi
			sleep 0.2
		done`); code != 0 {
		g.t.Errorf("in the guest this never succeeds: %s\n%s\n%s", script, out,
			g.do("journalctl --no-pager -n 12 -o short-precise -u 'niclane*'"))
	}
}

func (g *guest) monotonic(unit, property string) (us int) {
	g.t.Helper()
	if _, err := fmt.Sscan(g.do("systemctl show -P "+property+" "+unit), &us); err != nil {
		g.t.Fatal(err)
	}
	return us
}

// A service is the systemd unit that watches one device in the guest.
type service struct {
	g         *guest
	dev, unit string
}

func (g *guest) service(dev string) *service {
	return &service{g, dev, "niclane-watch@" + dev + ".service"}
}

func (s *service) file() string { return "/etc/niclane/" + s.dev + ".yaml" }

func (s *service) deviceUnit() string { return "sys-subsystem-net-devices-" + s.dev + ".device" }

func (s *service) show(property string) string {
	s.g.t.Helper()
	return s.g.do("systemctl show -P " + property + " " + s.unit)
}

func (s *service) shows(property, want string) {
	s.g.t.Helper()
	if got := s.show(property); got != want {
		s.g.t.Errorf("%s: %s is %q, want %q", s.unit, property, got, want)
	}
}

// until waits until the unit's journal of this boot contains a text.
func (s *service) until(line string) {
	s.g.t.Helper()
	s.g.eventually("journalctl -b -o cat -u " + s.unit + " | grep -qF '" + line + "'")
}

// says runs an action and waits until the unit's journal contains a text. It logs how long that
// took.
func (s *service) says(line, action string) {
	t := s.g.t
	t.Helper()
	s.g.do("date +%s.%6N >/run/began; " + action)
	s.g.eventually("journalctl -o short-unix -u " + s.unit + ` --since "@$(cat /run/began)" | grep -F '` + line +
		"' >/run/line")
	t.Log(s.g.do(`awk -v t="$(cat /run/began)" 'NR == 1 { printf "%.2f s: ", $1 - t; $1 = $2 = ""; print }' /run/line | cut -c 1-160`), " <- ", action)
}

// repairs causes drift by an action. It waits until the journal reports that the object was
// repaired, and checks the lanes.
func (s *service) repairs(object, action string) {
	s.g.t.Helper()
	s.says(object, action)
	s.keeps()
}

// holds checks that the lanes are as they were applied.
func (s *service) holds() {
	s.g.t.Helper()
	s.g.eventually("niclane verify --for 0 " + s.file())
}

// keeps checks that the lanes are as applied, and that the watch reports health.
func (s *service) keeps() {
	s.g.t.Helper()
	s.holds()
	s.g.eventually("curl -s --fail --unix-socket /run/niclane/watch-" + s.dev + ".sock http://niclane/healthz")
}

func (s *service) keepsNoMore() {
	s.g.t.Helper()
	s.shows("ActiveState", "inactive")
	s.g.do("! pgrep -f 'niclane watch " + s.file() + "'")
}
