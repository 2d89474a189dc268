// SPDX-License-Identifier: Apache-2.0

// Package labtest is for tests that use a lab. It runs functions in the namespaces of the lab's
// hosts. It also sends traffic between hosts, and checks that no packet is lost.
package labtest

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/lab"
)

// Up makes a lab and takes it down when the test ends.
func Up(t testing.TB, c lab.Config) *lab.Lab {
	t.Helper()
	l, err := lab.Up(t.Context(), c)
	must.Do(t, err)
	t.Cleanup(func() {
		if err := l.Down(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return l
}

// OnHost runs f on a thread in a host's network namespace and in a new mount namespace. The thread
// ends with f.
func OnHost[T testing.TB](t T, l *lab.Lab, host string, f func(t T)) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		vethtest.OnOwnThread(func() {
			ns, err := unix.Open("/run/netns/"+l.Config.Netns(host), unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				t.Error(err)
				return
			}
			defer unix.Close(ns)
			for _, step := range []func() error{
				func() error { return unix.Setns(ns, unix.CLONE_NEWNET) },
				func() error { return unix.Unshare(unix.CLONE_NEWNS) },
				func() error { return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") },
			} {
				if err := step(); err != nil {
					t.Error(err)
					return
				}
			}
			f(t)
		})
	}()
	<-done
}

// EchoPort is the UDP port of the servers of Traffic and Stream.
const EchoPort = 7

// Traffic is a client that sends requests and a server that answers each of them.
type Traffic struct {
	client, server *net.UDPConn
	// Answered counts the answers since Reset.
	Answered atomic.Uint64
}

// StartTraffic starts the server on UDP port EchoPort of the SUT, and connects the client's socket
// to it.
func StartTraffic(t *testing.T, l *lab.Lab) *Traffic {
	t.Helper()
	tr := &Traffic{}
	var err error
	server := &net.UDPAddr{IP: l.Config.IPv4(lab.SUT).AsSlice(), Port: EchoPort}
	OnHost(t, l, lab.SUT, func(t *testing.T) { tr.server, err = net.ListenUDP("udp4", server) })
	if err != nil || tr.server == nil {
		t.Fatal(err)
	}
	OnHost(t, l, lab.Client, func(t *testing.T) { tr.client, err = net.DialUDP("udp4", nil, server) })
	if err != nil || tr.client == nil {
		t.Fatal(err)
	}
	go func() {
		b := make([]byte, 2048)
		for {
			n, from, err := tr.server.ReadFromUDP(b)
			if err != nil {
				return // the socket was closed
			}
			_, _ = tr.server.WriteToUDP(b[:n], from)
		}
	}()
	return tr
}

// End closes the client and the server.
func (tr *Traffic) End() {
	tr.client.Close()
	tr.server.Close()
}

// Reset sets Answered to 0.
func (tr *Traffic) Reset() { tr.Answered.Store(0) }

// Exchange sends a number of requests, one after the other. It fails the test if an answer is
// missing.
func (tr *Traffic) Exchange(t *testing.T, times int) {
	t.Helper()
	b := make([]byte, 100)
	for i := range times {
		if _, err := tr.client.Write(b); err != nil {
			t.Fatal(err)
		}
		must.Do(t, tr.client.SetReadDeadline(time.Now().Add(5*time.Second)))
		if _, err := tr.client.Read(b); err != nil {
			t.Fatalf("question %d: %v", i, err)
		}
		tr.Answered.Add(1)
	}
}
