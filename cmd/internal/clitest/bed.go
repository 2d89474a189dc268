// SPDX-License-Identifier: Apache-2.0

package clitest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/niclane/niclane/internal/testing/labtest"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/lab"
)

// A Bed is a lab for tests that divide lanes and applications over two NUMA nodes. Its system
// under test has a processor on each node.
type Bed struct {
	*testing.T
	*labtest.Nodes
	Lab *lab.Lab // set by Raise
	Dir string   // working directory of commands
	Bin string   // directory of the programs
}

// NewBed finds two NUMA nodes and makes the bed's directories. Without root rights it skips the
// test.
func NewBed(t *testing.T) *Bed {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("not root")
	}
	b := &Bed{T: t, Dir: t.TempDir()}
	b.Nodes = labtest.TwoNodes(t, b.Dir)
	b.Bin = filepath.Join(b.Dir, "bin")
	must.Do(t, os.Mkdir(b.Bin, 0o755))
	return b
}

// In returns a copy of the bed for the subtest t.
func (b *Bed) In(t *testing.T) *Bed {
	c := *b
	c.T = t
	return &c
}

// Raise starts the lab and takes it down at the end of the test.
func (b *Bed) Raise(name string) {
	b.Helper()
	b.Lab = labtest.Up(b.T, lab.Config{Name: fmt.Sprintf("%s-%d", name, os.Getpid()), Queues: 4, SUTCPUs: b.CPUs,
		OtherCPUs: b.CPUs})
}

// Write writes a file into Dir.
func (b *Bed) Write(name, text string) {
	b.Helper()
	must.Do(b, os.WriteFile(filepath.Join(b.Dir, name), []byte(text), 0o644))
}

// CommandOn returns a command on a host of the lab.
func (b *Bed) CommandOn(host string, argv ...string) *exec.Cmd {
	b.Helper()
	// The lab's helper becomes the command (execve), so cmd.Process is the process of the command.
	cmd, err := b.Lab.Command(context.Background(), host, lab.Options{Niclane: filepath.Join(b.Bin, "niclane")},
		argv...)
	must.Do(b, err)
	cmd.Dir = b.Dir
	cmd.Env = append(os.Environ(), "PATH="+b.Bin+":"+os.Getenv("PATH"))
	return cmd
}
