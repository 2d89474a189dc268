// SPDX-License-Identifier: Apache-2.0

package firstlane

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"

	"github.com/niclane/niclane/lab"
)

// labName keeps the comparison's lab apart from one that a user has up.
const labName = "niclane-demo"

// labHosts is the lab as the comparison sees it.
type labHosts struct {
	*lab.Lab
	niclane string
	// classes are the lanes' names by the name of their class's hop.
	classes map[string]string
}

// raise builds the lab. A lab that an earlier comparison left after a kill is
// taken down first: its name is this package's own.
func raise(ctx context.Context, o Options) (*labHosts, error) {
	if err := lab.Down(ctx, labName); err != nil {
		return nil, fmt.Errorf("lab of an earlier run: %w", err)
	}
	l, err := lab.Up(ctx, lab.Config{
		Name: labName, Card: o.Card, LinkRate: o.LinkRate, SwitchBuffer: o.Buffer,
		SUTCPUs: inside, OtherCPUs: outside,
	})
	if err != nil {
		return nil, err
	}
	return &labHosts{Lab: l, niclane: o.Niclane}, nil
}

// command prepares a process on a host. What is wrong with it, its Start says.
func (h *labHosts) command(ctx context.Context, host string, p place, argv ...string) *exec.Cmd {
	cmd, err := h.Command(ctx, host, lab.Options{CPUs: p.cpus, FIFO: p.fifo, Cgroup: p.member && h.CgroupDir != "", Niclane: h.niclane}, argv...)
	if err != nil {
		return &exec.Cmd{Err: err}
	}
	return cmd
}

func (h *labHosts) address(host string, port int) string {
	return netip.AddrPortFrom(h.Config.IPv4(host), uint16(port)).String()
}

func (h *labHosts) linkRate() uint64 { return h.Config.LinkRate }
func (h *labHosts) mtu() int         { return h.Config.MTU }
func (h *labHosts) buffer() int      { return h.Config.SwitchBuffer }

// sweepBuffers are a shallow, the usual and a deep switch port.
func (h *labHosts) sweepBuffers() []int { return []int{h.buffer() / 4, h.buffer() * 4} }

func (h *labHosts) setBuffer(bytes int) error { return h.SetSwitchBuffer(bytes) }

func (h *labHosts) down(ctx context.Context) error { return h.Down(ctx) }

// baseline lists how the host under test is tuned in every variant.
func (h *labHosts) baseline() []string {
	spread := "RSS over all of them"
	if h.Config.Card == lab.CardNone {
		spread = "a hash of the flow over all of them (a plain veth, no card)"
	}
	return []string{
		"processors kept awake (/dev/cpu_dma_latency 0), as tuned's latency-performance does",
		"somaxconn 4096, tcp_max_syn_backlog 250000, tcp_rmem and tcp_wmem up to 120 MiB",
		fmt.Sprintf("%d queues, %s, GRO on, segmentation by the card", h.Config.Queues, spread),
		"the card's interrupts arrive on the server's processor; the card's transmit rings are served in turn",
		"no transmit qdisc (veth's default) and no byte queue limits: fq_codel and BQL, where a host has them, take part of what a lane gains on transmit",
		"server and generator SCHED_FIFO 10, outside any autogroup",
	}
}
