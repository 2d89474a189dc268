// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/testing/must"
)

var (
	every    = flag.Int("every", 0, "take every Nth call of each thread: 1 for all, 0 for a few")
	from     = flag.Int("from", 1, "with -every, the first call")
	commands = flag.String("commands", "apply,rollback,guard,watch", "what is injected into")
	errnos   = flag.String("errnos", "ENOMEM,ENOSPC,EIO,ENOBUFS,EINTR,EAGAIN", "errors")
	calls    = flag.String("calls",
		"sendto,recvfrom,socket,bind,setsockopt,getsockname,bpf,ioctl,openat,openat2,read,write,pwrite64,pread64,"+
			"fallocate,ftruncate,renameat,unlinkat,mkdirat,flock,newfstatat,fstat,getdents64,readlinkat,sched_setattr,sched_getattr,sched_setaffinity,connect", "system calls")
)

// A tally counts the results of the points of one command and error.
//
// hung counts points where the command hung and was killed, and the next rollback restored
// everything. Only EAGAIN may cause this. If a file or socket that Go's runtime polls returns
// EAGAIN, the runtime takes this to mean "no data yet" and waits for an event. A real kernel never
// returns EAGAIN in these places.
//
// runtime counts points where the write failed by which Go's runtime wakes its own poller (an
// eventfd). Any Go program ends then (runtime/netpoll_epoll.go). A real kernel returns only EAGAIN
// for this write, which the runtime accepts. In these points, too, the next rollback restored
// everything.
type tally struct{ points, restored, said, hung, runtime, wrong int }

// A point is one injected fault: in each thread, the kth call fails with an error.
type point struct {
	call, errno string
	k           int
}

// TestInject tries as many points at the same time as go test's -parallel allows. Each point has a
// bed of its own.
func TestInject(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds")
	}
	niclane := build(t)
	beds := flag.Lookup("test.parallel").Value.(flag.Getter).Get().(int)
	fmt.Println("command   error     points  restored  said  hung  runtime  wrong")
	for command := range strings.SplitSeq(*commands, ",") {
		began := time.Now()
		var all []point
		t.Run("count", func(t *testing.T) {
			counts := newBed(t, niclane).count(t, command)
			for _, call := range slices.Sorted(maps.Keys(counts)) {
				for errno := range strings.SplitSeq(*errnos, ",") {
					for k := range points(call, errno, counts[call]) {
						all = append(all, point{call, errno, k})
					}
				}
			}
		})
		queue := make(chan point, len(all))
		for _, p := range all {
			queue <- p
		}
		close(queue)
		var mu sync.Mutex
		of := map[string]*tally{}
		t.Run(command, func(t *testing.T) {
			for range beds {
				t.Run("bed", func(t *testing.T) {
					t.Parallel()
					b := newBed(t, niclane)
					for p := range queue {
						n := b.point(t, command, p)
						mu.Lock()
						if of[p.errno] == nil {
							of[p.errno] = &tally{}
						}
						of[p.errno].add(n)
						mu.Unlock()
					}
				})
			}
		})
		for errno := range strings.SplitSeq(*errnos, ",") {
			if n := of[errno]; n != nil {
				fmt.Printf("%-9s %-9s %6d  %8d  %4d  %4d  %7d  %5d\n",
					command, errno, n.points, n.restored, n.said, n.hung, n.runtime, n.wrong)
			}
		}
		fmt.Printf("%-9s in %v\n", command, time.Since(began).Round(time.Second))
	}
}

func (n *tally) add(m tally) {
	n.points += m.points
	n.restored += m.restored
	n.said += m.said
	n.hung += m.hung
	n.runtime += m.runtime
	n.wrong += m.wrong
}

// points yields the number k of each call to fail. Without -every it yields only one number, and
// only for some calls and errors.
func points(call, errno string, n int) func(func(int) bool) {
	return func(yield func(int) bool) {
		if *every == 0 {
			if slices.Contains([]string{"recvfrom ENOMEM", "bpf ENOMEM", "sendto ENOBUFS", "write ENOSPC", "ioctl EIO"},
				call+" "+errno) {
				yield(n/2 + 1)
			}
			return
		}
		for k := *from; k <= n; k += *every {
			if !yield(k) {
				return
			}
		}
	}
}

// strace returns the start of a command that makes a call fail. For the guard process, strace is
// attached to its PID instead.
func (b *bed) strace(inject string) []string {
	call, _, _ := strings.Cut(inject, ":")
	s := []string{"strace", "-f", "--seccomp-bpf", "-qqq", "-o", b.trace(), "-e", "trace=" + call, "-e", "signal=none"}
	if inject != call {
		s = append(s, "-e", "inject="+inject)
	}
	return s
}

// trace returns the path of strace's output. It is not in the directory of the lanes file, because
// watch is notified of every write there.
func (b *bed) trace() string { return b.dir + "/trace/calls" }

// count returns how often a command makes each system call. It counts the calls of the thread that
// makes the call most often.
func (b *bed) count(t *testing.T, command string) map[string]int {
	b.do(t, command, b.strace(*calls))
	text, err := os.ReadFile(b.trace())
	must.Do(t, err)
	byThread, counts := map[string]int{}, map[string]int{}
	for _, m := range regexp.MustCompile(`(?m)^(\d+) +([a-z0-9_]+)\(`).FindAllStringSubmatch(string(text), -1) {
		byThread[m[1]+m[2]]++
		counts[m[2]] = max(counts[m[2]], byThread[m[1]+m[2]])
	}
	if len(counts) == 0 {
		t.Fatalf("%s makes no system call", command)
	}
	if r := b.run(nil, "rollback"); r.code != 0 {
		t.Fatalf("rollback: %s", r.text)
	}
	return counts
}

// do puts the machine into the state that the command needs, and runs the command under strace.
func (b *bed) do(t *testing.T, command string, strace []string) result {
	switch command {
	case "apply":
		return b.run(strace, "apply", b.file)
	case "rollback":
		if r := b.run(nil, "apply", b.file); r.code != 0 {
			t.Fatalf("apply: %s", r.text)
		}
		return b.run(strace, "rollback")
	case "guard":
		return b.guard(t, strace)
	case "watch":
		return b.watch(t, strace)
	}
	t.Fatalf("no command %q", command)
	return result{}
}

// guard applies lanes without a confirm, so the guard process undoes them.
func (b *bed) guard(t *testing.T, strace []string) result {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c := b.command(ctx, nil, "apply", "--confirm-within", "1s", b.file)
	if err := c.Run(); err != nil { // no output: the guard process may keep the streams open
		t.Fatalf("apply --confirm-within: %v", err)
	}
	pid := b.guardian()
	if pid == 0 {
		t.Fatal("no guardian")
	}
	s := exec.CommandContext(ctx, strace[0], append(strace[1:], "-p", fmt.Sprint(pid))...)
	out, _ := s.CombinedOutput() // waits until the guard process ends
	r := result{text: string(out)}
	if ctx.Err() != nil {
		b.end()
		r = result{hangs, r.text}
	}
	return r
}

// watch runs a watch, which makes the lanes. Then it removes them, and the watch must make them
// again.
func (b *bed) watch(t *testing.T, strace []string) result {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	log := b.dir + "/trace/log"
	f, err := os.Create(log)
	must.Do(t, err)
	defer f.Close()
	c := b.command(ctx, strace, "watch", b.file)
	c.Stdout, c.Stderr = f, f
	must.Do(t, c.Start())
	ended := make(chan struct{})
	go func() { _ = c.Wait(); close(ended) }()
	says := func(word string) bool {
		return until(func() bool {
			select {
			case <-ended:
				return true
			default:
			}
			text, _ := os.ReadFile(log)
			return strings.Contains(string(text), word)
		})
	}
	says("begun")
	_ = exec.Command("tc", "-n", b.netns, "qdisc", "del", "dev", "v0", "root").Run()
	says("repaired")
	// The watch is the only child of strace.
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", c.Process.Pid))
	var pid int
	if n, _ := fmt.Sscan(string(text), &pid); n == 1 {
		_ = unix.Kill(pid, unix.SIGTERM)
	}
	<-ended
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	said, _ := io.ReadAll(f)
	r := result{c.ProcessState.ExitCode(), string(said)}
	if ctx.Err() != nil {
		b.end()
		r = result{hangs, r.text}
	}
	return r
}

// point tries one point: the kth call of each thread fails. It checks the state after the next
// rollback.
func (b *bed) point(t *testing.T, command string, p point) (n tally) {
	r := b.do(t, command, b.strace(fmt.Sprintf("%s:error=%s:when=%d", p.call, p.errno, p.k)))
	text, err := os.ReadFile(b.trace())
	if err == nil && !strings.Contains(string(text), "(INJECTED)") && r.code >= 0 {
		if r := b.run(nil, "rollback"); r.code != 0 {
			t.Fatalf("rollback: %s", r.text)
		}
		return n
	}
	n.points++
	wrong, hung := "", r.code == hangs && p.errno == "EAGAIN"
	runtime := p.call == "write" && strings.Contains(r.text, "fatal error: runtime: netpollBreak write failed")
	switch {
	case r.code < 0 && !hung:
		wrong = r.text
	case runtime:
	case strings.Contains(r.text, "panic:") || strings.Contains(r.text, "fatal error:"):
		wrong = "crashes"
	// A watch may print this before it repairs something.
	case command == "rollback" && r.code == 0, command != "watch" && strings.Contains(r.text, "as it was before"):
		if d := b.differs(t); d != "" {
			wrong = "says that all is undone: " + d
		}
	}
	last := b.run(nil, "rollback")
	d := b.differs(t)
	switch {
	case wrong != "" || d != "" && last.code != 1:
		n.wrong++
		t.Errorf("%s, %s of %s %d ends with %d: %s\n%s\nrollback %d: %s\nleft: %s", command, p.errno, p.call, p.k,
			r.code, wrong, r.text, last.code, last.text, d)
	case hung && d == "":
		n.hung++
		t.Logf("%s, %s of %s %d hangs: %s", command, p.errno, p.call, p.k, r.text)
	case runtime && d == "":
		n.runtime++
		t.Logf("%s, %s of %s %d ends in Go's runtime", command, p.errno, p.call, p.k)
	case d == "":
		n.restored++
	default:
		n.said++
		t.Logf("%s, %s of %s %d: %s\nrollback says: %s\nleft: %s", command, p.errno, p.call, p.k, r.text, last.text, d)
	}
	if d != "" {
		b.setUp(t)
	}
	return n
}
