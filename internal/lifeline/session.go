// SPDX-License-Identifier: Apache-2.0

package lifeline

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A Login is a connection over which this command was started.
type Login struct {
	// Local is the connection's address and port of this host.
	Local netip.AddrPort
	text  string
}

func (l Login) String() string { return l.text }

// Logins returns the connections over which this command was started, and that end at this host.
func Logins() (out []Login) {
	for _, s := range sessions(os.Getpid()) {
		if s.local.IsValid() {
			out = append(out, Login{s.local, s.String()})
		}
	}
	return out
}

// A session is a connection over which a command was started.
type session struct {
	peer netip.Addr
	// local is the end at this host, invalid if not known.
	local netip.AddrPort
	// process is the name and PID of the process that has the connection; "" for an ssh login,
	// which is found in the environment.
	process string
}

func (s session) String() string {
	if s.process == "" {
		return fmt.Sprintf("this login, from %s", s.peer)
	}
	return fmt.Sprintf("the connection to %s of %s, which started this command", s.peer, s.process)
}

// sessions returns the connections over which a process was started. It reads SSH_CONNECTION,
// which sshd sets, from the environment of the process and of each ancestor: sudo and tmux drop
// the variable. For other logins, it takes the ancestors' TCP connections in this network
// namespace.
func sessions(pid int) (out []session) {
	add := func(s session) {
		if s.peer.IsValid() && !slices.ContainsFunc(out, func(o session) bool { return o.peer == s.peer }) {
			out = append(out, s)
		}
	}
	for self := pid; pid > 1; {
		env, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		for _, v := range bytes.Split(env, []byte{0}) {
			text, ok := strings.CutPrefix(string(v), "SSH_CONNECTION=")
			if !ok {
				continue
			}
			f := strings.Fields(text) // the client's address and port, the server's address and port
			if len(f) != 4 {
				continue
			}
			if a, err := netip.ParseAddr(f[0]); err == nil {
				local, _ := netip.ParseAddrPort(net.JoinHostPort(f[2], f[3]))
				add(session{peer: a.Unmap(), local: unmapped(local)})
			}
		}
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return out
		}
		// The name, in parentheses, can contain any character (proc(5)).
		begin, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
		if pid != self {
			for _, s := range connected(pid) {
				s.process = fmt.Sprintf("%s (process %d)", stat[begin+1:end], pid)
				add(s)
			}
		}
		fields := strings.Fields(string(stat[end+1:]))
		if len(fields) < 2 {
			return out
		}
		if pid, err = strconv.Atoi(fields[1]); err != nil {
			return out
		}
	}
	return out
}

func unmapped(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) }

// connected returns the TCP connections that a process has in the network namespace of the calling
// thread.
func connected(pid int) (out []session) {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	fds, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	process, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(process)
	for _, fd := range fds {
		n, err := strconv.Atoi(fd.Name())
		if to, lerr := os.Readlink(dir + "/" + fd.Name()); err != nil || lerr != nil ||
			!strings.HasPrefix(to, "socket:") {
			continue
		}
		if s, ok := connectionOf(process, n); ok {
			out = append(out, s)
		}
	}
	return out
}

// connectionOf returns a process's TCP connection in this network namespace.
func connectionOf(process, fd int) (session, bool) {
	s, err := unix.PidfdGetfd(process, fd, 0)
	if err != nil {
		return session{}, false
	}
	defer unix.Close(s)
	if kind, err := unix.GetsockoptInt(s, unix.SOL_SOCKET, unix.SO_PROTOCOL); err != nil || kind != unix.IPPROTO_TCP ||
		!ours(s) {
		return session{}, false
	}
	at, err := unix.Getpeername(s)
	if err != nil {
		return session{}, false
	}
	peer, ok := address(at)
	if !ok {
		return session{}, false
	}
	var local netip.AddrPort
	if at, err := unix.Getsockname(s); err == nil {
		local, _ = address(at)
	}
	return session{peer: peer.Addr(), local: local}, true
}

func address(at unix.Sockaddr) (netip.AddrPort, bool) {
	switch at := at.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(at.Addr), uint16(at.Port)), true
	case *unix.SockaddrInet6:
		a := netip.AddrFrom16(at.Addr).Unmap()
		if at.ZoneId != 0 {
			if link, err := net.InterfaceByIndex(int(at.ZoneId)); err == nil {
				a = a.WithZone(link.Name)
			}
		}
		return netip.AddrPortFrom(a, uint16(at.Port)), true
	}
	return netip.AddrPort{}, false
}

// ours reports whether a socket is in the calling thread's network namespace. Before Linux 5.14
// the kernel does not tell, and ours returns true.
func ours(s int) bool {
	its, err := unix.GetsockoptUint64(s, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if err != nil {
		return true
	}
	own, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return true
	}
	defer unix.Close(own)
	mine, err := unix.GetsockoptUint64(own, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	return err != nil || mine == its
}
