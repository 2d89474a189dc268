// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/google/go-cmp/cmp"
)

// lanesFile is the lanes file for every device. Only the plans differ.
const lanesFile = `version: 1
globals:
  dev: %s
  link-rate: 1gbit
lanes:
  memcached:
    rank: 1
    queues: 2
    ports: [11211]
  web:
    mode: shared
    rank: 2
    queues: 1
    members:
      - name: plain
        ports: [80]
      - name: tls
        ports: [443]
`

// laneLife plans, applies, verifies and rolls back a lane on the guest's card, which has the given
// number of queues. It compares the state before and after in everything that a plan can write.
//
// virtio_net accepts native XDP although guest offloads are on, if the MTU fits a page. It disables
// the offloads meanwhile through VIRTIO_NET_F_CTRL_GUEST_OFFLOADS. For XDP it takes a further
// transmit queue for each processor, if the device has enough queues. Otherwise, XDP programs that
// transmit or redirect to devices need a lock; niclane's do neither.
func laneLife(ctx context.Context, niclane string, queues int) error {
	dev, err := readyCard(ctx, queues)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "lane")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	lanes := filepath.Join(dir, "lanes.yaml")
	if err := os.WriteFile(lanes, fmt.Appendf(nil, lanesFile, dev), 0o644); err != nil {
		return err
	}
	start := dumpCard(ctx, dev)
	for _, step := range []struct {
		code int
		args []string
	}{
		{3, []string{"plan", lanes}},
		{0, applyHere(lanes)},
		{0, []string{"plan", lanes}},
		{0, []string{"status", "--interval", "10ms"}},
		{0, []string{"verify", "--for", "100ms"}},
		{0, []string{"rollback"}},
		{3, []string{"plan", lanes}},
	} {
		out, serr := say(ctx, append([]string{niclane, "--state-dir", filepath.Join(dir, "state")}, step.args...)...)
		if code := exitCode(serr); code != step.code {
			return errors.Join(fmt.Errorf("niclane %s ended with %d, want %d", step.args[0], code, step.code), serr)
		}
		for _, want := range []string{"xdp", "fq limit", "fair among flows", "fair among addresses"} {
			if step.args[0] == "plan" && step.code == 3 && !strings.Contains(out, want) {
				return fmt.Errorf("the plan has no %s in it", want)
			}
		}
		if step.args[0] == "apply" {
			diff := cmp.Diff(strings.Split(start, "\n"), strings.Split(dumpCard(ctx, dev), "\n"))
			fmt.Println(diff)
			if diff == "" {
				return errors.New("apply left no trace")
			}
		}
	}
	if diff := cmp.Diff(strings.Split(start, "\n"), strings.Split(dumpCard(ctx, dev), "\n")); diff != "" {
		fmt.Println(diff)
		return errors.New("after rollback the card is not as before")
	}
	return nil
}

// applyHere returns the arguments of apply for a device that may carry the user's own connection,
// such as SSH: without the time limit for a confirm.
func applyHere(lanes string) []string { return []string{"apply", "--confirm-within", "0", lanes} }

// readyCard gives the guest's card an address and the given number of queues.
func readyCard(ctx context.Context, queues int) (dev string, err error) {
	if dev, err = cardName(); err != nil {
		return "", err
	}
	for _, line := range []string{
		"ip link set " + dev + " up",
		"ip address replace " + cardAddress + "/24 dev " + dev,
		fmt.Sprintf("ethtool -L %s combined %d", dev, queues),
		fmt.Sprintf("ethtool -K %s rx-gro-hw on", dev),
		// Create mq again before the first dump. At first, queues beyond the first channels have
		// pfifo_fast, not the default qdisc (net/sched/sch_mq.c: mq_init). When mq is created again, all
		// queues get the default qdisc.
		fmt.Sprintf("tc qdisc add dev %s root pfifo", dev),
		fmt.Sprintf("tc qdisc del dev %s root", dev),
	} {
		if _, err := say(ctx, strings.Fields(line)...); err != nil {
			return "", err
		}
	}
	return dev, nil
}

func exitCode(err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	}
	return -1
}

// assigned matches numbers that the kernel assigns.
var assigned = regexp.MustCompile(`"id":[0-9]+|prog/xdp id [0-9]+|"expires":[0-9]+|qdisc [a-z_]+ 8[0-9a-f]{3}:`)

// dumpCard returns everything that a plan can write on the card, as other programs print it.
func dumpCard(ctx context.Context, dev string) string {
	var b strings.Builder
	for _, line := range []string{
		"ip -d link show " + dev,
		"tc -d qdisc show dev " + dev,
		"tc -d class show dev " + dev,
		"tc filter show dev " + dev + " ingress",
		"tc filter show dev " + dev + " egress",
		"ethtool -k " + dev, "ethtool -l " + dev, "ethtool -x " + dev, "ethtool -n " + dev, "ethtool -c " + dev,
		"ethtool -g " + dev,
	} {
		f := strings.Fields(line)
		out, err := exec.CommandContext(ctx, f[0], f[1:]...).CombinedOutput()
		fmt.Fprintf(&b, "$ %s\n%s", line, assigned.ReplaceAllString(string(out), ""))
		if err != nil {
			fmt.Fprintf(&b, "(%v)\n", err)
		}
	}
	globs := []string{
		"/sys/class/net/" + dev + "/queues/*/*", "/sys/class/net/" + dev + "/threaded",
		"/sys/class/net/" + dev + "/gro_flush_timeout",
		"/sys/class/net/" + dev + "/napi_defer_hard_irqs", "/sys/class/net/" + dev + "/tx_queue_len",
		"/proc/sys/net/core/*", "/proc/sys/net/ipv4/conf/" + dev + "/*", "/proc/irq/*/smp_affinity_list",
	}
	for _, g := range globs {
		files, err := filepath.Glob(g)
		if err != nil {
			panic(err) // cannot happen: the patterns are constants
		}
		for _, f := range files {
			if text, err := os.ReadFile(f); err == nil {
				fmt.Fprintf(&b, "%s: %s\n", f, strings.TrimSpace(string(text)))
			}
		}
	}
	return b.String()
}
