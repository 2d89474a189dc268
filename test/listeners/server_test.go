// SPDX-License-Identifier: Apache-2.0

package listeners

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/app"
	"github.com/niclane/niclane/app/sockiter"
)

// serve runs a Go server with N listeners, each with its own goroutines. On SIGHUP it replaces the
// listeners one by one. It opens the new listener before it closes the old one, because connections
// may wait in the old one.
func serve(args []string) error {
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	var ls []net.Listener
	for i := range n {
		l, err := listen(i)
		if err != nil {
			return err
		}
		ls = append(ls, l)
	}
	again := make(chan os.Signal, 1)
	signal.Notify(again, unix.SIGHUP)
	for range again {
		for i, old := range ls {
			if ls[i], err = listen(i); err != nil {
				return err
			}
			if err := old.Close(); err != nil {
				return err
			}
		}
	}
	return nil
}

func listen(i int) (net.Listener, error) {
	c := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		return errors.Join(c.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET,
				unix.SO_REUSEPORT, 1)
		}), err)
	}}
	c.SetMultipathTCP(false)
	l, err := c.Listen(context.Background(), "tcp4", fmt.Sprintf("10.77.0.1:%d", port))
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				for in := bufio.NewScanner(conn); in.Scan() && in.Text() != ""; {
				}
				_, _ = io.WriteString(conn, "HTTP/1.0 200 OK\r\n\r\n"+strconv.Itoa(i)+"\n")
			}()
		}
	}()
	return l, nil
}

// TestGoServer tests listeners whose connections any thread may accept. niclane must not guess a
// thread. If the user gives processors, niclane must lead connections to them, and do so after the
// listeners were replaced.
func TestGoServer(t *testing.T) {
	onBed(t, func(b *bed) {
		pid := b.start("/proc/self/exe", serverArg, "2").Process.Pid
		load := b.load()
		r, err := app.Attach(b.lane, b.listening(app.Listeners{}), app.Target{PID: pid})
		if err != nil {
			t.Error(err)
			return
		}
		if text := strings.Join(r.Notes, "\n"); !strings.Contains(text, "any of them can take its connections") {
			t.Errorf("not told: %s", text)
		}
		load.more(50)
		for range 3 {
			if _, err := app.Detach(b.options.RunDir, app.Choice{PID: pid}); err != nil {
				t.Error(err)
			}
			if _, err := app.Attach(b.lane, b.listening(app.Listeners{CPUs: []int{1, 0}}),
				app.Target{PID: pid}); err != nil {
				t.Error(err)
				return
			}
			b.led(2)
			load.more(50)
			// Repeat it: without migration, every sixth listener loses a connection when it closes.
			for range 20 {
				load.closing(2, func() { b.replace(pid) })
				load.more(20)
			}
			b.led(2)
		}
		load.end()
	})
}

// replace makes the server replace its listeners.
func (b *bed) replace(pid int) {
	b.Helper()
	old := b.cookies()
	if err := unix.Kill(pid, unix.SIGHUP); err != nil {
		b.Error(err)
	}
	// Wait until the old listeners are closed, because Detach comes next. When a listener closes, the
	// connections that wait in it are lost unless a program picks a new listener for them. This is so
	// without niclane, too.
	b.until("the listeners are replaced", func() bool {
		return !slices.ContainsFunc(b.cookies(), func(c uint64) bool { return slices.Contains(old, c) })
	})
}

// cookies returns the kernel's cookies of the listening sockets.
func (b *bed) cookies() []uint64 {
	b.Helper()
	socks, err := sockiter.List(sockiter.Filter{Ports: []uint16{port}, Listeners: true})
	if err != nil {
		b.Fatal(err)
	}
	var cookies []uint64
	for _, s := range socks {
		cookies = append(cookies, s.Cookie)
	}
	return cookies
}
