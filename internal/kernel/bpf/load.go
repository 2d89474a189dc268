// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	bpfload "github.com/niclane/niclane/internal/kernel/load"
	"github.com/niclane/niclane/lane/device"
)

// The programs, by their names in the kernel and here.
const (
	// EgressProgram is the classifier of what leaves.
	EgressProgram = "niclane_egress"
	// IngressProgram steers what arrives.
	IngressProgram = "niclane_ingress"
)

// prefix begins the names of all programs of niclane's.
const prefix = "niclane_"

// loaded is a program and its maps in the kernel, attached nowhere, or why not.
type loaded struct {
	*ebpf.Collection
	err error
}

func (l loaded) close() {
	if l.Collection != nil {
		l.Collection.Close()
	}
}

// A variant is a program as it is loaded.
type variant struct {
	program string
	// frags says that an XDP program takes packets in several buffers.
	// Native mode wants it where the MTU is more than a page holds. In generic
	// mode it must not be: from Linux 6.9 on, packets of such programs are copied
	// (skb_pp_cow_data) into ones that have lost skb->mac_len, by which
	// cpu_map_generic_redirect finds the network header; all redirected packets
	// are then dropped as bad (seen on 6.18). Without it they are made linear.
	frags bool
	// translated says that the classifier looks behind what netfilter translates,
	// where the kernel lets it.
	translated bool
}

func variantOf(x device.XDP) variant { return variant{program: x.Program, frags: x.Mode == "native"} }

func variantOfFilter(f device.Filter) variant {
	return variant{program: f.Program, translated: f.Program == EgressProgram}
}

func loadProgram(v variant) (l loaded) {
	spec, err := v.spec()
	if err == nil {
		l.Collection, err = bpfload.Collection(spec, ebpf.CollectionOptions{})
	}
	if err != nil && v.translated && !bpfload.Transient(err) { // there are lanes without that
		v.translated = false
		return loadProgram(v)
	}
	if err != nil {
		l.err = fmt.Errorf("load %s: %w", v.program, err)
	}
	return l
}

func (v variant) spec() (*ebpf.CollectionSpec, error) {
	switch v.program {
	case EgressProgram:
		spec, err := loadEgress()
		if err == nil && v.translated {
			err = seeThrough(spec)
		}
		return spec, err
	case IngressProgram:
		spec, err := loadIngress()
		if err == nil && v.frags {
			spec.Programs[v.program].Flags |= unix.BPF_F_XDP_HAS_FRAGS
			err = spec.Variables["nl_frags"].Set(uint32(1))
		}
		return spec, err
	}
	return nil, errors.New("niclane has no such program")
}

// Prepare begins to load the programs that Write will attach for filters and XDP
// objects; others are passed over. The kernel verifies them for milliseconds,
// in which the caller has other things to do.
func (c *Client) Prepare(objects ...device.Object) {
	for _, o := range objects {
		switch o := o.(type) {
		case device.Filter:
			c.prepare(variantOfFilter(o))
		case device.XDP:
			c.prepare(variantOf(o))
		}
	}
}

func (c *Client) prepare(v variant) {
	if c.loading == nil {
		c.loading = map[variant][]chan loaded{}
	}
	to := make(chan loaded, 1)
	c.loading[v] = append(c.loading[v], to)
	go func() { to <- loadProgram(v) }()
}

// load returns a program for the caller to close.
func (c *Client) load(v variant) loaded {
	if len(c.loading[v]) == 0 {
		return loadProgram(v)
	}
	to := c.loading[v][0]
	c.loading[v] = c.loading[v][1:]
	return <-to
}

// Close releases what the client holds open.
func (c *Client) Close() error {
	errs := []error{c.forget(), c.forgetXDP()}
	for v, prepared := range c.loading {
		for range prepared { // and not needed
			c.load(v).close()
		}
	}
	if c.nl != nil {
		errs = append(errs, c.nl.Close())
		c.nl = nil
	}
	return errors.Join(errs...)
}

// Load checks that the kernel takes the classifier, without what some kernels do not
// take and lanes can do without: it loads it and attaches it nowhere. A missing bpf(2) is ENOSYS, a missing privilege
// EPERM.
func Load() error { return check(variant{program: EgressProgram}) }

func check(v variant) error {
	l := loadProgram(v)
	l.close()
	return l.err
}
