// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/bench/load"
	"github.com/niclane/niclane/bench/load/counters"
	"github.com/niclane/niclane/bench/memserver"
	"github.com/niclane/niclane/bench/result"
	"github.com/niclane/niclane/bench/thread"
	"github.com/niclane/niclane/lab"
)

// proofs are the counters of servers by the protocol that they speak.
var proofs = map[string]string{
	experiment.ProtocolMemcached: "memcached's stats", experiment.ProtocolRESP: "INFO", experiment.ProtocolAerospike: "statistics of the namespace",
}

// StartServer starts the server and what it needs, and waits for its answer.
func (s *labSite) StartServer(ctx context.Context) (result.Server, error) {
	r := result.Server{Kind: s.e.Server.Kind, Address: s.address(), Proof: "none: no counters of this server are known"}
	if err := s.writeFiles(); err != nil {
		return r, err
	}
	if err := s.startBeside(ctx); err != nil {
		return r, err
	}
	if r.Kind == experiment.KindMemcached {
		if _, err := exec.LookPath("memcached"); err != nil {
			if s.e.Server.Fallback == "" {
				return r, err
			}
			r.Kind = s.e.Server.Fallback
		}
	}
	if err := s.start(ctx, &r); err != nil {
		return r, err
	}
	ready := s.e.Server.Ready
	host := s.e.Workload.HostHeader
	if host == "" {
		host = s.address()
	}
	if err := answering(ctx, s.dial(lab.Client), s.address(), question{ready.Protocol, host, ready.Path}, time.Duration(ready.Timeout), s.alive); err != nil {
		return r, err
	}
	if kind, ok := proofs[s.e.Workload.Protocol]; ok {
		r.Proof, s.counts = kind, true
	}
	return r, nil
}

func (s *labSite) start(ctx context.Context, r *result.Server) (err error) {
	x := s.e.Server
	host, port, err := net.SplitHostPort(r.Address)
	if err != nil {
		return err
	}
	at := s.e.Placement.Server
	o := lab.Options{CPUs: at.CPUs, FIFO: at.FIFO, Cgroup: s.lab.CgroupDir != ""}
	var config any
	var env []string
	switch r.Kind {
	case experiment.KindMemcached:
		path, err := exec.LookPath("memcached")
		if err != nil {
			return err
		}
		r.Version = versionOf(path)
		r.Command = []string{path, "-u", "nobody", "-l", host, "-p", port, "-U", "0", "-t", strconv.Itoa(x.Threads),
			"-c", strconv.Itoa(x.Connections), "-m", strconv.FormatInt(max(1, x.Memory>>20), 10)}
	case experiment.KindNiclane:
		r.Version = "niclane's own"
		r.Command = []string{s.niclane, "internal-server"}
		// Its threads take SCHED_FIFO themselves: a whole Go process under it
		// on one processor starves the thread that it waits for.
		o.FIFO = 0
		config = memserver.Config{Address: r.Address, Threads: x.Threads, MaxConnections: x.Connections, MaxMemory: x.Memory,
			Setup: thread.Setup{CPUs: at.CPUs, FIFO: at.FIFO}}
	case experiment.KindCommand:
		if r.Command, env, err = s.expanded(x.Command, x.Environment); err != nil {
			return err
		}
		r.Version = versionOf(r.Command[0])
	}
	cmd := s.command(ctx, lab.SUT, o, r.Command...)
	if r.Kind == experiment.KindCommand {
		cmd.Env = env
	}
	s.server, err = start("the server", cmd, config)
	return err
}

// expanded is a command and its environment with the names replaced.
func (s *labSite) expanded(argv []string, environment map[string]string) (out, env []string, err error) {
	values := s.values()
	for _, a := range argv {
		x, err := experiment.Expand(a, values)
		if err != nil {
			return nil, nil, err
		}
		out = append(out, x)
	}
	env = []string{"PATH=" + os.Getenv("PATH")}
	for _, name := range slices.Sorted(maps.Keys(environment)) {
		x, err := experiment.Expand(environment[name], values)
		if err != nil {
			return nil, nil, err
		}
		env = append(env, name+"="+x)
	}
	return out, env, nil
}

// writeFiles makes the scratch directory and the files in it.
func (s *labSite) writeFiles() error {
	// Servers that have dropped their rights write here too. Sticky: nobody
	// can put another file in the place of root's.
	if err := os.Mkdir(s.scratch(), 0o700); err != nil {
		return err
	}
	if err := os.Chmod(s.scratch(), os.ModeSticky|0o777); err != nil {
		return err
	}
	if s.e.Server.Certificate {
		host, _, err := net.SplitHostPort(s.address())
		if err != nil {
			return err
		}
		if err := makeCertificate(s.scratch(), host, time.Duration(s.e.TimeLimit)); err != nil {
			return fmt.Errorf("server.certificate: %w", err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.e.Server.Files)) {
		text, err := experiment.Expand(s.e.Server.Files[name], s.values())
		if err != nil {
			return fmt.Errorf("server.files: %s: %w", name, err)
		}
		path := filepath.Join(s.scratch(), name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// startBeside starts what the server needs, each when the one before it
// listens.
func (s *labSite) startBeside(ctx context.Context) error {
	for _, b := range s.e.Server.Beside {
		argv, env, err := s.expanded(b.Command, nil)
		if err != nil {
			return fmt.Errorf("%s: %w", b.Name, err)
		}
		cmd := s.command(ctx, b.Host, lab.Options{}, argv...)
		cmd.Env = env
		p, err := start(b.Name, cmd, nil)
		if err != nil {
			return err
		}
		s.beside = append(s.beside, p)
		if b.Port == 0 {
			continue
		}
		patience := time.Duration(s.e.Server.Ready.Timeout)
		if err := answering(ctx, s.dial(b.Host), s.onHost(b.Host, b.Port), question{protocol: experiment.ProtocolTCP}, patience, s.alive); err != nil {
			return fmt.Errorf("%s: %w", b.Name, err)
		}
	}
	return nil
}

// alive returns how the server, or what it needs, has ended.
func (s *labSite) alive() error {
	var errs []error
	if s.server != nil {
		errs = append(errs, s.server.ended())
	}
	for _, p := range s.beside {
		errs = append(errs, p.ended())
	}
	return errors.Join(errs...)
}

// because prefers the reason for which everything else fails.
func (s *labSite) because(err error) error {
	if gone := s.alive(); gone != nil {
		return gone
	}
	return err
}

// Prefill sets every key and proves it from the server's counters.
func (s *labSite) Prefill(ctx context.Context) error {
	c, err := filler(s.f, s.address())
	if err != nil {
		return err
	}
	before, err := s.count(ctx)
	if err != nil {
		return err
	}
	p, err := start("prefill", s.command(ctx, lab.Client, lab.Options{CPUs: c.CPUs}, s.niclane, "internal-load"), c)
	if err != nil {
		return err
	}
	var r load.Result
	if err := p.result(ctx, &r); err != nil {
		return s.because(err)
	}
	after, err := s.count(ctx)
	if err != nil {
		return err
	}
	if r.Work.Stored < int64(s.e.Workload.Keys) {
		return fmt.Errorf("%d of %d keys were stored: %s", r.Work.Stored, s.e.Workload.Keys, r.FirstError)
	}
	return unproven(counters.Compare(before, after, r.Work))
}

// count reads the server's counters, from the SUT; none compare with anything.
func (s *labSite) count(ctx context.Context) (c counters.Counters, err error) {
	if !s.counts {
		return c, nil
	}
	config := load.Config{Address: s.address()}
	if err := workload(s.f, &config); err != nil {
		return c, err
	}
	if config.Protocol != load.Aerospike {
		// By this process: there are two readings for each window. Aerospike's
		// client dials from threads of its own, which are not on the host.
		err = s.lab.Do(lab.SUT, func() error {
			c, err = counters.Read(ctx, config)
			return err
		})
		if err != nil {
			return c, s.because(err)
		}
		return c, nil
	}
	p, err := start("counters", s.command(ctx, lab.SUT, lab.Options{}, s.niclane, "internal-counters"), config)
	if err != nil {
		return c, err
	}
	if err := p.result(ctx, &c); err != nil {
		return c, s.because(err)
	}
	return c, nil
}
