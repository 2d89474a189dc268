// SPDX-License-Identifier: Apache-2.0

package dist_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/niclane/niclane/internal/testing/must"
)

// TestAnsible rolls lanes out to two Debian hosts. Each host is a root directory with an sshd, in
// namespaces of its own. Ansible reaches a host through the device that gets the lanes.
func TestAnsible(t *testing.T) {
	if os.Getenv("NICLANE_TEST_ANSIBLE") == "" {
		t.Skip("make test-ansible makes two hosts and rolls lanes out: it takes minutes")
	}
	f := newFleet(t)
	web := f.host("web", 1)
	db := f.host("db", 2)
	for _, h := range []*host{web, db} {
		h.before = h.do(t, "tc qdisc show dev eth0")
	}
	f.lanes("web", "80")
	f.lanes("db", "5432")

	t.Log("a check before anything is installed")
	f.play(t, 0, "--check", "--diff")
	for _, h := range []*host{web, db} {
		h.untouched(t)
		if h.has("/usr/bin/niclane") {
			t.Errorf("%s: the check has installed niclane", h.name)
		}
	}

	t.Log("the rollout")
	out := f.play(t, 0)
	for _, h := range []*host{web, db} {
		if recap(t, out, h.name, "changed") == 0 {
			t.Errorf("%s: nothing changed:\n%s", h.name, out)
		}
		h.holds(t, f)
		if got := h.do(t, "niclane confirm 2>&1 || true"); !strings.Contains(got, "no change waits") {
			t.Errorf("%s: something still waits to be confirmed: %s", h.name, got)
		}
	}

	t.Log("the same once more")
	out = f.play(t, 0)
	for _, h := range []*host{web, db} {
		if n := recap(t, out, h.name, "changed"); n != 0 {
			t.Errorf("%s: %d tasks changed something, want none:\n%s", h.name, n, out)
		}
	}

	t.Log("a check of new lanes: the plan is the difference")
	old := map[string]string{"web": f.text("web"), "db": f.text("db")}
	f.lanes("web", "443")
	f.lanes("db", "6379")
	out = f.play(t, 0, "--check", "--diff")
	for port, h := range map[string]*host{"443": web, "6379": db} {
		if recap(t, out, h.name, "changed") == 0 {
			t.Errorf("%s: the check says that nothing would change:\n%s", h.name, out)
		}
		// The output of the check must come from the plan, and not from the file.
		if !regexp.MustCompile(`(?m)lanes\.`+h.name+`.*\n(.*\n)*.*steps?; nothing has been changed`).MatchString(out) ||
			!strings.Contains(out, port) {
			t.Errorf("%s: the check shows no plan:\n%s", h.name, out)
		}
		if got := h.do(t, "cat /etc/niclane/lanes.yaml"); got != old[h.name] {
			t.Errorf("%s: the check has written the file:\n%s", h.name, got)
		}
		h.holdsText(t, old[h.name])
	}

	t.Log("somebody takes away on web, after apply, what it made: the rollout stops there")
	web.write(t, "/usr/local/bin/niclane",
		"#!/bin/sh\n[ \"$1\" != verify ] || tc qdisc del dev eth0 root\nexec /usr/bin/niclane \"$@\"\n", 0o755)
	out = f.play(t, 2)
	if recap(t, out, "web", "failed") != 1 || recap(t, out, "web", "rescued") != 1 {
		t.Errorf("web has not failed and been rescued:\n%s", out)
	}
	if strings.Contains(out, "\ndb ") {
		t.Errorf("the rollout went on to db:\n%s", out)
	}
	if !strings.Contains(out, "Lanes hold") || !strings.Contains(out, "qdisc") {
		t.Errorf("it does not say why:\n%s", out)
	}
	for _, h := range []*host{web, db} {
		if got := h.do(t, "cat /etc/niclane/lanes.yaml"); got != old[h.name] {
			t.Errorf("%s: another file than before:\n%s", h.name, got)
		}
		h.holdsText(t, old[h.name])
	}
	web.do(t, "rm /usr/local/bin/niclane")

	t.Log("without the fault it goes through")
	f.play(t, 0)
	for _, h := range []*host{web, db} {
		h.holds(t, f)
	}
	for _, h := range []*host{web, db} {
		h.do(t, "niclane rollback")
		h.untouchedDevice(t)
	}
}

// A fleet is an Ansible controller and the hosts that it manages.
type fleet struct {
	t    *testing.T
	dir  string // short, because paths of ssh's control sockets may have at most 108 bytes
	deb  string
	tag  string
	root string // archive of a host's root directory
}

func newFleet(t *testing.T) *fleet {
	if os.Geteuid() != 0 {
		t.Skip("not root: it makes namespaces")
	}
	for _, p := range []string{"ansible-playbook", "ssh", "ssh-keygen", "ip"} {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("%v: make test-ansible installs it", err)
		}
	}
	archive, err := exec.Command("../tools/debianroot", "iproute2,openssh-server,python3,python3-apt").Output()
	if err != nil {
		t.Skipf("no fresh Debian for the hosts: %v", err)
	}
	dir, err := os.MkdirTemp("/tmp", "nlf")
	must.Do(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	f := &fleet{t: t, dir: dir, tag: fmt.Sprintf("nlf%d", os.Getpid()), root: strings.TrimSpace(string(archive))}
	command(t, "./build", filepath.Join(dir, "packages"))
	debs, err := filepath.Glob(filepath.Join(dir, "packages", "*.deb"))
	if err != nil || len(debs) != 1 {
		t.Fatal(debs, err)
	}
	f.deb = debs[0]
	command(t, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(dir, "key"))
	f.namespace("ctl")
	f.write("hosts", "[web]\nweb ansible_host=10.99.1.2\n[db]\ndb ansible_host=10.99.2.2\n")
	for i, group := range []string{"web", "db"} {
		f.write("group_vars/"+group+".yml", fmt.Sprintf("niclane_lanes: %s/%s.yaml\nniclane_verify: [--probe, "+
			"10.99.%d.1]\n", dir, group, i+1))
	}
	f.write("group_vars/all.yml", fmt.Sprintf("niclane_package: %s\nniclane_at_boot: false\nansible_become: "+
		"false\nansible_python_interpreter: /usr/bin/python3\n", f.deb))
	return f
}

func (f *fleet) write(name, text string) {
	f.t.Helper()
	name = filepath.Join(f.dir, name)
	must.Do(f.t, os.MkdirAll(filepath.Dir(name), 0o755))
	must.Do(f.t, os.WriteFile(name, []byte(text), 0o644))
}

// lanes writes the lanes file for a group of hosts.
func (f *fleet) lanes(group, port string) {
	f.write(group+".yaml", "version: 1\nglobals: {dev: eth0, link-rate: 1gbit, force: {queue-set: shared}}\nlanes:\n  "+
		group+": {queues: 1, guarantee: 20%, ports: ["+port+"]}\n")
}

func (f *fleet) text(group string) string {
	b, err := os.ReadFile(filepath.Join(f.dir, group+".yaml"))
	must.Do(f.t, err)
	return string(b)
}

func (f *fleet) namespace(name string) string {
	ns := f.tag + name
	command(f.t, "ip", "netns", "add", ns)
	f.t.Cleanup(func() { command(f.t, "ip", "netns", "del", ns) })
	command(f.t, "ip", "-n", ns, "link", "set", "lo", "up")
	return ns
}

// play runs the playbook and checks its exit code.
func (f *fleet) play(t *testing.T, code int, args ...string) string {
	t.Helper()
	site, err := filepath.Abs("ansible/site.yml")
	must.Do(t, err)
	cmd := exec.Command("ip", append([]string{"netns", "exec", f.tag + "ctl", "ansible-playbook", "-i",
		filepath.Join(f.dir, "hosts"), site}, args...)...)
	cmd.Dir = f.dir
	cmd.Env = append(os.Environ(), "HOME="+f.dir, "LC_ALL=C.UTF-8", "ANSIBLE_NOCOLOR=1", "ANSIBLE_PIPELINING=1",
		"ANSIBLE_REMOTE_USER=root", "ANSIBLE_PRIVATE_KEY_FILE="+filepath.Join(f.dir, "key"),
		"ANSIBLE_SSH_CONTROL_PATH_DIR="+filepath.Join(f.dir, "cp"),
		"ANSIBLE_SSH_ARGS=-o ControlMaster=auto -o ControlPersist=2s -o StrictHostKeyChecking=accept-new -o "+
			"UserKnownHostsFile="+filepath.Join(f.dir, "known"))
	out, _ := cmd.CombinedOutput()
	if got := cmd.ProcessState.ExitCode(); got != code {
		t.Fatalf("ansible-playbook %s: exit code %d, want %d\n%s", strings.Join(args, " "), got, code, out)
	}
	return string(out)
}

// recap returns one number from Ansible's last lines, for example that of "changed":
//
// web : ok=5 changed=2 unreachable=0 failed=0 skipped=1 rescued=0 ignored=0
func recap(t *testing.T, out, host, what string) (n int) {
	t.Helper()
	m := regexp.MustCompile(`(?m)^` + host + `\s+:.* ` + what + `=(\d+)`).FindStringSubmatch(out)
	if m == nil {
		t.Fatalf("ansible says nothing of %s:\n%s", host, out)
	}
	fmt.Sscan(m[1], &n)
	return n
}

// A host is a Debian system with an sshd, in mount, process and network namespaces of its own.
type host struct {
	name, ns, before string
	root             string
	init             int // PID of the first process in its namespaces
}

func (f *fleet) host(name string, n int) *host {
	t := f.t
	t.Helper()
	h := &host{name: name, root: filepath.Join(f.dir, name)}
	must.Do(t, os.Mkdir(h.root, 0o755))
	command(t, "tar", "-C", h.root, "--zstd", "-xf", f.root)
	key, err := os.ReadFile(filepath.Join(f.dir, "key.pub"))
	must.Do(t, err)
	h.write(t, "/root/.ssh/authorized_keys", string(key), 0o600)
	h.ns = f.namespace(name)
	ctl, inner := fmt.Sprintf("10.99.%d.1/24", n), fmt.Sprintf("10.99.%d.2/24", n)
	command(t, "ip", "-n", h.ns, "link", "add", "eth0", "numtxqueues", "4", "numrxqueues", "4", "type", "veth", "peer",
		"name", name, "netns", f.tag+"ctl")
	command(t, "ip", "-n", h.ns, "addr", "add", inner, "dev", "eth0")
	command(t, "ip", "-n", f.tag+"ctl", "addr", "add", ctl, "dev", name)
	command(t, "ip", "-n", f.tag+"ctl", "link", "set", name, "up")
	command(t, "ip", "-n", h.ns, "link", "set", "eth0", "up")

	const boot = `mount -t sysfs sysfs "$0/sys" && mount -t devpts devpts "$0/dev/pts" && mkdir -p "$0/run/sshd" &&
		exec chroot "$0" /usr/sbin/sshd -D -e -o UsePAM=no`
	cmd := exec.Command("ip", "netns", "exec", h.ns, "unshare", "--mount", "--pid", "--fork", "--kill-child",
		"--mount-proc="+filepath.Join(h.root, "proc"), "sh", "-c", boot, h.root)
	var log strings.Builder
	cmd.Stderr = &log
	must.Do(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // unshare's --kill-child then kills the first process in the namespaces
		_ = cmd.Wait()
	})
	deadline := time.Now().Add(30 * time.Second)
	for exec.Command("ip", "netns", "exec", f.tag+"ctl", "ssh-keyscan", "-T", "1", "-t", "ed25519",
		strings.TrimSuffix(inner, "/24")).Run() != nil {
		if time.Now().After(deadline) {
			t.Fatalf("%s: no sshd after 30 s: %s", name, log.String())
		}
	}
	fmt.Sscan(command(t, "pgrep", "-P", fmt.Sprint(cmd.Process.Pid)), &h.init)
	return h
}

func (h *host) write(t *testing.T, name, text string, mode os.FileMode) {
	t.Helper()
	name = filepath.Join(h.root, name)
	must.Do(t, os.MkdirAll(filepath.Dir(name), 0o700))
	must.Do(t, os.WriteFile(name, []byte(text), mode))
}

// do runs a script on the host directly, and not by ssh or Ansible.
func (h *host) do(t *testing.T, script string) string {
	t.Helper()
	return command(t, "nsenter", "--target", fmt.Sprint(h.init), "--mount", "--net", "--pid", "chroot", h.root,
		"/usr/bin/env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "sh", "-ec", script)
}

func (h *host) has(name string) bool {
	_, err := os.Stat(filepath.Join(h.root, name))
	return err == nil
}

func (h *host) untouched(t *testing.T) {
	t.Helper()
	if h.has("/etc/niclane") {
		t.Errorf("%s: /etc/niclane is there", h.name)
	}
	h.untouchedDevice(t)
}

func (h *host) untouchedDevice(t *testing.T) {
	t.Helper()
	if got := h.do(t, "tc qdisc show dev eth0"); got != h.before {
		t.Errorf("%s: qdiscs were\n%sand are\n%s", h.name, h.before, got)
	}
}

// holds checks that the lanes of the host's group are applied.
func (h *host) holds(t *testing.T, f *fleet) {
	t.Helper()
	h.holdsText(t, f.text(h.name))
}

func (h *host) holdsText(t *testing.T, lanes string) {
	t.Helper()
	h.write(t, "/tmp/want.yaml", lanes, 0o644)
	h.do(t, "niclane plan --stdin /etc/niclane/lanes.yaml </tmp/want.yaml; tc qdisc show dev eth0 | grep -q htb")
}
