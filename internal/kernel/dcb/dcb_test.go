// SPDX-License-Identifier: Apache-2.0

package dcb

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mdlayher/netlink"
	"github.com/mdlayher/netlink/nltest"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/nlsock"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/lane/device"
)

// answer is what Linux 7.2 answers for a card with all attributes, encoded by hand: the struct dcbmsg, the
// name, and the nested attributes of IEEE 802.1Qaz.
func answer(t testing.TB) []byte {
	ets := make([]byte, 59)
	copy(ets[27:], []byte{0, 1, 0, 0, 0, 3, 0, 0})
	ae := netlink.NewAttributeEncoder()
	ae.String(1, "d0")
	ae.Do(13, func() ([]byte, error) {
		in := netlink.NewAttributeEncoder()
		in.Bytes(1, ets)
		in.Nested(11, func(trust *netlink.AttributeEncoder) error {
			trust.Uint8(1, 5)
			trust.Uint8(2, 255)
			return nil
		})
		in.Nested(3, func(apps *netlink.AttributeEncoder) error {
			apps.Bytes(1, []byte{5, 5, 46, 0}) // DSCP EF
			apps.Bytes(2, []byte{255, 3, 11, 0})
			apps.Bytes(1, []byte{5, 1, 8, 0})
			apps.Bytes(1, []byte{2, 4, 0xbc, 0x0c}) // 3260
			return nil
		})
		return in.Encode()
	})
	b, err := ae.Encode()
	must.Do(t, err)
	return append([]byte{0, 21, 0, 0}, b...)
}

// TestGet checks the request, and the decoding of an answer.
func TestGet(t *testing.T) {
	var asked netlink.Message
	c := nltest.Dial(func(req []netlink.Message) ([]netlink.Message, error) {
		asked = req[0]
		return []netlink.Message{{Header: netlink.Header{Type: 78, Sequence: req[0].Header.Sequence,
			PID: req[0].Header.PID}, Data: answer(t)}}, nil
	})
	defer c.Close()
	got, err := Get(c, "d0")
	must.Do(t, err)
	want := &device.DCB{
		Trust: []string{"dscp", "pcp"}, Classes: []int{0, 1, 0, 0, 0, 3, 0, 0},
		Apps: []device.DCBApp{{Selector: "dscp", ID: 8, Priority: 1}, {Selector: "dscp", ID: 46, Priority: 5},
			{Selector: "pcp", ID: 11, Priority: 3}, {Selector: "stream-port", ID: 3260, Priority: 4}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if asked.Header.Type != 78 || asked.Header.Flags != netlink.Request ||
		string(asked.Data) != "\x00\x15\x00\x00\x07\x00\x01\x00d0\x00\x00" {
		t.Errorf("asked with type %d, flags %v, %q", asked.Header.Type, asked.Header.Flags, asked.Data)
	}
	const text = "trusts dscp, pcp; priorities by DSCP: cs1 → 1, ef → 5; priorities by PCP: 3+de → 3; " +
		"traffic classes of priorities 0 to 7: 0 1 0 0 0 3 0 0"
	if got.Text() != text {
		t.Errorf("text %q, want %q", got.Text(), text)
	}
}

// TestText checks what is said of a driver that says little.
func TestText(t *testing.T) {
	for _, tt := range []struct {
		d    device.DCB
		want string
	}{
		{device.DCB{}, "the driver does not say what it trusts"},
		{device.DCB{Trust: []string{}}, "trusts nothing"},
	} {
		if got := tt.d.Text(); got != tt.want {
			t.Errorf("%+v is %q, want %q", tt.d, got, tt.want)
		}
	}
}

// TestNoDCB: a veth's driver has no dcbnl.
func TestNoDCB(t *testing.T) {
	vethtest.Run(t, 1, func(t *testing.T) {
		c, err := nlsock.Dial(unix.NETLINK_ROUTE)
		must.Do(t, err)
		defer c.Close()
		if d, err := Get(c, vethtest.Dev); !errors.Is(err, unix.EOPNOTSUPP) {
			t.Errorf("%+v, %v, want EOPNOTSUPP", d, err)
		}
		if d, err := Get(c, "absent"); !errors.Is(err, unix.ENODEV) {
			t.Errorf("of no device: %+v, %v, want ENODEV", d, err)
		}
	})
}

// FuzzDecode: no answer makes decode panic.
func FuzzDecode(f *testing.F) {
	b := answer(f)
	f.Add(b)
	f.Add(b[:len(b)-8])
	f.Add(b[:4])
	f.Fuzz(func(t *testing.T, b []byte) {
		if d, err := decode(b); err == nil {
			_ = d.Text()
		}
	})
}
