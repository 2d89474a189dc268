// SPDX-License-Identifier: Apache-2.0

package sockclass_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/sockclass"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/lane/device"
)

const (
	appArg    = "test-app"
	writerArg = "test-writer"
)

// TestMain lets the test's executable act as the application, and as a writer to kill.
func TestMain(m *testing.M) {
	vethtest.Main(m, (*testing.M).Run, map[string]func([]string) error{appArg: serve, writerArg: writer})
}

// writer writes a class. Its arguments are V2 OLD NEW; classes are JSON or "null".
func writer(args []string) error {
	runtime.LockOSThread() // one thread, so that strace counts its system calls
	c, err := sockclass.Open(args[0])
	if err != nil {
		return err
	}
	var classes [2]device.Object
	for i, arg := range args[1:] {
		var cc *device.CgroupClass
		if err := json.Unmarshal([]byte(arg), &cc); err != nil {
			return err
		}
		if cc != nil {
			classes[i] = *cc
		}
	}
	return c.Write(classes[0], classes[1])
}

// An app is a separate process with sockets.
type app struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
	// port is the port of the listener "l", for tests that cannot ask the application.
	port int
}

// startApp starts an application in a control group. Its network namespace is that of the
// calling thread, or a new one.
func startApp(t *testing.T, dir string, ownNetns bool) *app {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", appArg)
	cmd.Stderr = os.Stderr
	f, err := os.Open(dir)
	must.Do(t, err)
	defer f.Close()
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(f.Fd())}
	if ownNetns {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWNET
	}
	in, err := cmd.StdinPipe()
	must.Do(t, err)
	out, err := cmd.StdoutPipe()
	must.Do(t, err)
	must.Do(t, cmd.Start())
	a := &app{t: t, cmd: cmd, in: in, out: bufio.NewReader(out)}
	t.Cleanup(a.stop)
	return a
}

func (a *app) stop() {
	a.in.Close()
	a.cmd.Wait()
}

func (a *app) pid() string { return strconv.Itoa(a.cmd.Process.Pid) }

// do makes the application execute a command and returns its answer, a number.
func (a *app) do(format string, args ...any) int {
	a.t.Helper()
	n, err := a.try(format, args...)
	if err != nil {
		a.t.Fatalf("%s: %v", fmt.Sprintf(format, args...), err)
	}
	return n
}

func (a *app) try(format string, args ...any) (int, error) {
	a.t.Helper()
	if _, err := fmt.Fprintf(a.in, format+"\n", args...); err != nil {
		return 0, err
	}
	line, err := a.out.ReadString('\n')
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		return 0, fmt.Errorf("application: %s", line)
	}
	return n, nil
}

// want checks the priorities of sockets, given as "name=10001" in hexadecimal.
func (a *app) want(when string, sockets ...string) {
	a.t.Helper()
	for _, s := range sockets {
		name, want, _ := strings.Cut(s, "=")
		if got := fmt.Sprintf("%x", a.do("get %s", name)); got != want {
			a.t.Errorf("%s: socket %s has priority %s, want %s", when, name, got, want)
		}
	}
}

// connect makes a TCP socket client in the application, connects it to the application's own
// listener, and accepts the connection as the socket accepted.
func (a *app) connect(listener, client, accepted string) {
	a.t.Helper()
	a.do("tcp %s", client)
	a.do("connect %s 127.0.0.1 %d", client, a.do("port %s", listener))
	a.do("accept %s %s", listener, accepted)
}

// serve is the application: it reads one command per line.
func serve([]string) error {
	runtime.LockOSThread()
	s := sockets{}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		n, err := s.do(strings.Fields(in.Text()))
		if err != nil {
			fmt.Println("error:", err)
			continue
		}
		fmt.Println(n)
	}
	return nil
}

type sockets map[string]int

func (s sockets) do(f []string) (n int, err error) {
	f = append(f, "", "", "")
	fd := s[f[1]]
	number := func(i int) int {
		n, nerr := strconv.ParseInt(f[i], 0, 64)
		if nerr != nil && err == nil {
			err = nerr
		}
		return int(n)
	}
	address := func() unix.Sockaddr {
		sa := &unix.SockaddrInet4{Port: number(3)}
		for i, b := range strings.Split(f[2], ".") {
			v, _ := strconv.Atoi(b)
			sa.Addr[i] = byte(v)
		}
		return sa
	}
	switch f[0] {
	case "tcp":
		s[f[1]], err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	case "udp":
		s[f[1]], err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	case "udp6":
		s[f[1]], err = unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM, 0)
	case "unix":
		s[f[1]], err = unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
	case "unshare":
		err = unix.Unshare(unix.CLONE_NEWNET)
	case "listen":
		if err = unix.Bind(fd, &unix.SockaddrInet4{Port: number(2)}); err == nil {
			err = unix.Listen(fd, 128)
		}
	case "bind":
		err = unix.Bind(fd, &unix.SockaddrInet4{Port: number(2)})
	case "accept":
		s[f[2]], _, err = unix.Accept(fd)
	case "connect":
		if sa := address(); err == nil {
			err = unix.Connect(fd, sa)
		}
	case "begin": // starts to connect without waiting
		if sa := address(); err == nil {
			if err = unix.SetNonblock(fd, true); err == nil {
				err = unix.Connect(fd, sa)
			}
		}
		if errors.Is(err, unix.EINPROGRESS) {
			err = nil
		}
	case "rto":
		info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		if err != nil {
			return 0, err
		}
		return int(info.Rto), nil
	case "send":
		for range number(2) {
			if _, err = unix.Write(fd, make([]byte, number(3))); err != nil {
				return 0, err
			}
		}
	case "nodelay":
		err = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	case "set":
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PRIORITY, number(2))
	case "tos":
		err = unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_TOS, number(2))
	case "get":
		return unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PRIORITY)
	case "port":
		sa, err := unix.Getsockname(fd)
		if err != nil {
			return 0, err
		}
		return sa.(*unix.SockaddrInet4).Port, nil
	case "close":
		err = unix.Close(fd)
		delete(s, f[1])
	default:
		err = fmt.Errorf("unknown command %q", f[0])
	}
	return 0, err
}
