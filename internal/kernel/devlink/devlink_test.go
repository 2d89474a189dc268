// SPDX-License-Identifier: Apache-2.0

package devlink

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mdlayher/genetlink"
	"github.com/mdlayher/genetlink/genltest"
	"github.com/mdlayher/netlink"

	"github.com/niclane/niclane/internal/kernel/genl"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/lane/device"
)

// message returns one message of a parameter dump, in the layout of devlink_nl_param_fill
// (net/devlink/param.c).
func message(t testing.TB, bus, dev, name string, kind, cmode uint8, value func(*netlink.AttributeEncoder)) []byte {
	t.Helper()
	ae := netlink.NewAttributeEncoder()
	ae.String(attrBus, bus)
	ae.String(attrDev, dev)
	ae.Nested(attrParam, func(ae *netlink.AttributeEncoder) error {
		ae.String(attrParamName, name)
		ae.Uint8(attrParamType, kind)
		ae.Nested(attrValues, func(ae *netlink.AttributeEncoder) error {
			ae.Nested(attrValue, func(ae *netlink.AttributeEncoder) error {
				if value != nil {
					value(ae)
				}
				ae.Uint8(attrValueCmode, cmode)
				return nil
			})
			return nil
		})
		return nil
	})
	b, err := ae.Encode()
	must.Do(t, err)
	return b
}

func TestDecode(t *testing.T) {
	all := map[string]param{}
	for _, b := range [][]byte{
		message(t, "pci", "0000:3b:00.0", "tc1_qps_per_poller", typeU8, cmodeRuntime,
			func(ae *netlink.AttributeEncoder) { ae.Uint8(attrValueData, 4) }),
		message(t, "pci", "0000:3b:00.0", "tc1_poller_timeout", typeU32, cmodeRuntime,
			func(ae *netlink.AttributeEncoder) { ae.Uint32(attrValueData, 70000) }),
		message(t, "pci", "0000:3b:00.0", "tc1_inline_fd", typeFlag, cmodeRuntime,
			func(ae *netlink.AttributeEncoder) { ae.Flag(attrValueData, true) }),
		message(t, "pci", "0000:3b:00.0", "tc2_inline_fd", typeFlag, cmodeRuntime, nil),
		message(t, "pci", "0000:3b:00.0", "at_the_next_start", typeU8, 1,
			func(ae *netlink.AttributeEncoder) { ae.Uint8(attrValueData, 4) }),
		message(t, "pci", "0000:3b:00.0", "no_value", typeU8, cmodeRuntime, nil),
		message(t, "pci", "0000:3b:00.1", "of_another", typeU8, cmodeRuntime,
			func(ae *netlink.AttributeEncoder) { ae.Uint8(attrValueData, 4) }),
	} {
		must.Do(t, decode(b, "pci", "0000:3b:00.0", all))
	}
	want := map[string]param{
		"tc1_qps_per_poller": {typeU8, "4"}, "tc1_poller_timeout": {typeU32, "70000"},
		"tc1_inline_fd": {typeFlag, "true"}, "tc2_inline_fd": {typeFlag, "false"},
	}
	if diff := cmp.Diff(want, all, cmp.AllowUnexported(param{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestEncode(t *testing.T) {
	for _, c := range []struct {
		kind  uint8
		value string
		ok    bool
	}{
		{typeU8, "255", true}, {typeU8, "256", false}, {typeU32, "4294967295", true}, {typeU16, "-1", false},
		{typeFlag, "true", true}, {typeFlag, "4", false}, {5, "4", false},
	} {
		if _, err := encode(c.kind, c.value); (err == nil) != c.ok {
			t.Errorf("encode(%d, %q): %v", c.kind, c.value, err)
		}
	}
}

// TestWriteAbsent: a parameter that niclane found absent gets the value of a new class. If the class is gone,
// and the parameter with it, there is nothing to write.
func TestWriteAbsent(t *testing.T) {
	const bus, card = "pci", "0000:3b:00.0"
	params := [][]byte{
		message(t, bus, card, "tc1_qps_per_poller", typeU8, cmodeRuntime,
			func(ae *netlink.AttributeEncoder) { ae.Uint8(attrValueData, 4) }),
		message(t, bus, card, "tc1_inline_fd", typeFlag, cmodeRuntime,
			func(ae *netlink.AttributeEncoder) { ae.Flag(attrValueData, true) }),
	}
	for _, tt := range []struct{ name, want string }{
		{"tc1_qps_per_poller", "tc1_qps_per_poller [0]"},
		{"tc1_inline_fd", "tc1_inline_fd []"}, // a flag that is off has no value
		{"tc2_inline_fd", ""},
	} {
		got := ""
		nl := genltest.Dial(genltest.ServeFamily(genetlink.Family{ID: 21, Name: Family, Version: 1},
			func(m genetlink.Message, nm netlink.Message) ([]genetlink.Message, error) {
				if m.Header.Command == cmdParamGet {
					var out []genetlink.Message
					for _, b := range params {
						out = append(out, genetlink.Message{Header: m.Header, Data: b})
					}
					return out, nil
				}
				ad, err := netlink.NewAttributeDecoder(m.Data)
				must.Do(t, err)
				var value []byte
				for ad.Next() {
					switch ad.Type() {
					case attrParamName:
						got = ad.String()
					case attrValueData:
						value = ad.Bytes()
					}
				}
				got = fmt.Sprint(got, " ", value)
				return nil, genltest.Error(0)
			}))
		c := &Conn{genl.Named(Family), func(string) (string, string, error) { return bus, card, nil }}
		must.Do(t, c.Use(nl))
		must.Do(t, c.Write(device.DriverParam{Dev: "eth4", Name: tt.name, Value: "4"}, nil))
		if got != tt.want {
			t.Errorf("%s: sent %q, want %q", tt.name, got, tt.want)
		}
		must.Do(t, c.Close())
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(message(f, "pci", "0000:3b:00.0", "tc1_inline_fd", typeFlag, cmodeRuntime, nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		all := map[string]param{}
		if decode(b, "pci", "0000:3b:00.0", all) != nil {
			return
		}
		for name, p := range all {
			if p.value == "" {
				t.Errorf("%q without a value", name)
			}
		}
	})
}
