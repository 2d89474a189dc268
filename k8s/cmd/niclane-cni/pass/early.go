// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package pass

import (
	"syscall"
	"unsafe"

	"github.com/niclane/niclane/k8s/cniproto"
)

// What On does takes far less time than Go's runtime takes to start. So the images'
// program begins at start (start_*.s): their linker is told -E and its name. It has
// advance do what On does where that is plain; otherwise it starts Go's runtime, as any
// program does, and On finds what was read of standard input. Built without -E, the
// program does the same and takes longer.
//
// advance and what it calls run before there is a heap, on the stack that the kernel
// gives: they allocate nothing, index nothing that they have not measured, and make no
// system calls. Those start makes, one after the other, as advance asks for them in next.

// start is where the program begins.
//
//lint:ignore U1000 nothing in Go calls it
func start()

// A request is what start and advance say to each other.
type request struct {
	stack                unsafe.Pointer // where the kernel has put arguments and environment
	number               uintptr        // of the next system call, or noCall: start Go's runtime
	first, second, third uintptr        // its arguments
	result               uintptr        // what it returned: below 0, as an int, if it failed
}

const noCall = ^uintptr(0)

var (
	next request

	// advancing is where start finds advance, as Go finds a function by its value:
	// by its name the assembler would find a wrapper that wants a thread's goroutine.
	//
	//lint:ignore U1000 start does
	advancing = advance

	// nobody is advance's goroutine (Go's runtime.g), whose stack ends at address 0.
	//
	//lint:ignore U1000 start has it
	nobody [512]byte
)

// A stage is what start has just been asked for.
type stage int

const (
	nothingYet stage = iota
	readInput
	openPods
	readPods
	closePods
	writeResult
	exit
)

// A buffer is what was read of a file. More than it holds is for Go's runtime: an agent's
// list of 110 pods has 4 KiB.
type buffer struct {
	bytes [64 << 10]byte
	n     int
}

var (
	at     stage
	input  buffer // standard input
	pods   buffer // cniproto.OtherPods
	path   [256]byte
	opened uintptr

	left    span // of input, to be written
	written bool // some of it
)

// taken is what was read of standard input before Go's runtime was there.
func taken() []byte { return input.bytes[:input.n] }

// advance looks at what the last system call returned and asks for the next.
func advance() {
	got := int(next.result)
	switch at {
	case nothingYet:
		if _, _, ok := podOf(next.stack); !ok {
			leave()
			return
		}
		fill(readInput, 0, &input)
	case readInput:
		if got != 0 {
			more(got, 0, &input)
			return
		}
		del, _, _ := podOf(next.stack)
		in := input.bytes[:input.n]
		socket, out, ok := plainly(in, del)
		left = out
		if !ok || !(socket == (span{}) && setPath(cniproto.DefaultSocket) || socket != (span{}) && setPath(unsafe.String(&in[socket.from], socket.to-socket.from))) {
			leave()
			return
		}
		ask(openPods, syscall.SYS_OPENAT, atCWD, uintptr(unsafe.Pointer(&path)), syscall.O_RDONLY|syscall.O_CLOEXEC)
	case openPods:
		if got < 0 {
			leave()
			return
		}
		opened = next.result
		fill(readPods, opened, &pods)
	case readPods:
		if got > 0 && pods.n+got < len(pods.bytes) {
			more(got, opened, &pods)
			return
		}
		if got != 0 {
			pods.n = 0 // half of a list names nobody
		}
		ask(closePods, syscall.SYS_CLOSE, opened, 0, 0)
	case closePods:
		if _, uid, _ := podOf(next.stack); !hasLine(pods.bytes[:pods.n], uid) {
			leave()
			return
		}
		write()
	case writeResult:
		switch {
		case got > 0:
			left.from += got
			written = true
			write()
		case written: // of half a result nobody makes a whole one
			ask(exit, syscall.SYS_EXIT_GROUP, 1, 0, 0)
		default: // On says why
			leave()
		}
	}
}

const atCWD = ^uintptr(99) // AT_FDCWD: -100

func ask(s stage, number, first, second, third uintptr) {
	at, next.number, next.first, next.second, next.third = s, number, first, second, third
}

// leave has start start Go's runtime.
func leave() { next.number = noCall }

// fill asks for what a file has.
func fill(s stage, file uintptr, b *buffer) {
	ask(s, syscall.SYS_READ, file, uintptr(unsafe.Pointer(&b.bytes))+uintptr(b.n), uintptr(len(b.bytes)-b.n))
}

// more asks for the rest of what a file has, if the buffer has room and the last of it
// could be read.
func more(got int, file uintptr, b *buffer) {
	if got > 0 {
		b.n += got
	}
	if got < 0 || b.n >= len(b.bytes) {
		leave()
		return
	}
	fill(at, file, b)
}

// write asks for the rest of the result to be written, or for the program's end.
func write() {
	if left.from >= left.to {
		ask(exit, syscall.SYS_EXIT_GROUP, 0, 0, 0)
		return
	}
	ask(writeResult, syscall.SYS_WRITE, 1, uintptr(unsafe.Pointer(&input.bytes))+uintptr(left.from), uintptr(left.to-left.from))
}

// podOf says of an environment whether the command is DEL and which pod it is
// about; ok is false if it is neither ADD nor DEL of one pod that is plainly named.
func podOf(stack unsafe.Pointer) (del bool, uid []byte, ok bool) {
	command, ok := variable(stack, "CNI_COMMAND=")
	if del = string(command) == "DEL"; !ok || !del && string(command) != "ADD" {
		return false, nil, false
	}
	args, ok := variable(stack, "CNI_ARGS=")
	if !ok {
		return false, nil, false
	}
	const name = "K8S_POD_UID="
	for i := 0; i < len(args); i++ {
		if i > 0 && args[i-1] != ';' || len(args)-i < len(name) || string(args[i:i+len(name)]) != name {
			continue
		}
		if uid != nil {
			return false, nil, false
		}
		uid = args[i+len(name):]
		for n, c := range uid {
			if c == ';' {
				uid = uid[:n]
				break
			}
			if c < '-' || c > 'z' {
				return false, nil, false
			}
		}
	}
	return del, uid, len(uid) > 0
}

// variable is what the environment has after name, which ends in "="; ok is false if it
// has none or several of that name.
func variable(stack unsafe.Pointer, name string) (value []byte, ok bool) {
	const word = int(unsafe.Sizeof(stack))
	args := *(*int)(stack)
	for i := 1 + args + 1; ; i++ { // after their number, the arguments, and nil
		v := *(**byte)(unsafe.Add(stack, i*word))
		if v == nil {
			return value, ok
		}
		n := 0
		for *(*byte)(unsafe.Add(unsafe.Pointer(v), n)) != 0 {
			n++
		}
		if all := unsafe.Slice(v, n); n >= len(name) && string(all[:len(name)]) == name {
			if ok {
				return nil, false
			}
			value, ok = all[len(name):], true
		}
	}
}

// setPath has path be the list of pods beside a socket, as cniproto.OtherPods names it,
// and reports whether it could: the socket's is absolute and needs no cleaning.
func setPath(socket string) bool {
	end := 0
	for i := range len(socket) {
		if socket[i] != '/' {
			continue
		}
		if end = i; i+1 < len(socket) && (socket[i+1] == '/' || socket[i+1] == '.') {
			return false
		}
	}
	if len(socket) == 0 || socket[0] != '/' || end+len("/"+cniproto.OtherPodsName)+1 > len(path) {
		return false
	}
	n := copy(path[:], socket[:end])
	n += copy(path[n:], "/"+cniproto.OtherPodsName)
	path[n] = 0
	return true
}

// hasLine reports whether a line of a text is that one.
func hasLine(text, want []byte) bool {
	from := 0
	for i := 0; i <= len(text); i++ {
		if i < len(text) && text[i] != '\n' {
			continue
		}
		if string(text[from:i]) == string(want) {
			return true
		}
		from = i + 1
	}
	return false
}
