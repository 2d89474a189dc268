// SPDX-License-Identifier: Apache-2.0

// Package members tests that members can be added to a lane and removed without effect on other
// traffic. No packet of a stream may be lost or overtake another.
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

// many is the number of members, including that of the stream.
const many = 1000

// lanes returns a lanes file with a lane of n members: that of the stream, and others.
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
		s.Wait(t, 200) // packets must be sent before each change
		j = advance(t, k, j, lanes(many))
		s.Wait(t, 200)
		j = advance(t, k, j, lanes(1))
	}
	s.Wait(t, 200)
	sent, r := s.End(t)
	if r.Lost > 0 || r.Overtaken > 0 {
		t.Errorf("of %d packets %d were lost and %d were overtaken", sent, r.Lost, r.Overtaken)
	}
	// If the lane did not exist for a moment, no packet would be lost, but some would take the default
	// path. So count the lane's packets.
	if got := inLane(t, l) - before; got != sent {
		t.Errorf("of %d packets %d went by the lane", sent, got)
	}
	t.Logf("%d packets while %d members came and went twice", sent, many-1)
	if _, err := apply.Rollback(t.Context(), k, j, j.Head().Host, apply.Options{}); err != nil {
		t.Error(err)
	}
}

// inLane returns how many packets have arrived in the lane: in its queues on the emulated card,
// otherwise through the XDP program.
func inLane(t *testing.T, l *lab.Lab) (packets uint64) {
	t.Helper()
	if l.Config.Card == lab.CardEmulated {
		card, err := emucard.Open(l.Config.MAC(lab.SUT))
		must.Do(t, err)
		defer card.Close()
		rx, _, err := card.Stats()
		must.Do(t, err)
		for _, q := range rx[len(rx)-2:] { // the last two queues are the lane's
			packets += q.Packets
		}
		return packets
	}
	packets, _ = lanetest.XDPPackets(t, lab.Port)
	return packets
}

// advance applies a new lanes file. before is the journal of the last apply.
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
