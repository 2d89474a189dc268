// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/niclane/niclane/lane/config"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/observe"
	"github.com/niclane/niclane/lane/plan"
	"github.com/niclane/niclane/lane/verify"
)

// A testMachine is this host for package selftest: it applies, verifies and
// rolls back as the commands do.
type testMachine struct {
	app  app // prints to nobody
	dev  string
	file string // the lanes file of the case
	said bytes.Buffer
}

func (s *selfTest) machine() (*testMachine, error) {
	dir := filepath.Join(s.runDir, "selftest")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	m := &testMachine{app: *s.app, dev: s.dev, file: filepath.Join(dir, s.dev+".yaml")}
	m.app.json, m.app.stdout, m.app.stderr = false, &m.said, &m.said
	return m, nil
}

// close removes the lanes file. The journal of lanes that could not be rolled
// back names it, and needs it not.
func (m *testMachine) close() {
	_ = os.Remove(m.file)
	_ = os.Remove(filepath.Dir(m.file)) // unless another selftest has one
}

// State reads the device with everything that plans write.
func (m *testMachine) State(ctx context.Context) (*device.State, error) {
	return observe.Observe(ctx, observe.Options{Devices: []string{m.dev}, RunDir: m.app.runDir, Remember: m.app.runDir})
}

// Plan plans on the device, which has no lanes.
func (m *testMachine) Plan(ctx context.Context, lanes string) (*plan.Plan, []string, error) {
	f, err := config.ParseFile(m.file, []byte(lanes))
	if err != nil {
		return nil, nil, fmt.Errorf("a lanes file of selftest's own: %w", err)
	}
	st, err := m.app.observeFor(ctx, f.Intent)
	if err != nil {
		return nil, nil, err
	}
	p, err := plan.Make(f.Intent, st, plan.Owned{})
	var refused plan.Errors
	if errors.As(err, &refused) {
		var why []string
		for _, e := range refused {
			why = append(why, e.Error())
		}
		return nil, why, nil
	}
	return p, nil, err
}

// Apply applies as the command does.
func (m *testMachine) Apply(ctx context.Context, lanes string, within time.Duration) error {
	if err := os.WriteFile(m.file, []byte(lanes), 0o600); err != nil {
		return err
	}
	r, err := readRequest(m.file)
	if err != nil {
		return err
	}
	m.said.Reset()
	return m.app.apply(ctx, r, within)
}

// Watch does what verify does.
func (m *testMachine) Watch(ctx context.Context, during time.Duration) (verify.Watched, []verify.Finding, error) {
	var ws watching
	results, err := m.app.compare(ctx, []string{m.file}, true, &ws)
	if err != nil {
		return verify.Watched{}, nil, errors.Join(err, ws.close())
	}
	var out []verify.Finding
	for _, r := range results {
		out = append(out, r.Findings...)
	}
	for _, fs := range ws.end(ctx, time.Now(), during) {
		out = append(out, fs...)
	}
	if len(ws) != 1 {
		return verify.Watched{}, out, nil
	}
	return ws[0].last, out, nil
}

// Rollback rolls back as the command does.
func (m *testMachine) Rollback(ctx context.Context) error {
	m.said.Reset()
	return m.app.rollback(ctx, []string{m.file}, false)
}

// LinkDowns reads what the kernel counts (Documentation/ABI/testing/sysfs-class-net).
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
