// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// A request is a request to the machine's first process (init). Exactly one of the fields Boot,
// Start and Signal is set.
type request struct {
	ID     int
	Boot   *Config  `json:",omitempty"`
	Start  *Command `json:",omitempty"` // the message also has three file descriptors: standard input, output and error
	Signal *toSend  `json:",omitempty"`
}

type toSend struct{ Pid, Number int }

// An answer is init's answer to a request. A request with Start gets a second answer when the
// process has ended.
type answer struct {
	ID     int
	Error  string `json:",omitempty"`
	Pid    int    `json:",omitempty"`
	Ended  bool   `json:",omitempty"`
	Status uint32 `json:",omitempty"` // as wait(2) returns it
}

// maxPacket is the largest request or answer, in bytes.
const maxPacket = 128 << 10

// A session is one run of a machine's first process (init), with the requests that wait for an
// answer.
type session struct {
	init    *os.Process
	control *os.File
	gone    chan struct{} // closed when init has ended

	mu      sync.Mutex
	last    int
	pending map[int]pending
}

type pending struct{ taken, ended chan answer } // taken gets the first answer, ended the second

func newSession(c Config) (*session, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("socketpair: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "control"), os.NewFile(uintptr(fds[1]), "control")
	defer theirs.Close()
	s := &session{control: ours, gone: make(chan struct{}), pending: map[int]pending{}}
	s.init, err = os.StartProcess("/proc/self/exe", []string{initName}, &os.ProcAttr{
		Env:   []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"},
		Files: []*os.File{nil, os.Stdout, os.Stderr, theirs},
		Sys: &syscall.SysProcAttr{
			Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWPID | unix.CLONE_NEWUTS |
				unix.CLONE_NEWIPC,
		},
	})
	if err != nil {
		ours.Close()
		return nil, err
	}
	go s.listen()
	if _, err := s.ask(request{Boot: &c}); err != nil {
		s.init.Kill()
		<-s.gone
		return nil, errors.Join(err, removeCgroups(c.Name))
	}
	return s, nil
}

// listen passes init's answers to the callers that wait for them, until init ends.
func (s *session) listen() {
	buf := make([]byte, maxPacket)
	for {
		n, err := unix.Read(int(s.control.Fd()), buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n == 0 {
			break
		}
		var a answer
		if json.Unmarshal(buf[:n], &a) != nil {
			continue // init does not send this
		}
		s.mu.Lock()
		p := s.pending[a.ID]
		if a.Ended || a.Error != "" || a.Pid == 0 {
			delete(s.pending, a.ID)
		}
		s.mu.Unlock()
		if a.Ended {
			p.ended <- a
		} else {
			p.taken <- a
		}
	}
	s.init.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, p := range s.pending {
		a := answer{ID: id, Error: "the machine was halted", Ended: true}
		p.ended <- a
		select {
		case p.taken <- a:
		default: // the request already has its first answer
		}
	}
	s.pending = nil
	s.control.Close()
	close(s.gone)
}

// ask sends a request with files, and waits for its first answer. It returns an error if the answer
// has one, else the channels of the request's answers.
func (s *session) ask(r request, files ...*os.File) (pending, error) {
	p := pending{taken: make(chan answer, 1), ended: make(chan answer, 1)}
	s.mu.Lock()
	if s.pending == nil {
		s.mu.Unlock()
		return p, errors.New("the machine was halted")
	}
	s.last++
	r.ID = s.last
	s.pending[r.ID] = p
	s.mu.Unlock()
	var fds []int
	for _, f := range files {
		fds = append(fds, int(f.Fd()))
	}
	text, err := json.Marshal(r)
	if err == nil {
		err = unix.Sendmsg(int(s.control.Fd()), text, unix.UnixRights(fds...), nil, unix.MSG_NOSIGNAL)
	}
	if err != nil {
		s.mu.Lock()
		delete(s.pending, r.ID)
		s.mu.Unlock()
		return p, err
	}
	a := <-p.taken
	if a.Error != "" {
		return p, errors.New(a.Error)
	}
	p.taken <- a
	return p, nil
}
