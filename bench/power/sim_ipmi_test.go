// SPDX-License-Identifier: Apache-2.0

package power

import (
	"context"
	"encoding/binary"
	"net"
	"sync"
	"testing"

	"github.com/bougou/go-ipmi/pkg/bmc"
	"github.com/bougou/go-ipmi/pkg/hal/mock"
	"github.com/bougou/go-ipmi/pkg/handlers"
	"github.com/bougou/go-ipmi/pkg/server"
	"github.com/bougou/go-ipmi/pkg/types"
)

// simBMC simulates a BMC: go-ipmi's server, RMCP+ sessions over UDP, and an own implementation of
// DCMI Get Power Reading.
type simBMC struct {
	*net.UDPConn
	b *bmc.BMC

	mu     sync.Mutex
	watts  uint16
	active bool
	code   types.CompletionCode // completion code of the answer; OK unless set
	reads  int
	mangle func([]byte) []byte // changes each packet before it is sent; if it returns nil, none is sent
}

const simUser = "meter"

func startBMC(t *testing.T, s *simBMC, suite types.CipherSuiteID) string {
	t.Helper()
	var err error
	if s.UDPConn, err = net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}); err != nil {
		t.Fatal(err)
	}
	s.b = bmc.New(bmc.DeviceInfo{FirmwareMajor: 2, FirmwareMinor: 0x85, IPMIVersion: 0x20, ManufacturerID: 674,
		ProductID: 256}, [16]byte{1}, mock.New())
	s.b.SetCipherSuites([]types.CipherSuiteID{suite})
	if _, err := s.b.Users.Add(2, simUser); err != nil {
		t.Fatal(err)
	}
	if err := s.b.Users.Update(2, func(u *bmc.User) error {
		u.SetPassword([]byte(simSecret))
		u.Enabled = true
		u.ChannelAccess[1] = bmc.UserChannelAccess{MaxPrivilege: bmc.PrivilegeLevelUser, Enabled: true}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	reg := handlers.NewRegistry()
	handlers.RegisterAllHandlers(reg)
	reg.RegisterFunc(types.CommandGetDCMIPowerReading, s.power)
	srv := server.NewServer(s.b, s, server.WithHandlerRegistry(reg))
	done := make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	go func() { defer close(done); srv.Serve(ctx) }()
	t.Cleanup(func() { cancel(); srv.Close(); <-done })
	return s.LocalAddr().String()
}

// power answers DCMI's Get Power Reading (DCMI 1.5, 6.6.1).
func (s *simBMC) power(_ context.Context, _ *handlers.HandlerContext, req []byte) ([]byte, types.CompletionCode,
	error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	if len(req) != 4 || req[0] != 0xdc || req[1] != 1 {
		return nil, types.CompletionCode(0xc7), nil
	}
	if s.code != 0 {
		return []byte{0xdc}, s.code, nil
	}
	out := []byte{0xdc}
	for _, w := range []uint16{s.watts, s.watts - 10, s.watts + 10, s.watts} {
		out = binary.LittleEndian.AppendUint16(out, w)
	}
	out = binary.LittleEndian.AppendUint32(out, 1700000000)
	out = binary.LittleEndian.AppendUint32(out, 1000)
	state := byte(0)
	if s.active {
		state = 1 << 6
	}
	return append(out, state), 0, nil
}

func (s *simBMC) WriteTo(b []byte, to net.Addr) (int, error) {
	s.mu.Lock()
	if s.mangle != nil {
		b = s.mangle(b)
	}
	s.mu.Unlock()
	if b == nil {
		return 0, nil
	}
	return s.UDPConn.WriteTo(b, to)
}

func (s *simBMC) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reads
}
