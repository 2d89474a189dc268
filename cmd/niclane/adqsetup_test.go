// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/niclane/niclane/internal/testing/must"
)

// TestAdqWords: adqWords converts arguments in argparse's syntax to pflag's syntax.
func TestAdqWords(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"--dev eth4 apply a.conf", "--dev eth4 apply a.conf"},
		{"--dev=eth4 apply", "--dev=eth4 apply"},
		{"-deth4 -b50 reset", "-deth4 -b50 reset"},
		{"--rxadapt off apply a", "--rxadapt=off apply a"},
		{"--rxadapt apply a", "--rxadapt apply a"},
		{"-o off -s apply", "--optimize=off -s apply"},
		{"-ooff -vD apply", "--optimize=off -vD apply"},
		{"--verb --arp apply", "--verbose --arpfilter apply"},
		{"--bpstop on --bpstop-c off", "--bpstop=on --bpstop-cfg=off"},
		{"--busy 5", "--busy 5"}, // ambiguous: pflag refuses it
		{"--rxu=5", "--rxusecs=5"},
		{"--log --dev", "--log --dev"}, // the log file is called --dev
		{"create [a] queues 4 -- --dev x", "create [a] queues 4 -- --dev x"},
		{"apply -", "apply -"},
		{"--rxadapt", "--rxadapt"},
	} {
		a := &app{}
		got := adqWords(a.adqsetupCommand().Flags(), strings.Fields(c.in))
		if !slices.Equal(got, strings.Fields(c.want)) {
			t.Errorf("%s: got %q, want %s", c.in, got, c.want)
		}
	}
}

// TestPossibleDevices: if there are cards of adqsetup's driver, only they are possible. Otherwise
// only other cards are, and without cards all devices with several queues.
func TestPossibleDevices(t *testing.T) {
	sys := t.TempDir()
	add := func(name, driver string, queues ...string) {
		dir := filepath.Join(sys, name)
		for _, q := range queues {
			must.Do(t, os.MkdirAll(filepath.Join(dir, "queues", q), 0o755))
		}
		if driver == "" {
			return
		}
		must.Do(t, os.MkdirAll(filepath.Join(dir, "device"), 0o755))
		must.Do(t, os.Symlink("../../bus/pci/drivers/"+driver, filepath.Join(dir, "device", "driver")))
	}
	want := func(names ...string) {
		t.Helper()
		got, err := possibleDevices(sys)
		if err != nil || !slices.Equal(got, names) {
			t.Errorf("got %q, %v, want %q", got, err, names)
		}
	}
	add("lo", "", "rx-0", "rx-1", "tx-0")
	add("eth0", "e1000e", "rx-0", "tx-0", "tx-1")
	want()
	add("veth0", "", "rx-0", "rx-1")
	want("veth0")
	add("eth1", "mlx5_core", "rx-0", "rx-1")
	add("eth2", "mlx5_core", "rx-0", "rx-1")
	want("eth1", "eth2")
	add("eth3", "ice", "rx-0", "rx-1")
	want("eth3")
}
