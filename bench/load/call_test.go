// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/niclane/niclane/bench/load/proto"
)

func calls(mode string) Config {
	c := Config{Protocol: Aerospike, Address: "127.0.0.1:1", Mode: mode, Connections: 3, Duration: 100e6, Timeout: 20e9,
		SetShare: 0.5}
	if mode == Open {
		c.Rate = 1000
	}
	return c
}

var good = proto.Reply{Outcome: proto.Good, Payload: 7}

func TestRunCalls(t *testing.T) {
	for _, mode := range []string{Open, Closed} {
		var made, asked, sets, now, most atomic.Int64
		c := calls(mode)
		c.Warmup = 20e6
		r, err := RunCalls(t.Context(), c, Work{Sets: 5, Prefilled: 5}, func(keys *proto.Keys) Call {
			made.Add(1)
			return func(p proto.Ticket) (proto.Reply, string, error) {
				if n := now.Add(1); n > most.Load() {
					most.Store(n)
				}
				defer now.Add(-1)
				if p.Op == proto.Set {
					sets.Add(1)
				}
				if string(keys.Key(p.Index)) == "" {
					return proto.Reply{}, "", errors.New("no key")
				}
				asked.Add(1)
				return good, "", nil
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		if made.Load() != 3 || most.Load() > 3 {
			t.Errorf("%s: %d callers, %d at once, want 3 and at most 3", mode, made.Load(), most.Load())
		}
		if mode == Open && r.Intended == 0 || r.Hits != r.Intended || r.Latency.Count() != r.Intended ||
			r.Series.Count() != r.Intended || r.Payload != 7*r.Hits {
			t.Errorf("%s: intended %d, hits %d, in latency %d", mode, r.Intended, r.Hits, r.Latency.Count())
		}
		if w := r.Work; w.Gets+w.Sets-5 != asked.Load() || w.Sets-5 != sets.Load() || w.Prefilled != 5 {
			t.Errorf("%s: asked %d, sets %d, work %+v", mode, asked.Load(), sets.Load(), w)
		}
		if mode == Open && (r.Intended != 100 || r.Wakeup.Count() != 100 || r.Lateness.Count() != 100) {
			t.Errorf("intended %d, wakeup %d, lateness %d, want 100", r.Intended, r.Wakeup.Count(), r.Lateness.Count())
		}
	}
}

// TestRunCallsFaults: requests that fail, are lost or hang must stay in the distribution.
func TestRunCallsFaults(t *testing.T) {
	c := calls(Open)
	c.Timeout = 500e6
	hang := make(chan bool)
	defer close(hang)
	var n atomic.Int64
	r, err := RunCalls(t.Context(), c, Work{}, func(*proto.Keys) Call {
		return func(proto.Ticket) (proto.Reply, string, error) {
			switch n.Add(1) {
			case 10:
				return proto.Reply{Outcome: proto.Miss}, "", nil
			case 20:
				return proto.Reply{Outcome: proto.Failed}, "broken", nil
			case 30:
				return proto.Reply{}, "", errors.New("gone")
			case 40, 50:
				<-hang
			}
			return good, "", nil
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if r.Intended != 100 || r.Misses != 1 || r.Errors != 1 || r.Unanswered != 3 || r.Hits != 95 ||
		r.Latency.Count() != 100 || r.FirstError != "broken" {
		t.Errorf("intended %d, misses %d, errors %d, unanswered %d, hits %d, in latency %d: %s",
			r.Intended, r.Misses, r.Errors, r.Unanswered, r.Hits, r.Latency.Count(), r.FirstError)
	}
	if r.Latency.Max() < c.Timeout*99/100 {
		t.Errorf("slowest %d, want at least the timeout", r.Latency.Max())
	}
	// If all calls hang, the step ends nevertheless, and the next step works.
	n.Store(0)
	c.Steps = []Step{{}, {}}
	r, err = RunCalls(t.Context(), c, Work{}, func(*proto.Keys) Call {
		return func(proto.Ticket) (proto.Reply, string, error) {
			if n.Add(1) <= 3 {
				<-hang
			}
			return good, "", nil
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	a, b := r.Steps[0], r.Steps[1]
	if a.Unanswered != 100 || a.Sent != 3 || a.Latency.Count() != 100 || a.Work.Unanswered != 3 || b.Hits != 100 ||
		b.Unanswered != 0 {
		t.Errorf("unanswered %d of which sent %d, then hits %d", a.Unanswered, a.Sent, b.Hits)
	}
}

func TestRunCallsCancelled(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	c := calls(Closed)
	c.Duration = 3600e9
	var n atomic.Int64
	r, err := RunCalls(ctx, c, Work{}, func(*proto.Keys) Call {
		return func(proto.Ticket) (proto.Reply, string, error) {
			if n.Add(1) == 100 {
				cancel(why)
			}
			return good, "", nil
		}
	})
	if !errors.Is(err, why) || !r.Partial || r.Completed < 1 {
		t.Errorf("%v; partial %v, completed %d", err, r.Partial, r.Completed)
	}
}

// TestRunCallsWaiting: requests that wait for a goroutine must be sent in turn, each once.
func TestRunCallsWaiting(t *testing.T) {
	c := calls(Open)
	c.Connections, c.Keys = 1, 1_000_000_000 // so that no two have the same key
	var asked []uint32
	r, err := RunCalls(t.Context(), c, Work{}, func(*proto.Keys) Call {
		return func(p proto.Ticket) (proto.Reply, string, error) {
			if asked = append(asked, p.Index); len(asked) == 1 {
				time.Sleep(100 * time.Millisecond) // a slow server, while all others become due
			}
			return good, "", nil
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if r.Waiting.Count() < 90 || r.Hits != 100 {
		t.Errorf("%d waited, %d hits", r.Waiting.Count(), r.Hits)
	}
	if slices.Sort(asked); len(slices.Compact(asked)) != 100 {
		t.Errorf("%d requests were of %d keys, want 100", len(asked), len(slices.Compact(asked)))
	}
}
