// SPDX-License-Identifier: Apache-2.0

package run

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/bench/agent"
	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/lab"
)

// loopback is the address on which the agent of a lab host listens, and the name in its
// certificate. Only a process in the host's network namespace can connect to it: see enter.
const loopback = "127.0.0.1"

// clientPort is the device of the lab's client.
const clientPort = "eth0"

// A labAgent is the process of a lab host's agent.
type labAgent struct {
	cmd *exec.Cmd
	log strings.Builder
}

// serveAll starts the agents and puts their addresses into s.h.
func (s *labSite) serveAll() error {
	if _, err := agent.MakeCertificates(s.path("pki"), []string{loopback}, agent.DefaultClient, 2*s.limit(),
		time.Now()); err != nil {
		return err
	}
	*s.h = experiment.Hosts{
		Authority: s.path("pki", agent.AuthorityFile), Certificate: s.path("pki", agent.DefaultClient+".pem"),
		Key: s.path("pki", agent.DefaultClient+".key"), LinkRate: s.lab.Config.LinkRate,
	}
	// Let an unprivileged server on the SUT use ports below 1024.
	err := s.lab.Do(lab.SUT, func() error {
		return os.WriteFile("/proc/sys/net/ipv4/ip_unprivileged_port_start", []byte("0"), 0)
	})
	if err != nil {
		return err
	}
	if s.h.SUT, err = s.serveOn(lab.SUT, lab.Port); err != nil {
		return err
	}
	client, err := s.serveOn(lab.Client, clientPort)
	if err != nil {
		return err
	}
	noise, err := s.serveOn(lab.Noise, "")
	s.h.Clients, s.h.Noise = []experiment.Host{client}, &noise
	return err
}

// serveOn starts the agent of a host, and returns when it listens.
func (s *labSite) serveOn(host, device string) (experiment.Host, error) {
	h := experiment.Host{Name: host, Address: s.lab.Config.IPv4(host).String(), Device: device}
	argv := []string{s.self, "--state-dir", s.path("state", host), "--run-dir", s.path("run", host), "serve",
		"--listen", net.JoinHostPort(loopback, "0"), "--cert", s.path("pki", loopback+".pem"),
		"--key", s.path("pki", loopback+".key"), "--ca", s.h.Authority, "--dir", s.path(host),
		"--allow-commands", "all", "--user", s.user(), "--limit", s.limit().String()}
	if device != "" {
		argv = append(argv, "--lanes", device)
	}
	// The command does not use ctx of the run: the end of ctx would kill the agent before the
	// agent has undone its changes.
	cmd, err := s.lab.Command(context.Background(), host, lab.Options{Niclane: s.self}, argv...)
	if err != nil {
		return h, err
	}
	a := &labAgent{cmd: cmd}
	cmd.Stderr, cmd.WaitDelay = &a.log, time.Second
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return h, fmt.Errorf("start the agent of %s: %w", host, err)
	}
	s.serving = append(s.serving, a)
	line, _ := bufio.NewReader(out).ReadString('\n')
	address, listens := strings.CutPrefix(strings.TrimSpace(line), agent.Listening)
	if !listens {
		return h, fmt.Errorf("the agent of %s does not listen: %w", host, errors.Join(a.end(), errors.New(a.said())))
	}
	h.Agent = address
	return h, nil
}

// said returns the last line of the agent's output.
func (a *labAgent) said() string {
	text := strings.TrimSpace(a.log.String())
	return text[strings.LastIndexByte(text, '\n')+1:]
}

// agentTime is how long an agent may take to end: longer than it takes to restore its host.
const agentTime = 2 * time.Minute

// end tells the agent to end and waits until it has ended.
func (a *labAgent) end() error {
	_ = a.cmd.Process.Signal(unix.SIGTERM)
	late := time.AfterFunc(agentTime, func() { _ = a.cmd.Process.Kill() })
	defer late.Stop()
	var exit *exec.ExitError
	if err := a.cmd.Wait(); err != nil && !errors.As(err, &exit) && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// limit returns the longest time that a session may last.
func (s *labSite) limit() time.Duration { return sessionMargin + time.Duration(s.e.TimeLimit) }

// enter returns a function that opens connections in the network namespace of a lab host.
func (s *labSite) enter(host string) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (conn net.Conn, err error) {
		err = s.lab.Do(host, func() error {
			conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
			return err
		})
		return conn, err
	}
}
