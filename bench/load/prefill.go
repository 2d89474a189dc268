// SPDX-License-Identifier: Apache-2.0

package load

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"
)

// prefill sets all keys over one connection, a batch at a time, and checks
// each answer.
func prefill(ctx context.Context, addr netip.AddrPort, c Config, keys *keyset) error {
	timeout := time.Duration(c.ConnectTimeout)
	d := net.Dialer{Timeout: timeout}
	conn, err := d.DialContext(ctx, "tcp", addr.String())
	if err != nil {
		return fmt.Errorf("prefill: %w", err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
	r := bufio.NewReader(conn)
	var buf []byte
	// A batch small enough that its answers fit the server's send buffer: it
	// never has to stop reading because we do.
	batch := max(1, min(256, 64<<10/c.ValueBytes))
	for from := 0; from < c.Keys; from += batch {
		to := min(from+batch, c.Keys)
		buf = buf[:0]
		for i := from; i < to; i++ {
			buf = append(buf, "set "...)
			buf = append(buf, keys.key(i)...)
			buf = fmt.Appendf(buf, " 0 0 %d\r\n", c.ValueBytes)
			buf = keys.appendValue(buf, i)
			buf = append(buf, "\r\n"...)
		}
		if err := conn.SetDeadline(time.Now().Add(timeout)); err != nil {
			return fmt.Errorf("prefill: %w", err)
		}
		if err := context.Cause(ctx); err != nil {
			return fmt.Errorf("prefill: %w", err)
		}
		if _, err := conn.Write(buf); err != nil {
			return fmt.Errorf("prefill key %d: %w", from, err)
		}
		for i := from; i < to; i++ {
			line, err := r.ReadSlice('\n')
			if err != nil {
				return fmt.Errorf("prefill key %d: %w", i, err)
			}
			if string(line) != "STORED\r\n" {
				return fmt.Errorf("prefill key %d: server answered %q, want STORED", i, line)
			}
		}
	}
	return nil
}
