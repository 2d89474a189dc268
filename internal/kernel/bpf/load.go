// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
	"golang.org/x/sys/unix"

	bpfload "github.com/niclane/niclane/internal/kernel/load"
	"github.com/niclane/niclane/lane/device"
)

// Names of the programs, in the kernel and in the object files.
const (
	// EgressProgram is the classifier of packets that leave.
	EgressProgram = "niclane_egress"
	// IngressProgram steers packets that arrive.
	IngressProgram = "niclane_ingress"
)

// prefix begins the names of all niclane programs.
const prefix = "niclane_"

// programSet is a program and its maps in the kernel, not attached, or the error of loading.
type programSet struct {
	*ebpf.Collection
	err error
}

func (l programSet) close() {
	if l.Collection != nil {
		l.Collection.Close()
	}
}

// A variant is a program with the options it is loaded with.
type variant struct {
	program string
	// frags means that an XDP program accepts packets in several buffers. Native mode needs it
	// if the MTU is larger than a page holds. Generic mode must not have it: since Linux 6.9,
	// the kernel copies the packets of such programs (skb_pp_cow_data). The copy lacks
	// skb->mac_len, by which cpu_map_generic_redirect finds the network header. So the kernel
	// drops all redirected packets as bad (seen on 6.18). Without frags, the kernel makes the
	// packets linear.
	frags bool
	// translated means that the classifier also looks up the addresses from before
	// netfilter's translation, if the kernel allows it.
	translated bool
}

func variantOf(x device.XDP) variant { return variant{program: x.Program, frags: x.Mode == "native"} }

func variantOfFilter(f device.Filter) variant {
	return variant{program: f.Program, translated: f.Program == EgressProgram}
}

func loadProgram(v variant) (l programSet) {
	spec, err := v.spec()
	if err == nil {
		l.Collection, err = bpfload.Collection(spec, ebpf.CollectionOptions{})
	}
	if err != nil && v.translated && !bpfload.Transient(err) { // many lanes need no translation
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
		if err == nil && features.HaveProgramHelper(ebpf.SchedCLS, asm.FnSkbSetTstamp) == nil {
			err = spec.Variables["nl_typed_times"].Set(uint32(1))
		}
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

// Prepare starts to load the programs that Write will attach for filters and XDP objects;
// it ignores other objects. The kernel verifies them for some milliseconds, in which the
// caller can do other work.
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
		c.loading = map[variant][]chan programSet{}
	}
	to := make(chan programSet, 1)
	c.loading[v] = append(c.loading[v], to)
	go func() { to <- loadProgram(v) }()
}

// load returns a program, which the caller closes.
func (c *Client) load(v variant) programSet {
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
		for range prepared { // loaded, but never used
			c.load(v).close()
		}
	}
	if c.nl != nil {
		errs = append(errs, c.nl.Close())
		c.nl = nil
	}
	return errors.Join(errs...)
}

// Load loads the classifier without attaching it, to check that the kernel accepts it. It
// leaves out the optional part that some kernels refuse (translated addresses). The error
// is ENOSYS without bpf(2), EPERM without the privilege.
func Load() error { return check(variant{program: EgressProgram}) }

func check(v variant) error {
	l := loadProgram(v)
	l.close()
	return l.err
}
