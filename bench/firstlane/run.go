// SPDX-License-Identifier: Apache-2.0

package firstlane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/niclane/niclane/bench/hiccup"
	"github.com/niclane/niclane/bench/noise"
	"github.com/niclane/niclane/bench/report"
	"github.com/niclane/niclane/plan"
)

// Goals of the comparison, fixed beforehand.
const (
	latencyGoal = 1.5  // lane/idle of P50 and P99, upper 95 % bound
	noiseGoal   = 0.95 // of the noise's rate without the lane
)

// measurement is one run of the comparison.
type measurement struct {
	o         Options
	lab       *labHosts
	dir       string // for the lane's file and journal
	result    *report.Result
	server    *worker
	prefilled bool
	lane      bool // is applied
}

// Run raises the lab, measures, and takes the lab down again, also when it
// fails or ctx ends. Only one lab can be up at a time.
func Run(ctx context.Context, o Options) (res *report.Result, err error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	began := time.Now()
	m := &measurement{o: o, result: &report.Result{
		Schema: report.Schema, Title: "What one lane gains on memcached", Started: began.UTC().Round(time.Second),
		Environment: environment(o.Version),
	}}
	if m.dir, err = os.MkdirTemp("", "niclane-first-lane-"); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(m.dir)) }()
	latency, err := holdLatency()
	if err != nil {
		m.warnf("processors may sleep deeply: %v", err)
	} else {
		defer latency.Close()
	}
	o.sayf("measuring the host's own noise")
	if err := m.hiccups(ctx); err != nil {
		return nil, err
	}
	o.sayf("raising the lab")
	if m.lab, err = raise(ctx, o); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.takeDown()) }()
	if err := m.startServer(ctx); err != nil {
		return nil, err
	}
	defer func() { _ = m.server.stop() }()
	m.describe()
	if err := m.writeLane(); err != nil {
		return nil, err
	}
	if err := m.compare(ctx); err != nil {
		return nil, err
	}
	if o.Sweep {
		if err := m.sweep(ctx); err != nil {
			return nil, err
		}
	}
	if err := m.hiccups(ctx); err != nil {
		return nil, err
	}
	m.result.Took = int64(time.Since(began))
	return m.result, nil
}

func (m *measurement) warnf(format string, args ...any) {
	m.result.Warnings = append(m.result.Warnings, fmt.Sprintf(format, args...))
}

// takeDown removes the lane and the lab. The context may have ended.
func (m *measurement) takeDown() error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var err error
	if m.server != nil {
		err = m.server.stop()
	}
	return errors.Join(err, m.setLane(ctx, false), m.lab.down(ctx))
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

// hiccups records what the host does to a thread that only wants to wake up.
func (m *measurement) hiccups(ctx context.Context) error {
	r, err := hiccup.Run(ctx, hiccup.Config{Duration: int64(time.Second)})
	if err != nil {
		return fmt.Errorf("noise floor: %w", err)
	}
	m.result.Hiccups = append(m.result.Hiccups, r)
	return nil
}

// compare measures the variants in interleaved repeats.
func (m *measurement) compare(ctx context.Context) error {
	total := 3 * m.o.Pairs
	began := time.Now()
	for i := range m.o.Pairs {
		for k, variant := range order(i) {
			n := 3*i + k
			left := ""
			if n > 0 {
				left = fmt.Sprintf(", %v left", (time.Since(began) / time.Duration(n) * time.Duration(total-n)).Round(time.Second))
			}
			m.o.sayf("%2d of %d: %s%s", n+1, total, variant, left)
			share := m.o.NoiseShare
			if variant == report.Idle {
				share = 0
			}
			if err := m.setLane(ctx, variant == report.Lane); err != nil {
				return err
			}
			run, err := m.measure(ctx, window{variant: variant, repeat: i, share: share, length: m.o.Window})
			if err != nil {
				return fmt.Errorf("repeat %d, %s: %w", i+1, variant, err)
			}
			m.result.Runs = append(m.result.Runs, run)
		}
	}
	return nil
}

// setLane applies or removes the lane with the niclane command, as a user
// would, in the server's host.
func (m *measurement) setLane(ctx context.Context, on bool) error {
	if on == m.lane {
		return nil
	}
	verb := []string{"rollback"}
	if on {
		verb = []string{"apply", m.laneFile()}
	}
	args := append([]string{m.o.Niclane, "--json", "--state-dir", filepath.Join(m.dir, "state"), "--run-dir", filepath.Join(m.dir, "run")}, verb...)
	out, err := m.lab.command(ctx, "sut", place{}, args...).Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, lastLine(string(exit.Stderr)))
		}
		return fmt.Errorf("niclane %s: %w", verb[0], err)
	}
	m.lane = on
	if !on || m.result.Environment.Plan != "" {
		return nil
	}
	var applied struct {
		Plan plan.Plan `json:"plan"`
	}
	if err := json.Unmarshal(out, &applied); err != nil {
		return fmt.Errorf("niclane apply: what it printed: %w", err)
	}
	m.describeLane(&applied.Plan)
	return nil
}

// writeLane writes the lane's file, and keeps its text for the result.
func (m *measurement) writeLane() error {
	text := laneFile(m.lab.globals(m.o), serverPort, inside[0], m.lab.Cgroup)
	m.result.Environment.Config = text
	return os.WriteFile(m.laneFile(), []byte(text), 0o600)
}

func (m *measurement) laneFile() string { return filepath.Join(m.dir, "lanes.yaml") }

// sweep repeats short windows over noise shares and switch buffers: where the
// gain comes from, and where there is none.
func (m *measurement) sweep(ctx context.Context) error {
	const length = 1200 * time.Millisecond
	for _, buffer := range m.lab.sweepBuffers() {
		if err := m.lab.setBuffer(buffer); err != nil {
			return err
		}
		for _, share := range []float64{0.25, 0.5, 0.75, 0.9} {
			for _, variant := range []string{report.NoLane, report.Lane} {
				m.o.sayf("sweep: %.0f %% noise, %d KiB buffer, %s", share*100, buffer>>10, variant)
				if err := m.setLane(ctx, variant == report.Lane); err != nil {
					return err
				}
				run, err := m.measure(ctx, window{variant: variant, share: share, length: length})
				if err != nil {
					return fmt.Errorf("sweep: %w", err)
				}
				p := report.SweepPoint{Variant: variant, NoiseShare: share, Buffer: int64(buffer), Latency: run.Load.Latency}
				for _, n := range run.Noise {
					p.NoiseRate += n.Receiver.Goodput
				}
				m.result.Sweep = append(m.result.Sweep, p)
			}
		}
	}
	return m.lab.setBuffer(m.lab.buffer())
}

func (m *measurement) noteNoise(c noise.Config) {
	for _, have := range m.result.Setup.Noise {
		if have.Address == c.Address {
			return
		}
	}
	m.result.Setup.Noise = append(m.result.Setup.Noise, c)
}
