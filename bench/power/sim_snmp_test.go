// SPDX-License-Identifier: Apache-2.0

package power

import (
	"encoding/binary"
	"io"
	"log"
	"net"
	"sync"
	"testing"

	"github.com/gosnmp/gosnmp"
)

// snmpAgent answers GET requests over UDP. It uses version 2c or, with a user, version 3; engine
// discovery, authentication and encryption are gosnmp's own code.
type snmpAgent struct {
	conn      *net.UDPConn
	community string
	usm       *gosnmp.UsmSecurityParameters // user of version 3; nil: version 2c

	mu   sync.Mutex
	vars map[string]gosnmp.SnmpPDU
	gets int
	salt uint64
	// mangle replaces a response before it is sent. If it returns nil, none is sent.
	mangle func([]byte) []byte
	// change is called before each response. n is the number of the response.
	change func(n int, a *snmpAgent)
}

const simEngine = "\x80\x00\x1f\x88\x80niclane"

func startAgent(t *testing.T, a *snmpAgent) string {
	t.Helper()
	var err error
	if a.conn, err = net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); a.serve() }()
	t.Cleanup(func() { a.conn.Close(); <-done })
	return a.conn.LocalAddr().String()
}

// set sets a variable. If v is nil, it removes the variable.
func (a *snmpAgent) set(oid string, kind gosnmp.Asn1BER, v any) {
	if a.vars == nil {
		a.vars = map[string]gosnmp.SnmpPDU{}
	}
	if v == nil {
		delete(a.vars, oid)
		return
	}
	a.vars[oid] = gosnmp.SnmpPDU{Name: oid, Type: kind, Value: v}
}

func (a *snmpAgent) serve() {
	buf := make([]byte, 1<<16)
	for {
		n, from, err := a.conn.ReadFromUDP(buf)
		if err != nil {
			return
		}
		out := a.answer(append([]byte(nil), buf[:n]...))
		a.mu.Lock()
		if a.mangle != nil {
			out = a.mangle(out)
		}
		a.mu.Unlock()
		if out == nil {
			continue
		}
		if _, err := a.conn.WriteToUDP(out, from); err != nil {
			return
		}
	}
}

func (a *snmpAgent) answer(request []byte) []byte {
	logger := gosnmp.NewLogger(log.New(io.Discard, "", 0))
	g := &gosnmp.GoSNMP{Version: gosnmp.Version2c, Logger: logger}
	if a.usm != nil {
		g.Version, g.SecurityModel = gosnmp.Version3, gosnmp.UserSecurityModel
		sp := a.usm.Copy().(*gosnmp.UsmSecurityParameters)
		sp.Logger = logger
		g.MsgFlags, g.SecurityParameters = gosnmp.AuthPriv, sp
	}
	in, err := g.SnmpDecodePacket(request)
	if err != nil || in.Version != g.Version {
		return nil // an agent does not answer a request that it cannot decrypt
	}
	out := &gosnmp.SnmpPacket{
		Version: in.Version, Community: in.Community, PDUType: gosnmp.GetResponse,
		RequestID: in.RequestID, MsgID: in.MsgID, Logger: logger,
	}
	if a.usm == nil {
		if in.Community != a.community {
			return nil
		}
	} else {
		from := in.SecurityParameters.(*gosnmp.UsmSecurityParameters)
		sp := a.usm.Copy().(*gosnmp.UsmSecurityParameters)
		sp.Logger, sp.AuthoritativeEngineID, sp.AuthoritativeEngineBoots, sp.AuthoritativeEngineTime = logger,
			simEngine, 1, 1
		out.SecurityModel, out.SecurityParameters, out.ContextEngineID = gosnmp.UserSecurityModel, sp, simEngine
		if from.AuthoritativeEngineID == "" { // the request is an engine discovery
			out.PDUType, out.MsgFlags = gosnmp.Report, gosnmp.NoAuthNoPriv
			sp.UserName = ""
			out.Variables = []gosnmp.SnmpPDU{{Name: ".1.3.6.1.6.3.15.1.1.4.0", Type: gosnmp.Counter32,
				Value: uint32(1)}}
			b, err := out.MarshalMsg()
			if err != nil {
				panic(err)
			}
			return b
		}
		if from.UserName != a.usm.UserName {
			return nil
		}
		if err := sp.InitSecurityKeys(); err != nil {
			panic(err)
		}
		a.salt++
		sp.PrivacyParameters = binary.BigEndian.AppendUint64(nil, a.salt)
		out.MsgFlags = gosnmp.AuthPriv
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.gets++
	if a.change != nil {
		a.change(a.gets, a)
	}
	for _, v := range in.Variables {
		if x, ok := a.vars[v.Name]; ok {
			out.Variables = append(out.Variables, x)
		} else {
			out.Variables = append(out.Variables, gosnmp.SnmpPDU{Name: v.Name, Type: gosnmp.NoSuchInstance})
		}
	}
	b, err := out.MarshalMsg()
	if err != nil {
		panic(err)
	}
	return b
}

// requests returns how many requests the agent has answered.
func (a *snmpAgent) requests() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.gets
}
