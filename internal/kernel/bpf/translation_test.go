// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"bytes"
	"strings"
	"testing"

	"github.com/cilium/ebpf/btf"

	"github.com/niclane/niclane/internal/testing/must"
)

// TestTranslationOf: translationOf refuses a kernel whose structures differ from translated.h.
func TestTranslationOf(t *testing.T) {
	word := &btf.Int{Name: "unsigned long", Size: 8}
	short := &btf.Int{Name: "short", Size: 2}
	bytesOf := func(n uint32) btf.Type {
		return &btf.Array{Index: word, Type: &btf.Int{Name: "char", Size: 1}, Nelems: n}
	}
	half := func(name string, u uint32) *btf.Struct {
		return &btf.Struct{Name: name, Size: 20, Members: []btf.Member{
			{Name: "u3", Type: bytesOf(16)},
			{Name: "u", Type: short, Offset: btf.Bits(u * 8)},
		}}
	}
	type kernel struct {
		skb, conn, hash, tuple *btf.Struct
	}
	actual := func() kernel {
		tuple := &btf.Struct{Name: "nf_conntrack_tuple", Size: 40, Members: []btf.Member{
			{Name: "src", Type: half("nf_conntrack_man", 16)},
			{Name: "dst", Type: half("", 16), Offset: 20 * 8},
		}}
		hash := &btf.Struct{Name: "nf_conntrack_tuple_hash", Size: 56, Members: []btf.Member{
			{Name: "hnnode", Type: bytesOf(16)}, {Name: "tuple", Type: tuple, Offset: 16 * 8},
		}}
		return kernel{
			skb: &btf.Struct{Name: "sk_buff", Size: 128, Members: []btf.Member{
				{Name: "sk", Type: word},
				// As in the kernel, _nfct is inside members without a name.
				{Offset: 96 * 8, Type: &btf.Union{Size: 16,
					Members: []btf.Member{{Type: &btf.Struct{Size: 16, Members: []btf.Member{
						{Name: "other", Type: word}, {Name: "_nfct", Type: word, Offset: 8 * 8},
					}}}}}},
			}},
			conn: &btf.Struct{Name: "nf_conn", Size: 256, Members: []btf.Member{
				{Name: "ct_general", Type: word},
				{Name: "tuplehash", Offset: 16 * 8, Type: &btf.Array{Index: word, Type: hash, Nelems: 2}},
			}},
			hash: hash, tuple: tuple,
		}
	}
	for _, tt := range []struct {
		name   string
		change func(*kernel)
		want   string // part of the error
	}{
		{"as it is", func(*kernel) {}, ""},
		{"no such word in a packet", func(k *kernel) { k.skb.Members = k.skb.Members[:1] },
			"sk_buff has no member _nfct"},
		{"a word of half the size", func(k *kernel) { word.Size = 4 }, "sk_buff._nfct has 4 bytes: want 8"},
		{"no tracking", func(k *kernel) { k.conn.Name = "other" }, "nf_conn"},
		{"one direction", func(k *kernel) { k.conn.Members[1].Type.(*btf.Array).Nelems = 1 },
			"want 2 of nf_conntrack_tuple_hash"},
		{"a tuple elsewhere", func(k *kernel) { k.hash.Members[1].Name = "t" },
			"nf_conntrack_tuple_hash has no member tuple"},
		{"a larger tuple", func(k *kernel) { k.tuple.Size = 44 }, "byte 0 of 44: want 0 of 40"},
		{"ports elsewhere", func(k *kernel) { k.tuple.Members[0].Type = half("nf_conntrack_man", 18) },
			"src.u at byte 18 of 40: want 16 of 40"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			word.Size = 8
			k := actual()
			tt.change(&k)
			b, err := btf.NewBuilder([]btf.Type{k.skb, k.conn}, nil)
			must.Do(t, err)
			raw, err := b.Marshal(nil, nil)
			must.Do(t, err)
			spec, err := btf.LoadSpecFromReader(bytes.NewReader(raw))
			must.Do(t, err)
			got, err := translationOf(spec, spec)
			if tt.want != "" {
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("%+v, %v, want %q", got, err, tt.want)
				}
				return
			}
			if want := (translation{Nfct: 104, Tuple: 32, Stride: 56}); got != want || err != nil {
				t.Errorf("%+v, %v, want %+v", got, err, want)
			}
		})
	}
}
