// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/niclane/niclane/bench/load/proto"
)

// prefill sets all keys over one connection, a batch at a time, and checks each answer.
func prefill(ctx context.Context, t *target, c *Config) (Work, error) {
	var work Work
	fail := func(err error) (Work, error) { return work, fmt.Errorf("prefill: %w", err) }
	codec, err := c.codec()
	if err != nil {
		return fail(err)
	}
	conn, err := t.dial(ctx)
	if err != nil {
		return fail(err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
	parser := codec.Parser()
	in := make([]byte, 64<<10)
	have := 0
	var out []byte
	// The batch is so small that its answers fit the server's send buffer. So the server never
	// stops reading because prefill does not read.
	batch := max(1, min(256, 64<<10/c.ValueBytes))
	for from := 0; from < c.Keys; from += batch {
		to := min(from+batch, c.Keys)
		out = out[:0]
		for i := from; i < to; i++ {
			out = codec.Append(out, proto.Ticket{Index: uint32(i), Op: proto.Set})
		}
		if err := context.Cause(ctx); err != nil {
			return fail(err)
		}
		if err := conn.SetDeadline(time.Now().Add(t.timeout)); err != nil {
			return fail(err)
		}
		if _, err := conn.Write(out); err != nil {
			return work, fmt.Errorf("prefill key %d: %w", from, err)
		}
		work.SentBytes += int64(len(out))
		for i := from; i < to; {
			r, err := parser.Parse(in[:have], proto.Ticket{Index: uint32(i), Op: proto.Set})
			if err != nil {
				return work, fmt.Errorf("prefill key %d: %w: %.60q", i, err, in[:have])
			}
			have = copy(in, in[r.Used:have])
			switch r.Outcome {
			case proto.Good:
				i++
				work.Sets++
				work.Stored++
				work.Prefilled++
				continue
			case proto.Failed:
				return work, fmt.Errorf("prefill key %d: server answered %q", i, parser.Problem())
			}
			n, err := conn.Read(in[have:])
			if err != nil {
				return work, fmt.Errorf("prefill key %d: %w", i, errors.Join(context.Cause(ctx), err))
			}
			have += n
			work.GotBytes += int64(n)
		}
	}
	return work, nil
}
