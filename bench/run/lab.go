// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/bench/part/hiccup"
	"github.com/niclane/niclane/bench/power"
	"github.com/niclane/niclane/bench/result"
	"github.com/niclane/niclane/internal/traffic/napi"
	"github.com/niclane/niclane/lab"
)

// labSite is a Site on one machine: package lab's hosts, and every process of
// niclane started there.
type labSite struct {
	measurement
	// niclane and self are the paths of niclane, which makes lanes, and of
	// niclane-bench.
	niclane, self string

	reservation *reservation
	lab         *lab.Lab
	dir         string   // for lanes, journals and the server's files
	latency     *os.File // holds the processors awake while it is open
	lanes       string   // that are applied
	client      string   // the same, on the client
	// classes of the applied lanes, the lanes' names by them.
	classes map[string]string
	polls   *napi.Counter
}

// InLab returns the site of an experiment in the lab. niclane and self are the
// paths of niclane, which makes lanes, and of niclane-bench, which is also
// generator, noise and server.
func InLab(f *experiment.File, niclane, self string) Site {
	s := &labSite{niclane: niclane, self: self}
	s.measurement = measurement{f: f, e: f.Experiment, on: s}
	return s
}

func (s *labSite) Up(ctx context.Context, r *result.Result) (err error) {
	var left string
	if s.reservation, left, err = reserveLab(reservations, s.e.Lab.Name); err != nil {
		return err
	}
	if s.dir, err = os.MkdirTemp("", dirPrefix); err != nil {
		return err
	}
	if left != "" {
		if err := errors.Join(lab.Down(ctx, s.e.Lab.Name), tidy(left)); err != nil {
			return fmt.Errorf("what a run that was killed has left: %w", err)
		}
	}
	if err := s.reservation.write(s.dir); err != nil {
		return err
	}
	if err := s.makeScratch(); err != nil {
		return err
	}
	if err := s.power.open(ctx, s.e.Power, power.Open, r); err != nil {
		return err
	}
	var asleep error
	if s.latency, asleep = holdLatency(); asleep != nil {
		r.Warnings = append(r.Warnings, fmt.Sprintf("processors may sleep deeply: %v", asleep))
	}
	x := s.e.Lab
	sut, others, err := s.labProcessors()
	if err != nil {
		return err
	}
	s.lab, err = lab.Up(ctx, lab.Config{
		Name: x.Name, Card: x.Card, Queues: x.Queues, LinkRate: x.LinkRate, LinkBurst: x.LinkBurst,
		SwitchBuffer: x.SwitchBuffer,
		Ring:         x.Ring, Rules: x.Rules, Contexts: x.Contexts, MTU: x.MTU, NoiseSegment: x.NoiseSegment,
		SUTCPUs: sut, OtherCPUs: others,
	})
	if errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("%w; somebody has raised it by niclane lab up: niclane lab down --name %s", err, x.Name)
	}
	if err != nil {
		return err
	}
	s.describe(r, asleep == nil)
	if err := s.lab.Do(lab.SUT, s.countPolls); err != nil {
		r.Warnings = append(r.Warnings, fmt.Sprintf("NAPI polls are not counted: %v", err))
	}
	return nil
}

// makeScratch makes the directory of the server's files.
func (s *labSite) makeScratch() error {
	// The server may run as another user, which has to reach it.
	if err := os.Chmod(s.dir, 0o711); err != nil {
		return err
	}
	if err := os.Mkdir(s.scratchOf(lab.SUT), 0o700); err != nil {
		return err
	}
	// Servers that have dropped their rights write here too. Sticky: nobody
	// can put another file in the place of root's.
	return os.Chmod(s.scratchOf(lab.SUT), os.ModeSticky|0o777)
}

// countPolls begins to count those of the SUT's port.
func (s *labSite) countPolls() error {
	port, err := net.InterfaceByName(lab.Port)
	if err != nil {
		return err
	}
	s.polls, err = napi.Open(port.Index)
	return err
}

// holdLatency asks the processors to stay awake for as long as the file is
// open (Documentation/power/pm_qos_interface.rst), as tuned's
// latency-performance profile does: part of the baseline, in every variant.
func holdLatency() (*os.File, error) {
	f, err := os.OpenFile("/dev/cpu_dma_latency", os.O_WRONLY, 0)
	if err != nil {
		return nil, err
	}
	if _, err := f.Write(make([]byte, 4)); err != nil { // 0 µs
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func (s *labSite) HostNoise(ctx context.Context, ns int64) (hiccup.Result, error) {
	return hiccup.Run(ctx, hiccup.Config{Duration: ns})
}

func (s *labSite) SetSwitchBuffer(bytes int64) error {
	if bytes == 0 {
		bytes = int64(s.lab.Config.SwitchBuffer)
	}
	return s.lab.SetSwitchBuffer(int(bytes))
}

// SetLanes runs the niclane command as a user would, in the SUT.
func (s *labSite) SetLanes(ctx context.Context, v experiment.Variant) (Lanes, error) {
	clientPlan, err := s.setClientLanes(ctx, v)
	if err != nil {
		return Lanes{}, fmt.Errorf("client: %w", err)
	}
	text, notes, err := s.lanesOf(v)
	if err != nil {
		return Lanes{}, err
	}
	if text == s.lanes {
		return Lanes{Text: text, ClientPlan: clientPlan}, nil
	}
	if s.lanes != "" {
		if _, err := s.run(ctx, "rollback"); err != nil {
			return Lanes{}, err
		}
		s.lanes, s.classes, s.queues = "", nil, nil
	}
	if text == "" {
		return Lanes{ClientPlan: clientPlan}, nil
	}
	file := filepath.Join(s.dir, "lanes.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return Lanes{}, err
	}
	// Set before it is known: an apply that is cut short is rolled back too.
	s.lanes = text
	out, err := s.run(ctx, "apply", file)
	if err != nil {
		return Lanes{}, err
	}
	made, err := planOf(out)
	if err != nil {
		return Lanes{}, err
	}
	s.classes = map[string]string{}
	for _, l := range made.Lanes {
		s.classes[l.Class] = l.Name
	}
	s.queues = laneQueues(made, lab.Port)
	lanes := applied(text, made)
	lanes.Did = append(lanes.Did, notes...)
	lanes.ClientPlan = clientPlan
	return lanes, nil
}

// setClientLanes does the same on the client, and returns the plan where lanes
// were applied. Nobody looks at its queues.
func (s *labSite) setClientLanes(ctx context.Context, v experiment.Variant) (string, error) {
	values := s.values(lab.SUT)
	values[experiment.NameDevice] = clientPort
	text, err := experiment.Expand(v.ClientLanes, values)
	if err != nil || text == s.client {
		return "", err
	}
	if s.client != "" {
		if _, err := s.runOn(ctx, lab.Client, "rollback"); err != nil {
			return "", err
		}
		s.client = ""
	}
	if text == "" {
		return "", nil
	}
	file := filepath.Join(s.dir, "client-lanes.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return "", err
	}
	s.client = text
	out, err := s.runOn(ctx, lab.Client, "apply", file)
	if err != nil {
		return "", err
	}
	made, err := planOf(out)
	if err != nil {
		return "", err
	}
	return applied(text, made).Plan, nil
}

// clientPort is the device of the lab's client.
const clientPort = "eth0"

// run runs a niclane command on the SUT.
func (s *labSite) run(ctx context.Context, verb ...string) ([]byte, error) {
	return s.runOn(ctx, lab.SUT, verb...)
}

// runOn runs one on a host, with journals of this run's and this host's own.
func (s *labSite) runOn(ctx context.Context, host string, verb ...string) ([]byte, error) {
	args := append([]string{s.niclane, "--json", "--state-dir", filepath.Join(s.dir, "state", host), "--run-dir",
		filepath.Join(s.dir, "run", host)}, verb...)
	cmd, err := s.lab.Command(ctx, host, lab.Options{Niclane: s.self}, args...)
	if err != nil {
		return nil, fmt.Errorf("niclane %s: %w", verb[0], err)
	}
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
		}
		return nil, fmt.Errorf("niclane %s: %w", verb[0], err)
	}
	return out, nil
}

// downTimeout bounds each command of the way down.
const downTimeout = 30 * time.Second

func (s *labSite) Down(ctx context.Context) error {
	errs := []error{s.untune(), s.stopServers(), s.polls.Close()}
	if s.lab != nil {
		if s.lanes != "" {
			ctx, cancel := context.WithTimeout(ctx, downTimeout)
			_, err := s.run(ctx, "rollback")
			cancel()
			errs = append(errs, err)
		}
		if s.client != "" {
			ctx, cancel := context.WithTimeout(ctx, downTimeout)
			_, err := s.runOn(ctx, lab.Client, "rollback")
			cancel()
			errs = append(errs, err)
		}
		errs = append(errs, s.lab.Down(ctx))
	}
	if s.latency != nil {
		errs = append(errs, s.latency.Close())
	}
	if s.dir != "" {
		errs = append(errs, os.RemoveAll(s.dir))
	}
	// What could not be removed the next run finds by the reservation.
	if s.reservation != nil && errors.Join(errs...) == nil {
		errs = append(errs, s.reservation.release())
	}
	return errors.Join(errs...)
}
