// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/features"

	bpfload "github.com/niclane/niclane/internal/kernel/load"
)

// translation is struct translation of translated.h.
type translation struct {
	Nfct   uint32 // offset of sk_buff._nfct; 0: not known
	Tuple  uint32 // offset of nf_conn.tuplehash[0].tuple
	Stride uint32 // distance from Tuple to tuplehash[1].tuple
}

// errNoTranslation means that the classifier cannot find the addresses from before
// netfilter's translation.
var errNoTranslation = errors.New("the classifier does not see addresses from before netfilter translated them")

// readsKernel returns nil if the kernel lets classifiers read its memory. With
// lockdown=confidentiality it does not.
func readsKernel() error {
	if err := features.HaveProgramHelper(ebpf.SchedCLS, asm.FnProbeReadKernel); err != nil {
		return fmt.Errorf("%w: reading the kernel's memory: %w", errNoTranslation, err)
	}
	return nil
}

// findTranslation finds the offsets of connection tracking's data about a packet, by BTF. The
// module nf_conntrack has its own BTF and must be loaded.
func findTranslation() (translation, error) {
	if err := readsKernel(); err != nil {
		return translation{}, err
	}
	// The BTF of the kernel and of the module is read each time and not kept. A read takes
	// 17 ms, but programs are attached rarely; to keep the BTF would cost an agent megabytes.
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		return translation{}, fmt.Errorf("%w: %w", errNoTranslation, err)
	}
	tracking := kernel
	var conn *btf.Struct
	if kernel.TypeByName("nf_conn", &conn) != nil {
		if tracking, err = btf.LoadKernelModuleSpec("nf_conntrack"); err != nil {
			return translation{}, fmt.Errorf("%w: nf_conntrack is not loaded, or has no BTF: %w", errNoTranslation, err)
		}
	}
	t, err := translationOf(kernel, tracking)
	if err != nil {
		return translation{}, fmt.Errorf("%w: %w", errNoTranslation, err)
	}
	return t, nil
}

// tupleLayout is struct tuple of translated.h: the offset in bytes that each member must
// have in the kernel's nf_conntrack_tuple.
var tupleLayout = []struct {
	path   [2]string
	offset uint32
}{
	{[2]string{"src", "u3"}, 0},
	{[2]string{"src", "u"}, 16},
	{[2]string{"dst", "u3"}, 20},
	{[2]string{"dst", "u"}, 36},
}

// sizeofTuple is the size of struct tuple in bytes.
const sizeofTuple = 40

// translationOf reads the offsets from the BTF of the kernel and of its connection
// tracking. It returns an error if the kernel's structures differ from translated.h.
func translationOf(kernel, tracking *btf.Spec) (translation, error) {
	var skb, conn, tuple *btf.Struct
	for _, t := range []struct {
		in   *btf.Spec
		name string
		to   **btf.Struct
	}{{kernel, "sk_buff", &skb}, {tracking, "nf_conn", &conn}, {tracking, "nf_conntrack_tuple", &tuple}} {
		if err := t.in.TypeByName(t.name, t.to); err != nil {
			return translation{}, fmt.Errorf("struct %s: %w", t.name, err)
		}
	}
	for _, want := range tupleLayout {
		got, _, err := field(tuple, want.path[:]...)
		if err != nil {
			return translation{}, err
		}
		if got != want.offset || tuple.Size != sizeofTuple {
			return translation{}, fmt.Errorf("struct nf_conntrack_tuple has %s.%s at byte %d of %d: want %d of %d",
				want.path[0], want.path[1], got, tuple.Size, want.offset, sizeofTuple)
		}
	}
	nfct, word, err := field(skb, "_nfct")
	if err != nil {
		return translation{}, err
	}
	if size, err := btf.Sizeof(word); err != nil || size != 8 {
		return translation{}, fmt.Errorf("sk_buff._nfct has %d bytes: want 8", size)
	}
	hashes, array, err := field(conn, "tuplehash")
	if err != nil {
		return translation{}, err
	}
	both, ok := btf.UnderlyingType(array).(*btf.Array)
	if !ok || both.Nelems != 2 {
		return translation{}, fmt.Errorf("nf_conn.tuplehash is %v: want 2 of nf_conntrack_tuple_hash", array)
	}
	at, _, err := field(both.Type, "tuple")
	if err != nil {
		return translation{}, err
	}
	stride, err := btf.Sizeof(both.Type)
	return translation{Nfct: nfct, Tuple: hashes + at, Stride: uint32(stride)}, err
}

// field returns the offset in bytes of a member of t, and the member's type. path is the
// member's name, after the names of the structs that contain it. field also searches in members
// without a name.
func field(t btf.Type, path ...string) (offset uint32, found btf.Type, err error) {
	if len(path) == 0 {
		return 0, t, nil
	}
	var members []btf.Member
	switch t := btf.UnderlyingType(t).(type) {
	case *btf.Struct:
		members = t.Members
	case *btf.Union:
		members = t.Members
	}
	for _, m := range members {
		rest := path
		switch {
		case m.Name == path[0]:
			rest = path[1:]
		case m.Name != "":
			continue
		}
		if below, found, err := field(m.Type, rest...); err == nil {
			return m.Offset.Bytes() + below, found, nil
		}
	}
	return 0, nil, fmt.Errorf("%s has no member %s", t.TypeName(), path[0])
}

// seeThrough makes a classifier, before it is loaded, look up addresses from before netfilter's
// translation. If the offsets are not known yet, the classifier starts to do so when
// SeeTranslated has found them.
func seeThrough(spec *ebpf.CollectionSpec) error {
	if err := readsKernel(); err != nil {
		return err
	}
	if t, err := findTranslation(); bpfload.Transient(err) {
		return err
	} else if err == nil {
		spec.Maps[egressMapNlTranslation].Contents = []ebpf.MapKV{{Key: uint32(0), Value: t}}
	}
	return spec.Variables["nl_reads_kernel"].Set(uint32(1))
}

// SeeTranslated makes niclane's classifiers on devs look up the addresses from before
// netfilter's translation on this host. They do not do so yet if nf_conntrack was loaded after
// they were attached. SeeTranslated reports whether all of them do so now. It returns false if
// there are no classifiers, or if the kernel has no BTF or does not let programs read its
// memory. It needs CAP_BPF.
func (c *Client) SeeTranslated(devs ...string) (bool, error) {
	all, see := 0, 0
	for _, dev := range devs {
		err := c.eachFilter(dev, func(m *maps) error {
			all++
			sees, err := m.seeTranslated()
			if sees {
				see++
			}
			return err
		})
		if err != nil {
			return false, err
		}
	}
	return all > 0 && see == all, nil
}

func (m *maps) seeTranslated() (bool, error) {
	if m.translation == nil {
		return false, nil
	}
	var t translation
	err := m.translation.Lookup(uint32(0), &t)
	if err == nil && t == (translation{}) {
		if t, err = findTranslation(); errors.Is(err, errNoTranslation) {
			return false, nil
		}
		if err == nil {
			err = m.translation.Update(uint32(0), t, ebpf.UpdateExist)
		}
	}
	if err != nil {
		return false, fmt.Errorf("%s: %w", m.filter.Key(), err)
	}
	return true, nil
}
