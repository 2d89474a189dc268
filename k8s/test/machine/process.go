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

// A Command is a program to start on a machine. Args begin with its name or its path there.
type Command struct {
	Args []string
	Env  []string // environment variables in addition to PATH
}

// A Process is a running or ended process on a machine.
type Process struct {
	Pid   int // the process's ID on the machine
	args  []string
	s     *session
	ended chan struct{}
	end   answer
}

// Start starts a program. input is its standard input and may be nil. output gets its standard
// output and standard error. The caller must close both files.
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

// Done returns a channel that is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.ended }

// Wait waits for the end of the process. It returns an error if the exit code is not 0, or if a
// signal has ended the process.
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

// Signal sends a signal to the process. It does nothing if the process has ended.
func (p *Process) Signal(number unix.Signal) error {
	select {
	case <-p.ended:
		return nil
	default:
	}
	_, err := p.s.ask(request{Signal: &toSend{p.Pid, int(number)}})
	return err
}

// Output runs a program to its end, and returns its standard output and standard error. An error
// contains this output too.
func (m *Machine) Output(args ...string) (string, error) { return m.Pipe("", args...) }

// Pipe does the same as Output, and gives the program the text input as standard input.
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
