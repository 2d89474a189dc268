// SPDX-License-Identifier: Apache-2.0

package poller_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/ethtool"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/poller"
)

// impostor acts as a poller that answers with a wrong PID. It listens on descriptor 3 and gives
// every client the same answer. It ignores the request "stop".
func impostor(answer string) {
	_ = unix.Listen(3, 1) // from now on, clients see this process's credentials
	l, err := net.FileListener(os.NewFile(3, ""))
	for err == nil {
		var c net.Conn
		if c, err = l.Accept(); err == nil {
			pretend(c, answer)
		}
	}
	os.Exit(1)
}

func pretend(c net.Conn, answer string) {
	defer c.Close()
	for word := make([]byte, 16); ; {
		n, err := c.Read(word)
		if err != nil {
			return
		}
		if string(word[:n]) == "status\n" {
			fmt.Fprintln(c, answer)
		}
	}
}

// victim starts a process that a wrong PID in an answer could kill.
func victim(t *testing.T) *exec.Cmd {
	cmd := exec.Command("sleep", "1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	must.Do(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd
}

func answering(t *testing.T, p device.Poller, pid int) string {
	b, err := json.Marshal(device.PollerState{Poller: p, PID: pid, Thread: pid, Doing: device.PollerPolling,
		NAPIs: []uint32{1}})
	must.Do(t, err)
	return string(b)
}

// path returns the path of a poller's socket.
func path(t *testing.T, p device.Poller) string {
	var st unix.Stat_t
	link, err := net.InterfaceByName(p.Dev)
	if err == nil {
		err = unix.Stat("/proc/thread-self/ns/net", &st)
	}
	must.Do(t, err)
	return filepath.Join(client.RunDir, "pollers", fmt.Sprintf("%d.%d.%d", st.Ino, link.Index, p.Queues[0]))
}

// listen listens at the path of a poller's socket.
func listen(t *testing.T, path string) *net.UnixListener {
	must.Do(t, os.MkdirAll(filepath.Dir(path), 0o700))
	l, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: path})
	must.Do(t, err)
	t.Cleanup(func() { l.Close(); os.Remove(filepath.Dir(path)) })
	return l
}

// TestForeign: a file in the directory is no poller. A process that was not started as a poller is
// none either, whatever it answers.
func TestForeign(t *testing.T) {
	vethtest.Run(t, queues, func(t *testing.T) {
		p := object(0)
		v := victim(t)
		l := listen(t, path(t, p))
		abstract, err := net.Listen("unix", "@niclane/"+p.Key()) // the address of earlier versions
		must.Do(t, err)
		defer abstract.Close()
		for _, l := range []net.Listener{l, abstract} {
			go func() {
				for c, err := l.Accept(); err == nil; c, err = l.Accept() {
					go pretend(c, answering(t, p, v.Process.Pid))
				}
			}()
		}
		file := filepath.Join(filepath.Dir(path(t, p)), "1.2.x")
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Error(err)
		}
		defer os.Remove(file)
		if s := state(t, p); s.PID != 0 {
			t.Errorf("listed: %+v", s)
		}
		wantNone(t, p, "read")
		if err := client.Write(p, nil); err != nil {
			t.Errorf("ending it: %v", err)
		}
		if err := client.Write(nil, p); !errors.Is(err, unix.EADDRINUSE) || !strings.Contains(err.Error(), path(t, p)) {
			t.Errorf("starting one there: %v, want EADDRINUSE of %s", err, path(t, p))
		}
		if err := v.Process.Signal(unix.Signal(0)); err != nil {
			t.Errorf("the process that was named: %v", err)
		}
	})
}

// TestNamed: a poller that answers with another process's PID is listed with its own PID. Write
// ends the poller, and not the other process.
func TestNamed(t *testing.T) {
	vethtest.Run(t, queues, func(t *testing.T) {
		p := object(0)
		v := victim(t)
		l := listen(t, path(t, p))
		socket, err := l.File()
		must.Do(t, err)
		defer socket.Close()
		arg, err := json.Marshal(p)
		must.Do(t, err)
		cmd := exec.Command("/proc/self/exe", poller.Command, string(arg), answering(t, object(3), v.Process.Pid))
		cmd.ExtraFiles = []*os.File{socket}
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
		must.Do(t, cmd.Start())
		eventually(t, "it listens", func() bool { return state(t, p).PID == cmd.Process.Pid })
		if s := state(t, p); !device.Equal(s.Poller, p) {
			t.Errorf("it was started as %+v, and is %+v", p, s.Poller)
		}
		if err := client.Write(p, nil); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err == nil || err.Error() != "signal: killed" {
			t.Errorf("what listened: %v, want signal: killed", err)
		}
		if err := v.Process.Signal(unix.Signal(0)); err != nil {
			t.Errorf("the process that was named: %v", err)
		}
	})
}

// TestOpenDirectory: reads and writes return an error if other users can enter the sockets'
// directory, or if the directory is a link.
func TestOpenDirectory(t *testing.T) {
	run(t, func(t *testing.T, _ *ethtool.Client) {
		for name, mk := range map[string]func(path string) error{
			"open": func(path string) error { return errors.Join(os.Mkdir(path, 0o700), os.Chmod(path, 0o750)) },
			"other's": func(path string) error {
				return errors.Join(os.Mkdir(path, 0o700),
					os.Chown(path, 65534, 65534))
			},
			"link": func(path string) error { return os.Symlink("/root", path) },
			"file": func(path string) error { return os.WriteFile(path, nil, 0o600) },
		} {
			c := poller.Client{RunDir: t.TempDir()}
			path := filepath.Join(c.RunDir, "pollers")
			must.Do(t, mk(path))
			_, listErr := poller.List(c.RunDir)
			_, readErr := c.Read(object(0))
			for _, err := range []error{listErr, readErr, c.Write(object(0), nil)} {
				if err == nil || !strings.HasPrefix(err.Error(), "pollers: "+path+": ") ||
					!strings.HasSuffix(err.Error(), "it must be a directory of user 0 with mode 0700") {
					t.Errorf("%s: %v", name, err)
				}
			}
			if err := c.Write(nil, object(0)); err == nil {
				t.Errorf("%s: a poller was started", name)
			}
		}
	})
}

// TestFlood: silent connections use only a limited number of the poller's descriptors. The poller
// closes them, and other clients do not wait.
func TestFlood(t *testing.T) {
	run(t, func(t *testing.T, _ *ethtool.Client) {
		p := object(0)
		begin(t, p)
		pid := state(t, p).PID
		connect := func() net.Conn {
			c, err := net.Dial("unix", path(t, p))
			must.Do(t, err)
			t.Cleanup(func() { c.Close() })
			return c
		}
		sockets := func() int {
			fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
			must.Do(t, err)
			return len(fds)
		}
		before := sockets()
		for range 500 {
			connect()
		}
		last := connect()
		if s := state(t, p); s.PID != pid || s.Doing == device.PollerHung {
			t.Errorf("beside 500 connections: %+v", s)
		}
		if now := sockets(); now > before+20 {
			t.Errorf("%d descriptors, %d before", now, before)
		}
		// The poller also closes the last silent connection.
		must.Do(t, last.SetReadDeadline(time.Now().Add(time.Minute)))
		if _, err := last.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("a silent connection: %v, want EOF", err)
		}
	})
}

// TestLeft: sockets that dead pollers have left do not count. The next Write removes them, also
// those of network namespaces that no longer exist.
func TestLeft(t *testing.T) {
	run(t, func(t *testing.T, _ *ethtool.Client) {
		p := object(0)
		for _, name := range []string{path(t, p), filepath.Join(client.RunDir, "pollers", "1.2.3")} {
			l := listen(t, name)
			l.SetUnlinkOnClose(false)
			l.Close()
		}
		if s := state(t, p); s.PID != 0 {
			t.Errorf("listed: %+v", s)
		}
		begin(t, p)
		entries, err := os.ReadDir(filepath.Join(client.RunDir, "pollers"))
		if err != nil || len(entries) != 1 {
			t.Errorf("sockets: %v, %v; want the one", entries, err)
		}
	})
}

// TestFullQueue: a client waits while the accept queue of a poller is full.
func TestFullQueue(t *testing.T) {
	vethtest.Run(t, queues, func(t *testing.T) {
		p := object(0)
		name := path(t, p)
		must.Do(t, os.MkdirAll(filepath.Dir(name), 0o700))
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		must.Do(t, err)
		defer func() { unix.Close(fd); os.Remove(name); os.Remove(filepath.Dir(name)) }()
		must.Do(t, errors.Join(unix.Bind(fd, &unix.SockaddrUnix{Name: name}), unix.Listen(fd, 0)))
		full := false
		for range 8 {
			c, err := net.Dial("unix", name)
			if full = errors.Is(err, unix.EAGAIN); full {
				break
			}
			must.Do(t, err)
			defer c.Close()
		}
		if !full {
			t.Fatal("its queue is not full")
		}
		go func() {
			for {
				c, _, err := unix.Accept(fd)
				if err != nil {
					return
				}
				unix.Close(c)
			}
		}()
		wantNone(t, p, "what is no poller's")
		_ = unix.Shutdown(fd, unix.SHUT_RDWR)
	})
}
