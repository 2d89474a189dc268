// SPDX-License-Identifier: Apache-2.0

// Package members tests that members of a lane are added and removed without effect on other
// traffic: no packet of a stream is lost or overtakes another.
package members

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/niclane/niclane/internal/testing/labtest"
	"github.com/niclane/niclane/internal/testing/lanetest"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/lab"
	"github.com/niclane/niclane/lab/emucard"
	"github.com/niclane/niclane/lane/apply"
	"github.com/niclane/niclane/lane/config"
	"github.com/niclane/niclane/lane/journal"
	"github.com/niclane/niclane/lane/plan"
)

// many is the number of members, with the stream's.
const many = 1000

// lanes returns a lane of n members: the stream's and others.
func lanes(n int) string {
	var s strings.Builder
	fmt.Fprintf(&s, `
version: 1
globals:
  dev: lane0
  link-rate: 500mbit
lanes:
  crowd:
    mode: shared
    rank: 1
    queues: 2
    cpus: 1
    members:
      - name: stream
        protocol: udp
        addrs: [10.77.0.1]
        ports: [%d]
`, labtest.EchoPort)
	if n > 1 {
		fmt.Fprintf(&s, "      - name: others\n        protocol: udp\n        addrs: [10.77.0.1]\n        ports: "+
			"[%d-%d]\n", 20000, 20000+n-2)
	}
	return s.String()
}

func TestMain(m *testing.M) { os.Exit(vethtest.Isolate(m)) }

func TestMembersComeAndGo(t *testing.T) {
	vethtest.NeedRoot(t)
	for _, card := range []string{lab.CardEmulated, lab.CardNone} {
		t.Run("card "+card, func(t *testing.T) {
			l := labtest.Up(t, lab.Config{Name: fmt.Sprintf("members-%d", os.Getpid()), Card: card})
			labtest.OnHost(t, l, lab.SUT, func(t *testing.T) { comeAndGo(t, l) })
		})
	}
}

func comeAndGo(t *testing.T, l *lab.Lab) {
	k, err := apply.NewKernel("")
	must.Do(t, err)
	defer k.Close()
	j := advance(t, k, nil, lanes(1))
	before := inLane(t, l)
	s := labtest.StartStream(t, l)
	for range 2 {
		s.Wait(t, 200) // so that packets are sent before each change
		j = advance(t, k, j, lanes(many))
		s.Wait(t, 200)
		j = advance(t, k, j, lanes(1))
	}
	s.Wait(t, 200)
	sent, r := s.End(t)
	if r.Lost > 0 || r.Overtaken > 0 {
		t.Errorf("of %d packets %d were lost and %d were overtaken", sent, r.Lost, r.Overtaken)
	}
	// A gap would lose no packet: the packets would take the default path.
	if got := inLane(t, l) - before; got != sent {
		t.Errorf("of %d packets %d went by the lane", sent, got)
	}
	t.Logf("%d packets while %d members came and went twice", sent, many-1)
	if _, err := apply.Rollback(t.Context(), k, j, j.Head().Host, apply.Options{}); err != nil {
		t.Error(err)
	}
}

// inLane returns the number of packets that have arrived by the lane: in its queues, or through
// the XDP program.
func inLane(t *testing.T, l *lab.Lab) (packets uint64) {
	t.Helper()
	if l.Config.Card == lab.CardEmulated {
		card, err := emucard.Open(l.Config.MAC(lab.SUT))
		must.Do(t, err)
		defer card.Close()
		rx, _, err := card.Stats()
		must.Do(t, err)
		for _, q := range rx[len(rx)-2:] { // the lane's two queues are the last
			packets += q.Packets
		}
		return packets
	}
	packets, _ = lanetest.XDPPackets(t, lab.Port)
	return packets
}

// advance applies lanes over those of an earlier plan.
func advance(t *testing.T, k *apply.System, before *journal.Journal, text string) *journal.Journal {
	t.Helper()
	f, err := config.ParseFile("lanes.yaml", []byte(text))
	must.Do(t, err)
	st := lanetest.Observe(t, lab.Port)
	host, err := journal.Here()
	must.Do(t, err)
	h := journal.Head{Host: host, Config: "/test", Generation: 1}
	var owned plan.Owned
	if before != nil {
		h.Before, h.Generation = before.Records(), before.Head().Generation+1
		for _, r := range h.Before {
			owned.Records = append(owned.Records, plan.Record{Original: r.Original, Last: r.Last, Part: r.Part,
				Cause: r.Cause})
		}
	}
	if h.Plan, err = plan.Make(f.Intent, st, owned); err != nil {
		t.Fatal(err)
	}
	if len(h.Plan.Steps) == 0 {
		t.Fatal("nothing to do: the test changes nothing")
	}
	h.Devices = h.Plan.Devices
	j := journal.New(h)
	if _, err := apply.Run(t.Context(), k, h.Plan, j, apply.Options{}); err != nil {
		t.Fatal(err)
	}
	return j
}
