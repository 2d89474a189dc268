// SPDX-License-Identifier: Apache-2.0

package load

import (
	"errors"
	"fmt"

	"github.com/niclane/niclane/bench/load/proto"
	"github.com/niclane/niclane/bench/load/proto/http1"
	"github.com/niclane/niclane/bench/load/proto/memcache"
	"github.com/niclane/niclane/bench/load/proto/resp"
)

// NewKeys returns the keys of c, for use by one thread.
func (c *Config) NewKeys() (*proto.Keys, error) {
	return proto.NewKeys(c.Keys, c.KeyBytes, c.ValueBytes, c.SetShare)
}

// codec returns the codec of one worker.
func (c *Config) codec() (proto.Codec, error) {
	if c.Protocol == HTTP {
		return http1.New(c.Objects.Host, c.Objects.Paths, c.Objects.Headers)
	}
	k, err := c.NewKeys()
	if err != nil {
		return nil, err
	}
	switch c.Protocol {
	case Memcached:
		return memcache.New(k), nil
	case Redis:
		return resp.New(k), nil
	}
	return nil, fmt.Errorf("protocol %q runs in its client library, not here", c.Protocol)
}

// checkWorkload reports the settings of the workload that do not apply to the protocol or are
// out of range.
func (c *Config) checkWorkload() error {
	var errs []error
	bad := func(format string, a ...any) { errs = append(errs, fmt.Errorf(format, a...)) }
	switch c.Protocol {
	case Memcached, Redis, Aerospike:
		if c.Objects != nil {
			bad("objects: want none with protocol %q", c.Protocol)
		}
		if _, err := c.NewKeys(); err != nil {
			errs = append(errs, err)
		}
	case HTTP:
		if c.Keys != 0 || c.KeyBytes != 0 || c.ValueBytes != 0 || c.SetShare != 0 || c.Prefill {
			bad("keys, keyBytes, valueBytes, setShare, prefill: want none with protocol %q", HTTP)
		}
		if c.Objects == nil {
			bad("objects: want paths to ask for")
		} else if _, err := c.codec(); err != nil {
			bad("objects: %w", err)
		}
	default:
		bad("protocol %q: want %q, %q, %q or %q", c.Protocol, Memcached, HTTP, Redis, Aerospike)
	}
	if c.Protocol == Aerospike {
		if c.Pipeline != 1 {
			bad("pipeline %d: want 1 with protocol %q, whose connections carry one request each", c.Pipeline, Aerospike)
		}
		if c.Threads != 1 {
			bad("threads %d: want 1 with protocol %q, whose client has goroutines", c.Threads, Aerospike)
		}
		if c.TLS != nil {
			bad("tls: not with protocol %q", Aerospike)
		}
		if len(c.Records.Bin) > 15 || len(c.Records.Set) > 63 || len(c.Records.Namespace) > 31 {
			bad("records: want bin, set and namespace of at most 15, 63 and 31 bytes, have %q, %q, %q", c.Records.Bin,
				c.Records.Set, c.Records.Namespace)
		}
	} else if c.Records != nil {
		bad("records: want none with protocol %q", c.Protocol)
	}
	return errors.Join(errs...)
}
