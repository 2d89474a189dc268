// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/lab"
)

// hostsOfServer returns the hosts of the server and its additional processes.
func (m *measurement) hostsOfServer() []string {
	out := []string{lab.SUT}
	for _, b := range m.e.Server.Beside {
		if !slices.Contains(out, b.Host) {
			out = append(out, b.Host)
		}
	}
	return out
}

// generatorHosts returns the hosts of the generators.
func (m *measurement) generatorHosts() (out []string) {
	for _, s := range m.on.seats(m.e.Load.Generators) {
		if !slices.Contains(out, s.host) {
			out = append(out, s.host)
		}
	}
	return out
}

// authorityFile is the file with the authority of the server's certificate, if the run has not
// made that certificate.
const authorityFile = "authority.pem"

// authorityOn returns the path on a host of the file with the authority of the server's certificate;
// "": none.
func (m *measurement) authorityOn(host string) string {
	switch t := m.e.Workload.TLS; {
	case m.e.Server.Certificate:
		return filepath.Join(m.on.scratchOf(host), certificateFile)
	case t != nil && t.Authority != "":
		return filepath.Join(m.on.scratchOf(host), authorityFile)
	}
	return ""
}

// writeFiles writes the server's files to the hosts that need them.
func (m *measurement) writeFiles(ctx context.Context) error {
	if m.e.Server.Certificate {
		if err := m.certify(ctx); err != nil {
			return fmt.Errorf("server.certificate: %w", err)
		}
	}
	if t := m.e.Workload.TLS; t != nil && t.Authority != "" && !m.e.Server.Certificate {
		text, err := readLimited(beside(m.f, t.Authority))
		if err != nil {
			return fmt.Errorf("tls.authority: %w", err)
		}
		for _, host := range m.generatorHosts() {
			if err := m.on.put(ctx, host, authorityFile, text, false); err != nil {
				return fmt.Errorf("tls.authority: %w", err)
			}
		}
	}
	for _, host := range m.hostsOfServer() {
		of := []*instance{nil}
		if host == lab.SUT {
			of = m.instances
		}
		for _, x := range of {
			if err := m.writeFilesOf(ctx, host, x); err != nil {
				return err
			}
		}
	}
	return nil
}

// writeFilesOf writes the files of instance x to a host; x is nil for files of no instance.
func (m *measurement) writeFilesOf(ctx context.Context, host string, x *instance) error {
	for _, name := range slices.Sorted(maps.Keys(m.e.Server.Files)) {
		text := m.e.Server.Files[name]
		if m.variant != nil {
			if other, ok := m.variant.Files[name]; ok {
				text = other
			}
		}
		text, err := experiment.Expand(text, m.valuesOf(host, x))
		if err == nil {
			err = m.on.put(ctx, host, x.file(name), []byte(text), false)
		}
		if err != nil {
			return fmt.Errorf("server.files: %s: %w", name, err)
		}
	}
	return nil
}

// certify makes a certificate for the server, which the generators trust.
func (m *measurement) certify(ctx context.Context) (err error) {
	var hosts []string
	for _, a := range m.serverAddresses() {
		host, _, err := net.SplitHostPort(a)
		if err != nil {
			return err
		}
		hosts = append(hosts, host)
	}
	dir, err := os.MkdirTemp("", dirPrefix)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := makeCertificate(dir, hosts, time.Duration(m.e.TimeLimit)); err != nil {
		return err
	}
	for _, name := range []string{certificateFile, keyFile, bundleFile} {
		text, err := fs.ReadFile(os.DirFS(dir), name)
		if err != nil {
			return err
		}
		to := []string{lab.SUT}
		if name == certificateFile {
			to = append(to, m.generatorHosts()...)
		}
		for _, x := range m.instances {
			if x.dir != "" {
				if err := m.on.put(ctx, lab.SUT, x.file(name), text, name != certificateFile); err != nil {
					return err
				}
			}
		}
		for _, host := range to {
			if err := m.on.put(ctx, host, name, text, name != certificateFile); err != nil {
				return err
			}
		}
	}
	return nil
}
