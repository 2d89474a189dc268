// SPDX-License-Identifier: Apache-2.0

package power

import (
	"bytes"
	"encoding/binary"
	"net"
	"sync"

	"github.com/bougou/go-ipmi/pkg/crypto"
	"github.com/bougou/go-ipmi/pkg/types"
)

// verifier opens UDP connections that pass only two sorts of packets to go-ipmi: those of the RMCP+
// handshake, and those with the session's integrity code. go-ipmi 0.9.1 checks neither this code
// nor a message's checksum. If a packet decrypts to invalid data, it panics in its own goroutine.
// Without verifier, anyone who can send a packet could forge watts or end the run.
type verifier struct {
	user, password string
	auth           types.AuthAlg
	integrity      types.IntegrityAlg
}

func newVerifier(user, password string, suite int) verifier {
	v := verifier{user, password, types.AuthAlg_HMAC_SHA256, types.IntegrityAlg_HMAC_SHA256_128}
	if suite == 3 {
		v.auth, v.integrity = types.AuthAlg_HMAC_SHA1, types.IntegrityAlg_HMAC_SHA1_96
	}
	return v
}

// Dial implements proxy.Dialer of golang.org/x/net. Only through this interface can go-ipmi use a
// caller's connection.
func (v verifier) Dial(network, address string) (net.Conn, error) {
	c, err := net.Dial(network, address)
	if err != nil {
		return nil, err
	}
	return &verifiedConn{Conn: c, verifier: v}, nil
}

// verifiedConn is one connection of a verifier. Read and Write may be called at the same time.
type verifiedConn struct {
	net.Conn
	verifier

	mu      sync.Mutex
	console [4]byte // our session ID; the BMC's packets contain it
	random  [16]byte
	role    byte
	k1, k2  []byte // keys of the session; nil until RAKP message 2 has arrived
}

// Offsets in an RMCP+ packet (IPMI 2.0, table 13-8) and in its payloads (13.17 to 13.22).
const (
	rmcpPlus   = 0x06 // authentication type and format
	rmcpHeader = 4
	header20   = 12
	payload20  = rmcpHeader + header20
)

// Write sends a packet of go-ipmi. It also stores our part of the session's keys, which handshake
// packets contain.
func (c *verifiedConn) Write(b []byte) (int, error) {
	if len(b) >= payload20 && b[4] == rmcpPlus {
		p := b[payload20:]
		c.mu.Lock()
		switch types.PayloadType(b[5] & 0x3f) {
		case types.PayloadTypeRmcpOpenSessionRequest:
			if len(p) >= 8 {
				copy(c.console[:], p[4:8])
				c.k1, c.k2 = nil, nil
			}
		case types.PayloadTypeRAKPMessage1:
			if len(p) >= 25 {
				copy(c.random[:], p[8:24])
				c.role = p[24]
			}
		}
		c.mu.Unlock()
	}
	return c.Conn.Write(b)
}

// Read returns the next packet that accept allows and drops all others. The connection's deadline
// limits it.
func (c *verifiedConn) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		if err != nil || c.accept(b[:n]) {
			return n, err
		}
	}
}

// accept reports whether a packet may reach go-ipmi.
func (c *verifiedConn) accept(b []byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(b) < payload20 || b[3]&0x1f != 0x07 {
		return false
	}
	if b[4] != rmcpPlus {
		// Before the session, the only other packet is the answer to Get Channel Authentication
		// Capabilities. It has the header of IPMI 1.5 without authentication, then a message of 8 bytes
		// of data with 8 more bytes around them.
		return c.k1 == nil && b[4] == 0 && len(b) >= 14+16 && int(b[13]) >= 16 && len(b) >= 14+int(b[13])
	}
	n := int(binary.LittleEndian.Uint16(b[14:16]))
	if len(b) < payload20+n {
		return false
	}
	p := b[payload20 : payload20+n]
	switch kind := types.PayloadType(b[5]); kind {
	case types.PayloadTypeRmcpOpenSessionResponse:
		// A refusal has at least 8 bytes, any other answer 36.
		return c.k1 == nil && (len(p) >= 36 || len(p) >= 8 && p[1] != 0)
	case types.PayloadTypeRAKPMessage2:
		return c.k1 == nil && c.message2(p)
	case types.PayloadTypeRAKPMessage4:
		return c.k1 != nil && (len(p) >= 8+crypto.RAKP4ICVLen(c.auth) || len(p) >= 8 && p[1] != 0)
	case types.PayloadTypeIPMI | 0xc0: // encrypted and authenticated
		return c.k1 != nil && c.genuine(b, n)
	}
	return false
}

// message2 derives the session's keys from RAKP message 2. go-ipmi checks whether the BMC knows the
// password: it compares the codes in messages 2 and 4.
func (c *verifiedConn) message2(p []byte) bool {
	if len(p) >= 8 && p[1] != 0 {
		return true // the BMC refuses; there are no keys
	}
	if len(p) < 40+crypto.RAKP2AuthCodeLen(c.auth) {
		return false
	}
	_, k1, k2, err := crypto.DeriveSessionKeys(c.auth, c.random[:], p[8:24], c.role, c.user,
		crypto.PadPassword20([]byte(c.password)))
	if err != nil {
		return false
	}
	c.k1, c.k2 = k1, k2
	return true
}

// genuine checks a packet of the session, whose payload has n bytes. It checks the session ID, the
// integrity code (13.28.4), that the payload decrypts, and both checksums of the message in it
// (13.8).
func (c *verifiedConn) genuine(b []byte, n int) bool {
	size, ok := crypto.IntegrityAuthCodeLen(c.integrity)
	end := payload20 + n + types.IntegrityPadLen(header20, n) + 2
	if !ok || len(b) != end+size || !bytes.Equal(b[6:10], c.console[:]) {
		return false
	}
	want, err := crypto.SessionIntegrityAuthCode(c.integrity, b[rmcpHeader:end], c.k1, "")
	if err != nil || !crypto.Equal(want, b[end:]) {
		return false
	}
	p := b[payload20 : payload20+n]
	if len(p) < 32 || len(p)%16 != 0 {
		return false
	}
	m, err := crypto.DecryptAESPayload(p, c.k2)
	return err == nil && len(m) >= 8 && zeroSum(m[:3]) && zeroSum(m[3:])
}

func zeroSum(b []byte) bool {
	var s byte
	for _, x := range b {
		s += x
	}
	return s == 0
}
