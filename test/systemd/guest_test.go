// SPDX-License-Identifier: Apache-2.0

package systemd_test

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/testing/must"
)

// The guest has two cards. The first has several queues and a wire to the machine. The second has
// another driver and one queue pair.
const (
	cardMAC   = "52:54:00:6e:6c:01"
	otherMAC  = "52:54:00:6e:6c:02"
	cardPairs = 4
)

// inNamespace is a shell script for a new network namespace. It makes tap0, the other end of the
// card's wire, and then runs its arguments.
const inNamespace = `
ip link set lo up
ip tuntap add dev tap0 mode tap multi_queue vnet_hdr
ip address add 10.99.0.2/24 dev tap0
ip link set tap0 up
exec "$@"`

// agent is a program in the guest. It runs the scripts that the test sends, each as one line of
// base64. It answers with the script's output and exit code.
const agent = `#!/bin/bash
exec <>/dev/virtio-ports/niclane >&0
systemctl is-system-running --wait >/run/booted
echo "booted $(cat /run/booted)"
while IFS= read -r line; do
	base64 -d <<<"$line" >/run/script
	out=$(sh -e /run/script </dev/null 2>&1)
	code=$?
	echo "$(base64 -w0 <<<"$out") $code"
done
`

const agentUnit = `[Unit]
Description=What the test runs
DefaultDependencies=no
After=sysinit.target
[Service]
ExecStart=/root/agent
Environment=LC_ALL=C.UTF-8 HOME=/root
KillMode=process
`

// initScript mounts the guest's root file system and starts its init. It loads the drivers of the
// disk and of the file system, because Debian's kernel has them only as modules.
const initScript = `#!/bin/busybox sh
/bin/busybox mkdir -p /dev /proc /root
/bin/busybox mount -t devtmpfs dev /dev
for m in /modules/*; do /bin/busybox insmod $m; done
/bin/busybox mount -t ext4 -o rw,noatime /dev/vda /root && exec /bin/busybox switch_root /root /sbin/init
/bin/busybox ls -l /dev/vd* /modules
`

// A guest is a Debian system with systemd, in QEMU.
type guest struct {
	t       *testing.T
	dir     string
	kernel  string // as printed by uname -r
	boots   int
	qemu    int // PID of the process in the network namespace of the wire
	conn    net.Conn
	answers *bufio.Reader
}

// within is the time limit for a boot or a script.
const within = 5 * time.Minute

// command runs a program on the machine and returns its output.
func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, out, stderr.String())
	}
	return string(out)
}

// newGuest makes a root file system with niclane's package deb, and boots it on the newest kernel
// of a series.
func newGuest(t *testing.T, series, deb string) *guest {
	g := &guest{t: t, dir: t.TempDir()}
	// The fields are: release, packages, image, and the directory that contains lib/modules.
	f := strings.Split(strings.TrimSpace(command(t, "../../tools/kernel", series)), "\t")
	if len(f) != 4 {
		t.Fatalf("tools/kernel %s printed %q, want 4 fields", series, f)
	}
	g.kernel = f[0]
	archive := strings.TrimSpace(command(t, "../../tools/debianroot",
		"systemd-sysv,udev,kmod,iproute2,ethtool,irqbalance,procps,curl"))
	root := filepath.Join(g.dir, "root")
	command(t, "mkdir", root)
	command(t, "tar", "-C", root, "--zstd", "-xf", archive)
	command(t, "cp", "-a", filepath.Join(f[3], "lib", "modules"), filepath.Join(root, "lib"))
	command(t, "cp", deb, filepath.Join(root, "niclane.deb"))
	g.write("root/root/agent", agent, 0o755)
	g.write("root/etc/systemd/system/agent.service", agentUnit, 0o644)
	g.write("root/etc/udev/rules.d/90-agent.rules",
		`SUBSYSTEM=="virtio-ports", ATTR{name}=="niclane", TAG+="systemd", ENV{SYSTEMD_WANTS}+="agent.service"`+"\n",
		0o644)
	g.write("root/etc/systemd/network/50-cards.network",
		"[Match]\nMACAddress="+cardMAC+"\n[Network]\nAddress=10.99.0.1/24\n", 0o644)
	// Use all queues of the card. If XDP took some of the unused ones, removing the driver would hang:
	// netif_set_real_num_rx_queues keeps references to the queues while the device unregisters
	// (net/core/dev.c, 6.12).
	g.write("root/etc/systemd/network/50-cards.link", "[Match]\nMACAddress="+cardMAC+"\n[Link]\nNamePolicy=path "+
		"slot\nCombinedChannels=max\n", 0o644)
	g.write("root/etc/systemd/network/60-other.network",
		"[Match]\nMACAddress="+otherMAC+"\n[Network]\nAddress=10.98.0.1/24\n", 0o644)
	g.write("root/etc/machine-id", strings.Repeat("6e", 16)+"\n", 0o444)
	g.write("root/etc/hostname", "guest\n", 0o644)
	command(t, "chroot", root, "systemctl", "enable", "systemd-networkd.service")
	// irqbalance does not start at boot; the test starts it when needed.
	command(t, "chroot", root, "systemctl", "disable", "irqbalance.service")
	command(t, "mkfs.ext4", "-q", "-d", root, filepath.Join(g.dir, "disk"), "2G")
	command(t, "rm", "-r", root)
	g.initramfs(f[3])
	g.start(f[2])
	return g
}

func (g *guest) write(name, text string, mode os.FileMode) {
	g.t.Helper()
	name = filepath.Join(g.dir, name)
	must.Do(g.t, os.MkdirAll(filepath.Dir(name), 0o755))
	must.Do(g.t, os.WriteFile(name, []byte(text), mode))
}

// initramfs makes the initial RAM file system.
func (g *guest) initramfs(modules string) {
	g.write("initramfs/init", initScript, 0o755)
	busybox, err := exec.LookPath("busybox")
	must.Do(g.t, err)
	into := filepath.Join(g.dir, "initramfs")
	command(g.t, "mkdir", filepath.Join(into, "bin"), filepath.Join(into, "modules"))
	command(g.t, "cp", busybox, filepath.Join(into, "bin", "busybox"))
	seen := map[string]bool{}
	for _, m := range []string{"virtio_pci", "virtio_blk", "ext4"} {
		// Each line is "insmod PATH" or "builtin NAME".
		for line := range strings.Lines(command(g.t, "modprobe", "-d", modules, "-S", g.kernel, "--show-depends", m)) {
			f := strings.Fields(line)
			if f[0] != "insmod" || seen[f[1]] {
				continue
			}
			seen[f[1]] = true
			name := filepath.Join(into, "modules", fmt.Sprintf("%02d", len(seen)))
			command(g.t, "sh", "-ec", `case $1 in *.xz) xz -dc "$1" ;; *.zst) zstd -qdc "$1" ;; *) cat "$1" ;; esac >"$2"`, "sh", f[1], name)
		}
	}
	command(g.t, "sh", "-ec", `cd "$1" && find . | busybox cpio -o -H newc 2>/dev/null | gzip -1 >"$2"`, "sh", into,
		filepath.Join(g.dir, "initrd"))
}

// start starts QEMU. One thread emulates all processors in turn; the comment on emulation in
// test/matrix gives the reason.
func (g *guest) start(image string) {
	t := g.t
	t.Helper()
	path := func(name string) string { return filepath.Join(g.dir, name) }
	console, err := os.Create(path("qemu"))
	must.Do(t, err)
	defer console.Close()
	// When unshare ends, the kernel kills QEMU too.
	cmd := exec.Command("unshare", "--net", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-ec", inNamespace,
		"sh",
		"qemu-system-x86_64", "-accel", "tcg,thread=single", "-smp", "2", "-m", "1G", "-nodefaults", "-display", "none",
		"-kernel", image, "-initrd", path("initrd"),
		"-append", "console=ttyS0 nokaslr mitigations=off random.trust_cpu=on quiet systemd.show_status=no",
		"-serial", "file:"+path("console"),
		"-drive", "file="+path("disk")+",if=virtio,format=raw,cache=unsafe",
		"-device", "virtio-serial-pci", "-chardev", "socket,id=agent,server=on,wait=off,path="+path("agent"),
		"-device", "virtserialport,chardev=agent,name=niclane",
		"-netdev", fmt.Sprintf("tap,id=card,ifname=tap0,script=no,downscript=no,vhost=off,queues=%d", cardPairs),
		"-device", fmt.Sprintf("virtio-net-pci,netdev=card,mac=%s,mq=on,rss=on,hash=on,vectors=%d", cardMAC,
			2*cardPairs+2),
		"-netdev", "hubport,id=other,hubid=1", "-device", "e1000e,netdev=other,mac="+otherMAC)
	cmd.Stdout, cmd.Stderr = console, console
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	must.Do(t, cmd.Start())
	g.qemu = cmd.Process.Pid
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // no error: it may have ended already
		select {
		case <-ended:
		case <-time.After(time.Minute):
			t.Error("QEMU does not end")
		}
	})
	for until := time.Now().Add(within); ; {
		if g.conn, err = net.Dial("unix", path("agent")); err == nil {
			break
		}
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("QEMU has ended: %v\n%s", err, g.tail("qemu"))
		case <-time.After(50 * time.Millisecond):
		}
		if time.Now().After(until) {
			t.Fatal("QEMU does not listen")
		}
	}
	t.Cleanup(func() { g.conn.Close() })
	g.answers = bufio.NewReader(g.conn)
	g.booted()
}

func (g *guest) tail(name string) string {
	b, err := os.ReadFile(filepath.Join(g.dir, name))
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-3000):])
}

// booted waits until systemd reports the end of the boot.
func (g *guest) booted() {
	g.t.Helper()
	if line := g.line(); !strings.HasPrefix(line, "booted ") {
		g.t.Fatalf("the guest says %q\n%s", line, g.tail("console"))
	}
	g.boots++
}

// line reads one line from the agent in the guest.
func (g *guest) line() string {
	g.t.Helper()
	must.Do(g.t, g.conn.SetReadDeadline(time.Now().Add(within)))
	line, err := g.answers.ReadString('\n')
	if err != nil {
		g.t.Fatalf("the guest says no more: %v\n%s", err, g.tail("console"))
	}
	return strings.TrimSpace(line)
}

// ask runs a script in the guest and returns its output and exit code.
func (g *guest) ask(script string) (out string, code int) {
	g.t.Helper()
	if _, err := fmt.Fprintln(g.conn, base64.StdEncoding.EncodeToString([]byte(script))); err != nil {
		g.t.Fatal(err)
	}
	f := strings.Fields(g.line())
	if len(f) != 2 {
		g.t.Fatalf("the guest answers %q to %s", f, script)
	}
	text, err := base64.StdEncoding.DecodeString(f[0])
	must.Do(g.t, err)
	if code, err = strconv.Atoi(f[1]); err != nil {
		g.t.Fatal(err)
	}
	return strings.TrimRight(string(text), "\n"), code
}

// do runs a script that must succeed.
func (g *guest) do(script string) string {
	g.t.Helper()
	out, code := g.ask(script)
	if code != 0 {
		g.t.Fatalf("in the guest: %s: exit code %d\n%s", script, code, out)
	}
	return out
}

// reboot reboots the guest and waits until it has booted.
func (g *guest) reboot() {
	g.t.Helper()
	g.do("systemctl reboot")
	g.booted()
}
