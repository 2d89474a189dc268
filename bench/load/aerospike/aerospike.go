// SPDX-License-Identifier: Apache-2.0

// Package aerospike generates load on Aerospike through its Go client: gets and puts of records
// with one string bin. Package load measures them from their intended times. Package aerospike is
// separate, so that other programs do not need the client.
//
// The client is a library: a request is a blocking call of a goroutine. A request takes about 10 µs
// more than one of package load's own protocols. This counts as the generator's time. The client
// finds the other nodes of a cluster by itself. It uses no authentication and no TLS.
package aerospike

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	as "github.com/aerospike/aerospike-client-go/v8"
	"github.com/aerospike/aerospike-client-go/v8/types"

	"github.com/niclane/niclane/bench/load"
	"github.com/niclane/niclane/bench/load/counters"
	"github.com/niclane/niclane/bench/load/proto"
)

// fillers is the number of goroutines that fill a namespace.
const fillers = 32

// Run generates load as configured in c with protocol load.Aerospike; see load.Run.
func Run(ctx context.Context, c load.Config) (load.Result, error) {
	c = c.WithDefaults()
	if c.Protocol != load.Aerospike {
		return load.Result{}, fmt.Errorf("aerospike: protocol %q, want %q", c.Protocol, load.Aerospike)
	}
	if err := c.Check(); err != nil {
		return load.Result{}, err
	}
	client, err := connect(c)
	if err != nil {
		return load.Result{}, err
	}
	defer client.Close()
	var filled load.Work
	if c.Prefill {
		if filled, err = prefill(ctx, client, c); err != nil {
			return load.Result{}, err
		}
	}
	return load.RunCalls(ctx, c, filled, func(keys *proto.Keys) load.Call { return newCall(client, c, keys) })
}

// connect returns a client with one connection for each concurrent request.
func connect(c load.Config) (*as.Client, error) {
	addr, err := netip.ParseAddrPort(c.Address)
	if err != nil {
		return nil, fmt.Errorf("aerospike: address %q: want ADDRESS:PORT with a numeric address", c.Address)
	}
	connections := c.Connections
	for _, s := range c.Steps {
		connections = max(connections, s.Connections)
	}
	p := as.NewClientPolicy()
	p.Timeout = time.Duration(c.ConnectTimeout)
	p.ConnectionQueueSize = max(connections, fillers)
	p.LimitConnectionsToQueueSize = true
	p.MaxErrorRate = 0 // keep using a node that fails, because it is measured
	client, aerr := as.NewClientWithPolicyAndHost(p, as.NewHost(addr.Addr().String(), int(addr.Port())))
	if aerr != nil {
		return nil, fmt.Errorf("aerospike: connect to %s: %w", c.Address, aerr)
	}
	if _, aerr := client.WarmUp(connections); aerr != nil {
		client.Close()
		return nil, fmt.Errorf("aerospike: open %d connections to %s: %w", connections, c.Address, aerr)
	}
	return client, nil
}

// one makes a policy allow only one attempt, which may take the whole timeout. If the client repeated
// attempts by itself, they would be measured as one request.
func one(p *as.BasePolicy, timeout int64) {
	p.TotalTimeout, p.SocketTimeout, p.MaxRetries = time.Duration(timeout), time.Duration(timeout), 0
}

// newCall returns the call of one goroutine.
func newCall(client *as.Client, c load.Config, keys *proto.Keys) load.Call {
	read, write := as.NewPolicy(), as.NewWritePolicy(0, 0)
	one(read, c.Timeout)
	one(&write.BasePolicy, c.Timeout)
	fail := func(err as.Error) (proto.Reply, string, error) {
		if !err.IsInDoubt() && answered(err) {
			return proto.Reply{Outcome: proto.Failed}, err.Error(), nil
		}
		return proto.Reply{}, "", err
	}
	var value []byte
	return func(t proto.Ticket) (proto.Reply, string, error) {
		name := string(keys.Key(t.Index))
		key, err := as.NewKey(c.Records.Namespace, c.Records.Set, name)
		if err != nil {
			return fail(err)
		}
		if t.Op == proto.Set {
			value = keys.AppendValue(value[:0], t.Index)
			if err := client.PutBins(write, key, as.NewBin(c.Records.Bin, string(value))); err != nil {
				return fail(err)
			}
			return proto.Reply{Outcome: proto.Good}, "", nil
		}
		record, err := client.Get(read, key, c.Records.Bin)
		switch {
		case err != nil && err.Matches(types.KEY_NOT_FOUND_ERROR):
			return proto.Reply{Outcome: proto.Miss}, "", nil
		case err != nil:
			return fail(err)
		}
		got, _ := record.Bins[c.Records.Bin].(string)
		r := proto.Reply{Outcome: proto.Good, Payload: int64(len(got))}
		if len(got) != keys.ValueBytes() || !keys.Matches([]byte(got), t.Index, 0) {
			r.Outcome = proto.Failed
			return r, fmt.Sprintf("%s: got %d bytes that are not its value of %d bytes", name, len(got),
				keys.ValueBytes()), nil
		}
		return r, "", nil
	}
}

// answered reports whether err is an answer of the server. The client's own result codes are
// negative (types.ResultCode), except its timeouts.
func answered(err as.Error) bool {
	var e *as.AerospikeError
	return errors.As(err, &e) && e.ResultCode > 0 && e.ResultCode != types.TIMEOUT
}

// prefill puts all records.
func prefill(ctx context.Context, client *as.Client, c load.Config) (load.Work, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for i := range fillers {
		wg.Go(func() {
			keys, err := c.NewKeys()
			if err != nil {
				cancel(err)
				return
			}
			call := newCall(client, c, keys)
			for k := i; k < c.Keys && ctx.Err() == nil; k += fillers {
				r, problem, err := call(proto.Ticket{Index: uint32(k), Op: proto.Set})
				if err == nil && r.Outcome != proto.Good {
					err = errors.New(problem)
				}
				if err != nil {
					cancel(fmt.Errorf("key %d: %w", k, err))
				}
			}
		})
	}
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		return load.Work{}, fmt.Errorf("aerospike: prefill: %w", err)
	}
	n := int64(c.Keys)
	return load.Work{Sets: n, Prefilled: n, Stored: n}, nil
}

// Counters asks all nodes for the counters of c's namespace, as package counters does for other
// servers.
func Counters(c load.Config) (counters.Counters, error) {
	c = c.WithDefaults()
	var sum counters.Counters
	if c.Protocol != load.Aerospike {
		return sum, fmt.Errorf("aerospike: protocol %q, want %q", c.Protocol, load.Aerospike)
	}
	c.Connections, c.Steps = 1, nil
	client, err := connect(c)
	if err != nil {
		return sum, err
	}
	defer client.Close()
	command := "namespace/" + c.Records.Namespace
	policy := as.NewInfoPolicy()
	policy.Timeout = time.Duration(c.ConnectTimeout)
	for _, n := range client.GetNodes() {
		text, err := n.RequestInfo(policy, command)
		if err != nil {
			return sum, fmt.Errorf("aerospike: counters of %s: %w", n.GetName(), err)
		}
		if err := add(&sum, text[command]); err != nil {
			return sum, fmt.Errorf("aerospike: counters of %s: %s: %w", n.GetName(), command, err)
		}
	}
	return sum, nil
}

// add adds the counters in "name=value;name=value…" to sum. Aerospike counts requests by their
// outcome: the sum of the outcomes is the number of requests.
func add(sum *counters.Counters, text string) error {
	found := map[string]int64{}
	for f := range strings.SplitSeq(text, ";") {
		name, value, _ := strings.Cut(f, "=")
		if strings.HasPrefix(name, "client_read_") || strings.HasPrefix(name, "client_write_") {
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			found[name] = n
		}
	}
	for _, x := range []struct {
		to    *counters.Counter
		names []string
	}{
		{&sum.Gets, []string{"client_read_success", "client_read_not_found", "client_read_error",
			"client_read_timeout"}},
		{&sum.Sets, []string{"client_write_success", "client_write_error", "client_write_timeout"}},
		{&sum.Hits, []string{"client_read_success"}},
		{&sum.Misses, []string{"client_read_not_found"}},
	} {
		x.to.Name = strings.Join(x.names, " + ")
		for _, name := range x.names {
			n, ok := found[name]
			if !ok {
				return fmt.Errorf("no %s in %.80q", name, text)
			}
			x.to.Value += n
		}
	}
	return nil
}
