// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/ethtool"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/plan"
)

// settings are settings of ethtool that a veth has. Other settings cannot be compared: niclane and
// ethtool(8) first read the device, and do not request settings that it lacks.
var settings = []plan.Step{
	{Old: device.Channels{Dev: vethtest.Dev, RX: 8, TX: 8}, New: device.Channels{Dev: vethtest.Dev, RX: 2, TX: 4}},
	{Old: device.Feature{Dev: vethtest.Dev, Name: "rx-gro-list"},
		New: device.Feature{Dev: vethtest.Dev, Name: "rx-gro-list", On: true}},
	{Old: device.Feature{Dev: vethtest.Dev, Name: "rx-gro-list", On: true},
		New: device.Feature{Dev: vethtest.Dev, Name: "rx-gro-list"}},
}

// TestEthtool checks that ethtool(8), run with the command lines in the plan, sends the same
// requests as niclane.
func TestEthtool(t *testing.T) {
	vethtest.NeedProgram(t, "ethtool")
	ours, theirs := sentSettings(t, "niclane"), sentSettings(t, "ethtool")
	if diff := cmp.Diff(slices.Sorted(maps.Keys(theirs)), slices.Sorted(maps.Keys(ours))); diff != "" {
		t.Errorf("(-ethtool +niclane):\n%s", diff)
	}
	if len(ours) != len(settings) {
		t.Errorf("%d requests seen, want %d: %q", len(ours), len(settings), slices.Sorted(maps.Keys(ours)))
	}
}

func sentSettings(t *testing.T, sender string) map[string]bool {
	asked := map[string]bool{}
	for _, m := range traced(t, "^TestSettingsSender$", "WIRE_SETTINGS="+sender) {
		if !m.generic {
			continue
		}
		line, err := setting(m.data)
		must.Do(t, err)
		if line != "" {
			asked[line] = true
		}
	}
	return asked
}

// setting returns the request in a message of the ethtool family; "" if the message only reads.
func setting(b []byte) (string, error) {
	const offset = unix.NLMSG_HDRLEN + 4 // the attributes begin after struct genlmsghdr
	if len(b) < offset || b[4] == unix.GENL_ID_CTRL && b[5] == 0 {
		return "", nil
	}
	line := map[byte]string{
		unix.ETHTOOL_MSG_FEATURES_SET: "features", unix.ETHTOOL_MSG_CHANNELS_SET: "channels",
		unix.ETHTOOL_MSG_RINGS_SET: "rings", unix.ETHTOOL_MSG_COALESCE_SET: "moderation",
	}[b[unix.NLMSG_HDRLEN]]
	if line == "" {
		return "", nil
	}
	ad, err := netlink.NewAttributeDecoder(b[offset:])
	if err != nil {
		return "", err
	}
	var words []string
	for ad.Next() {
		switch {
		case ad.Type() == 1: // which device
		case line == "features" && ad.Type() == unix.ETHTOOL_A_FEATURES_WANTED:
			ad.Nested(func(ad *netlink.AttributeDecoder) error {
				for ad.Next() {
					if ad.Type() == unix.ETHTOOL_A_BITSET_BITS {
						ad.Nested(bitsOf(&words))
					}
				}
				return ad.Err()
			})
		default:
			words = append(words, fmt.Sprintf("%d=%x", ad.Type(), ad.Bytes()))
		}
	}
	slices.Sort(words)
	return line + " " + strings.Join(words, " "), ad.Err()
}

func bitsOf(words *[]string) func(*netlink.AttributeDecoder) error {
	return func(ad *netlink.AttributeDecoder) error {
		for ad.Next() {
			ad.Nested(func(ad *netlink.AttributeDecoder) error {
				name, value := "", "off"
				for ad.Next() {
					switch ad.Type() {
					case unix.ETHTOOL_A_BITSET_BIT_NAME:
						name = ad.String()
					case unix.ETHTOOL_A_BITSET_BIT_VALUE:
						value = "on"
					}
				}
				*words = append(*words, name+" "+value)
				return ad.Err()
			})
		}
		return ad.Err()
	}
}

// TestSettingsSender is not a test of its own. sentSettings runs it as the sender of requests.
func TestSettingsSender(t *testing.T) {
	sender := os.Getenv("WIRE_SETTINGS")
	if sender == "" {
		t.Skip("started by the other tests")
	}
	vethtest.Run(t, 8, func(t *testing.T) {
		c, err := ethtool.Open()
		must.Do(t, err)
		defer c.Close()
		for _, s := range settings {
			if sender == "niclane" {
				if err := c.Write(s.Old, s.New); err != nil {
					t.Error(err)
				}
				continue
			}
			for _, line := range s.Commands() {
				words := strings.Fields(line)
				if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
					t.Errorf("%s: %v %s", line, err, out)
				}
			}
		}
	})
}
