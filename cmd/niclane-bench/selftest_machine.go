// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/niclane/niclane/internal/privatedir"
	"github.com/niclane/niclane/internal/program"
	"github.com/niclane/niclane/lane/config"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/engine"
	"github.com/niclane/niclane/lane/observe"
	"github.com/niclane/niclane/lane/plan"
	"github.com/niclane/niclane/lane/verify"
)

// A testMachine represents this host for package selftest. It runs the program niclane to apply,
// verify and roll back lanes.
type testMachine struct {
	app     *app
	niclane program.Lanes
	dev     string
	file    string // the present case's lanes file
}

func (s *selfTest) machine() (*testMachine, error) {
	path, err := program.Find(program.Niclane)
	if err != nil {
		return nil, fmt.Errorf("selftest: %w", err)
	}
	dir := filepath.Join(s.RunDir, "selftest")
	if err := privatedir.Make(dir); err != nil {
		return nil, err
	}
	return &testMachine{
		app: s.app, niclane: program.Lanes{Path: path, StateDir: s.StateDir, RunDir: s.RunDir},
		dev: s.dev, file: filepath.Join(dir, s.dev+".yaml"),
	}, nil
}

// close removes the lanes file. After a failed rollback, the journal still names this file, but the
// next rollback does not need it.
func (m *testMachine) close() {
	_ = os.Remove(m.file)
	_ = os.Remove(filepath.Dir(m.file)) // fails if another selftest has a file there
}

// State reads all objects of the device that a plan can write.
func (m *testMachine) State(ctx context.Context) (*device.State, error) {
	return observe.Observe(ctx, observe.Options{Devices: []string{m.dev}, RunDir: m.app.RunDir, Remember: m.app.RunDir})
}

// Plan plans lanes for the device, which must not have lanes yet. If the planner refuses the lanes,
// Plan returns the reasons.
func (m *testMachine) Plan(ctx context.Context, lanes string) (*plan.Plan, []string, error) {
	f, err := config.ParseFile(m.file, []byte(lanes))
	if err != nil {
		return nil, nil, fmt.Errorf("a lanes file of selftest's own: %w", err)
	}
	p, err := m.app.Engine().Plan(ctx, &engine.File{Name: m.file, Text: []byte(lanes), Intent: f.Intent})
	if refused, ok := errors.AsType[plan.Errors](err); ok {
		var why []string
		for _, e := range refused {
			why = append(why, e.Error())
		}
		return nil, why, nil
	}
	if err != nil {
		return nil, nil, err
	}
	return p.Plan, nil, nil
}

// Apply runs niclane apply.
func (m *testMachine) Apply(ctx context.Context, lanes string, within time.Duration) error {
	if err := os.WriteFile(m.file, []byte(lanes), 0o600); err != nil {
		return err
	}
	_, err := m.niclane.Run(ctx, "apply", "--confirm-within", within.String(), m.file)
	return err
}

// Watch runs niclane verify.
func (m *testMachine) Watch(ctx context.Context, during time.Duration) (verify.Watched, []verify.Finding, error) {
	out, err := m.niclane.Run(ctx, "verify", "--for", during.String(), m.file)
	var results []struct {
		Findings []verify.Finding `json:"findings"`
		Traffic  []verify.Watched `json:"traffic"`
	}
	// On drift, niclane verify prints the findings and exits with 3.
	if perr := json.Unmarshal(out, &results); perr != nil || len(results) != 1 {
		return verify.Watched{}, nil, cmp.Or(err, fmt.Errorf("niclane verify: %d results, want one: %w", len(results),
			perr))
	}
	// Ignore the finding about sockets: it uses each connection's last receive queue, and
	// selftest's connections are older than the lanes.
	findings := slices.DeleteFunc(results[0].Findings, func(f verify.Finding) bool { return f.Key == "sockets" })
	if len(results[0].Traffic) != 1 {
		return verify.Watched{}, findings, nil
	}
	return results[0].Traffic[0], findings, nil
}

// Rollback runs niclane rollback.
func (m *testMachine) Rollback(ctx context.Context) error {
	_, err := m.niclane.Run(ctx, "rollback", m.file)
	return err
}

// LinkDowns returns how often the link has gone down by the kernel's count, nil if unknown, and
// whether the link has a carrier now (Documentation/ABI/testing/sysfs-class-net).
func (m *testMachine) LinkDowns() (*int, bool) {
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join("/sys/class/net", m.dev, name))
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(b))
	}
	carrier := read("carrier") == "1"
	n, err := strconv.Atoi(read("carrier_down_count"))
	if err != nil {
		return nil, carrier
	}
	return &n, carrier
}
