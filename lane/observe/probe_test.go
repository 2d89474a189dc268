// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/lane/device"
)

func TestKindFinding(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want device.Answer
	}{
		{nil, device.Yes},
		{fmt.Errorf("%w: Specified qdisc kind is unknown", unix.ENOENT), device.No},
		{unix.EINVAL, device.Yes},
		{unix.EOPNOTSUPP, device.Yes},
		{unix.EPERM, device.Unknown},
		{unix.EACCES, device.Unknown},
		{unix.ENOMEM, device.Unknown},
		{errors.New("short read"), device.Unknown},
	} {
		if got := kindFinding(tt.err); got.Answer != tt.want || got.Why == "" {
			t.Errorf("%v: %+v, want %s", tt.err, got, tt.want)
		}
	}
}

func TestAnswer(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want device.Answer
	}{
		{nil, device.Yes},
		{fmt.Errorf("get rules: %w", unix.EOPNOTSUPP), device.No},
		{unix.EPERM, device.Unknown},
		{unix.EBUSY, device.Unknown},
		{unix.ENODEV, device.Unknown},
	} {
		if got := supported(tt.err, "because"); got.Answer != tt.want || got.Why == "" {
			t.Errorf("%v: %+v, want %s", tt.err, got, tt.want)
		}
	}
}

// TestUnknownKinds checks the errors of this kernel for kinds that it does not have.
func TestUnknownKinds(t *testing.T) {
	_, err := inNewNetns(context.Background(), func() device.Capabilities {
		c, err := netlink.Dial(unix.NETLINK_ROUTE, &netlink.Config{Strict: true})
		if err != nil {
			t.Error(err)
			return nil
		}
		defer c.Close()
		if err := addQdisc(c, "clsact", tcClsact, clsactHandle); err != nil {
			t.Errorf("clsact: %v", err)
			return nil
		}
		for _, tt := range []struct {
			name string
			err  error
			says string
		}{
			{"qdisc", addQdisc(c, "nosuch", tcRoot, probeHandle), "kind"},
			{"classifier", addFilter(c, "nosuch", nil), "classifier"},
			{"action", addAction(c, "nosuch"), "action"},
		} {
			if got := kindFinding(tt.err); got.Answer != device.No || !strings.Contains(got.Why, tt.says) {
				t.Errorf("a %s that does not exist: %+v, want no and the kernel's words", tt.name, got)
			}
		}
		return nil
	})
	if err != nil {
		t.Skip(err)
	}
}

// TestNamespaceKept: after a probe, the process must still be in its own network namespace.
func TestNamespaceKept(t *testing.T) {
	before, err := os.Readlink("/proc/self/ns/net")
	must.Do(t, err)
	for range 20 {
		_, err := inNewNetns(context.Background(), func() device.Capabilities {
			inside, err := os.Readlink("/proc/thread-self/ns/net")
			if err != nil || inside == before {
				t.Errorf("f ran in %s (%v), not in a namespace of its own", inside, err)
			}
			return nil
		})
		if err != nil {
			t.Skip(err)
		}
		for _, who := range []string{"self", "thread-self"} {
			if now, err := os.Readlink("/proc/" + who + "/ns/net"); err != nil || now != before {
				t.Fatalf("%s is now in %s (%v), was in %s", who, now, err, before)
			}
		}
	}
}

func TestEnabledControllers(t *testing.T) {
	const file = "#subsys_name\thierarchy\tnum_cgroups\tenabled\ncpuset\t3\t1\t1\nmemory\t4\t11\t0\nnet_prio\t0\t1\t1\n"
	if diff := cmp.Diff([]string{"cpuset", "net_prio"}, enabledControllers(file)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestHTBOffload checks the finding about a card's HTB for several drivers and states of
// hw-tc-offload.
func TestHTBOffload(t *testing.T) {
	off, on, fixed := device.Setting{}, device.Setting{On: true}, device.Setting{Fixed: true}
	for _, tt := range []struct {
		driver string
		hwTC   *device.Setting
		want   device.Answer
	}{
		{"mlx5_core", &off, device.Yes},
		{"mlx5_core", &on, device.Yes},
		{"mlx5_core", &fixed, device.No},
		{"mlx5_core", nil, device.No},
		{"octeontx2", &off, device.Unknown},
		{"veth", &fixed, device.No},
	} {
		d := &device.Device{Driver: tt.driver}
		if tt.hwTC != nil {
			d.Features = map[string]device.Setting{"hw-tc-offload": *tt.hwTC}
		}
		if got := probeHTBOffload(d); got.Answer != tt.want || got.Why == "" {
			t.Errorf("%s, %+v: %+v, want %s", tt.driver, tt.hwTC, got, tt.want)
		}
	}
}

func TestDoubt(t *testing.T) {
	caps := device.Capabilities{
		device.CapHTB: answer(fmt.Errorf("htb: %w", unix.EPERM), ""),
		device.CapTBF: answer(fmt.Errorf("tbf: %w", unix.ENOENT), "", unix.ENOENT),
	}
	if err := doubt("", caps); err != nil {
		t.Errorf("%v of what stays as it is", err)
	}
	caps[device.CapMq] = answer(fmt.Errorf("mq: %w", unix.ENOMEM), "")
	if err := doubt("", caps); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("%v where the kernel had no memory, want EAGAIN", err)
	}
}
