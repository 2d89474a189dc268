// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A bench builds programs for guests, and runs guests.
type bench struct {
	ctx context.Context
	top string // directory of the repository
	out string // its directory out/matrix, which guests may write
}

func newBench(ctx context.Context) (*bench, error) {
	top, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(top, "go.mod")); err != nil {
		return nil, fmt.Errorf("run it from the top of the checkout: %w", err)
	}
	b := &bench{ctx: ctx, top: top, out: filepath.Join(top, "out", "matrix")}
	return b, os.MkdirAll(filepath.Join(b.out, "bin"), 0o755)
}

// build installs virtme-ng, and compiles the programs that guests run on these kernels.
func (b *bench) build(chosen []suite, kernels []string) error {
	// Install virtme-ng now, because guests start without a network.
	if out, err := exec.CommandContext(b.ctx, "tools/virtme", "--help").CombinedOutput(); err != nil {
		return fmt.Errorf("tools/virtme: %w: %s", err, out)
	}
	commands := [][]string{
		{"build", "-o", "out/matrix/bin/", "./cmd/niclane", "./cmd/niclane-bench"},
		{"build", "-o", "out/matrix/bin/matrix", "./test/matrix"},
	}
	for _, s := range chosen {
		if !s.builtin {
			commands = append(commands, []string{"test", "-C", cmp.Or(s.module, "."), "-c", "-o",
				filepath.Join(b.out, "bin", s.file()), "./" + s.pkg()})
		}
	}
	if needsModule(chosen) {
		commands = append(commands, []string{"run", "./test/simcard/run", "-build", "-kernels",
			strings.Join(kernels, ",")})
	}
	for _, args := range commands {
		cmd := exec.CommandContext(b.ctx, "tools/go", args...)
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("go %s: %w", strings.Join(args, " "), err)
		}
	}
	return nil
}

// A guest is a kernel that was fetched, and how to boot it.
type guest struct {
	series   string
	release  string // as printed by uname -r
	packages string
	image    string
	root     string // directory that contains lib/modules
	module   string // the simulated card's module; "" if it was not built
	log      string // log file of the guest
}

// fetch downloads the newest kernel of a series.
func (b *bench) fetch(series string) (*guest, error) {
	cmd := exec.CommandContext(b.ctx, "tools/kernel", series)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("tools/kernel %s: %w", series, err)
	}
	f := strings.Split(strings.TrimSpace(string(out)), "\t")
	if len(f) != 4 {
		return nil, fmt.Errorf("tools/kernel %s printed %q, want 4 fields", series, out)
	}
	return &guest{
		series: series, release: f[0], packages: f[1], image: f[2], root: f[3],
		module: filepath.Join(b.top, "out", "simcard", series, "simcard.ko"), log: filepath.Join(b.out, series+".log"),
	}, nil
}

// The guest's card has four queues for the network stack. It has further queues for XDP, which
// needs one for each processor.
const (
	cardQueues = 8
	cardMAC    = "52:54:00:6e:6c:01"
)

// card adds a virtio-net card that has as many queue pairs as the tap device, and steers received
// packets by hash. It has an interrupt for each queue, one for configuration and one for control.
var card = []string{
	"-netdev", fmt.Sprintf("tap,id=card,ifname=tap0,script=no,downscript=no,vhost=off,queues=%d", cardQueues),
	"-device", fmt.Sprintf("virtio-net-pci,netdev=card,mac=%s,mq=on,rss=on,hash=on,vectors=%d", cardMAC,
		2*cardQueues+2),
}

// rootTag names the second export of the machine's root file system. The guest mounts it with a
// cache.
const rootTag = "cached-root"

var root = []string{
	"-fsdev", "local,id=root,path=/,security_model=none,readonly=on,multidevs=remap",
	"-device", "virtio-9p-pci,fsdev=root,mount_tag=" + rootTag,
}

// emulation makes one thread emulate all of the guest's processors in turn. With a thread for each,
// a processor of QEMU 7.2 sometimes executes an int3 that the kernel has already removed from a
// jump label (arch/x86/kernel/alternative.c), and the kernel panics with "Oops: int3". Attaching
// programs patches jump labels (net/core/dev.c: generic_xdp_needed_key and others). On a busy
// machine, one thread is also faster, because no emulated processor waits for another.
var emulation = []string{"-accel", "tcg,thread=single"}

// twoNodes gives each of the guest's processors a NUMA node and a socket of its own, and each node
// half of the memory. With one socket, the kernel would warn that a package spans two nodes.
var twoNodes = []string{
	"-smp", "2,sockets=2,cores=1,threads=1",
	"-object", "memory-backend-ram,id=memory0,size=1G", "-numa", "node,nodeid=0,cpus=0,memdev=memory0",
	"-object", "memory-backend-ram,id=memory1,size=1G", "-numa", "node,nodeid=1,cpus=1,memdev=memory1",
}

// inNamespace is a shell script for a new network namespace. It makes tap0, the other end of the
// card's wire, starts the guest's peer, and then runs its arguments.
const inNamespace = `
ip link set lo up
echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6
ip tuntap add dev tap0 mode tap multi_queue vnet_hdr
ip address add ` + peerAddress + `/24 dev tap0
ip link set tap0 up
out/matrix/bin/matrix ` + peerCommand + ` &
exec "$@"`

// boots is how often a guest's boot is tried. On emulated processors a kernel may panic at boot,
// before niclane runs (once in about forty boots, with a thread for each processor: 6.12, idle
// task, at 2.1 s).
const boots = 3

// bootAgain boots the guest and runs the suites. If the guest does not come up, it tries again, at
// most boots times in all.
func (b *bench) bootAgain(w io.Writer, g *guest, chosen []suite) (r *results, err error) {
	for n := 1; n <= boots; n++ {
		if r, err = b.boot(g, chosen); !errors.Is(err, errNoBoot) {
			return r, err
		}
		fmt.Fprintf(w, "   boot %d of at most %d: %v\n", n, boots, err)
	}
	return r, err
}

// boot boots a guest, runs the suites in it and returns their results. It returns an error if the
// guest did not finish.
func (b *bench) boot(g *guest, chosen []suite) (*results, error) {
	var names []string
	var nodes []string
	within := 2 * time.Minute // time for the boot and the end
	for _, s := range chosen {
		names = append(names, s.name)
		within += s.within
		if s.nodes {
			nodes = twoNodes
		}
	}
	g.log = filepath.Join(b.out, g.series+".log")
	if err := os.WriteFile(g.log, nil, 0o644); err != nil {
		return nil, err
	}
	console, err := os.Create(filepath.Join(b.out, g.series+".console"))
	if err != nil {
		return nil, err
	}
	defer console.Close()
	script := filepath.Join(b.out, g.series+".sh")
	if err := os.WriteFile(script, []byte(b.script(g, names)), 0o755); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(b.ctx, within)
	defer cancel()
	// When unshare ends, the kernel kills all processes in its PID namespace.
	args := append([]string{"--net", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-ec", inNamespace, "sh",
		"tools/virtme", "--kimg", g.image, "--mods", "auto", "--disable-kvm", "--force-9p", "--cpus", "2", "--memory",
		"2G",
		"-a", "nokaslr", "-a", "mitigations=off", "-a", "random.trust_cpu=on",
		// Guests have their own /tmp and /var/tmp. A repository there would be hidden without this
		// option.
		"--rwdir", b.top, "--show-boot-console", "--script-sh", script, "--qemu-opts"},
		slices.Concat(emulation, card, root, nodes)...)
	cmd := exec.CommandContext(ctx, "unshare", args...)
	cmd.Stdout, cmd.Stderr = console, console
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	err = cmd.Run()
	if b.ctx.Err() != nil {
		return nil, errors.New("interrupted")
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("the guest has not finished after %s", within)
	}
	text, rerr := os.ReadFile(g.log)
	if rerr != nil {
		return nil, rerr
	}
	r, perr := parse(g.release, text)
	if perr != nil {
		tail, _ := os.ReadFile(console.Name())
		return nil, errors.Join(perr, err, fmt.Errorf("console: %s", lastLines(tail, 15)))
	}
	return r, nil
}

// script returns the script that the guest's init runs. The guest's root is the machine's root,
// read-only except for out/matrix. Modules are loaded from the user's cache directory, because the
// machine may have no /lib/modules to mount over.
func (b *bench) script(g *guest, names []string) string {
	return fmt.Sprintf(`#!/bin/sh
modprobe=%[1]s/%[2]s.modprobe
printf '#!/bin/sh\nexec /sbin/modprobe -d %[3]s "$@"\n' >$modprobe
chmod 755 $modprobe
echo $modprobe >/proc/sys/kernel/modprobe
cd %[4]s
export NICLANE_SIMCARD=%[8]s
exec %[1]s/bin/matrix %[5]s '%[6]s' >%[7]s 2>&1
`, b.out, g.series, g.root, b.top, guestCommand, strings.Join(names, ";"), g.log, g.module)
}

func lastLines(text []byte, n int) string {
	lines := strings.Split(strings.TrimSpace(string(bytes.ReplaceAll(text, []byte("\r"), nil))), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
