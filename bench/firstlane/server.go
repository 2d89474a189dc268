// SPDX-License-Identifier: Apache-2.0

package firstlane

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/niclane/niclane/bench/load"
	"github.com/niclane/niclane/bench/memserver"
)

// startServer starts memcached in the server's host, or niclane's own server
// where there is no memcached, and waits until it answers.
func (m *measurement) startServer(ctx context.Context) error {
	address := m.lab.address("sut", serverPort)
	path, err := exec.LookPath("memcached")
	if err == nil {
		host, _, _ := strings.Cut(address, ":")
		cmd := m.lab.command(ctx, "sut", serverPlace, path, "-u", "nobody", "-l", host, "-p", strconv.Itoa(serverPort),
			"-U", "0", "-t", "2", "-c", "2048", "-m", "64")
		m.server, err = start("memcached", cmd, nil)
		m.result.Environment.Versions["server"] = versionOf(path)
	} else {
		m.warnf("memcached is not installed: niclane's own server was measured")
		cmd := m.lab.command(ctx, "sut", serverPlace, m.o.Niclane, "internal-server")
		m.server, err = start("server", cmd, memserver.Config{Address: address, Threads: 2})
		m.result.Environment.Versions["server"] = "niclane's own " + m.o.Version
	}
	if err != nil {
		return err
	}
	return m.answering(ctx, address)
}

// answering fills the cache and sends a few requests, again and again until
// the server listens.
func (m *measurement) answering(ctx context.Context, address string) error {
	const patience = 10 * time.Second
	deadline := time.Now().Add(patience)
	for {
		err := m.ask(ctx, address)
		if err == nil || time.Now().After(deadline) || m.server.running() != nil || ctx.Err() != nil {
			return errors.Join(err, m.server.running())
		}
		if err := wait(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

func (m *measurement) ask(ctx context.Context, address string) error {
	m.prefilled = false
	cfg := m.loadConfig(window{length: 200e6})
	cfg.Warmup = 0
	gen, err := start("generator", m.lab.command(ctx, "client", generatorPlace, m.o.Niclane, "internal-load"), cfg)
	if err != nil {
		return err
	}
	var r load.Result
	if err := gen.result(20e9, &r); err != nil {
		return fmt.Errorf("%s at %s does not answer: %w", m.server.what, address, err)
	}
	if r.Hits == 0 {
		return fmt.Errorf("%s at %s answers, but not with what was set: %d misses, %d errors %s", m.server.what, address, r.Misses, r.Errors, r.FirstError)
	}
	return nil
}

// versionOf runs the program's -V, which memcached answers with its version.
func versionOf(path string) string {
	out, err := exec.Command(path, "-V").Output()
	if err != nil {
		return path
	}
	return strings.TrimSpace(string(out))
}

// pids of the processes whose time is accounted.
func (m *measurement) pids() map[string]int {
	return map[string]int{m.server.what: m.server.cmd.Process.Pid}
}

// cpuOrder is the order in which processor times are listed.
func (m *measurement) cpuOrder() []string {
	order := []string{m.server.what}
	for _, cpu := range append(append([]int{}, outside...), inside...) {
		for _, f := range cpuFields {
			order = append(order, fmt.Sprintf("cpu%d %s", cpu, f.name))
		}
	}
	return order
}
