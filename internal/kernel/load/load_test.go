// SPDX-License-Identifier: Apache-2.0

package load

import (
	"errors"
	"fmt"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/testing/vethtest"
)

func TestCollection(t *testing.T) {
	spec := func(name string) *ebpf.CollectionSpec {
		return &ebpf.CollectionSpec{Programs: map[string]*ebpf.ProgramSpec{"x": {
			Name: name, Type: ebpf.SocketFilter, License: "GPL",
			Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
		}}}
	}
	vethtest.NeedRoot(t)
	c, err := Collection(spec("niclane_test"), ebpf.CollectionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if _, err := Collection(spec(""), ebpf.CollectionOptions{}); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("a program without a name: %v, want EAGAIN", err)
	}
}

func TestTransient(t *testing.T) {
	if err := fmt.Errorf("load: %w", unix.ENOMEM); !Transient(err) {
		t.Errorf("%v is for ever", err)
	}
	for _, err := range []error{nil, unix.EINVAL, ebpf.ErrNotSupported} {
		if Transient(err) {
			t.Errorf("%v is transient", err)
		}
	}
}
