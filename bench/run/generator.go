// SPDX-License-Identifier: Apache-2.0

package run

import (
	"fmt"
	"strconv"

	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/bench/load"
	"github.com/niclane/niclane/bench/load/proto/http1"
	"github.com/niclane/niclane/bench/part/thread"
)

// generators returns the configurations of a window's generators, without their hosts.
// Connections, rate and the server's addresses are divided among them, and each has a seed of its own.
func generators(f *experiment.File, addresses []string, j Job) ([]load.Config, error) {
	e := f.Experiment
	n := max(1, e.Load.Generators)
	var out []load.Config
	for i := range n {
		c := load.Config{
			Address: addresses[i%len(addresses)], Mode: load.Closed, Seed: j.Seed*uint64(n) + uint64(i),
			Pipeline: e.Load.Pipeline, Connections: (j.Connections + n - 1 - i) / n,
			Warmup: j.Warmup, Duration: j.Window, Timeout: e.Load.Timeout, Spin: e.Load.Spin,
			ConnectTimeout: e.Load.ConnectTimeout, ConnectRate: float64(e.Load.ConnectRate) / float64(n),
			Nagle: e.Load.Nagle,
		}
		if e.Load.Mode == experiment.Open {
			c.Mode, c.Rate, c.Arrivals = load.Open, j.Rate/float64(n), load.Constant
			if e.Load.Arrivals == "poisson" {
				c.Arrivals = load.Poisson
			}
		}
		if err := workload(f, &c); err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}

// place returns the processors and priority of generator i of n. A single generator may use all
// processors of p. Several generators have one each.
func place(p experiment.Place, i, n int) thread.Setup {
	s := thread.Setup{CPUs: p.CPUs, FIFO: p.FIFO}
	if n > 1 && len(p.CPUs) > 0 {
		s.CPUs = []int{p.CPUs[i%len(p.CPUs)]}
	}
	return s
}

// workload sets in c which requests a generator sends.
func workload(f *experiment.File, c *load.Config) error {
	w := f.Experiment.Workload
	switch w.Protocol {
	case experiment.ProtocolHTTP, experiment.ProtocolHTTPS:
		c.Protocol = load.HTTP
		paths, err := paths(w.Objects)
		if err != nil {
			return err
		}
		c.Objects = &load.Objects{Host: w.HostHeader, Paths: paths}
		if !w.KeepAlive {
			c.Objects.Headers = []string{"Connection: close"}
		}
		if t := w.TLS; w.Protocol == experiment.ProtocolHTTPS && t != nil {
			c.TLS = &load.TLS{Name: t.ServerName, Insecure: t.Authority == "", Min: t.Version, Max: t.Version}
			if t.Authority != "" {
				c.TLS.CAFile = beside(f, t.Authority)
			}
		}
		return nil
	case experiment.ProtocolRESP:
		c.Protocol = load.Redis
	case experiment.ProtocolAerospike:
		c.Protocol = load.Aerospike
		c.Records = &load.Records{Namespace: w.Namespace}
	default:
		c.Protocol = load.Memcached
	}
	c.Keys, c.KeyBytes, c.ValueBytes = w.Keys, w.KeyBytes, w.ValueBytes
	c.SetShare = float64(w.Sets) / float64(w.Gets+w.Sets)
	return nil
}

func paths(objects []experiment.Object) ([]http1.Path, error) {
	var out []http1.Path
	for _, o := range objects {
		for i := range max(1, o.Copies) {
			path, err := experiment.Expand(o.Path, map[string]string{experiment.NameNumber: strconv.Itoa(i + 1)})
			if err != nil {
				return nil, fmt.Errorf("object %s: %w", o.Path, err)
			}
			out = append(out, http1.Path{Path: path, Weight: o.Weight, Bytes: o.Bytes, Status: 200})
		}
	}
	return out, nil
}

// filler returns the configuration of a generator that sets all keys and reads a few.
func filler(f *experiment.File, address string) (load.Config, error) {
	c := load.Config{
		Address: address, Mode: load.Open, Rate: 1000, Connections: 4, Seed: 1, Duration: 100e6,
		Timeout: f.Experiment.Load.Timeout, Prefill: true,
	}
	err := workload(f, &c)
	// 100 µs for each key: even a slow server sets more than 10,000 keys a second.
	c.ConnectTimeout = 30e9 + int64(c.Keys)*100e3
	return c, err
}
