// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// A Command is a program to start, by its path on the machine.
type Command struct {
	Args []string
	Env  []string // in addition to PATH
}

// A Process is a running or ended process on a machine.
type Process struct {
	Pid   int // on the machine
	args  []string
	s     *session
	ended chan struct{}
	end   answer
}

// Start starts a program with input, which may be nil, and output, which gets standard output
// and error. The caller closes both.
func (m *Machine) Start(c Command, input, output *os.File) (*Process, error) {
	if input == nil {
		null, err := os.Open(os.DevNull)
		if err != nil {
			return nil, err
		}
		defer null.Close()
		input = null
	}
	p, err := m.session.ask(request{Start: &c}, input, output, output)
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w", m.Name, c.Args[0], err)
	}
	process := &Process{Pid: (<-p.taken).Pid, args: c.Args, s: m.session, ended: make(chan struct{})}
	go func() {
		process.end = <-p.ended
		close(process.ended)
	}()
	return process, nil
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.ended }

// Wait waits for the end of the process. It returns an error for an exit code other than 0
// and for a signal.
func (p *Process) Wait() error {
	<-p.ended
	status := syscall.WaitStatus(p.end.Status)
	switch {
	case p.end.Error != "":
		return fmt.Errorf("%s: %s", p.args[0], p.end.Error)
	case status.Signaled():
		return fmt.Errorf("%s: %s", p.args[0], status.Signal())
	case status.ExitStatus() != 0:
		return fmt.Errorf("%s: exit status %d", p.args[0], status.ExitStatus())
	}
	return nil
}

// Signal sends the process a signal. It does nothing if the process has ended.
func (p *Process) Signal(number unix.Signal) error {
	select {
	case <-p.ended:
		return nil
	default:
	}
	_, err := p.s.ask(request{Signal: &toSend{p.Pid, int(number)}})
	return err
}

// Output runs a program to its end and returns its output. An error contains the output too.
func (m *Machine) Output(args ...string) (string, error) { return m.Pipe("", args...) }

// Pipe is Output for a program that reads input.
func (m *Machine) Pipe(input string, args ...string) (string, error) {
	out, outEnd, err := os.Pipe()
	if err != nil {
		return "", err
	}
	defer out.Close()
	in, inEnd, err := os.Pipe()
	if err != nil {
		outEnd.Close()
		return "", err
	}
	p, err := m.Start(Command{Args: args}, in, outEnd)
	outEnd.Close()
	in.Close()
	if err != nil {
		inEnd.Close()
		return "", err
	}
	go func() {
		io.WriteString(inEnd, input) // a program may leave input unread
		inEnd.Close()
	}()
	var text bytes.Buffer
	if _, err := text.ReadFrom(out); err != nil {
		return "", err
	}
	if err := p.Wait(); err != nil {
		return text.String(), fmt.Errorf("%s: %s: %w\n%s", m.Name, strings.Join(args, " "), err, text.String())
	}
	return text.String(), nil
}
