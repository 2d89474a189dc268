// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/lane/device"
)

func TestRemember(t *testing.T) {
	caps := device.Capabilities{
		device.CapHTB:    {Answer: device.Yes, Why: "tried"},
		device.CapMqprio: {Answer: device.No, Why: "no such kind"},
	}
	own := func(t *testing.T) string {
		dir := filepath.Join(t.TempDir(), "run")
		must.Do(t, os.Mkdir(dir, 0o700))
		return dir
	}
	dir := own(t)
	if got := recall(dir, "this"); got != nil {
		t.Errorf("from an empty directory: %v", got)
	}
	must.Do(t, remember(dir, "this", caps))
	if diff := cmp.Diff(caps, recall(dir, "this")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := recall(dir, "that"); got != nil {
		t.Errorf("of another kernel: %v", got)
	}
	names, err := filepath.Glob(dir + "/*")
	if err != nil || len(names) != 1 {
		t.Errorf("left behind: %v, %v", names, err)
	}

	unsure := device.Capabilities{device.CapHTB: caps[device.CapHTB],
		device.CapMq: {Answer: device.Unknown, Why: "could not tell"}}
	dir = own(t)
	must.Do(t, remember(dir, "this", unsure))
	if got := recall(dir, "this"); got != nil {
		t.Errorf("what could not be told is remembered: %v", got)
	}

	for name, spoil := range map[string]func(dir string) error{
		"others can enter it": func(dir string) error { return os.Chmod(dir, 0o755) },
		"a link in its place": func(dir string) error {
			if err := os.Rename(dir, dir+"2"); err != nil {
				return err
			}
			return os.Symlink(dir+"2", dir)
		},
		"a link in the file's place": func(dir string) error {
			file := filepath.Join(dir, rememberedFile)
			if err := os.Rename(file, dir+".json"); err != nil {
				return err
			}
			return os.Symlink(dir+".json", file)
		},
		"not JSON": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, rememberedFile), []byte("{"),
				0o600)
		},
		"no directory": os.RemoveAll,
	} {
		dir := own(t)
		must.Do(t, remember(dir, "this", caps))
		must.Do(t, spoil(dir))
		if got := recall(dir, "this"); got != nil {
			t.Errorf("%s: %v is believed", name, got)
		}
	}
}

// TestHoldsFor: with another kernel, boot or user, the text must differ. With the same ones, it
// must be the same.
func TestHoldsFor(t *testing.T) {
	k := device.Kernel{Release: "6.18", Version: "#1", Arch: "x86_64"}
	here, err := holdsFor(k)
	must.Do(t, err)
	if again, err := holdsFor(k); err != nil || again != here {
		t.Errorf("%q, then %q, %v", here, again, err)
	}
	for _, other := range []device.Kernel{{Release: "6.19", Version: "#1", Arch: "x86_64"},
		{Release: "6.18", Version: "#2", Arch: "x86_64"}} {
		if got, err := holdsFor(other); err != nil || got == here {
			t.Errorf("%+v: %q, %v: as %+v", other, got, err, k)
		}
	}
}

// TestObserveRemembers: Observe uses kept findings only if the caller asks for it.
func TestObserveRemembers(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	must.Do(t, os.Mkdir(dir, 0o700))
	look := func(o Options) device.Capabilities {
		o.Devices = []string{"lo"}
		st, err := Observe(context.Background(), o)
		if err != nil {
			t.Skip(err)
		}
		return st.Capabilities
	}
	probed := look(Options{Remember: dir})
	k, err := kernel()
	must.Do(t, err)
	holds, err := holdsFor(k)
	must.Do(t, err)
	caps := recall(dir, holds)
	for _, c := range []device.Capability{device.CapMqprio, device.CapHTB, device.CapClsact, device.CapClsBPF,
		device.CapFlower} {
		if f := probed[c]; f.Answer == device.Unknown {
			t.Skipf("%s: %s", c, f.Why)
		} else if caps[c] != f {
			t.Errorf("%s: probed %+v, remembered %+v", c, f, caps[c])
		}
	}
	if caps == nil {
		t.FailNow()
	}
	other := device.Finding{Answer: device.No, Why: "remembered"}
	caps[device.CapHTB] = other
	must.Do(t, remember(dir, holds, caps))
	if got := look(Options{Remember: dir})[device.CapHTB]; got != other {
		t.Errorf("with what is remembered: %+v", got)
	}
	if got := look(Options{})[device.CapHTB]; got != probed[device.CapHTB] {
		t.Errorf("without: %+v, want %+v", got, probed[device.CapHTB])
	}
}
