// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package pass

import (
	"bytes"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/niclane/niclane/k8s/cniproto"
)

const plainConf = `{"cniVersion": "1.1.0", "name":"n", "socket":"/run/x/cni.sock", "a":[{},[],[1,-2.5e+3,true],{"b":"\u00e4\"","c":null}],
	"prevResult" : {"ips":[{"address":"10.244.0.5/24"}],"cniVersion":"1.1.0"} }
`

// TestPlainly: what is as runtimes write it is taken; what is wrong, or takes more to
// understand, is not.
func TestPlainly(t *testing.T) {
	for conf, want := range map[string]struct{ add, del bool }{
		plainConf: {true, true},
		`{"cniVersion":"1.0.0","prevResult":{"cniVersion":"1.0.0"}}`: {true, true},
		`{"cniVersion":"1.1.0","prevResult":{"cniVersion":"1.0.0"}}`: {false, true},
		`{"cniVersion":"1.1.0","prevResult":{}}`:                     {false, true},
		`{"prevResult":{}}`:                                          {false, true},
		`{}`:                                                         {false, true},
		`{"cniVersion":"1.1.0","prevResult":null}`:                   {false, true},
		`{"cniVersion":"1.1.0","prevResult":{"cniVersion":"1.1.0"},"cniVersion":"1.1.0"}`:          {},
		`{"cniVersion":"1.1.0","PrevResult":{},"prevResult":{"cniVersion":"1.1.0"}}`:               {},
		`{"cniVersion":"1.1.0","prevResult":{"cniVersion":"1.1.0","CNIVERSION":"1.0.0"}}`:          {false, true},
		`{"cniVersion":"1.1.0","socket":null,"prevResult":{"cniVersion":"1.1.0"}}`:                 {},
		`{"cniVersion":"1.1.0","socket":"/run\u002fcni.sock","prevResult":{"cniVersion":"1.1.0"}}`: {},
		`{"cniVersion":"1.1.0","\u0073ocket":"/a/b","prevResult":{"cniVersion":"1.1.0"}}`:          {},
		`{"cniVersion":"1.1.0","ſocket":"/a/b","prevResult":{"cniVersion":"1.1.0"}}`:               {}, // s, to encoding/json
		`{"cniVersion":"1.1.0","prevResult":{"cniVersion":"1.1.0"}} x`:                             {},
		`{"cniVersion":"1.1.0","prevResult":{"cniVersion":"1.1.0"},}`:                              {},
		`{"cniVersion":"1.1.0","prevResult":{"cniVersion":"1.1.0"},"x":[1,]}`:                      {},
		`{"cniVersion":"1.1.0","prevResult":{"cniVersion":"1.1.0"},"x":01}`:                        {},
		`{"cniVersion":"1.1.0","prevResult":{"cniVersion":"1.1.0"},"x":"` + "\n" + `"}`:            {},
		`{"cniVersion":"1.1.0","x":` + strings.Repeat("[", 65) + strings.Repeat("]", 65) + `}`:     {},
		`{"cniVersion":1,"prevResult":{"cniVersion":"1.1.0"}}`:                                     {},
		"": {}, "[]": {}, "null": {}, `{"cniVersion"`: {}, `{"cniVersion":`: {}, `{"cniVersion":"1.1.0"`: {}, `{"cniVersion":"\`: {}, `{"cniVersion":"\u12`: {},
	} {
		for _, del := range []bool{false, true} {
			want := del && want.del || !del && want.add
			if _, _, ok := plainly([]byte(conf), del); ok != want {
				t.Errorf("DEL %v: %s: taken %v, want %v", del, conf, ok, want)
			}
		}
	}
}

// FuzzPlainly: whatever is taken, encoding/json takes for the same.
func FuzzPlainly(f *testing.F) {
	f.Add([]byte(plainConf), false)
	f.Add([]byte(`{"cniVersion":"1.1.0","prevResult":{"cniVersion":"1.1.0"},"x":[0.5E-3,"\\\/",{"":false}]}`), true)
	f.Add([]byte(`{"socket":"/a","ſocket":"/b"}`), true)
	f.Fuzz(func(t *testing.T, in []byte, del bool) {
		at, out, ok := plainly(in, del)
		if !ok {
			return
		}
		socket, result, ok := understand(in, del)
		if !ok {
			t.Fatalf("%q is taken", in)
		}
		got := cniproto.DefaultSocket
		if at != (span{}) {
			got = string(in[at.from:at.to])
		}
		if got != socket || !bytes.Equal(in[out.from:out.to], result) {
			t.Fatalf("%q: %s, %s, want %s, %s", in, got, in[out.from:out.to], socket, result)
		}
		if setPath(got) {
			if end := bytes.IndexByte(path[:], 0); string(path[:end]) != cniproto.OtherPods(socket) {
				t.Fatalf("%q: the list %s, want %s", in, path[:end], cniproto.OtherPods(socket))
			}
		}
	})
}

// A stack is what the kernel puts there: the number of arguments, these, nil, the
// environment, nil.
func stack(t testing.TB, args, env []string) unsafe.Pointer {
	words := []unsafe.Pointer{nil}
	for _, part := range [][]string{args, env} {
		for _, s := range part {
			words = append(words, unsafe.Pointer(unsafe.SliceData(append([]byte(s), 0))))
		}
		words = append(words, nil)
	}
	*(*int)(unsafe.Pointer(&words[0])) = len(args)
	t.Cleanup(func() { runtime.KeepAlive(words) })
	return unsafe.Pointer(&words[0])
}

// TestPodOf: the pod of ADD and DEL is found if the environment names one, as
// cniproto.PodOf finds it.
func TestPodOf(t *testing.T) {
	const args = "CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_UID=u-1;K8S_POD_NAME=p"
	for _, c := range []struct {
		env     string
		del, ok bool
	}{
		{"HOME=/ CNI_COMMAND=ADD " + args, false, true},
		{args + " CNI_COMMAND=DEL", true, true},
		{"CNI_COMMAND=CHECK " + args, false, false},
		{"CNI_COMMAND=ADDED " + args, false, false},
		{"CNI_COMMAND= " + args, false, false},
		{args, false, false},
		{"CNI_COMMAND=ADD", false, false},
		{"CNI_COMMAND=ADD CNI_COMMAND=DEL " + args, false, false},
		{"CNI_COMMAND=ADD CNI_ARGS=K8S_POD_NAME=p", false, false},
		{"CNI_COMMAND=ADD CNI_ARGS=K8S_POD_UID=", false, false},
		{"CNI_COMMAND=ADD CNI_ARGS=XK8S_POD_UID=u-1", false, false},
		{"CNI_COMMAND=ADD CNI_ARGS=K8S_POD_UID=u-1;K8S_POD_UID=u-2", false, false},
		{"CNI_COMMAND=ADD CNI_ARGS=K8S_POD_UID=u-1\nu-2", false, false},
		{"", false, false},
	} {
		env := strings.Split(c.env, " ")
		del, uid, ok := podOf(stack(t, []string{"niclane-cni"}, env))
		if del != c.del || ok != c.ok || ok && string(uid) != "u-1" {
			t.Errorf("%q: %v %q %v", env, del, uid, ok)
		}
	}
}

func FuzzPodOf(f *testing.F) {
	f.Add("IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_UID=u-1;K8S_POD_NAME=p")
	f.Fuzz(func(t *testing.T, args string) {
		args, _, _ = strings.Cut(args, "\x00")
		_, got, ok := podOf(stack(t, nil, []string{"CNI_COMMAND=ADD", "CNI_ARGS=" + args}))
		if _, _, uid := cniproto.PodOf(args); ok && string(got) != uid {
			t.Fatalf("%q: %q, want %q", args, got, uid)
		}
	})
}

// A kernel answers system calls from files, a few bytes at a time.
type kernel struct {
	stdin, pods string  // pods: "" if there is no such file
	fails       uintptr // a system call that does, after so many that do not
	after       int

	opened, out string
	closed      bool
}

const some = 7 // bytes of a read or write

func (k *kernel) call(t *testing.T, r request) (result int) {
	if r.number == k.fails {
		if k.after--; k.after < 0 {
			return -int(syscall.EIO)
		}
	}
	memory := unsafe.Slice(*(**byte)(unsafe.Pointer(&r.second)), min(r.third, some))
	switch r.number {
	case syscall.SYS_READ:
		file := &k.stdin
		if r.first == 3 {
			file = &k.pods
		}
		n := copy(memory, *file)
		*file = (*file)[n:]
		return n
	case syscall.SYS_OPENAT:
		name := unsafe.Slice(*(**byte)(unsafe.Pointer(&r.second)), len(path))
		k.opened = string(name[:bytes.IndexByte(name, 0)])
		if k.pods == "" {
			return -int(syscall.ENOENT)
		}
		return 3
	case syscall.SYS_CLOSE:
		k.closed = r.first == 3
		return 0
	case syscall.SYS_WRITE:
		k.out += string(memory)
		return len(memory)
	}
	t.Fatalf("system call %+v", r)
	return 0
}

// TestAdvance: it reads, looks and writes what there is, however much a system call takes,
// and leaves all to Go's runtime where something is not as it is wanted.
func TestAdvance(t *testing.T) {
	const result = `{"ips":[{"address":"10.244.0.5/24"}],"cniVersion":"1.1.0"}`
	const left = -1
	for name, c := range map[string]struct {
		command     string
		stdin, pods string
		fails       uintptr
		after       int
		exit        int // left: not by advance
		out         string
	}{
		"ADD":                          {"ADD", plainConf, "t\nu\nv\n", none, 0, 0, result},
		"DEL":                          {"DEL", plainConf, "u\n", none, 0, 0, ""},
		"no file":                      {"ADD", plainConf, "", none, 0, left, ""},
		"another pod":                  {"ADD", plainConf, "uu\n", none, 0, left, ""},
		"the agent's own":              {"CHECK", plainConf, "u\n", none, 0, left, ""},
		"not JSON":                     {"ADD", plainConf[1:], "u\n", none, 0, left, ""},
		"too large":                    {"ADD", strings.Repeat(" ", len(input.bytes)) + plainConf, "u\n", none, 0, left, ""},
		"just too large":               {"ADD", strings.Repeat(" ", len(input.bytes)-len(plainConf)) + plainConf, "u\n", none, 0, left, ""},
		"many pods":                    {"ADD", plainConf, "u\n" + strings.Repeat("x", len(pods.bytes)), none, 0, left, ""},
		"input cannot be read":         {"ADD", plainConf, "u\n", syscall.SYS_READ, 1, left, ""},
		"nobody reads":                 {"ADD", plainConf, "u\n", syscall.SYS_WRITE, 1, 1, result[:some]},
		"nobody takes anything":        {"ADD", plainConf, "u\n", syscall.SYS_WRITE, 0, left, ""},
		"pods cannot be read":          {"ADD", plainConf, "u\n", syscall.SYS_READ, len(plainConf)/some + 2, left, ""},
		"a socket that is not cleaned": {"ADD", strings.Replace(plainConf, "/run/x", "/run//x", 1), "u\n", none, 0, left, ""},
	} {
		t.Run(name, func(t *testing.T) {
			k := &kernel{stdin: c.stdin, pods: c.pods, fails: c.fails, after: c.after}
			at, input.n, pods.n, written, next = nothingYet, 0, 0, false, request{}
			next.stack = stack(t, []string{"niclane-cni"}, []string{"CNI_COMMAND=" + c.command, "CNI_ARGS=K8S_POD_UID=u"})
			exit := left
			for {
				if advance(); next.number == noCall {
					break
				}
				if next.number == syscall.SYS_EXIT_GROUP {
					exit = int(next.first)
					break
				}
				next.result = uintptr(k.call(t, next))
			}
			if exit != c.exit || k.out != c.out {
				t.Errorf("ended %d with %q, want %d with %q", exit, k.out, c.exit, c.out)
			}
			if k.opened != "" && (k.opened != "/run/x/other-pods" || c.pods != "" && !k.closed) {
				t.Errorf("opened %s, closed %v", k.opened, k.closed)
			}
			if exit == left && string(taken())+k.stdin != c.stdin {
				t.Errorf("of %d bytes of input Go's runtime gets %d and %d", len(c.stdin), len(taken()), len(k.stdin))
			}
		})
	}
}

const none = noCall - 1 // no system call

// TestSetPath: the list is beside the socket.
func TestSetPath(t *testing.T) {
	long := "/" + strings.Repeat("x", len(path)-len("/other-pods")-2)
	for socket, want := range map[string]bool{
		cniproto.DefaultSocket: true, "/cni.sock": true, "/a/b/c": true, long + "/s": true,
		"": false, "cni.sock": false, "a/b": false, "/a/../b": false, "/a/./b": false, "//b": false, "/a//b": false, long + "x/s": false,
	} {
		if got := setPath(socket); got != want {
			t.Errorf("%s: %v", socket, got)
		} else if end := bytes.IndexByte(path[:], 0); got && string(path[:end]) != cniproto.OtherPods(socket) {
			t.Errorf("%s: %s", socket, path[:end])
		}
	}
}
