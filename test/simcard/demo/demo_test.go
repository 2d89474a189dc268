// SPDX-License-Identifier: Apache-2.0

// Package demo shows niclane on the simulated card to readers. make simcard-demo runs it in a
// guest. The test fails if the card does not behave as the printed text says.
package demo

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/niclane/niclane/test/simcard/bed"
)

// The card behaves like mlx5. Its link is slow, because the guest is emulated.
var card = []string{"driver=mlx5_core", "queues=12", "channels=6", "rx_classes=0", "shaper=0", "htb_shares=1",
	"speed=6", "burst_us=100000"}

const lanes = `version: 1
globals:
  dev: sim0
lanes:
  store:
    queues: 2
    protocol: udp
    ports: [6379]
    guarantee: 3mbit
  backup:
    queues: 1
    protocol: udp
    ports: [873]
    guarantee: 600kbit
    ceiling: 1mbit
`

// Ports from which the card sends. The last two belong to no lane.
const (
	store, backup = 6379, 873
	noise1        = 7001
	noise2        = 7002
)

func TestDemo(t *testing.T) {
	bed.Plug(t, card...)
	bed.Sink(t, 4000)
	d := &demo{t: t, dir: t.TempDir()}
	file := filepath.Join(d.dir, "lanes.yaml")
	bed.Write(t, file, lanes)

	d.title("A card with 6 channels, as mlx5 has them, on a link of 6 Mbit/s")
	d.shell("ethtool -i sim0", 2)
	d.shell("niclane probe sim0", 0)

	d.title("Without lanes: where packets arrive, and who sends how much")
	d.receive()
	before, _ := d.send("")

	d.title("What is asked for")
	fmt.Print("$ cat lanes.yaml\n" + lanes)
	d.shell("niclane plan lanes.yaml", 0)

	d.title("Made")
	d.shell("niclane apply lanes.yaml", 0)
	d.receive()
	after, verdict := d.send("niclane verify --for 1s")
	if !strings.Contains(verdict, " 0 drift") {
		t.Errorf("verify found something")
	}
	d.shell("niclane status", 0)

	d.title("What it gained")
	for i, name := range []string{"store, 3 Mbit/s guaranteed", "backup, 0.6 to 1 Mbit/s", "noise"} {
		fmt.Printf("  %-28s %3.0f %% of what the card sent before, %3.0f %% with lanes\n", name, 100*before[i],
			100*after[i])
	}
	if after[0] < 0.45 || after[1] > 0.25 {
		t.Errorf("the card does not keep the lanes' rates: %v", after)
	}

	d.title("Undone")
	d.shell("niclane rollback", 0)
	d.shell("tc qdisc show dev sim0", 1)
	d.shell("ethtool -n sim0", 2)
}

type demo struct {
	t   *testing.T
	dir string
}

func (d *demo) title(s string) { fmt.Printf("\n==== %s ====\n\n", s) }

// shell runs a command and prints it with the first lines of its output; if lines is 0, with all of
// it.
func (d *demo) shell(line string, lines int) string {
	d.t.Helper()
	fmt.Println("$ " + line)
	argv := strings.Fields(line)
	if argv[0] == "niclane" {
		argv = append([]string{os.Getenv("NICLANE_BINARY"), "--state-dir", "state", "--run-dir", "run"}, argv[1:]...)
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = d.dir
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	// Exit code 3 is no failure: plan has pending changes, or verify has found drift.
	if err != nil && !(errors.As(err, &exit) && exit.ExitCode() == 3) {
		d.t.Errorf("%s: %v", line, err)
	}
	shown := strings.SplitAfter(string(out), "\n")
	if lines > 0 && len(shown) > lines {
		shown = append(shown[:lines:lines], "...\n")
	}
	fmt.Println(strings.Join(shown, ""))
	return string(out)
}

// receive sends to the card from the other end of the wire, and prints which queues received.
func (d *demo) receive() {
	d.t.Helper()
	fmt.Println("16 flows to each port, by receive queue:")
	for _, to := range []struct {
		name string
		port uint16
	}{{"store", store}, {"backup", backup}, {"noise", noise1}} {
		before := bed.Stats(d.t)
		var flows []bed.Flow
		for i := range 16 {
			flows = append(flows, bed.In(uint16(2000+7*i), to.port))
		}
		bed.Send(d.t, 2, flows...)
		fmt.Printf("  %-8s%s\n", to.name, queues(bed.PerQueue(d.t, before, "rx_queue_%d_packets", bed.QueueCount(d.t))))
	}
	fmt.Println()
}

// enough is the number of bytes after which shares are computed.
const enough = 900_000

// send runs a command while all senders send as fast as they can. It prints what each transmit
// queue sent. It returns the shares of store, backup and noise, and the command's output.
func (d *demo) send(meanwhile string) (parts [3]float64, said string) {
	d.t.Helper()
	var sent [4]uint64
	var mu sync.Mutex
	stop := make(chan struct{})
	var wg sync.WaitGroup
	before := bed.Stats(d.t)
	in := d.incoming(store, backup, noise1, noise2)
	for i, port := range []uint16{store, backup, noise1, noise2} {
		c := bed.In(4000, port).Back().Dial(d.t)
		wg.Add(1)
		go func() {
			defer wg.Done()
			defer c.Close()
			data := make([]byte, 1400)
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				if n%16 == 0 {
					in[i].Write(data[:100]) // may be refused, because no process listens
				}
				if n, err := c.Write(data); err == nil {
					mu.Lock()
					sent[i] += uint64(n)
					mu.Unlock()
				}
			}
		}()
	}
	total := func() uint64 { return bed.Sum(bed.PerQueue(d.t, before, "tx_queue_%d_bytes", bed.QueueCount(d.t))) }
	bed.Until(d.t, "what fills the queues", func() bool { return total() > enough/2 })
	mu.Lock()
	base := sent
	mu.Unlock()
	middle := bed.Stats(d.t)
	if meanwhile != "" {
		said = d.shell(meanwhile, 0)
	}
	bed.Until(d.t, "enough traffic", func() bool { return total() > 2*enough })
	by := bed.PerQueue(d.t, middle, "tx_queue_%d_packets", bed.QueueCount(d.t))
	mu.Lock()
	now := sent
	mu.Unlock()
	close(stop)
	wg.Wait()
	for _, c := range in {
		c.Close()
	}
	all := 0.0
	for i := range now {
		all += float64(now[i] - base[i])
	}
	for i := range now {
		parts[min(i, 2)] += float64(now[i]-base[i]) / all
	}
	fmt.Printf("Everybody sends as much as he can: store %.0f %%, backup %.0f %%, noise %.0f %% of it; packets by "+
		"transmit queue:\n  %s\n\n",
		100*parts[0], 100*parts[1], 100*parts[2], queues(by))
	return parts, said
}

// incoming opens connections from the other end of the wire to ports of the card.
func (d *demo) incoming(ports ...uint16) (conns []net.Conn) {
	d.t.Helper()
	bed.Behind(d.t, func() {
		for i, port := range ports {
			conns = append(conns, bed.In(uint16(3000+i), port).Dial(d.t))
		}
	})
	return conns
}

// queues formats the counts of those queues that have any.
func queues(counts []uint64) string {
	var out []string
	for q, n := range counts {
		if n > 0 {
			out = append(out, fmt.Sprintf("%d: %d", q, n))
		}
	}
	return strings.Join(out, "  ")
}
