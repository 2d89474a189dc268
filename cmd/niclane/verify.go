// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/niclane/niclane/lane/config"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/journal"
	"github.com/niclane/niclane/lane/observe"
	"github.com/niclane/niclane/lane/plan"
	"github.com/niclane/niclane/lane/verify"
	"github.com/niclane/niclane/watch/host"
)

func (a *app) verifyCommand() *cobra.Command {
	during := 2 * time.Second
	var addrs []string
	cmd := &cobra.Command{
		Use:   "verify [FILE|DEV]",
		Short: "Prove from the kernel and from traffic that the lanes hold, or name what does not",
		Long: `Verify reads back from the kernel everything that apply wrote, and what lanes rely
on without niclane having had to write it, and names each difference: the lane,
what niclane left, what is there now, what it means, and what repairs it.

Then it watches the traffic for a time and says for each lane whether its packets
were in its queues and class, and whether others' were not; unknown where no
packet showed it. The watching changes no packet and no filter, and ends with
the command; Ctrl-C ends it early.

With --probe it sends packets of the lanes itself meanwhile, at most 256 and only
to the addresses given: first packets of TCP connections, from the lanes' own
addresses and ports, which the other host's kernel answers, whether or not a
port is open. With a port (ADDR:PORT, [ADDR]:PORT) that accepts connections, one
of a lane is made there and reset. It needs CAP_NET_ADMIN and CAP_NET_RAW.

It repairs nothing. It exits 0 when no drift is found, 3 when some is.`,
		Args: atMost(1, "at most one lanes file or device"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if during < 0 || during > time.Hour {
				return usagef("verify: --for %v: want 0 (no traffic) to 1h", during)
			}
			targets, err := parseTargets(addrs)
			if err != nil {
				return err
			}
			if len(targets) > 0 && during == 0 {
				return usagef("verify: --probe with --for 0: answers are seen by watching the traffic")
			}
			if err := needRoot("verify"); err != nil {
				return err
			}
			a.noteUnconfirmed()
			return a.verify(cmd.Context(), args, during, targets)
		},
	}
	cmd.Flags().DurationVar(&during, "for", during, "how long to watch the traffic; 0 looks at settings only")
	cmd.Flags().StringArrayVar(&addrs, "probe", nil, "an address of another host, or ADDR:PORT, to send packets of the lanes to; can be repeated")
	return cmd
}

// verified is what verify prints as JSON, one per lanes file.
type verified struct {
	Config   string           `json:"config"`
	Devices  []string         `json:"devices"`
	Findings []verify.Finding `json:"findings"`
	// Probes are the packets that verify has sent, and what was answered.
	Probes []verify.Probe `json:"probes,omitempty"`
}

func (a *app) verify(ctx context.Context, args []string, during time.Duration, targets []target) error {
	if err := find(targets); err != nil {
		return err
	}
	ctx, stop := interruptible(ctx)
	defer stop()
	var ws watching
	results, err := a.compare(ctx, args, during > 0, &ws)
	if err != nil {
		return errors.Join(err, ws.close())
	}
	var socks *sockets
	if during > 0 {
		socks = watchSockets()
	}
	began := time.Now()
	if err := ws.probe(ctx, targets, results); err != nil {
		return errors.Join(err, ws.close())
	}
	for i, fs := range ws.end(ctx, began, during) {
		results[i].Findings = append(results[i].Findings, fs...)
	}
	for _, w := range ws {
		if w.err == nil {
			verify.Unseen(results[w.result].Probes, w.last, results[w.result].Findings)
		}
	}
	socks.findings(ctx, a, results)
	drift := false
	for _, r := range results {
		drift = drift || verify.Found(r.Findings, verify.Drift) > 0
	}
	if a.json {
		if err := a.printJSON(results); err != nil {
			return err
		}
	} else {
		a.printVerified(results)
	}
	if drift {
		return exitCode{code: exitPending}
	}
	return nil
}

// compare compares the lanes with the kernel, while nobody applies, and begins
// to watch their traffic.
func (a *app) compare(ctx context.Context, args []string, traffic bool, ws *watching) ([]verified, error) {
	lock, err := a.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer lock.Unlock()
	here, err := journal.Here()
	if err != nil {
		return nil, err
	}
	js, err := a.allJournals(here)
	if err != nil {
		return nil, err
	}
	if js, err = chosen(js, args); err != nil {
		return nil, err
	}
	results := []verified{}
	for _, j := range js {
		h := j.Head()
		res := verified{Config: h.Config, Devices: h.Devices}
		if !h.SameBoot(here) {
			res.Findings = rebooted(h)
			results = append(results, res)
			continue
		}
		applied, now, _, err := host.Look(ctx, a.runDir, j, a.applied(h), groupsOf(j))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", h.Config, err)
		}
		if slices.ContainsFunc(h.Devices, func(d string) bool { return now.Device(d) == nil }) {
			if applied.Displaced, err = host.Displaced(h, true); err != nil {
				return nil, fmt.Errorf("%s: %w", h.Config, err)
			}
		}
		res.Findings = verify.State(applied, now)
		if traffic {
			ws.begin(len(results), applied, now)
		}
		results = append(results, res)
	}
	return results, nil
}

func rebooted(h *journal.Head) []verify.Finding {
	return []verify.Finding{{
		Severity: verify.Drift, Key: "journal", Want: "the boot in which the lanes were applied", Found: "a later one",
		Meaning: "the machine was rebooted since: no lane of this file is left", Repair: "niclane apply " + h.Config,
	}}
}

// appliedBy gives what a journal says was made.
func (a *app) appliedBy(j *journal.Journal) verify.Applied {
	return host.Applied(j, a.applied(j.Head()))
}

// groupsOf are the control groups that a journal's config names, and those that it
// records objects of.
func groupsOf(j *journal.Journal) []string {
	var named []string
	if f, err := config.ParseFile(j.Head().Config, []byte(j.Head().ConfigText)); err == nil {
		named = host.Groups(f.Intent)
	}
	return host.GroupsOf(named, j)
}

// saveApplied records the state right after apply: before, with the steps made,
// all of which were read back. Looking again would take as long as planning.
func (a *app) saveApplied(j *journal.Journal, before *device.State) error {
	p, owned := j.Head().Plan, j.Records()
	if len(p.Devices) == 0 {
		return nil
	}
	st := after(before, p.Steps, owned)
	if slices.ContainsFunc(p.Steps, remakes) {
		var err error
		if st, err = observe.Observe(context.Background(), observe.Options{Devices: p.Devices, RunDir: a.runDir, NoProbes: true}); err != nil {
			return err
		}
		st = without(st, membersOf(owned))
	}
	return a.writeApplied(j.Head(), st)
}

// An appliedState is what there was right after an apply, and which that was.
type appliedState struct {
	Of string `json:"of,omitempty"`
	*device.State
}

// applyOf tells an apply from others.
func applyOf(h *journal.Head) string {
	return ofGeneration(h, h.Generation) + h.When.Format(time.RFC3339)
}

// ofGeneration is what the words of all applies of a generation begin with.
func ofGeneration(h *journal.Head, n int) string { return fmt.Sprintf("%s %d ", h.Config, n) }

// replacedSuffix follows the name of the file of the apply before the last one, which
// counts again when that is undone.
const replacedSuffix = ".replaced"

// writeApplied records a state as the one right after apply, and keeps the one before.
func (a *app) writeApplied(h *journal.Head, st *device.State) error {
	b, err := json.Marshal(appliedState{applyOf(h), st})
	if err != nil {
		return err
	}
	path, err := a.appliedPath(h.Plan.Devices[0])
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", b, 0o600); err != nil {
		_ = os.Remove(path + ".new") // there may be no room for as much as its name
		return err
	}
	// One that was undone is not the one before.
	if strings.HasPrefix(readApplied(path).Of, ofGeneration(h, h.Generation-1)) {
		if err := os.Rename(path, path+replacedSuffix); err != nil {
			return err
		}
	}
	return os.Rename(path+".new", path)
}

// remakes reports whether a step has the driver make its queues and NAPIs again,
// or others: virtio_net has more receive queues, and another RSS table, while
// an XDP program is there.
func remakes(s plan.Step) bool {
	switch s.Object().(type) {
	case device.Channels, device.Feature, device.Ring, device.XDP:
		return true
	}
	return false
}

// applied returns the state right after the apply of h, or the last one that is known;
// nil if none is.
func (a *app) applied(h *journal.Head) *device.State {
	if len(h.Plan.Devices) == 0 {
		return nil
	}
	path, err := a.appliedPath(h.Plan.Devices[0])
	if err != nil {
		return nil
	}
	last := readApplied(path)
	if of := applyOf(h); last.Of != of {
		if before := readApplied(path + replacedSuffix); before.Of == of {
			return before.State
		}
	}
	return last.State
}

func readApplied(path string) (s appliedState) {
	b, err := os.ReadFile(path)
	if err != nil || json.Unmarshal(b, &s) != nil || s.State == nil || s.Schema != device.Schema {
		return appliedState{}
	}
	return s
}

func (a *app) printVerified(results []verified) {
	if len(results) == 0 {
		fmt.Fprintln(a.stdout, "nothing to verify: no lanes are applied here")
	}
	for i, r := range results {
		if i > 0 {
			fmt.Fprintln(a.stdout)
		}
		verify.WriteText(a.stdout, r.Findings)
		verify.WriteProbes(a.stdout, r.Probes)
		fmt.Fprintf(a.stdout, "%s: %d drift, %d unknown, %d ok\n", r.Config,
			verify.Found(r.Findings, verify.Drift), verify.Found(r.Findings, verify.Unknown), verify.Found(r.Findings, verify.OK))
	}
}
