// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/lane/device"
)

// A Lab describes a lab that is up.
type Lab struct {
	Config Config `json:"config"`
	// Cgroup is the control group for the SUT's application, as a lanes file writes it
	// ("/niclane-lab-sut"). CgroupDir is the group's directory in the hierarchy with the cpuset
	// controller. Without such a hierarchy, both are "".
	Cgroup    string `json:"cgroup"`
	CgroupDir string `json:"cgroupDir"`
}

// builder is a lab that is being made.
type builder struct {
	cfg   Config
	nodes map[string]*node
}

// Up makes a lab. If ctx ends or a step fails, Up removes everything that it made. If a lab with
// that name is up already, the error is unix.EEXIST.
func Up(ctx context.Context, c Config) (_ *Lab, err error) {
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("lab: %w: run as root", unix.EPERM)
	}
	online, err := onlineCPUs()
	if err != nil {
		return nil, err
	}
	if c, err = c.complete(online); err != nil {
		return nil, err
	}
	group, err := planCgroup(c)
	if err != nil {
		return nil, err
	}
	r := record{Config: c, Cgroup: group}
	if _, err := os.Stat(netnsDir); errors.Is(err, os.ErrNotExist) {
		r.MadeNetnsDir = true
	}
	if err := r.free(); err != nil {
		return nil, err
	}
	if err := r.create(); err != nil {
		return nil, err
	}
	b := &builder{cfg: c, nodes: map[string]*node{}}
	defer func() {
		for _, n := range b.nodes {
			n.close()
		}
	}()
	if err := b.build(ctx, r); err != nil {
		// Clean up even if ctx has ended.
		return nil, errors.Join(err, r.down(context.WithoutCancel(ctx)))
	}
	return &Lab{Config: c, Cgroup: group.Path, CgroupDir: group.Dir}, nil
}

func (b *builder) build(ctx context.Context, r record) error {
	for _, step := range []func() error{
		b.addNetns, b.addLinks, b.addQdiscs, b.addFabric, b.addAddresses, b.setProcessors, r.Cgroup.add,
		func() error { return b.awaitLinks(ctx) }, b.addRoutes,
	} {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := step(); err != nil {
			return fmt.Errorf("lab %s: %w", b.cfg.Name, err)
		}
	}
	r.Ready = true
	return r.replace()
}

func (b *builder) addNetns() error {
	if err := os.MkdirAll(netnsDir, 0o755); err != nil {
		return err
	}
	for _, host := range append(HostNames(), Switch) {
		if err := addNetns(b.cfg.Netns(host)); err != nil {
			return err
		}
		n, err := openNode(b.cfg, host)
		if err != nil {
			return err
		}
		b.nodes[host] = n
		list := append(quiet(), baseline()...)
		if host == Switch {
			list = mute()
		}
		if err := n.do(func() error { return setSysctls(list) }); err != nil {
			return fmt.Errorf("%s: %w", host, err)
		}
	}
	return nil
}

// Open returns a lab that is up. If no lab has that name, the error is fs.ErrNotExist. "" means the
// default name.
func Open(name string) (*Lab, error) {
	r, err := openRecord(name)
	if err != nil {
		return nil, err
	}
	if !r.Ready {
		return nil, fmt.Errorf("lab %s: its start was cut short or is under way: take it down first", r.Config.Name)
	}
	return &Lab{Config: r.Config, Cgroup: r.Cgroup.Path, CgroupDir: r.Cgroup.Dir}, nil
}

// Down takes a lab down and ends the processes on its hosts. It also removes a lab whose Up or Down
// was interrupted. If there is no lab with that name, it does nothing. "" means the default name.
func Down(ctx context.Context, name string) error {
	r, err := openRecord(name)
	if errors.Is(err, os.ErrNotExist) {
		// An Up that was killed while it wrote its record may have left a temporary file. remove deletes
		// it.
		return record{Config: Config{Name: cmp.Or(name, defaultName)}}.remove()
	}
	if err != nil {
		return err
	}
	return r.down(ctx)
}

// Down takes the lab down.
func (l *Lab) Down(ctx context.Context) error { return Down(ctx, l.Config.Name) }

// notUpError is the error for a lab that is not up. Its value is the lab's name. It matches
// os.ErrNotExist.
type notUpError string

func (e notUpError) Error() string { return "lab " + string(e) + " is not up" }

func (e notUpError) Unwrap() error { return os.ErrNotExist }

func openRecord(name string) (record, error) {
	name = cmp.Or(name, defaultName)
	if !nameRE.MatchString(name) {
		return record{}, fmt.Errorf("lab name %q: want a letter, then letters, digits and \"-\", at most 24 in all",
			name)
	}
	r, err := readRecord(name)
	if errors.Is(err, os.ErrNotExist) {
		return r, notUpError(name)
	}
	if err != nil {
		return r, fmt.Errorf("lab %s: %w", name, err)
	}
	return r, nil
}

func onlineCPUs() ([]int, error) {
	b, err := os.ReadFile("/sys/devices/system/cpu/online")
	if err != nil {
		return nil, err
	}
	return device.ParseCPUList(string(b))
}
