// SPDX-License-Identifier: Apache-2.0

package sockclass_test

import (
	"errors"
	"os"
	"path"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/sockclass"
	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/lane/device"
)

// TestNested gives a class to a group and to a group below it. It makes and removes the two
// classes in either order.
func TestNested(t *testing.T) {
	for _, tc := range []struct {
		name         string
		inner        string
		innerFirst   bool
		innerRemoved bool // before the outer class
	}{
		{"outer made first, inner removed first", "1:20", false, true},
		{"outer made first and removed first", "1:20", false, false},
		{"inner made first and removed first", "1:20", true, true},
		{"inner made first, outer removed first", "1:20", true, false},
		{"same class", "1:10", false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			run(t, func(b *bed) {
				mkdir(t, b.dir("below"))
				mkdir(t, b.dir("below", "deep"))
				outer, inner := b.class("1:10"), b.class(tc.inner, "below")
				x := map[string]string{"1:10": "10010", "1:20": "10020"}[tc.inner]
				app := map[string]*app{"outer": startApp(t, b.dir(), false),
					"inner": startApp(t, b.dir("below", "deep"), false)}
				want := func(when, outer, inner string) {
					t.Helper()
					for name, p := range map[string]string{"outer": outer, "inner": inner} {
						a := app[name]
						a.do("udp new")
						a.do("tcp queued")
						a.do("connect queued 127.0.0.1 %d", a.do("port l"))
						a.do("accept l s")
						a.want(when+", "+name, "u="+p, "l="+p, "s="+p, "new="+p, "queued="+p)
					}
				}
				for _, a := range app {
					a.do("udp u")
					a.do("tcp l")
					a.do("listen l 0")
				}
				want("at first", "0", "0")
				if tc.innerFirst {
					b.write(nil, inner)
					want("inner made", "0", x)
					b.write(nil, outer)
				} else {
					b.write(nil, outer)
					want("outer made", "10010", "10010")
					b.write(nil, inner)
				}
				want("both made", "10010", x)
				b.write(outer, b.class("1:30"))
				want("outer changed", "10030", x)
				if tc.innerRemoved {
					b.write(inner, nil)
					want("inner removed", "10030", "10030")
					b.write(b.class("1:30"), nil)
				} else {
					b.write(b.class("1:30"), nil)
					want("outer removed", "0", x)
					b.write(inner, nil)
				}
				want("at the end", "0", "0")
			})
		})
	}
}

// TestOtherNamespace: a class does not change sockets of other network namespaces. A client in
// another namespace does not see the class, and cannot write one.
func TestOtherNamespace(t *testing.T) {
	run(t, func(b *bed) {
		here, there := startApp(t, b.dir(), false), startApp(t, b.dir(), true)
		there.do("udp u")
		// One process with sockets of two namespaces.
		here.do("udp u")
		here.do("unshare")
		here.do("udp other")
		b.write(nil, b.class("1:10"))
		here.do("udp other2")
		there.do("udp u2")
		there.do("tcp l")
		here.want("under the class", "u=10010", "other=0", "other2=0")
		there.want("under the class", "u=0", "u2=0", "l=0")

		other := make(chan struct{})
		go func() {
			defer close(other)
			vethtest.Run(t, 1, func(t *testing.T) {
				c, err := sockclass.Open(b.v2)
				if err != nil {
					t.Error(err)
					return
				}
				vethtest.Absent(t, "read in another namespace", c, b.class(""))
				if err := c.Write(nil, b.class("1:10")); !errors.Is(err, unix.EBUSY) {
					t.Errorf("write in another namespace: %v, want EBUSY", err)
				} else {
					t.Log(err)
				}
			})
		}()
		<-other
		b.write(b.class("1:10"), nil)
		here.want("removed", "u=0", "other=0", "other2=0")
	})
}

// TestHalf detaches one of the two programs. Read then returns an incomplete class, and Write
// repairs, changes or removes it.
func TestHalf(t *testing.T) {
	for _, at := range attachTypes {
		for _, repair := range []string{"1:10", "1:20", ""} {
			t.Run(at.String()+" to "+repair, func(t *testing.T) {
				run(t, func(b *bed) {
					a := startApp(t, b.dir(), false)
					a.do("udp u")
					b.write(nil, b.class("1:10"))
					ids := b.attached(b.dir(), at)
					if len(ids) != 1 {
						t.Fatalf("programs %v, want one", ids)
					}
					b.detach(b.dir(), ids[0], at)
					half := b.class("")
					if got := b.read(half); !device.Equal(got, half) {
						t.Fatalf("half: %+v", got)
					}
					if repair == "" {
						b.write(half, nil)
						a.want("removed", "u=0")
						return
					}
					b.write(half, b.class(repair))
					a.do("udp v")
					p := "100" + repair[2:]
					a.want("repaired", "u="+p, "v="+p)
					for _, at := range attachTypes {
						if ids := b.attached(b.dir(), at); len(ids) != 1 {
							t.Errorf("%s: programs %v, want one", at, ids)
						}
					}
				})
			})
		}
	}
}

// TestThreadedGroup uses a group of threads. The kernel lists no processes of such a group.
func TestThreadedGroup(t *testing.T) {
	run(t, func(b *bed) {
		mkdir(t, b.dir("threads"))
		if err := os.WriteFile(path.Join(b.dir("threads"), "cgroup.type"), []byte("threaded"), 0); err != nil {
			t.Skipf("threaded group: %v", err)
		}
		a := startApp(t, b.dir(), false)
		if err := os.WriteFile(path.Join(b.dir("threads"), "cgroup.procs"), []byte(a.pid()), 0); err != nil {
			t.Fatal(err)
		}
		a.do("udp u")
		b.write(nil, b.class("1:10", "threads"))
		a.do("udp v")
		a.want("made", "u=10010", "v=10010")
		b.write(b.class("1:10", "threads"), nil)
		a.want("removed", "u=0", "v=0")
	})
}
