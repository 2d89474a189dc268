// SPDX-License-Identifier: Apache-2.0

package podresources

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"golang.org/x/net/http2/hpack"
)

// Frames, flags and settings of HTTP/2 (RFC 9113, section 6).
const (
	frameData         = 0
	frameHeaders      = 1
	frameReset        = 3
	frameSettings     = 4
	framePing         = 6
	frameGoAway       = 7
	frameWindow       = 8
	frameContinuation = 9

	flagEndStream  = 0x1
	flagAck        = 0x1
	flagEndHeaders = 0x4
	flagPadded     = 0x8
	flagPriority   = 0x20

	settingWindow = 4

	frameHeader = 9
	maxFrame    = 16 << 10 // unless a setting says otherwise, and none here does
	maxHeaders  = 64 << 10
	stream      = 1 // the client's first, and here its only one
)

const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// once makes a unary call over a connection of its own
// (github.com/grpc/grpc doc/PROTOCOL-HTTP2.md).
func (c *Client) once(ctx context.Context, method string, in []byte) (out []byte, err error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", c.socket)
	if err != nil {
		return nil, fmt.Errorf("kubelet's pod resources: %w", err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	a, err := exchange(conn, method, in)
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("kubelet's pod resources: %w", ctx.Err())
	case err != nil:
		return nil, fmt.Errorf("kubelet's pod resources: %w", err)
	case a.http != "200" || a.status == "":
		return nil, fmt.Errorf("kubelet's pod resources: HTTP status %q, which is no gRPC answer", a.http)
	case a.status != "0":
		return nil, &AnswerError{a.status, a.message}
	case len(a.body) < 5 || a.body[0] != 0 || int(binary.BigEndian.Uint32(a.body[1:])) != len(a.body)-5:
		return nil, errors.New("kubelet's pod resources: not one whole message")
	}
	return a.body[5:], nil
}

// An answer is what of a response matters.
type answer struct {
	http, status, message string
	body                  []byte
}

// exchange sends a request in one piece, and reads until the stream ends.
func exchange(c io.ReadWriter, method string, in []byte) (*answer, error) {
	if len(in)+5 > maxFrame {
		return nil, fmt.Errorf("a request of %d bytes", len(in))
	}
	var fields bytes.Buffer
	e := hpack.NewEncoder(&fields)
	for _, f := range [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":path", method}, {":authority", "kubelet"},
		{"content-type", "application/grpc"}, {"te", "trailers"}, {"user-agent", "niclane"},
	} {
		if err := e.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}); err != nil {
			return nil, err
		}
	}
	message := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(in)))
	// The whole of an answer fits into the windows, which need no more updates.
	settings := binary.BigEndian.AppendUint32([]byte{0, settingWindow}, maxAnswer)
	out := appendFrame([]byte(preface), frameSettings, 0, 0, settings)
	out = appendFrame(out, frameWindow, 0, 0, binary.BigEndian.AppendUint32(nil, maxAnswer))
	out = appendFrame(out, frameHeaders, flagEndHeaders, stream, fields.Bytes())
	out = appendFrame(out, frameData, flagEndStream, stream, append(message, in...))
	if _, err := c.Write(out); err != nil {
		return nil, err
	}
	return receive(c)
}

func appendFrame(b []byte, typ, flags byte, id uint32, payload []byte) []byte {
	n := len(payload)
	b = append(b, byte(n>>16), byte(n>>8), byte(n), typ, flags)
	return append(binary.BigEndian.AppendUint32(b, id), payload...)
}

// receive reads frames until the stream ends, and acknowledges what wants it.
func receive(c io.ReadWriter) (*answer, error) {
	a := &answer{}
	d := hpack.NewDecoder(4096, func(f hpack.HeaderField) {
		switch f.Name {
		case ":status":
			a.http = f.Value
		case "grpc-status":
			a.status = f.Value
		case "grpc-message":
			a.message = f.Value
		}
	})
	d.SetMaxStringLength(maxHeaders)
	var block []byte
	ends := false // after the header block that is being read
	in := bufio.NewReader(c)
	for {
		typ, flags, id, payload, err := readFrame(in)
		if err != nil {
			return nil, err
		}
		if id != 0 && id != stream {
			return nil, fmt.Errorf("a frame of stream %d, which nobody opened", id)
		}
		switch typ {
		case frameData:
			if payload, err = unpad(payload, flags, 0); err != nil {
				return nil, err
			}
			if a.body = append(a.body, payload...); len(a.body) > maxAnswer {
				return nil, fmt.Errorf("an answer of more than %d bytes", maxAnswer)
			}
			if flags&flagEndStream != 0 {
				return a, nil
			}
		case frameHeaders, frameContinuation:
			if typ == frameHeaders {
				before := 0
				if flags&flagPriority != 0 {
					before = 5
				}
				if payload, err = unpad(payload, flags, before); err != nil {
					return nil, err
				}
				block, ends = nil, flags&flagEndStream != 0
			}
			if block = append(block, payload...); len(block) > maxHeaders {
				return nil, fmt.Errorf("headers of more than %d bytes", maxHeaders)
			}
			if flags&flagEndHeaders == 0 {
				continue
			}
			if _, err := d.Write(block); err != nil {
				return nil, err
			}
			if err := d.Close(); err != nil {
				return nil, err
			}
			if ends {
				return a, nil
			}
		case frameSettings, framePing:
			if flags&flagAck != 0 {
				continue
			}
			if typ == frameSettings {
				payload = nil
			}
			if _, err := c.Write(appendFrame(nil, typ, flagAck, 0, payload)); err != nil {
				return nil, err
			}
		case frameReset:
			return nil, fmt.Errorf("the call was ended (HTTP/2 error %x)", payload)
		case frameGoAway:
			if len(payload) < 8 || binary.BigEndian.Uint32(payload)&^(1<<31) < stream {
				return nil, errors.New("the server is going away")
			}
		}
	}
}

func readFrame(in io.Reader) (typ, flags byte, id uint32, payload []byte, err error) {
	var h [frameHeader]byte
	if _, err = io.ReadFull(in, h[:]); err != nil {
		return 0, 0, 0, nil, err
	}
	n := int(h[0])<<16 | int(h[1])<<8 | int(h[2])
	if n > maxFrame {
		return 0, 0, 0, nil, fmt.Errorf("a frame of %d bytes", n)
	}
	payload = make([]byte, n)
	_, err = io.ReadFull(in, payload)
	return h[3], h[4], binary.BigEndian.Uint32(h[5:]) &^ (1 << 31), payload, err
}

// unpad takes away the padding of a frame, and what stands before its content.
func unpad(payload []byte, flags byte, before int) ([]byte, error) {
	behind := 0
	if flags&flagPadded != 0 {
		if len(payload) == 0 {
			return nil, errors.New("a frame without its padding")
		}
		behind, before = int(payload[0]), before+1
	}
	if before+behind > len(payload) {
		return nil, errors.New("a frame of nothing but padding")
	}
	return payload[before : len(payload)-behind], nil
}
