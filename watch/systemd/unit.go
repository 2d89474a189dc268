// SPDX-License-Identifier: Apache-2.0

// Package systemd writes and removes the systemd unit that makes a device's lanes at boot and keeps
// them. It does not change a unit that another program or a user has written or edited. It starts
// nothing.
package systemd

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// DefaultDir is the directory for the administrator's own units (systemd.unit(5)).
const DefaultDir = "/etc/systemd/system"

// target is the boot target that starts the unit.
const target = "multi-user.target"

// A Unit is the systemd unit for one lanes file.
type Unit struct {
	// Devices are the devices of the lanes. The first device is in the unit's name. Config is the
	// absolute path of the lanes file.
	Devices []string
	Config  string
	// Command is niclane's absolute path. On the command line, Options come before the lanes file.
	Command string
	Options []string
	// Groups is true if a lane has a control group.
	Groups bool
}

// Name returns the name of a device's unit.
func Name(device string) string { return "niclane-watch@" + device + ".service" }

// checked is the start of a unit's first line. After it comes the checksum of all other lines.
const checked = "# Written by niclane persist; do not edit, systemctl edit adds to it. sha256 "

// Render returns the unit's text.
func (u Unit) Render() []byte {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	devices := make([]string, len(u.Devices))
	for i, d := range u.Devices {
		devices[i] = "sys-subsystem-net-devices-" + escape(d) + ".device"
	}
	after := strings.Join(devices, " ")
	line("[Unit]")
	line("Description=Lanes of %s, made at boot and kept", strings.ReplaceAll(strings.Join(u.Devices, ", "), "%", "%%"))
	line("Documentation=man:niclane(8)")
	line("# Not BindsTo: the watch outlives a device that is removed and added again.")
	line("Wants=%s", after)
	line("After=%s irqbalance.service", after)
	line("")
	line("[Service]")
	line("Type=notify")
	line("ExecStart=%s watch%s %s", quote(u.Command), options(u.Options), quote(u.Config))
	line("ExecReload=%s apply --confirm-within 0 %s", quote(u.Command), quote(u.Config))
	line("Restart=on-failure")
	line("RestartSec=1s")
	line("WatchdogSec=60s")
	line("# Pollers belong to the lanes, which stay when the watch ends.")
	line("KillMode=process")
	line("StateDirectory=niclane")
	line("StateDirectoryMode=0700")
	line("RuntimeDirectory=niclane")
	line("RuntimeDirectoryMode=0700")
	line("RuntimeDirectoryPreserve=yes")
	line("")
	families := Families
	switch {
	case slices.ContainsFunc(u.Options, func(o string) bool {
		return strings.Contains(o, ":") && !strings.HasPrefix(o, "unix:")
	}):
		families += " AF_INET AF_INET6" // for a listener on a loopback address
	case slices.Contains(u.Options, "--waits"):
		families += " AF_INET" // a socket that asks for timestamps: then the kernel stamps received packets
	}
	b.WriteString(Sandbox(u.Groups, families))
	line("")
	line("[Install]")
	line("WantedBy=%s", target)
	return append([]byte(checked+sum([]byte(b.String()))+"\n"), b.String()...)
}

// Families are the socket families that every unit needs.
const Families = "AF_UNIX AF_NETLINK"

// Sandbox returns lines for a unit's [Service] section, with reasons. The lines remove the rights
// that lanes do not need. If groups is true, they keep the rights that lanes by control group need.
func Sandbox(groups bool, families string) string {
	text := strings.Replace(sandbox, "FAMILIES", families, 1)
	capabilities, calls, writes := "", "", "\nProtectControlGroups=yes"
	if groups {
		capabilities, calls, writes = " CAP_SYS_PTRACE CAP_DAC_OVERRIDE", " pidfd_getfd", ""
		text = strings.Replace(text, "CapabilityBoundingSet=",
			`# For a control group: niclane sets the priority of its processes' sockets, also of
# other users' (CAP_SYS_PTRACE, CAP_DAC_OVERRIDE, pidfd_getfd), and writes its files.
CapabilityBoundingSet=`, 1)
	}
	return strings.NewReplacer(" CAPABILITIES", capabilities, " CALLS", calls, "\nWRITES", writes).Replace(text)
}

const sandbox = `# niclane writes to /sys and /proc/irq, follows other programs' writes to /proc/irq,
# sets the scheduling of pollers, and tries kernel features in new network namespaces.
# So ProtectKernelTunables, ProtectProc, PrivateNetwork and RestrictRealtime are not
# set. RestrictSUIDSGID is not set, because it blocks openat2(2). BPF programs and
# their maps need CAP_SYS_ADMIN too. A poller gives up all these capabilities itself.
CapabilityBoundingSet=CAP_NET_ADMIN CAP_SYS_ADMIN CAP_SYS_NICE CAP_SYS_RESOURCE CAPABILITIES
NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome=yes
WRITES
PrivateTmp=yes
PrivateDevices=yes
PrivateMounts=yes
ProtectHostname=yes
ProtectClock=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
RestrictNamespaces=net
RestrictAddressFamilies=FAMILIES
IPAddressDeny=any
IPAddressAllow=localhost
LockPersonality=yes
MemoryDenyWriteExecute=yes
SystemCallArchitectures=native
SystemCallFilter=~@clock @cpu-emulation @debug @module @mount @obsolete @raw-io @reboot @swap
# A sysfs of its network namespace.
SystemCallFilter=fsopen fsconfig fsmount CALLS
SystemCallErrorNumber=EPERM
UMask=0077
`

func options(words []string) string {
	var b strings.Builder
	for _, w := range words {
		b.WriteString(" " + quote(w))
	}
	return b.String()
}

// quote quotes one word for a unit's command line (systemd.service(5), for specifiers
// systemd.unit(5)).
func quote(word string) string {
	word = strings.NewReplacer("%", "%%", "$", "$$").Replace(word)
	if !strings.ContainsAny(word, " \t\"'\\;") {
		return word
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(word) + `"`
}

// escape escapes a name for a unit's name (systemd.unit(5), string escaping).
func escape(name string) string {
	var b strings.Builder
	for i := range len(name) {
		switch c := name[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == ':', c == '_', c == '.' && i > 0:
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, `\x%02x`, c)
		}
	}
	return b.String()
}

func sum(text []byte) string {
	h := sha256.Sum256(text)
	return hex.EncodeToString(h[:])
}

// untouched reports whether a unit's text is still as this package wrote it.
func untouched(text []byte) bool {
	first, rest, ok := bytes.Cut(text, []byte("\n"))
	return ok && string(first) == checked+sum(rest)
}

// An EditedError is the error for a unit that is no longer as niclane wrote it.
type EditedError struct{ Path string }

// Error implements error.
func (e *EditedError) Error() string {
	name := filepath.Base(e.Path)
	return fmt.Sprintf("%s: not as niclane wrote it: it was edited, so niclane leaves it as it is; move it away, "+
		"or put what was added into %s.d (systemctl edit %s) and remove it", e.Path, name, name)
}

// unseen are directories. At boot, the unit cannot read files in them; why is the reason.
var unseen = []struct{ dir, why string }{
	{"/tmp", "it has a /tmp of its own"},
	{"/var/tmp", "it has a /var/tmp of its own"},
	{"/home", "it sees no home directories"},
	{"/root", "it sees no home directories"},
	{"/run", "what is there is gone at the next boot"},
	{"/dev", "what is there is gone at the next boot"},
	{"/proc", "what is there is gone at the next boot"},
	{"/sys", "what is there is gone at the next boot"},
}

// Check returns an error for names that systemd cannot read: those with control characters or
// invalid UTF-8. It also returns an error for files that the unit cannot read when it starts.
func (u Unit) Check() error {
	for _, name := range slices.Concat(u.Devices, u.Options, []string{u.Config, u.Command}) {
		if !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) {
			return fmt.Errorf("%q: a unit needs names in UTF-8 without control characters: rename it", name)
		}
	}
	for _, file := range []struct{ path, without string }{{u.Config, "could not read it"},
		{u.Command, "could not start it"}} {
		for _, h := range unseen {
			actual, err := filepath.EvalSymlinks(h.dir)
			if err != nil {
				actual = h.dir // the directory does not exist
			}
			if within(file.path, h.dir) || within(file.path, actual) {
				return fmt.Errorf("%s: %s %s: %s; put it where only root can write, such as /etc/niclane or "+
					"/usr/local/sbin",
					file.path, Name(u.Devices[0]), file.without, h.why)
			}
		}
	}
	return nil
}

// Writes reports whether a unit has the right to write a file at path.
func Writes(path string) bool {
	path = filepath.Clean(path)
	return within(path, "/run/niclane") || within(path, "/var/lib/niclane")
}

func within(path, dir string) bool { return strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/") }

// Write writes the unit into dir and enables it for the next boot. changed is false if the unit was
// there and enabled already. The caller must call Check first.
func (u Unit) Write(dir string) (path string, changed bool, err error) {
	path = filepath.Join(dir, Name(u.Devices[0]))
	text := u.Render()
	have, err := os.ReadFile(path)
	switch {
	case err == nil && !untouched(have):
		return path, false, &EditedError{path}
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return path, false, err
	}
	changed = !bytes.Equal(have, text)
	if changed {
		if err := replace(path, text); err != nil {
			return path, false, err
		}
	}
	link := wants(dir, u.Devices[0])
	if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
		return path, changed, err
	}
	if err := os.Symlink(filepath.Join("..", Name(u.Devices[0])), link); err == nil {
		changed = true
	} else if !errors.Is(err, fs.ErrExist) {
		return path, changed, err
	}
	return path, changed, nil
}

// replace writes a new file and renames it to path.
func replace(path string, text []byte) error {
	temporary := fmt.Sprintf("%s.%d", path, os.Getpid())
	err := os.WriteFile(temporary, text, 0o644)
	if err == nil {
		err = os.Rename(temporary, path)
	}
	if err != nil {
		_ = os.Remove(temporary) // there may be no such file
	}
	return err
}

// wants returns the path of the link that systemctl enable makes.
func wants(dir, device string) string {
	return filepath.Join(dir, target+".wants", Name(device))
}

// Remove removes the unit of a device. If there is none, the error is fs.ErrNotExist.
func Remove(dir, device string) (path string, err error) {
	path = filepath.Join(dir, Name(device))
	have, err := os.ReadFile(path)
	if err != nil {
		return path, err
	}
	if !untouched(have) {
		return path, &EditedError{path}
	}
	if err := os.Remove(wants(dir, device)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return path, err
	}
	return path, os.Remove(path)
}
