// SPDX-License-Identifier: Apache-2.0

// Package counters proves which workload really ran. It reads a server's own counters before and
// after a run, and compares them with the generator's counts. If the generator ignores its
// configuration, or other clients use the server during the run, the result is an error that names
// both numbers.
//
// It reads memcached's "stats" and Redis' INFO. HTTP servers have no common counters: for them,
// only the generator's statuses and sizes are checked.
package counters

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/niclane/niclane/bench/load"
)

// Counters are the counts of a server since it was started. They include requests that failed.
type Counters struct {
	Gets   Counter `json:"gets"`
	Sets   Counter `json:"sets"`
	Hits   Counter `json:"hits"`
	Misses Counter `json:"misses"`
	// Keys is the number of keys that the server has now. Received and Sent are the bytes of
	// requests and answers of all connections. Some servers do not have these three counters.
	Keys     Counter `json:"keys"`
	Received Counter `json:"received"`
	Sent     Counter `json:"sent"`
	// Asked and Answered are the bytes of the requests and answers of this reading. Received
	// includes Asked already. Sent does not include Answered yet.
	Asked    int64 `json:"asked"`
	Answered int64 `json:"answered"`
}

// Plus returns the sum of the counters of two servers of the same kind.
func (c Counters) Plus(o Counters) Counters {
	for _, x := range []struct{ to, more *Counter }{{&c.Gets, &o.Gets}, {&c.Sets, &o.Sets}, {&c.Hits, &o.Hits},
		{&c.Misses, &o.Misses}, {&c.Keys, &o.Keys}, {&c.Received, &o.Received}, {&c.Sent, &o.Sent}} {
		x.to.Value += x.more.Value
	}
	c.Asked, c.Answered = c.Asked+o.Asked, c.Answered+o.Answered
	return c
}

// optional returns the counters that a server may lack, by name.
func (c *Counters) optional(keys, received, sent string) map[string]*Counter {
	return map[string]*Counter{keys: &c.Keys, received: &c.Received, sent: &c.Sent}
}

// set sets a counter's name and value.
func (c *Counter) set(name, value string) (err error) {
	c.Name = name
	c.Value, err = strconv.ParseInt(value, 10, 64)
	return err
}

// A meter counts the bytes of a connection.
type meter struct {
	net.Conn
	in, out int64
}

func (m *meter) Read(b []byte) (int, error) {
	n, err := m.Conn.Read(b)
	m.in += int64(n)
	return n, err
}

func (m *meter) Write(b []byte) (int, error) {
	n, err := m.Conn.Write(b)
	m.out += int64(n)
	return n, err
}

// A Counter has the name that the server gives it, "" if the server lacks it.
type Counter struct {
	Name  string `json:"name,omitempty"`
	Value int64  `json:"value"`
}

// ErrNone says that a protocol has no known counters.
var ErrNone = errors.New("no counters")

// Read asks the server of c for its counters, within c's ConnectTimeout.
func Read(ctx context.Context, c load.Config) (Counters, error) {
	c = c.WithDefaults()
	var read func(*bufio.Reader, io.Writer) (Counters, error)
	switch c.Protocol {
	case load.Memcached:
		read = memcached
	case load.Redis:
		read = redis
	default:
		return Counters{}, fmt.Errorf("%w of protocol %q", ErrNone, c.Protocol)
	}
	fail := func(err error) (Counters, error) {
		return Counters{}, fmt.Errorf("counters of %s: %w", c.Address, err)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(c.ConnectTimeout))
	defer cancel()
	conn, err := load.Dial(ctx, c)
	if err != nil {
		return fail(err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
	metered := &meter{Conn: conn}
	got, err := read(bufio.NewReader(metered), metered)
	got.Asked, got.Answered = metered.out, metered.in
	if err != nil {
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return fail(err)
	}
	return got, nil
}

// maxLines is the largest number of lines that are read of an answer. Servers send fewer lines.
const maxLines = 100_000

// memcached reads the lines "STAT NAME VALUE" of memcached's stats up to the line END.
func memcached(r *bufio.Reader, w io.Writer) (Counters, error) {
	if _, err := io.WriteString(w, "stats\r\n"); err != nil {
		return Counters{}, err
	}
	c := Counters{Gets: Counter{Name: "cmd_get"}, Sets: Counter{Name: "cmd_set"}, Hits: Counter{Name: "get_hits"},
		Misses: Counter{Name: "get_misses"}}
	found := 0
	optional := c.optional("curr_items", "bytes_read", "bytes_written")
	for range maxLines {
		line, err := r.ReadString('\n')
		if err != nil {
			return c, err
		}
		f := strings.Fields(line)
		if len(f) == 1 && f[0] == "END" {
			if found != 4 {
				return c, fmt.Errorf("stats: %d of cmd_get, cmd_set, get_hits and get_misses", found)
			}
			return c, nil
		}
		if len(f) < 2 || f[0] != "STAT" {
			return c, fmt.Errorf("stats: got %.80q, want STAT NAME VALUE", line)
		}
		if to := optional[f[1]]; to != nil {
			if err := to.set(f[1], strings.Join(f[2:], " ")); err != nil {
				return c, fmt.Errorf("stats: %s: %w", f[1], err)
			}
		}
		for _, to := range []*Counter{&c.Gets, &c.Sets, &c.Hits, &c.Misses} {
			if to.Name == f[1] {
				if to.Value, err = strconv.ParseInt(strings.Join(f[2:], " "), 10, 64); err != nil {
					return c, fmt.Errorf("stats: %s: %w", f[1], err)
				}
				found++
			}
		}
	}
	return c, errors.New("stats: no end")
}

// redis reads the sections Stats, Commandstats and Keyspace of INFO. INFO does not list a
// command that was never used, nor an empty database.
func redis(r *bufio.Reader, w io.Writer) (Counters, error) {
	c := Counters{Gets: Counter{Name: "cmdstat_get"}, Sets: Counter{Name: "cmdstat_set"},
		Hits: Counter{Name: "keyspace_hits"}, Misses: Counter{Name: "keyspace_misses"}}
	c.Keys.Name = "db0"
	found := 0
	optional := c.optional("", "total_net_input_bytes", "total_net_output_bytes")
	for _, section := range []string{"stats", "commandstats", "keyspace"} {
		if _, err := fmt.Fprintf(w, "*2\r\n$4\r\nINFO\r\n$%d\r\n%s\r\n", len(section), section); err != nil {
			return c, err
		}
		head, err := r.ReadString('\n')
		if err != nil {
			return c, err
		}
		size, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimPrefix(head, "$"), "\r\n"), 10, 20)
		if err != nil || head[0] != '$' {
			return c, fmt.Errorf("INFO %s: got %.80q, want a bulk string", section, head)
		}
		text := make([]byte, size+2)
		if _, err := io.ReadFull(r, text); err != nil {
			return c, err
		}
		for line := range strings.Lines(string(text)) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
			value, _, _ = strings.Cut(strings.TrimPrefix(strings.TrimPrefix(value, "calls="), "keys="), ",")
			if to := optional[name]; to != nil && name != "" {
				if err := to.set(name, value); err != nil {
					return c, fmt.Errorf("INFO %s: %s: %w", section, name, err)
				}
			}
			for _, to := range []*Counter{&c.Gets, &c.Sets, &c.Hits, &c.Misses, &c.Keys} {
				if to.Name == name {
					if to.Value, err = strconv.ParseInt(value, 10, 64); err != nil {
						return c, fmt.Errorf("INFO %s: %s: %w", section, name, err)
					}
					if section == "stats" {
						found++
					}
				}
			}
		}
	}
	if found != 2 {
		return c, fmt.Errorf("INFO stats: %d of keyspace_hits and keyspace_misses", found)
	}
	return c, nil
}

// Tolerance of the byte counters: a server counts an answer after it has sent it, and may lose
// its processor in between.
const (
	slackBytes = 4096
	slackShare = 1000 // divisor: one in a thousand
)

// Compare compares the growth of the server's counters between before and after with the
// generators' work w. Requests that were never answered may or may not have been counted.
// Everything else must agree exactly. Bytes may differ by one in a thousand and 4 KiB, and are
// not compared if requests were not answered. The error names every counter that disagrees.
func Compare(before, after Counters, w load.Work) error {
	var errs []error
	for _, x := range []comparison{
		{"gets sent", before.Gets, after.Gets, w.Gets - min(w.Unanswered, w.Gets), w.Gets},
		{"sets sent", before.Sets, after.Sets, w.Sets - min(w.Unanswered, w.Sets), w.Sets},
		{"hits received", before.Hits, after.Hits, w.GetHits, w.GetHits + w.Unanswered},
		{"misses received", before.Misses, after.Misses, w.GetMisses, w.GetMisses + w.Unanswered},
		bytesOf("bytes sent", before.Received, after.Received, w.SentBytes+after.Asked, w),
		bytesOf("bytes received", before.Sent, after.Sent, w.GotBytes+before.Answered, w),
	} {
		if x.before.Name == "" || x.after.Name == "" {
			continue
		}
		counted := x.after.Value - x.before.Value
		want := strconv.FormatInt(x.asked, 10)
		if x.most != x.asked {
			want = fmt.Sprintf("%d to %d", x.asked, x.most)
		}
		switch {
		case counted < 0:
			errs = append(errs, fmt.Errorf("%s fell from %d to %d: the server was started again", x.after.Name,
				x.before.Value, x.after.Value))
		case counted < x.asked || counted > x.most:
			errs = append(errs, fmt.Errorf("server counted %d %s, generator has %s %s", counted, x.after.Name, want,
				x.what))
		}
	}
	return errors.Join(errs...)
}

// A comparison is the growth of a counter between two readings, with the least and the most
// that it may be.
type comparison struct {
	what          string
	before, after Counter
	asked, most   int64
}

func bytesOf(what string, before, after Counter, bytes int64, w load.Work) comparison {
	if w.Unanswered > 0 {
		return comparison{} // without a name: not compared
	}
	slack := slackBytes + bytes/slackShare
	return comparison{what, before, after, bytes - slack, bytes + slack}
}

// CheckKeys checks that the server has at least want keys. It may have more.
func CheckKeys(now Counters, want int64) error {
	if now.Keys.Name == "" || now.Keys.Value >= want {
		return nil
	}
	return fmt.Errorf("server holds %d %s, %d keys were stored: it has dropped the others (too little memory?)",
		now.Keys.Value, now.Keys.Name, want)
}
